//! A peer that speaks just enough of MongoDB's wire protocol to answer inserts and finds with whatever a test wants.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use mongodb::bson::{Document, RawDocument, RawDocumentBuf, doc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;

/// How the peer answers one command.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// With a document.
    Document(Document),
    /// With the beginning of a document's message, then it hangs up.
    Half(Document),
    /// With these bytes as they are.
    Bytes(Vec<u8>),
    /// With a well-formed message around bytes that are no document.
    Body(Vec<u8>),
    /// Not at all, and it hangs up.
    Close,
    /// Not at all.
    Silence,
}

/// A running peer; it ends when it is dropped.
#[derive(Debug)]
pub(crate) struct WirePeer {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Script {
    answers: VecDeque<Answer>,
    commands: Vec<Document>,
    max_document: Option<i32>,
    closes_on: Option<String>,
}

impl WirePeer {
    /// Starts one that answers inserts and finds with these in turn, and with plain success when they are used up.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(Script { answers: answers.into_iter().collect(), ..Script::default() }));
        let task = tokio::spawn(serve(listener, address, Arc::clone(&script)));
        Self { address, script, task }
    }

    /// A connection string to it.
    pub(crate) fn uri(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Further answers, after those that are left.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Answer>) {
        self.script.lock().unwrap().answers.extend(answers);
    }

    /// The largest document it says it takes.
    pub(crate) fn max_document(&self, bytes: i32) {
        self.script.lock().unwrap().max_document = Some(bytes);
    }

    /// From now on it hangs up when it is sent a document with this in its `_id`; without, it does so no more.
    pub(crate) fn closes_on(&self, part: Option<&str>) {
        self.script.lock().unwrap().closes_on = part.map(ToOwned::to_owned);
    }

    /// The reads and writes it was sent, `documents` as an array inside.
    pub(crate) fn commands(&self) -> Vec<Document> {
        self.script.lock().unwrap().commands.clone()
    }
}

impl Drop for WirePeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, address: SocketAddr, script: Arc<Mutex<Script>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let script = Arc::clone(&script);
        connections.spawn(async move {
            let _ = converse(stream, address, &script).await;
        });
    }
}

async fn converse(mut stream: TcpStream, address: SocketAddr, script: &Mutex<Script>) -> std::io::Result<()> {
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header).await?;
        let length = i32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        let request: [u8; 4] = header[4..8].try_into().unwrap();
        let operation = i32::from_le_bytes(header[12..].try_into().unwrap());
        let mut body = vec![0; length - 16];
        stream.read_exact(&mut body).await?;
        let command = if operation == OP_QUERY { query(&body) } else { message(&body) };
        let answer = answer(command, address, script);
        let bytes = |document: &Document| RawDocumentBuf::try_from(document).unwrap().into_bytes();
        let framed = |body: &[u8]| frame(request, operation, body);
        match answer {
            Answer::Document(document) => stream.write_all(&framed(&bytes(&document))).await?,
            Answer::Half(document) => {
                let whole = framed(&bytes(&document));
                stream.write_all(&whole[..whole.len() / 2]).await?;
                return Ok(());
            }
            Answer::Bytes(bytes) => stream.write_all(&bytes).await?,
            Answer::Body(body) => stream.write_all(&framed(&body)).await?,
            Answer::Close => return Ok(()),
            Answer::Silence => std::future::pending().await,
        }
    }
}

fn answer(command: Document, address: SocketAddr, script: &Mutex<Script>) -> Answer {
    let mut script = script.lock().unwrap();
    let name = command.keys().next().unwrap().clone();
    let plain = match name.as_str() {
        "hello" | "isMaster" | "ismaster" => return Answer::Document(hello(address, script.max_document)),
        "insert" => doc! { "ok": 1, "n": command.get_array("documents").unwrap().len() as i32 },
        "find" => doc! { "ok": 1, "cursor": { "id": 0_i64, "ns": "a.b", "firstBatch": [] } },
        "buildInfo" => return Answer::Document(doc! { "ok": 1, "version": "8.0.4-peer" }),
        "update" => doc! { "ok": 1, "n": command.get_array("updates").unwrap().len() as i32 },
        "delete" | "findAndModify" | "bulkWrite" => doc! { "ok": 1 },
        _ => return Answer::Document(doc! { "ok": 1 }),
    };
    let is_fatal = |part: &String| {
        let sent = command.get_array("documents").into_iter().flatten().filter_map(|sent| sent.as_document());
        sent.filter_map(|sent| sent.get_str("_id").ok()).any(|id| id.contains(part))
    };
    let closes = script.closes_on.as_ref().is_some_and(is_fatal);
    script.commands.push(command);
    if closes {
        return Answer::Close;
    }
    script.answers.pop_front().unwrap_or(Answer::Document(plain))
}

/// The greeting of a replica set's primary.
fn hello(address: SocketAddr, max_document: Option<i32>) -> Document {
    doc! {
        "ok": 1, "helloOk": true, "ismaster": true, "isWritablePrimary": true, "setName": "peer",
        "hosts": [address.to_string()], "me": address.to_string(), "primary": address.to_string(),
        "maxBsonObjectSize": max_document.unwrap_or(16 << 20), "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000, "logicalSessionTimeoutMinutes": 30, "minWireVersion": 0, "maxWireVersion": 21,
    }
}

/// The command of an OP_QUERY: flags, collection name, two numbers, the document.
fn query(body: &[u8]) -> Document {
    let name = body[4..].iter().position(|byte| *byte == 0).unwrap();
    document(&body[4 + name + 1 + 8..]).0
}

/// The command of an OP_MSG, with the documents of a sequence put where they belong.
fn message(body: &[u8]) -> Document {
    let mut command = Document::new();
    let mut rest = &body[4..];
    while let Some((kind, tail)) = rest.split_first() {
        if *kind == 0 {
            let (found, used) = document(tail);
            command.extend(found);
            rest = &tail[used..];
            continue;
        }
        let size = i32::from_le_bytes(tail[..4].try_into().unwrap()) as usize;
        let (sequence, after) = tail.split_at(size);
        let end = sequence[4..].iter().position(|byte| *byte == 0).unwrap() + 4;
        let name = String::from_utf8(sequence[4..end].to_vec()).unwrap();
        let mut documents = Vec::new();
        let mut at = end + 1;
        while at < sequence.len() {
            let (found, used) = document(&sequence[at..]);
            documents.push(found);
            at += used;
        }
        command.insert(name, documents);
        rest = after;
    }
    command
}

fn document(bytes: &[u8]) -> (Document, usize) {
    let length = i32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let raw = RawDocument::from_bytes(&bytes[..length]).unwrap();
    (Document::try_from(raw).unwrap(), length)
}

fn frame(request: [u8; 4], operation: i32, body: &[u8]) -> Vec<u8> {
    let (operation, head) = match operation {
        // Flags, cursor id, starting from, number returned.
        OP_QUERY => (OP_REPLY, [[8, 0, 0, 0], [0; 4], [0; 4], [0; 4], [1, 0, 0, 0]].concat()),
        _ => (OP_MSG, vec![0; 5]),
    };
    let mut frame = ((16 + head.len() + body.len()) as i32).to_le_bytes().to_vec();
    frame.extend([0; 4]);
    frame.extend(request);
    frame.extend(operation.to_le_bytes());
    frame.extend(head);
    frame.extend(body);
    frame
}
