//! The program in the hands of a service manager and an operator: notifications, signals, secrets.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::daemon::Daemon;
use crate::support::mosquitto::Mosquitto;
use crate::support::proxy::{Mode, Proxy};
use crate::support::{mongo, patience};

/// Far longer than anything here takes.
const WITHIN: Duration = Duration::from_secs(20);
/// A service manager is told that a stop takes no longer.
const STOPS_WITHIN: Duration = Duration::from_secs(10);
const SIMULATED: &str = "[sources.sim]\ntype = 'simulated'\nevery = '100ms'\n";

/// A site that seals a bucket every second.
fn site(upstream: &str, sources: &str) -> String {
    format!(
        "[site]\nname = 'ops'\n[store]\ncommit_every = '200ms'\n[bucket]\nwindow = '1s'\ngrace = '200ms'\n\
         [upstream]\n{upstream}\n{sources}"
    )
}

/// Waits for a message to the service manager that holds this line.
fn hears(socket: &UnixDatagram, line: &str) {
    let deadline = Instant::now() + patience(WITHIN);
    let mut heard = Vec::new();
    while Instant::now() < deadline {
        let mut buffer = [0; 4096];
        if let Ok(length) = socket.recv(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().any(|l| l == line) {
                return;
            }
            heard.push(text);
        }
    }
    panic!("`{line}` is not told, only {heard:?}");
}

#[test]
fn a_service_manager_hears_of_readiness_progress_and_the_end() {
    let mut daemon = Daemon::new(&site("type = 'archive'\nfolder = '@DIR@'", SIMULATED));
    let path = daemon.folder().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    daemon.set_env("NOTIFY_SOCKET", path.to_str().unwrap());
    daemon.set_env("WATCHDOG_USEC", "3000000");
    daemon.spawn();
    hears(&socket, "READY=1");
    hears(&socket, "WATCHDOG=1");
    hears(&socket, "WATCHDOG=1");
    daemon.signal(Signal::TERM);
    hears(&socket, "STOPPING=1");
    assert!(daemon.wait(patience(STOPS_WITHIN)).success(), "{}", daemon.log());
}

#[test]
fn a_hang_up_does_not_end_a_service() {
    let mut daemon = Daemon::new(&site("type = 'archive'\nfolder = '@DIR@'", SIMULATED));
    daemon.start();
    daemon.signal(Signal::HUP);
    let before = daemon.status().unwrap().store.readings;
    daemon.until("readings go on", WITHIN, |status| status.store.readings > before + 5);
    assert!(daemon.log().contains("SIGHUP: the settings are read at the start only"), "{}", daemon.log());
    assert!(daemon.terminate().0.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_stops_in_time_while_database_and_broker_do_not_answer() {
    let silent = Proxy::start(mongo::server().address()).await;
    silent.mode(Mode::Swallow);
    let broker = format!(
        "[sources.broker]\ntype = 'mqtt'\nurl = 'mqtt://{}'\nclient_id = 'ops'\n\
         [[sources.broker.topics]]\nfilter = 's/+'\nsensor = '{{1}}'\n",
        silent.addr()
    );
    let upstream = format!("uri = '{}'", silent.mongodb_uri());
    let mut daemon = Daemon::new(&site(&upstream, &format!("{SIMULATED}{broker}")));
    for impatient in [false, true] {
        daemon.start();
        daemon.until("a backlog", WITHIN, |status| status.store.backlog_buckets > 0);
        if impatient {
            daemon.signal(Signal::TERM);
        }
        let (ended, took) = daemon.terminate();
        assert!(ended.success() && took < STOPS_WITHIN, "{ended} after {took:?}; its log:\n{}", daemon.log());
    }
}

#[test]
fn a_secret_is_in_no_log_and_on_no_page() {
    let broker = Mosquitto::start();
    let sources = format!(
        "{SIMULATED}[sources.broker]\ntype = 'mqtt'\nurl = '{}'\nclient_id = 'ops'\nuser = 'me'\n\
         password = 'pl4nted-broker'\n[[sources.broker.topics]]\nfilter = 's/+'\nsensor = '{{1}}'\n",
        broker.url()
    );
    let uri = format!("uri = 'mongodb://me:pl4nted-uri@{}/?directConnection=true'", mongo::server().address());
    let mut daemon = Daemon::new(&site(&uri, &sources));
    daemon.set_env("RUST_LOG", "trace");
    daemon.start();
    let told = "delivery is tried, and the broker is connected";
    daemon.until(told, Duration::from_secs(40), |status| {
        status.upstream.condition.state != "unknown" && status.sources[0].condition.state == "up"
    });
    let mut seen: Vec<String> =
        ["/", "/status.json", "/metrics", "/healthz"].iter().map(|page| daemon.get(page).unwrap().1).collect();
    for command in ["status", "check"] {
        let output = daemon.tipbucket(&[command]);
        seen.push(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned());
    }
    assert!(daemon.terminate().0.success());
    let log = daemon.log();
    assert!(log.contains("DEBUG"), "{log}");
    seen.push(log);
    for text in seen {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("pl4nted")).collect();
        assert!(lines.is_empty(), "{lines:#?}");
    }
}
