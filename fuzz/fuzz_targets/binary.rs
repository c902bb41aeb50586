//! Binary frames in four forms: fixed and told lengths, sums, CRCs and none.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::binary::{Checksum, Column, Form, Frames, Kind, Length, Type};
use tipbucket::decode::shape::Options;

#[path = "../stream.rs"]
mod stream;

fuzz_target!(|input: &[u8]| {
    let sum = |kind| Some(Checksum { kind, from: 0, behind: 0, little: false });
    let told = |bytes, little| Length::Told { at: 2, bytes, little, add: 4, bounds: (6, 64) };
    for (length, checksum) in [
        (Length::Fixed(9), sum(Kind::Sum8Negated)),
        (told(2, false), sum(Kind::Sum16)),
        (told(1, true), Some(Checksum { kind: Kind::Crc16Modbus, from: 1, behind: 1, little: true })),
        (Length::Fixed(8), None),
    ] {
        let form = Form { start: vec![0x42, 0x4d], length, checksum, columns: columns() };
        stream::through(|| Frames::new(form.clone()), input);
    }
});

/// One of each type, at places that short frames lack.
fn columns() -> Vec<Column> {
    let types = [Type::U8, Type::I16, Type::U24, Type::I32, Type::F32, Type::U64, Type::F64, Type::Ascii];
    let columns = types.into_iter().enumerate().map(|(i, kind)| Column {
        name: format!("f{i}"),
        at: 2 + i,
        width: kind.width().unwrap_or(3),
        kind,
        little: i % 2 == 0,
        bits: (kind == Type::I32).then_some((4, 11)),
        invalid: vec![-1, 0x7fff],
        min_frame: 0,
        options: Options { scale: Some(0.1), ..Options::default() },
    });
    columns.collect()
}
