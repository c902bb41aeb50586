//! Numbers at fixed places.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tipbucket::decode::modbus::Order;
use tipbucket::decode::packed::{Decoder, Slot, Type};
use tipbucket::model::FieldName;

fuzz_target!(|payload: &[u8]| {
    let [at, kind, rest @ ..] = payload else { return };
    let kinds = [Type::Bool, Type::U8, Type::I16, Type::U32, Type::F32, Type::I64, Type::F64];
    let orders = [Order::Abcd, Order::Badc, Order::Cdab, Order::Dcba];
    let (kind, order) = (kinds[usize::from(*kind) % 7], orders[usize::from(*kind) / 7 % 4]);
    let slot = Slot { name: FieldName::new("f").expect("a name"), at: usize::from(*at), kind, order };
    if let Ok(decoded) = Decoder::new(vec![slot], Some(rest.len())).decode(rest) {
        assert!(decoded.readings.iter().flat_map(|m| &m.fields).all(|(_, value)| value.is_sound()));
    }
});
