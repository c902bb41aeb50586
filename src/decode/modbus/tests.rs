//! The decoder against tables, samples and arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::decode::shape::Options;
use crate::model::Value;

fn request(table: Table, address: u16, count: u16) -> Request {
    Request { unit: 1, table, address, count }
}

fn with_crc(body: &[u8]) -> Vec<u8> {
    let mut frame = body.to_vec();
    frame.extend(CRC.checksum(body).to_le_bytes());
    frame
}

#[test]
fn a_request_is_encoded_as_the_standard_says() {
    assert_eq!(request(Table::Holding, 0, 2).encode(), [1, 3, 0, 0, 0, 2, 196, 11]);
    assert_eq!(request(Table::Input, 0, 2).encode(), [1, 4, 0, 0, 0, 2, 0x71, 0xcb]);
    assert_eq!(request(Table::Coil, 0, 9).data_bytes(), 2);
    assert_eq!(request(Table::Holding, 0, 125).reply_bytes(), 255);
}

#[test]
fn exceptions_are_told_in_the_words_of_the_standard() {
    let frame = with_crc(&[1, 0x84, 2]);
    let Found::Exception { code, .. } = find(&request(Table::Input, 0, 2), &frame) else { panic!("no exception") };
    assert_eq!(code.to_string(), "exception 2: illegal data address");
}

#[test]
fn bytes_that_are_no_answer_are_explained() {
    let asked = request(Table::Input, 0, 2);
    let check = |bytes: &[u8], words: Option<&str>| {
        assert_eq!(find(&asked, bytes).clone_keep(), None, "{bytes:?}");
        let said = explain(&asked, bytes);
        match words {
            None => assert_eq!(said, None),
            Some(words) => assert!(said.as_deref().is_some_and(|s| s.contains(words)), "{said:?} lacks {words}"),
        }
    };
    check(&[], None);
    check(&asked.encode(), None);
    check(&with_crc(&[3, 4, 4, 0, 0, 0, 0]), Some("unit 3 instead of unit 1"));
    check(&with_crc(&[1, 3, 4, 0, 0, 0, 0]), Some("function 3 instead of 4"));
    check(&with_crc(&[1, 4, 2, 0, 0]), Some("another length (2 data bytes instead of 4)"));
    check(&[1, 4, 4, 0, 0, 0, 0, 9, 9], Some("wrong CRC"));
    assert!(is_damaged_reply(&asked, &[7, 1, 4, 4, 0, 0, 0, 0, 9, 9]));
    assert!(!is_damaged_reply(&asked, &[1, 4, 4, 0, 0, 0, 0, 9]));
    check(&[1, 4, 4, 0x43, 0x66, 0x40, 0, 0xdf, 0x3f], Some("swapped"));
    check(&[0xff; 5], Some("5 bytes that are no answer"));
}

impl Found<'_> {
    fn clone_keep(&self) -> Option<Vec<u8>> {
        match self {
            Self::Data { data, .. } => Some(data.to_vec()),
            Self::Exception { .. } | Self::Nothing { .. } => None,
        }
    }
}

#[test]
fn the_scale_gives_the_decimal_number_that_was_meant() {
    let shape = |scale, offset| Shape {
        kind: Type::U16,
        order: Order::Abcd,
        bits: None,
        invalid: vec![0xffff],
        options: Options { scale, offset, max: Some(1000.0), ..Options::default() },
        registers: 0,
    };
    let check = |scale, offset, raw: u16, expected| {
        let point = Point { at: 0, exponent_at: None, shape: shape(scale, offset) };
        assert_eq!(point.value(&raw.to_be_bytes()), expected);
    };
    check(Some(0.1), None, 2257, Ok(Value::F64(225.7)));
    check(Some(0.1), Some(-40.0), 400, Ok(Value::F64(0.0)));
    check(None, None, 7, Ok(Value::I64(7)));
    check(Some(2.5), None, 2, Ok(Value::F64(5.0)));
    check(None, None, 0xffff, Err(Absent::Declared));
    check(None, None, 1001, Err(Absent::Refused("1001 is above its max 1000".to_owned())));
}

#[test]
fn bits_of_a_register_are_cut_out() {
    let check = |bits, raw: u16, expected| {
        let shape = Shape {
            kind: Type::U16,
            order: Order::Abcd,
            bits: Some(bits),
            invalid: vec![],
            options: Options::default(),
            registers: 0,
        };
        assert_eq!(
            Point { at: 1, exponent_at: None, shape }.value(&[&[0, 0], &raw.to_be_bytes()[..]].concat()),
            Ok(expected)
        );
    };
    check((3, 3, true), 0b1000, Value::Bool(true));
    check((0, 0, true), 0b1000, Value::Bool(false));
    check((4, 7, false), 0xabcd, Value::I64(0xc));
    check((0, 15, false), 0xabcd, Value::I64(0xabcd));
}

