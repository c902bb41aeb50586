//! A question to a device out of the first bytes of an input, and what its answer says.

use tipbucket::decode::modbus::{Order, Point, Request, Shape, Table, Type};
use tipbucket::decode::shape::Options;

/// The question, and the bytes that are left.
pub fn of(input: &[u8]) -> Option<(Request, &[u8])> {
    let (&[unit, table, address, count], stream) = input.split_first_chunk()?;
    let table = [Table::Coil, Table::Discrete, Table::Holding, Table::Input][usize::from(table % 4)];
    let count = u16::from(count).clamp(1, table.most());
    Some((Request { unit, table, address: address.into(), count }, stream))
}

/// Every type in every order, at the beginning and at the end of an answer.
pub fn values(asked: &Request, data: &[u8]) {
    let types = [
        Type::U16,
        Type::I16,
        Type::U32,
        Type::I32,
        Type::F32,
        Type::U64,
        Type::I64,
        Type::F64,
        Type::Bool,
        Type::Bcd16,
        Type::Bcd32,
        Type::String,
    ];
    for (kind, order) in types
        .into_iter()
        .flat_map(|kind| [Order::Abcd, Order::Badc, Order::Cdab, Order::Dcba].map(|order| (kind, order)))
    {
        let registers = if kind == Type::String { asked.count } else { 0 };
        let options = Options { scale: Some(0.1), offset: Some(-40.0), ..Options::default() };
        let shape = Shape { kind, order, bits: None, invalid: vec![0x8000], options, registers };
        for at in [0, asked.count.saturating_sub(kind.width())] {
            let point = Point { at, exponent_at: (at > 0).then_some(0), shape: shape.clone() };
            let value = if asked.table.is_bits() { point.bit(data) } else { point.value(data) };
            assert!(value.map_or(true, |value| value.is_sound()));
        }
    }
}
