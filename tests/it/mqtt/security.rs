//! Passwords and certificates, against a real mosquitto.

use tempfile::TempDir;

use super::{commit, told};
use crate::support::certificates::Validity::Now;
use crate::support::certificates::{authority, certificate};
use crate::support::mosquitto::Mosquitto;
use crate::support::mqtt_intake::{Publisher, Running, start};

const TOPICS: &str = "[[topics]]\nfilter = 's/+'\nsensor = '{1}'\ndecode = 'number'\n";
/// User `gate` with the password `hunter2`, as mosquitto_passwd writes it.
const USERS: &str = "gate:$7$101$H6YIJjUCcD2Cku5J$sifyLuNHzaMgjby2yFteecezYfuJiONjLFAczppn9f4GxrE47n5Ga+J5e57j5EI7rI5GG1T9NcFoZEWwM10+rw==\n";

fn with(url: &str, keys: &str) -> Running {
    start(&format!("url = '{url}'\nclient_id = 'tipbucket-test'\n{keys}\n{TOPICS}"))
}

fn locked_broker() -> Mosquitto {
    locked("")
}

/// A broker that asks for a password, with further lines in its configuration.
pub(super) fn locked(lines: &str) -> Mosquitto {
    Mosquitto::in_folder(tempfile::tempdir().unwrap(), |folder| {
        let users = folder.join("users");
        std::fs::write(&users, USERS).unwrap();
        format!("allow_anonymous false\npassword_file {}\n{lines}", users.display())
    })
}

#[tokio::test]
async fn user_and_password_open_the_door_and_wrong_ones_are_told() {
    let broker = locked_broker();
    let source = with(&broker.url(), "user = 'gate'\npassword = 'hunter2'");
    source.connected().await;
    source.kill().await;
    for version in [4, 5] {
        let source = with(&broker.url(), &format!("protocol = {version}\nuser = 'gate'\npassword = 'wrong'"));
        source.says("refused the connection: not authorised (check user, password").await;
        source.kill().await;
        let right = format!("protocol = {version}\nuser = 'gate'\npassword = 'hunter2'");
        with(&broker.url(), &right).connected().await;
    }
}

#[tokio::test]
async fn a_password_file_is_read_again_at_each_connect() {
    let broker = locked_broker();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    let source = with(&broker.url(), &format!("user = 'gate'\npassword_file = '{}'", file.display()));
    source.says("cannot read password_file").await;
    std::fs::write(&file, "wrong\n").unwrap();
    source.says("not authorised").await;
    std::fs::write(&file, "hunter2\n").unwrap();
    source.connected().await;
}

/// Certificates for `localhost` in a folder.
pub(super) fn certified() -> TempDir {
    certified_as("localhost")
}

fn certified_as(host: &str) -> TempDir {
    let files = tempfile::tempdir().unwrap();
    let ca = authority(files.path(), "ca");
    authority(files.path(), "other");
    certificate(files.path(), "server", host, &ca, Now);
    certificate(files.path(), "client", "gateway", &ca, Now);
    files
}

/// A broker that speaks TLS as `host`, and the folder with its authority `ca.crt` and a stranger `other.crt`.
fn tls_broker(host: &str, lines: &str) -> (Mosquitto, TempDir) {
    let files = certified_as(host);
    let lines = format!(
        "allow_anonymous true\ncafile {0}/ca.crt\ncertfile {0}/server.crt\nkeyfile {0}/server.key\n{lines}",
        files.path().display()
    );
    (Mosquitto::with(&lines), files)
}

fn url(broker: &Mosquitto) -> String {
    format!("mqtts://localhost:{}", broker.port)
}

#[tokio::test]
async fn tls_with_a_private_authority_works_and_messages_flow() {
    let (broker, files) = tls_broker("localhost", "");
    let mut source = with(&url(&broker), &format!("tls = {{ ca_file = '{}/ca.crt' }}", files.path().display()));
    source.connected().await;
    let roots = std::fs::read(files.path().join("ca.crt")).unwrap();
    let mut options = rumqttc::MqttOptions::new("publisher", "localhost", broker.port);
    // Its simple set-up takes the process's provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    options.set_transport(rumqttc::Transport::tls(roots, None, None));
    let mut publisher = Publisher::with(options);
    publisher.publish("s/k", "1").await;
    let delivery = source.message().await;
    assert_eq!(told(&delivery), "fresh k value=I64(1)");
    commit(delivery);
}

#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_refused_with_advice() {
    let (broker, files) = tls_broker("localhost", "");
    for version in [4, 5] {
        let tls = |ca| format!("protocol = {version}\ntls = {{ ca_file = '{}/{ca}.crt' }}", files.path().display());
        let source = with(&url(&broker), &tls("other"));
        source.says("signed by an authority we do not know: set tls.ca_file").await;
        source.kill().await;
        with(&url(&broker), &tls("ca")).connected().await;
    }
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused_with_advice() {
    let (broker, files) = tls_broker("elsewhere.example", "");
    let source = with(&url(&broker), &format!("tls = {{ ca_file = '{}/ca.crt' }}", files.path().display()));
    source.says("its certificate is for another host name").await;
}

#[tokio::test]
async fn a_client_certificate_is_shown_when_the_broker_wants_one() {
    let (broker, files) = tls_broker("localhost", "require_certificate true\n");
    let folder = files.path().display();
    let source = with(&url(&broker), &format!("tls = {{ ca_file = '{folder}/ca.crt' }}"));
    source.says("does it want a client certificate").await;
    source.kill().await;
    let keys = format!(
        "tls = {{ ca_file = '{folder}/ca.crt', cert_file = '{folder}/client.crt', key_file = '{folder}/client.key' }}"
    );
    with(&url(&broker), &keys).connected().await;
}

#[tokio::test]
async fn certificate_files_that_are_none_are_named() {
    let (broker, files) = tls_broker("localhost", "");
    let folder = files.path().display();
    let source = with(&url(&broker), &format!("tls = {{ ca_file = '{folder}/missing.crt' }}"));
    source.says("missing.crt").await;
    source.kill().await;
    let source = with(&url(&broker), &format!("tls = {{ ca_file = '{folder}/server.key' }}"));
    source.says("server.key holds no certificate").await;
    source.kill().await;
    let plain = Mosquitto::start();
    let source = with(&url(&plain), &format!("tls = {{ ca_file = '{folder}/ca.crt' }}"));
    source.says("broker localhost").await;
}
