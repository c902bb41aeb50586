//! An open line: a serial port, a TCP connection to one that is elsewhere, or a recording of one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_serial::{SerialPort, SerialStream};

use super::script::Script;
use crate::stats::{Seen, SourceStats};

/// Bytes that can be read and written; what passes is shown to whoever watches the source.
#[derive(Debug)]
pub(in crate::sources) struct Stream {
    inner: Inner,
    stats: Arc<SourceStats>,
}

#[derive(Debug)]
pub(super) enum Inner {
    Port(SerialStream),
    Network(TcpStream),
    Recording(Box<Script>),
}

impl Stream {
    pub(super) fn new(inner: Inner, stats: &Arc<SourceStats>) -> Self {
        Self { inner, stats: Arc::clone(stats) }
    }

    /// Goes on at another speed. Only a port has one.
    pub(in crate::sources) fn set_baud(&mut self, baud: u32) -> io::Result<()> {
        match &mut self.inner {
            Inner::Port(port) => port.set_baud_rate(baud).map_err(io::Error::other),
            Inner::Network(_) | Inner::Recording(_) => Ok(()),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = match &mut self.inner {
            Inner::Port(port) => Pin::new(port).poll_read(cx, buf),
            Inner::Network(stream) => Pin::new(stream).poll_read(cx, buf),
            Inner::Recording(script) => Pin::new(&mut **script).poll_read(cx, buf),
        };
        ready!(read)?;
        let new = &buf.filled()[before..];
        if !new.is_empty() {
            self.stats.tap.see(Seen::Received(new));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = match &mut self.inner {
            Inner::Port(port) => Pin::new(port).poll_write(cx, buf),
            Inner::Network(stream) => Pin::new(stream).poll_write(cx, buf),
            Inner::Recording(script) => Pin::new(&mut **script).poll_write(cx, buf),
        };
        let count = ready!(written)?;
        self.stats.tap.see(Seen::Sent(&buf[..count]));
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Port(port) => Pin::new(port).poll_flush(cx),
            Inner::Network(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Recording(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
