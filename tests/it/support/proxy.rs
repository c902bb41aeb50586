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
    /// By chance: most things pass, some late; some replies are thrown away or cut in half, some requests are cut, and
    /// each time the connection ends; some connections are closed at once.
    Storm,
}

/// What a storm did so far.
#[derive(Debug, Default)]
pub(crate) struct Harm {
    pub(crate) refused: AtomicUsize,
    /// Replies thrown away after the server had done what it was asked.
    pub(crate) swallowed: AtomicUsize,
    pub(crate) cut_replies: AtomicUsize,
    pub(crate) cut_requests: AtomicUsize,
    pub(crate) delayed: AtomicUsize,
}

/// What befalls one thing that passes.
#[derive(Clone, Copy)]
enum Fate {
    Passes,
    Waits(Duration),
    /// Thrown away; what comes after it is not.
    Vanishes,
    /// Half of it passes, then both sides are cut.
    Half,
    /// Nothing of it passes, and after this time both sides are cut.
    Lost(Duration),
}

/// A running proxy; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    target: watch::Sender<SocketAddr>,
    accepted: Arc<AtomicUsize>,
    harm: Arc<Harm>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mode, modes) = watch::channel(Mode::Pass);
        let (accepted, harm) = (Arc::new(AtomicUsize::new(0)), Arc::new(Harm::default()));
        let (target, targets) = watch::channel(target);
        let task = tokio::spawn(serve(listener, targets, modes, Arc::clone(&accepted), Arc::clone(&harm)));
        Self { address, mode, target, accepted, harm, task }
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

    /// New connections lead there from now on.
    pub(crate) fn lead_to(&self, target: SocketAddr) {
        self.target.send_replace(target);
    }

    /// How many connections were made.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// What storms did so far.
    pub(crate) fn harm(&self) -> &Harm {
        &self.harm
    }
}

impl Harm {
    /// Whether each kind of fault happened at least so often.
    pub(crate) fn each_at_least(&self, least: usize) -> bool {
        let kinds = [&self.refused, &self.swallowed, &self.cut_replies, &self.cut_requests, &self.delayed];
        kinds.iter().all(|kind| kind.load(Ordering::Relaxed) >= least)
    }

    fn refuses(&self) -> bool {
        let refuses = fastrand::u8(..100) < 10;
        self.refused.fetch_add(usize::from(refuses), Ordering::Relaxed);
        refuses
    }

    fn of_reply(&self) -> Fate {
        let (kind, fate) = match fastrand::u8(..100) {
            0..8 => (&self.swallowed, Fate::Lost(Duration::from_millis(fastrand::u64(..200)))),
            8..14 => (&self.cut_replies, Fate::Half),
            14..30 => (&self.delayed, Fate::Waits(Duration::from_millis(fastrand::u64(..100)))),
            _ => return Fate::Passes,
        };
        kind.fetch_add(1, Ordering::Relaxed);
        fate
    }

    fn of_request(&self) -> Fate {
        if fastrand::u8(..100) >= 6 {
            return Fate::Passes;
        }
        self.cut_requests.fetch_add(1, Ordering::Relaxed);
        Fate::Half
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    targets: watch::Receiver<SocketAddr>,
    modes: watch::Receiver<Mode>,
    accepted: Arc<AtomicUsize>,
    harm: Arc<Harm>,
) {
    let mut pairs = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        accepted.fetch_add(1, Ordering::Relaxed);
        while pairs.try_join_next().is_some() {}
        let (mode, target) = (*modes.borrow(), *targets.borrow());
        if mode != Mode::Refuse
            && !(mode == Mode::Storm && harm.refuses())
            && let Ok(server) = TcpStream::connect(target).await
        {
            pairs.spawn(pair(client, server, modes.clone(), Arc::clone(&harm)));
        }
    }
}

async fn pair(client: TcpStream, server: TcpStream, modes: watch::Receiver<Mode>, harm: Arc<Harm>) {
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    let mut refused = modes.clone();
    // Whichever side ends first ends both.
    tokio::select! {
        () = pump(client_in, server_out, || of_request(*modes.borrow(), &harm)) => {}
        () = pump(server_in, client_out, || of_reply(*modes.borrow(), &harm)) => {}
        _ = refused.wait_for(|mode| *mode == Mode::Refuse) => {}
    }
}

fn of_request(mode: Mode, harm: &Harm) -> Fate {
    match mode {
        Mode::CutRequest => Fate::Half,
        Mode::Storm => harm.of_request(),
        _ => Fate::Passes,
    }
}

fn of_reply(mode: Mode, harm: &Harm) -> Fate {
    match mode {
        Mode::Swallow => Fate::Vanishes,
        Mode::CutReply => Fate::Half,
        Mode::Delay(delay) => Fate::Waits(delay),
        Mode::Storm => harm.of_reply(),
        Mode::Pass | Mode::CutRequest | Mode::Refuse => Fate::Passes,
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    fate: impl Fn() -> Fate,
) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let Ok(n @ 1..) = from.read(&mut buffer).await else { return };
        let passed = match fate() {
            Fate::Passes => n,
            Fate::Vanishes => continue,
            Fate::Half => n / 2,
            Fate::Waits(delay) => {
                tokio::time::sleep(delay).await;
                n
            }
            Fate::Lost(after) => return tokio::time::sleep(after).await,
        };
        if to.write_all(&buffer[..passed]).await.is_err() || passed < n {
            return;
        }
    }
}