/// The plain model of the four orders: big-endian bytes, then words and bytes swapped one after the other.
fn arrange(order: Order, big_endian: &[u8]) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = big_endian.chunks(2).map(<[u8]>::to_vec).collect();
    if matches!(order, Order::Cdab | Order::Dcba) {
        words.reverse();
    }
    if matches!(order, Order::Badc | Order::Dcba) {
        words.iter_mut().for_each(|w| w.reverse());
    }
    words.concat()
}

fn orders() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Abcd), Just(Order::Badc), Just(Order::Cdab), Just(Order::Dcba)]
}

fn plain(kind: Type, order: Order) -> Point {
    let shape = Shape { kind, order, bits: None, invalid: vec![], options: Options::default(), registers: 0 };
    Point { at: 0, exponent_at: None, shape }
}

proptest! {
    #[test]
    fn every_type_survives_every_order(order in orders(), bits: u64, float: f64, single: f32) {
        let check = |kind, bytes: &[u8], expected: Option<Value>| {
            prop_assert_eq!(plain(kind, order).value(&arrange(order, bytes)).ok(), expected);
            Ok(())
        };
        check(Type::U16, &(bits as u16).to_be_bytes(), Some(Value::I64(i64::from(bits as u16))))?;
        check(Type::I16, &(bits as i16).to_be_bytes(), Some(Value::I64(i64::from(bits as i16))))?;
        check(Type::U32, &(bits as u32).to_be_bytes(), Some(Value::I64(i64::from(bits as u32))))?;
        check(Type::I32, &(bits as i32).to_be_bytes(), Some(Value::I64(i64::from(bits as i32))))?;
        check(Type::U64, &bits.to_be_bytes(), Some(Value::unsigned(bits)))?;
        check(Type::I64, &(bits as i64).to_be_bytes(), Some(Value::I64(bits as i64)))?;
        check(Type::F32, &single.to_be_bytes(), Value::float(f64::from(single)))?;
        check(Type::F64, &float.to_be_bytes(), Value::float(float))?;
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600), address: u16, count in 1u16..=125) {
        let asked = request(Table::Holding, address, count);
        if let Found::Nothing { keep } = find(&asked, &bytes) {
            prop_assert!(keep <= bytes.len());
            prop_assert!(bytes.len() - keep < asked.reply_bytes().max(REQUEST_BYTES));
        }
        let _ = explain(&asked, &bytes);
        for kind in [Type::U16, Type::F64, Type::Bcd32] {
            let _ = plain(kind, Order::Cdab).value(&bytes);
        }
    }

    #[test]
    fn a_reply_is_found_behind_any_noise(
        noise in proptest::collection::vec(any::<u8>(), 0..40),
        echo: bool,
        data in proptest::collection::vec(any::<u8>(), 8),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let asked = request(Table::Input, 0x0800, 4);
        let mut body = vec![1, 4, 8];
        body.extend(&data);
        let mut bytes = noise;
        if echo {
            bytes.extend(asked.encode());
        }
        bytes.extend(with_crc(&body));
        bytes.extend(&tail);
        let found = find(&asked, &bytes).clone_keep();
        prop_assert_eq!(found.as_deref(), Some(&data[..]));
    }
}

#[test]
fn strings_end_at_their_first_nul() {
    let check = |order: Order, bytes: &[u8], expected: Result<&str, bool>| {
        let shape = Shape {
            kind: Type::String,
            order,
            bits: None,
            invalid: vec![],
            options: Options::default(),
            registers: bytes.len() as u16 / 2,
        };
        let got = Point { at: 0, exponent_at: None, shape }.value(bytes);
        match expected {
            Ok(text) => assert_eq!(got, Ok(Value::text(text).unwrap())),
            Err(declared) => assert_eq!(got == Err(Absent::Declared), declared, "{got:?}"),
        }
    };
    check(Order::Abcd, b"SolarEdge \0\0", Ok("SolarEdge"));
    check(Order::Badc, b"oSal\0r", Ok("Solar"));
    check(Order::Abcd, &[0; 8], Err(true));
    check(Order::Abcd, &[0xff; 8], Err(false));
    check(Order::Abcd, b"a\x01b\0", Err(false));
}
