//! A MongoDB-compatible server (SecantusDB) for the tests, on a free port of the loopback.
//!
//! One is shared by the whole test process, and every test takes a database of its own. It is started through a shell
//! that waits for the end of its standard input: when the test process dies, however it dies, the server dies with it.
//! `TIPBUCKET_TEST_MONGODB_URI` names another server to use instead; tests that need its fail points are then left out.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use tokio::sync::{Mutex, MutexGuard};

/// Longest time a server may take to start: the first start compiles its Python.
const START_WITHIN: Duration = Duration::from_secs(60);

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    uri: String,
    address: SocketAddr,
    /// Its end ends the server.
    shell: Option<Child>,
    fail_points: bool,
}

/// The server that all tests share.
pub(crate) fn server() -> &'static Server {
    static SHARED: OnceLock<Server> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var("TIPBUCKET_TEST_MONGODB_URI") {
        Ok(uri) => Server::external(uri),
        Err(_) => Server::start(&[], None),
    })
}

/// A database name that no other test, and no earlier run, has.
pub(crate) fn database() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    format!("t{now}x{}x{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Server {
    /// Starts a server of one's own with further arguments; `storage` is kept when it ends, a folder of its own is not.
    pub(crate) fn start(arguments: &[&str], storage: Option<&Path>) -> Self {
        for _ in 0..3 {
            if let Some(server) = Self::try_start(arguments, storage) {
                return server;
            }
        }
        panic!("the MongoDB-compatible server did not start three times (is {} installed?)", binary().display());
    }

    fn try_start(arguments: &[&str], storage: Option<&Path>) -> Option<Self> {
        let address = free_address();
        let own = tempfile::tempdir().unwrap().keep();
        let folder = storage.unwrap_or(&own);
        let script = r#"d="$1"; shift; "$@" >"$d/log" 2>&1 & p=$!; cat >/dev/null; kill -9 $p; wait $p; rm -rf "$d""#;
        let mut shell = Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(&own)
            .arg(binary())
            .args(["--port", &address.port().to_string(), "--enable-test-commands", "--sync-on-commit"])
            .args(["--log-level", "WARNING", "--storage-path"])
            .arg(folder.join("data"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + START_WITHIN;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > deadline || shell.try_wait().unwrap().is_some() {
                drop(shell.stdin.take());
                let _ = shell.wait();
                return None;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let uri = format!("mongodb://{address}/?directConnection=true");
        Some(Self { uri, address, shell: Some(shell), fail_points: true })
    }

    fn external(uri: String) -> Self {
        let authority = uri.split("://").nth(1).unwrap().split(['/', '?']).next().unwrap();
        let host = authority.rsplit('@').next().unwrap().split(',').next().unwrap();
        let host = if host.contains(':') { host.to_owned() } else { format!("{host}:27017") };
        let address = std::net::ToSocketAddrs::to_socket_addrs(&host).unwrap().next().unwrap();
        Self { uri, address, shell: None, fail_points: false }
    }

    /// Its connection string.
    pub(crate) fn uri(&self) -> String {
        self.uri.clone()
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether fail points can be set.
    pub(crate) const fn has_fail_points(&self) -> bool {
        self.fail_points
    }

    /// A client of the test's own, to look with.
    pub(crate) async fn client(&self) -> Client {
        Client::with_uri_str(&self.uri).await.unwrap()
    }

    /// All documents of a collection, by `_id`.
    pub(crate) async fn documents(&self, database: &str, collection: &str) -> Vec<Document> {
        let client = self.client().await;
        let collection: Collection<Document> = client.database(database).collection(collection);
        let mut cursor = collection.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        let mut found = Vec::new();
        while cursor.advance().await.unwrap() {
            found.push(cursor.deserialize_current().unwrap());
        }
        drop(cursor);
        drop(collection);
        client.shutdown().await;
        found
    }

    /// Sets `failCommand` with this `data` for `times` commands. Scope it by `appName`: other tests use the server too.
    /// Only one fail point is set at a time; it is switched off by [`FailPoint::off`] and by the next one.
    pub(crate) async fn fail(&self, times: i32, data: Document) -> FailPoint {
        static ONE: Mutex<()> = Mutex::const_new(());
        let guard = ONE.lock().await;
        let client = self.client().await;
        let command = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        client.database("admin").run_command(command).await.unwrap();
        FailPoint { client, _guard: guard }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(shell) = &mut self.shell {
            drop(shell.stdin.take());
            let _ = shell.wait();
        }
    }
}

/// A fail point that is set.
#[derive(Debug)]
pub(crate) struct FailPoint {
    client: Client,
    _guard: MutexGuard<'static, ()>,
}

impl FailPoint {
    /// Switches it off.
    pub(crate) async fn off(self) {
        let command = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        self.client.database("admin").run_command(command).await.unwrap();
    }
}

fn binary() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin/secantusd-py");
    std::env::var_os("TIPBUCKET_TEST_SECANTUSD").map_or_else(own, PathBuf::from)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
