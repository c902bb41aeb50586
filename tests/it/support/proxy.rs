//! A TCP proxy that misbehaves on demand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How it treats what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As it is.
    Pass,
    /// What the server says is thrown away; it still hears everything.
    Swallow,
    /// Half of the next thing the server says is passed on, then both sides are cut.
    CutReply,
    /// Half of the next thing the client says is passed on, then both sides are cut.
    CutRequest,
    /// Everything the server says comes this much later.
    Delay(Duration),
    /// Connections are closed at once, and those that exist too.
    Refuse,
}

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, modes) = watch::channel(Mode::Pass);
        let accepted = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn(serve(listener, target, modes, Arc::clone(&accepted)));
        Self { address, mode, accepted, task }
    }

    /// Where it listens.
    pub(crate) const fn addr(&self) -> SocketAddr {
        self.address
    }

    /// A MongoDB connection string through it.
    pub(crate) fn mongodb_uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Changes how it treats what passes.
    pub(crate) fn mode(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How many connections were made.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, target: SocketAddr, modes: watch::Receiver<Mode>, accepted: Arc<AtomicUsize>) {
    let mut pairs = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        accepted.fetch_add(1, Ordering::Relaxed);
        while pairs.try_join_next().is_some() {}
        if *modes.borrow() != Mode::Refuse
            && let Ok(server) = TcpStream::connect(target).await
        {
            pairs.spawn(pair(client, server, modes.clone()));
        }
    }
}

async fn pair(client: TcpStream, server: TcpStream, modes: watch::Receiver<Mode>) {
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let mut refused = modes.clone();
    // Whichever side ends first ends both.
    tokio::select! {
        () = pump(client_in, server_out, modes.clone(), false) => {}
        () = pump(server_in, client_out, modes, true) => {}
        _ = refused.wait_for(|mode| *mode == Mode::Refuse) => {}
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    modes: watch::Receiver<Mode>,
    reply: bool,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(n @ 1..) = from.read(&mut buffer).await else { return };
        let mode = *modes.borrow();
        let passed = match mode {
            Mode::Swallow if reply => continue,
            Mode::CutReply if reply => n / 2,
            Mode::CutRequest if !reply => n / 2,
            Mode::Delay(delay) if reply => {
                tokio::time::sleep(delay).await;
                n
            }
            _ => n,
        };
        if to.write_all(&buffer[..passed]).await.is_err() || passed < n {
            return;
        }
    }
}
