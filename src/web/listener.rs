//! A listener with a bound on open connections, and a bound on how long each may last.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Most connections at a time; a status page has a few readers.
const MAX_CONNECTIONS: usize = 32;
/// A connection is closed after this, however little it says.
const MAX_AGE: Duration = Duration::from_secs(60);

pub(super) struct Listener {
    inner: TcpListener,
    address: SocketAddr,
    room: Arc<Semaphore>,
}

pub(super) async fn bind(address: SocketAddr) -> io::Result<Listener> {
    let inner = TcpListener::bind(address).await?;
    let address = inner.local_addr()?;
    Ok(Listener { inner, address, room: Arc::new(Semaphore::new(MAX_CONNECTIONS)) })
}

impl Listener {
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl axum::serve::Listener for Listener {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            let permit = Arc::clone(&self.room).acquire_owned().await;
            let (Ok(permit), Ok((stream, address))) = (permit, self.inner.accept().await) else {
                // Out of file descriptors, most likely: it passes.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            return (Connection { stream, end: Box::pin(sleep(MAX_AGE)), _permit: permit }, address);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}

pub(super) struct Connection {
    stream: TcpStream,
    end: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
