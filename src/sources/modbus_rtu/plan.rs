//! Which requests bring a device's registers: neighbours of one table share a request.

use crate::decode::modbus::{Point, Request, Shape, Table};

/// A value somewhere in a device, as the settings name it.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) table: Table,
    pub(super) address: u16,
    /// Where its decimal exponent stands, if it has one.
    pub(super) exponent: Option<u16>,
    pub(super) shape: Shape,
}

/// A request and what is taken out of its reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block {
    pub(super) request: Request,
    /// Which of the device's fields (by their number in the settings), and where it stands.
    pub(super) points: Vec<(usize, Point)>,
}

impl Wanted {
    /// The first entry, and the first one after the last. A value and its exponent are read together: read one after
    /// the other they can be from different moments.
    pub(super) fn span(&self) -> (u32, u32) {
        let (address, width) = (u32::from(self.address), u32::from(self.shape.width()));
        match self.exponent.map(u32::from) {
            None => (address, address + width),
            Some(e) => (address.min(e), (address + width).max(e + 1)),
        }
    }
}

/// The fewest requests (in order of table and address) that bring all of `wanted` without reading more than `max_gap`
/// entries in between that nobody wants, and at most `most` registers each. Every span fits into one request.
pub(super) fn blocks(unit: u8, wanted: &[Wanted], max_gap: u16, most: u16) -> Vec<Block> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&i| (wanted[i].table, wanted[i].span()));
    let mut groups: Vec<(Table, u32, u32, Vec<usize>)> = Vec::new();
    for i in order {
        let (table, (start, end)) = (wanted[i].table, wanted[i].span());
        let limit = u32::from(if table.is_bits() { table.most() } else { table.most().min(most) });
        match groups.last_mut() {
            Some((t, first, after, members))
                if *t == table && start <= *after + u32::from(max_gap) && end.max(*after) - *first <= limit =>
            {
                *after = end.max(*after);
                members.push(i);
            }
            _ => groups.push((table, start, end, vec![i])),
        }
    }
    groups
        .into_iter()
        .map(|(table, first, after, members)| block(unit, wanted, table, (first, after), members))
        .collect()
}

/// The same values out of requests that were recorded, in their order; `None` if not all of them were asked for then.
pub(super) fn as_recorded(unit: u8, planned: &[Block], recorded: &[Request]) -> Option<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    for request in recorded.iter().filter(|request| request.unit == unit) {
        if !blocks.iter().any(|block| block.request == *request) {
            blocks.push(Block { request: *request, points: Vec::new() });
        }
    }
    for block in planned {
        for (field, point) in &block.points {
            let (first, last) = point.span();
            let address = |at: u16| u32::from(block.request.address) + u32::from(at);
            let holds = |request: &Request| {
                let begin = u32::from(request.address);
                request.table == block.request.table
                    && begin <= address(first)
                    && address(last) < begin + u32::from(request.count)
            };
            let home = blocks.iter_mut().find(|known| holds(&known.request))?;
            let moved = |at: u16| u16::try_from(address(at) - u32::from(home.request.address)).ok();
            let exponent_at = match point.exponent_at {
                Some(at) => Some(moved(at)?),
                None => None,
            };
            let point = Point { at: moved(point.at)?, exponent_at, shape: point.shape.clone() };
            home.points.push((*field, point));
        }
    }
    blocks.retain(|block| !block.points.is_empty());
    Some(blocks)
}

