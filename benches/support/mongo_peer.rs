//! A peer that takes inserts as fast as a socket delivers, and answers after a fixed time: a server without the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, RawDocumentBuf, doc};

/// The operation code of messages, and of the first greeting.
const OP_MSG: i32 = 2013;
const OP_QUERY: i32 = 2004;

/// Makes this program a peer with this delay for a document in microseconds.
const ROLE: &str = "TIPBUCKET_BENCH_PEER";

/// A running peer: threads of this process, until it ends.
pub struct Peer {
    port: u16,
    accepted: Arc<Mutex<Vec<Instant>>>,
}

impl Peer {
    /// Starts one that answers each insert after `delay` for each document.
    pub fn start(delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let accepted: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let times = Arc::clone(&accepted);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                times.lock().expect("a lock").push(Instant::now());
                std::thread::spawn(move || converse(stream, port, delay));
            }
        });
        Self { port, accepted }
    }

    /// One in a process of its own, so that what it needs is not counted; it ends when its input does.
    pub fn apart(delay: Duration) -> (Child, String) {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(ROLE, delay.as_micros().to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program again");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
        (child, line.trim().to_owned())
    }

    /// In such a process: serves until the input ends. Gives `false` at once in any other.
    pub fn is_all() -> bool {
        let Ok(delay) = std::env::var(ROLE) else { return false };
        let peer = Self::start(Duration::from_micros(delay.parse().expect("microseconds")));
        println!("{}", peer.uri());
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        true
    }

    /// A connection string to it.
    pub fn uri(&self) -> String {
        format!("mongodb://127.0.0.1:{}/?directConnection=true", self.port)
    }

    /// When connections were accepted.
    pub fn accepted(&self) -> Vec<Instant> {
        self.accepted.lock().expect("a lock").clone()
    }
}

fn converse(mut stream: TcpStream, port: u16, delay: Duration) {
    let mut body = Vec::new();
    loop {
        let mut header = [0; 16];
        if stream.read_exact(&mut header).is_err() {
            return;
        }
        let number = |at: usize| i32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        body.resize(number(0) as usize - 16, 0);
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let operation = number(12);
        // The first key of a command is its name; flags and a kind stand before it in a message.
        let at = if operation == OP_MSG { 5 } else { 4 + body[4..].iter().position(|b| *b == 0).unwrap_or(0) + 9 };
        let name: String = body[at + 5..].iter().take_while(|b| **b != 0).map(|b| *b as char).collect();
        let answer = match name.as_str() {
            "insert" => {
                // The driver sends again what a smaller number leaves out.
                let count = documents(&body);
                std::thread::sleep(delay * count as u32);
                doc! { "ok": 1, "n": count }
            }
            "hello" | "isMaster" | "ismaster" => hello(port),
            "find" => doc! { "ok": 1, "cursor": { "id": 0_i64, "ns": "a.b", "firstBatch": [] } },
            _ => doc! { "ok": 1 },
        };
        let head: Vec<u8> = match operation {
            OP_QUERY => [[8, 0, 0, 0], [0; 4], [0; 4], [0; 4], [1, 0, 0, 0]].concat(),
            _ => vec![0; 5],
        };
        let bytes = RawDocumentBuf::try_from(&answer).expect("a document").into_bytes();
        let mut frame = ((16 + head.len() + bytes.len()) as i32).to_le_bytes().to_vec();
        frame.extend([0; 4]);
        frame.extend(&header[4..8]);
        frame.extend(if operation == OP_QUERY { 1_i32 } else { OP_MSG }.to_le_bytes());
        frame.extend(head);
        frame.extend(bytes);
        if stream.write_all(&frame).is_err() {
            return;
        }
    }
}

/// How many documents an insert carries: those of the sequence beside the command.
fn documents(message: &[u8]) -> i32 {
    let number = |at: usize| i32::from_le_bytes(message[at..at + 4].try_into().expect("four bytes")) as usize;
    // Flags, then sections: a document (kind 0), or a sequence with its size and name (kind 1).
    let (mut at, mut count) = (4, 0);
    while at < message.len() {
        let end = at + 1 + number(at + 1);
        if message[at] == 1 {
            let name = message[at + 5..].iter().position(|b| *b == 0).expect("a name");
            let mut document = at + 5 + name + 1;
            while document < end {
                document += number(document);
                count += 1;
            }
        }
        at = end;
    }
    count
}

fn hello(port: u16) -> Document {
    let address = format!("127.0.0.1:{port}");
    doc! {
        "ok": 1, "helloOk": true, "ismaster": true, "isWritablePrimary": true, "setName": "peer",
        "hosts": [&address], "me": &address, "primary": &address, "maxBsonObjectSize": 16 << 20,
        "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0, "maxWireVersion": 21,
    }
}
