//! Delivery over TLS by the real program: what is told, in log and status, about certificates, keys, passwords and rights
//! that do not fit, and that it goes on by itself when they do.

use std::path::Path;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use tempfile::TempDir;

use crate::support::certificates::Validity::{Future, Now, Past};
use crate::support::certificates::{Validity, authority, certificate};
use crate::support::daemon::Daemon;
use crate::support::mongo::Server;
use crate::support::patience;
use crate::support::proxy::Proxy;

const TOLD: Duration = Duration::from_secs(30);
/// A stopped line asks again within half a minute at first.
const ASKED_AGAIN: Duration = Duration::from_secs(90);
const STOPPED: &str = "delivery is stopped until this is put right";

/// A folder with an authority `ca`, a stranger `other`, and a server's certificate `server` like this.
fn files(host: &str, validity: Validity) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (ca, other) = (authority(folder.path(), "ca"), authority(folder.path(), "other"));
    certificate(folder.path(), "server", host, &ca, validity);
    certificate(folder.path(), "client", "gateway", &ca, Now);
    certificate(folder.path(), "old", "gateway", &ca, Past);
    certificate(folder.path(), "stranger", "gateway", &other, Now);
    folder
}

/// A server with the certificate of a folder.
fn server(files: &Path, more: &[&str], storage: Option<&Path>) -> Server {
    let of = |name: &str| files.join(name).display().to_string();
    let (certificate, key) = (of("server.crt"), of("server.key"));
    let tls = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    Server::start(&[&tls[..], more].concat(), storage)
}

/// An address with these options, `@` in them the folder of the files.
fn uri(address: std::net::SocketAddr, files: &Path, options: &str) -> String {
    let options = options.replace('@', &files.display().to_string());
    format!("mongodb://{address}/?directConnection=true&tls=true&serverSelectionTimeoutMS=2000{options}")
}

fn site(uri: &str) -> String {
    format!(
        "[site]\nname = 'tls'\n[store]\ncommit_every = '200ms'\n[bucket]\nwindow = '1s'\ngrace = '200ms'\n\
         [upstream]\nuri = '{uri}'\nspread = '0s'\n[sources.sim]\ntype = 'simulated'\nevery = '100ms'\n"
    )
}

/// Status and log say all of this, and none of what is secret; nothing is delivered.
fn tells(daemon: &mut Daemon, words: &[&str], secrets: &[&str]) {
    let status = daemon.until(&format!("{words:?} is told"), TOLD, |status| {
        let told = &status.upstream.condition;
        told.state == "down" && words.iter().all(|word| told.detail.contains(word))
    });
    assert_eq!(status.upstream.buckets, 0);
    let (log, page) = (daemon.log(), daemon.get("/status.json").unwrap().1);
    let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
    assert!(line.is_some_and(|line| line.contains("upstream")), "{words:?} in one line of\n{log}");
    for secret in secrets {
        assert!(!log.contains(secret) && !page.contains(secret), "{secret}:\n{page}\n{log}");
    }
}

fn delivers(daemon: &mut Daemon, within: Duration) {
    daemon.until("buckets are delivered", within, |status| {
        status.upstream.buckets > 0 && status.upstream.condition.state == "up"
    });
}

/// With this address it tells these words.
fn told_with(uri: &str, words: &[&str], secrets: &[&str]) {
    let mut daemon = Daemon::new(&site(uri));
    daemon.start();
    tells(&mut daemon, words, secrets);
}

