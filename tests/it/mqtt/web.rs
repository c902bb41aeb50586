//! MQTT over WebSocket, in both versions, against a real mosquitto.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::security::{certified, locked};
use super::{commit, told};
use crate::support::mosquitto::{Mosquitto, free_port};
use crate::support::mqtt_intake::{Publisher, Running, start};

/// A source at this url.
fn at(url: &str, version: u8, keys: &str) -> Running {
    start(&format!(
        "url = '{url}'\nclient_id = 'tipbucket-test'\nprotocol = {version}\n{keys}\n\
         [[topics]]\nfilter = 's/+'\nsensor = '{{1}}'\ndecode = 'auto'\n"
    ))
}

/// A broker with a second listener, for WebSocket, on a port of its own.
fn web_broker(lines: &str) -> (Mosquitto, u16) {
    let port = free_port();
    let lines = format!("allow_anonymous true\nlistener {port} 127.0.0.1\nprotocol websockets\n{lines}");
    (Mosquitto::with(&lines), port)
}

#[tokio::test]
async fn messages_come_over_a_web_socket_and_again_after_our_death() {
    for version in [4, 5] {
        let (broker, port) = web_broker("");
        let url = format!("ws://127.0.0.1:{port}");
        let mut source = at(&url, version, "");
        source.connected().await;
        let mut publisher = Publisher::new(broker.port);
        publisher.publish("s/k", "1").await;
        assert_eq!(told(&source.message().await), "fresh k value=I64(1)");
        source.kill().await;
        let mut source = at(&url, version, "");
        let again = source.message().await;
        assert_eq!(told(&again), "repeated k value=I64(1)");
        commit(again);
        let long = format!(r#"{{"t":2,"pad":"{}"}}"#, "x".repeat(20_000));
        publisher.publish("s/k", &long).await;
        let delivery = source.message().await;
        assert_eq!(told(&delivery), "fresh k t=I64(2)");
        commit(delivery);
        for i in 0..15 {
            publisher.send("s/k", rumqttc::QoS::AtLeastOnce, false, i.to_string()).await;
        }
        for i in 0..15 {
            let delivery = source.message().await;
            assert_eq!(told(&delivery), format!("fresh k value=I64({i})"));
            commit(delivery);
        }
    }
}

#[tokio::test]
async fn passwords_and_certificates_go_over_a_web_socket() {
    let files = certified();
    let folder = files.path().display();
    let port = free_port();
    let lines = format!(
        "listener {port} 127.0.0.1\nprotocol websockets\ncafile {folder}/ca.crt\ncertfile {folder}/server.crt\n\
         keyfile {folder}/server.key\n"
    );
    let _broker = locked(&lines);
    let url = format!("wss://localhost:{port}/mqtt");
    for version in [4, 5] {
        let login = |password: &str, ca: &str| {
            format!("user = 'gate'\npassword = '{password}'\ntls = {{ ca_file = '{folder}/{ca}.crt' }}")
        };
        at(&url, version, &login("hunter2", "ca")).connected().await;
        at(&url, version, &login("wrong", "ca")).says("not authorised (check user, password").await;
        at(&url, version, &login("hunter2", "other")).says("signed by an authority we do not know").await;
    }
}

/// A server that answers every request with these words; its port.
async fn server(answer: &'static str) -> (u16, tokio::task::JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut task = tokio::task::JoinSet::new();
    task.spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, task)
}

#[tokio::test]
async fn what_is_no_web_socket_for_mqtt_is_told_with_advice() {
    for (answer, words) in [
        (
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n",
            "there is nothing on this path (many brokers use /mqtt",
        ),
        ("HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n", "set `url` to the place itself"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "is there a listener for MQTT over WebSocket"),
        ("220 mail.example ESMTP\r\n", "speaks no WebSocket on this port"),
    ] {
        let (port, _task) = server(answer).await;
        for version in [4, 5] {
            at(&format!("ws://127.0.0.1:{port}/x?token=secret"), version, "").says(words).await;
        }
    }
    let broker = Mosquitto::start();
    for version in [4, 5] {
        let source = at(&format!("ws://127.0.0.1:{}/", broker.port), version, "");
        source.says(&format!("broker 127.0.0.1:{}/", broker.port)).await;
    }
}
