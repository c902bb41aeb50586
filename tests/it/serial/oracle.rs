//! The Modbus master against the servers of others.

use std::future::{Ready, ready};
use std::sync::Arc;

use serde_json::json;
use tipbucket::model::Value;
use tokio_modbus::prelude::{ExceptionCode, Request, Response, SlaveRequest};
use tokio_modbus::server::Service;

use super::{Running, value};
use crate::support::pty::{Player, Pty};

/// A device of tokio-modbus with random contents.
#[derive(Clone)]
struct Memory(Arc<Vec<u16>>);

impl Memory {
    fn words(&self, address: u16, count: u16) -> Result<Vec<u16>, ExceptionCode> {
        let range = usize::from(address)..usize::from(address) + usize::from(count);
        self.0.get(range).map(<[u16]>::to_vec).ok_or(ExceptionCode::IllegalDataAddress)
    }

    fn bits(&self, address: u16, count: u16) -> Result<Vec<bool>, ExceptionCode> {
        Ok(self.words(address, count)?.into_iter().map(|word| word & 1 == 1).collect())
    }
}

impl Service for Memory {
    type Request = SlaveRequest<'static>;
    type Response = Option<Response>;
    type Exception = ExceptionCode;
    type Future = Ready<Result<Self::Response, Self::Exception>>;

    fn call(&self, request: Self::Request) -> Self::Future {
        ready(match request.request {
            _ if request.slave != 9 => Ok(None),
            Request::ReadCoils(a, n) => self.bits(a, n).map(Response::ReadCoils).map(Some),
            Request::ReadDiscreteInputs(a, n) => self.bits(a, n).map(Response::ReadDiscreteInputs).map(Some),
            Request::ReadHoldingRegisters(a, n) => self.words(a, n).map(Response::ReadHoldingRegisters).map(Some),
            Request::ReadInputRegisters(a, n) => self.words(a, n).map(Response::ReadInputRegisters).map(Some),
            _ => Err(ExceptionCode::IllegalFunction),
        })
    }
}

/// The registers to be read and what each must show, computed from the words independently of the product.
fn expectations(memory: &[u16]) -> Vec<(serde_json::Value, Option<Value>)> {
    let mut out = Vec::new();
    let mut want = |table: &str, address: usize, kind: &str, order: &str, expected: Option<Value>| {
        let field = format!("f{}", out.len());
        let register = json!({ "field": field, "table": table, "address": address, "type": kind, "order": order });
        out.push((register, expected));
    };
    let quad = |address: usize, order: &str| {
        let mut words = memory[address..address + 4].to_vec();
        if order == "CDAB" {
            words.reverse();
        }
        words.iter().fold(0u64, |bits, word| bits << 16 | u64::from(*word))
    };
    for address in (0..120).step_by(8) {
        let (table, order) = if address % 16 == 0 { ("holding", "ABCD") } else { ("input", "CDAB") };
        let four = quad(address, order);
        want(table, address, "u64", order, Some(Value::unsigned(four)));
        want(table, address, "i64", order, Some(Value::I64(four as i64)));
        want(table, address, "f64", order, Value::float(f64::from_bits(four)));
        let two = if order == "CDAB" {
            (memory[address + 1], memory[address])
        } else {
            (memory[address], memory[address + 1])
        };
        let two = u32::from(two.0) << 16 | u32::from(two.1);
        want(table, address, "u32", order, Some(Value::I64(i64::from(two))));
        want(table, address, "i32", order, Some(Value::I64(i64::from(two as i32))));
        want(table, address, "f32", order, Value::float(f64::from(f32::from_bits(two))));
        want(table, address + 5, "u16", "ABCD", Some(Value::I64(i64::from(memory[address + 5]))));
        want(table, address + 6, "i16", "ABCD", Some(Value::I64(i64::from(memory[address + 6] as i16))));
        for table in ["coil", "discrete"] {
            want(table, address, "bool", "ABCD", Some(Value::Bool(memory[address] & 1 == 1)));
        }
    }
    out
}

fn memory() -> Vec<u16> {
    let mut random = fastrand::Rng::with_seed(20_261_130);
    (0..128).map(|_| random.u16(..)).collect()
}

/// Reads everything a few times, and something that is not there.
async fn check(kind: &str, mut settings: serde_json::Value, memory: &[u16]) {
    let expected = expectations(memory);
    let registers: Vec<_> = expected.iter().map(|(register, _)| register).collect();
    let beyond = json!({ "sensor": "beyond", "unit_id": 9, "poll": "100ms", "registers": [
        { "field": "x", "table": "input", "address": 500 },
    ]});
    let device = json!({ "sensor": "device", "unit_id": 9, "poll": "100ms", "registers": registers });
    settings["max_gap"] = json!(8);
    settings["devices"] = json!([device, beyond]);
    let mut running = Running::start(kind, settings);
    running.until_readings(3).await;
    for reading in &running.readings {
        for (i, (register, expected)) in expected.iter().enumerate() {
            assert_eq!(&value(reading, &format!("f{i}")), expected, "{register}");
        }
    }
    running.until("the refusal is kept", |r| !r.letters.is_empty()).await;
    let letter = running.letters.iter().find(|letter| letter.place.contains("beyond"));
    assert!(letter.is_some_and(|l| l.reason.contains("exception 2: illegal data address")), "{:?}", running.letters);
}

#[tokio::test]
async fn every_type_is_read_from_a_server_of_tokio_modbus() {
    let memory = memory();
    let (ours, theirs) = (Pty::new(), Pty::new());
    let (port, server_port) = (ours.path().to_owned(), theirs.path().to_string_lossy().into_owned());
    let server = tokio_modbus::server::rtu::Server::new_from_path(&server_port, 19200).unwrap();
    let _cable = Player::cable(ours, theirs);
    let server = tokio::spawn(server.serve_forever(Memory(Arc::new(memory.clone()))));
    check("modbus-rtu", json!({ "port": port, "baud": 19200 }), &memory).await;
    server.abort();
}

#[tokio::test]
async fn every_type_is_read_from_a_tcp_server_of_tokio_modbus() {
    let memory = memory();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio_modbus::server::tcp::Server::new(listener);
    let contents = Memory(Arc::new(memory.clone()));
    let server = tokio::spawn(async move {
        let connected = |stream, from| {
            let contents = contents.clone();
            async move {
                let new = move |_| Ok(Some(contents.clone()));
                tokio_modbus::server::tcp::accept_tcp_connection(stream, from, new)
            }
        };
        server.serve(&connected, |error| panic!("{error}")).await
    });
    check("modbus-tcp", json!({ "address": address }), &memory).await;
    server.abort();
}