#[test]
fn a_private_authority_is_asked_for_and_trusted() {
    let files = files("127.0.0.1", Now);
    let server = server(files.path(), &[], None);
    let of = |options: &str| uri(server.address(), files.path(), options);
    told_with(&of(""), &[STOPPED, "127.0.0.1", "not known here: add tlsCAFile"], &[]);
    told_with(&of("&tlsCAFile=@/other.crt"), &[STOPPED, "not known here: add tlsCAFile"], &[]);
    told_with(&of("&tlsCAFile=@/none.crt"), &[STOPPED, "tlsCAFile: cannot read", "none.crt"], &[]);
    told_with(&of("&tlsCAFile=@/ca.key"), &[STOPPED, "tlsCAFile: cannot read", "ca.key"], &[]);
    told_with(&of("&tlsCAFile=@/server.key"), &[STOPPED, "server.key holds no certificate"], &[]);
    let mut daemon = Daemon::new(&site(&of("&tlsCAFile=@/ca.crt")));
    daemon.start();
    delivers(&mut daemon, TOLD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_told_and_delivery_goes_on_when_it_is_renewed() {
    let files = files("127.0.0.1", Past);
    let expired = server(files.path(), &[], None);
    let proxy = Proxy::start(expired.address()).await;
    let mut daemon = Daemon::new(&site(&uri(proxy.addr(), files.path(), "&tlsCAFile=@/ca.crt")));
    daemon.start();
    tells(&mut daemon, &[STOPPED, "the server's certificate is expired: renew it there"], &[]);
    let renewed = authority(files.path(), "ca");
    certificate(files.path(), "server", "127.0.0.1", &renewed, Now);
    let server = server(files.path(), &[], None);
    proxy.lead_to(server.address());
    delivers(&mut daemon, ASKED_AGAIN);
}

#[test]
fn a_certificate_of_the_future_or_of_another_host_is_told() {
    let remedies = [
        ("127.0.0.1", Future, "is not valid yet: is this gateway's clock behind?"),
        ("elsewhere.example", Now, "its certificate names another host"),
    ];
    for (host, validity, remedy) in remedies {
        let files = files(host, validity);
        let server = server(files.path(), &[], None);
        let uri = uri(server.address(), files.path(), "&tlsCAFile=@/ca.crt");
        told_with(&uri, &[STOPPED, "127.0.0.1", remedy], &[]);
    }
}

#[test]
fn a_client_certificate_is_shown_where_one_is_asked_for() {
    let files = files("127.0.0.1", Now);
    let ca = files.path().join("ca.crt").display().to_string();
    let server = server(files.path(), &["--tls-ca-file", &ca, "--tls-require-client-cert"], None);
    let of = |options: &str| uri(server.address(), files.path(), &format!("&tlsCAFile=@/ca.crt{options}"));
    let locked = format!("{}/tests/it/upstream/tls/locked.key", env!("CARGO_MANIFEST_DIR"));
    let locked =
        std::fs::read_to_string(locked).unwrap() + &std::fs::read_to_string(files.path().join("client.crt")).unwrap();
    std::fs::write(files.path().join("locked.pem"), &locked).unwrap();
    told_with(&of(""), &["client certificate", "tlsCertificateKeyFile"], &[]);
    let own = |name: &str| of(&format!("&tlsCertificateKeyFile=@/{name}"));
    told_with(&own("stranger.pem"), &["client certificate", "tlsCertificateKeyFile", "knows"], &[]);
    told_with(&own("old.pem"), &["client certificate", "tlsCertificateKeyFile"], &[]);
    let key = locked.lines().nth(1).unwrap();
    told_with(&own("locked.pem"), &[STOPPED, "locked.pem", "take it off", "openssl pkey"], &[key]);
    told_with(&own("client.crt"), &[STOPPED, "client.crt holds no private key"], &[]);
    let password = format!("{}&tlsCertificateKeyFilePassword=open-sesame", own("locked.pem"));
    let mut daemon = Daemon::new(&site(&password));
    daemon.spawn();
    assert!(!daemon.wait(patience(TOLD)).success());
    let log = daemon.log();
    assert!(log.contains("tlsCertificateKeyFilePassword in the connection string is not supported: take"), "{log}");
    assert!(!log.contains("open-sesame"), "{log}");
    let mut daemon = Daemon::new(&site(&own("client.pem")));
    daemon.start();
    delivers(&mut daemon, TOLD);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_and_missing_rights_are_told_and_rights_are_found_when_they_are_given() {
    let (files, storage) = (files("127.0.0.1", Now), tempfile::tempdir().unwrap());
    let open = Server::start(&[], Some(storage.path()));
    let client = open.client().await;
    let rights =
        [("owner", doc! { "role": "root", "db": "admin" }), ("gateway", doc! { "role": "read", "db": "other" })];
    for (user, role) in rights {
        let user = doc! { "createUser": user, "pwd": "right-0ne", "roles": [role] };
        client.database("admin").run_command(user).await.unwrap();
    }
    client.shutdown().await;
    drop(open);
    let server = server(files.path(), &["--auth"], Some(storage.path()));
    let of = |login: &str| {
        let uri = uri(server.address(), files.path(), "&tlsCAFile=@/ca.crt&authSource=admin");
        uri.replace("mongodb://", &format!("mongodb://{login}@"))
    };
    let words = [STOPPED, "refused user or password", "check the connection string, and authSource in it"];
    told_with(&of("gateway:wrong-0ne"), &words, &["wrong-0ne", "gateway:"]);
    let mut daemon = Daemon::new(&site(&of("gateway:right-0ne")));
    daemon.start();
    tells(&mut daemon, &[STOPPED, "grant the user insert and find on telemetry.buckets"], &["right-0ne", "gateway:"]);
    let owner = Client::with_uri_str(of("owner:right-0ne")).await.unwrap();
    let granted = doc! { "grantRolesToUser": "gateway", "roles": [{ "role": "readWrite", "db": "telemetry" }] };
    owner.database("admin").run_command(granted).await.unwrap();
    owner.shutdown().await;
    delivers(&mut daemon, ASKED_AGAIN);
}