pub(super) fn block(
    unit: u8,
    wanted: &[Wanted],
    table: Table,
    (first, after): (u32, u32),
    members: Vec<usize>,
) -> Block {
    let request = Request { unit, table, address: first as u16, count: (after - first) as u16 };
    let from_first = |address: u16| (u32::from(address) - first) as u16;
    let point = |i: usize| {
        let Wanted { address, exponent, shape, .. } = &wanted[i];
        let exponent_at = exponent.map(from_first);
        (i, Point { at: from_first(*address), exponent_at, shape: shape.clone() })
    };
    Block { request, points: members.into_iter().map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::modbus::{Order, Type};
    use crate::decode::shape::Options;

    fn want(table: Table, address: u16, kind: Type, exponent: Option<u16>) -> Wanted {
        let shape =
            Shape { kind, order: Order::Abcd, bits: None, invalid: vec![], options: Options::default(), registers: 0 };
        Wanted { table, address, exponent, shape }
    }

    fn check(wanted: &[Wanted], max_gap: u16, most: u16, expected: &[(Table, u16, u16)]) {
        let blocks = blocks(1, wanted, max_gap, most);
        let requests: Vec<_> = blocks.iter().map(|b| (b.request.table, b.request.address, b.request.count)).collect();
        assert_eq!(requests, expected);
        assert_eq!(blocks.iter().map(|b| b.points.len()).sum::<usize>(), wanted.len());
    }

    #[test]
    fn neighbours_share_a_request() {
        use Table::{Coil, Holding, Input};
        use Type::{Bool, F32, U16};
        let f32_at = |address| want(Input, address, F32, None);
        check(&[f32_at(4), f32_at(0), f32_at(2)], 0, 125, &[(Input, 0, 6)]);
        check(&[f32_at(0), f32_at(3)], 0, 125, &[(Input, 0, 2), (Input, 3, 2)]);
        check(&[f32_at(0), f32_at(3)], 1, 125, &[(Input, 0, 5)]);
        check(&[f32_at(0), want(Holding, 2, U16, None)], 9, 125, &[(Holding, 2, 1), (Input, 0, 2)]);
        check(&[want(Coil, 0, Bool, None), want(Coil, 1999, Bool, None)], 1998, 9, &[(Coil, 0, 2000)]);
        let many: Vec<_> = (0..126).map(|a| want(Holding, a, U16, None)).collect();
        check(&many, 0, 125, &[(Holding, 0, 125), (Holding, 125, 1)]);
        check(&many, 0, 80, &[(Holding, 0, 80), (Holding, 80, 46)]);
        check(&[want(Holding, 65535, U16, None)], 0, 125, &[(Holding, 65535, 1)]);
    }

    #[test]
    fn a_recording_is_asked_as_it_was_made() {
        let wanted = [0, 2, 6].map(|address| want(Table::Input, address, Type::F32, None));
        let planned = blocks(1, &wanted, 0, 125);
        let request = |unit, address, count| Request { unit, table: Table::Input, address, count };
        let asked = |recorded: &[Request]| {
            let blocks = as_recorded(1, &planned, recorded)?;
            let told =
                |b: &Block| (b.request.address, b.request.count, b.points.iter().map(|(f, p)| (*f, p.at)).collect());
            Some(blocks.iter().map(told).collect::<Vec<(u16, u16, Vec<(usize, u16)>)>>())
        };
        let apart = [request(1, 6, 2), request(1, 0, 2), request(1, 2, 2), request(1, 6, 2)];
        assert_eq!(asked(&apart), Some(vec![(6, 2, vec![(2, 0)]), (0, 2, vec![(0, 0)]), (2, 2, vec![(1, 0)])]));
        assert_eq!(asked(&[request(1, 0, 10)]), Some(vec![(0, 10, vec![(0, 0), (1, 2), (2, 6)])]));
        assert_eq!(asked(&[request(2, 0, 10)]), None);
        assert_eq!(asked(&[request(1, 0, 7)]), None);
    }

    #[test]
    fn a_value_and_its_exponent_come_in_one_reply() {
        let wanted = [want(Table::Holding, 71, Type::U16, Some(75)), want(Table::Holding, 73, Type::U16, Some(75))];
        check(&wanted, 0, 125, &[(Table::Holding, 71, 5)]);
        let points = &blocks(1, &wanted, 0, 125)[0].points;
        assert_eq!((points[1].1.at, points[1].1.exponent_at), (2, Some(4)));
    }
}
