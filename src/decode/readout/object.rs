//! One data line of a readout: a code and what stands in its parentheses.

use crate::decode::{number, quoted};
use crate::model::Value;

/// `1-0:1.8.1*255(a)(b)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object<'a> {
    /// The code without `*255`.
    pub(super) code: &'a str,
    /// An earlier value, kept by the meter: `*01`, `&12`.
    pub(super) is_history: bool,
    /// With the suffix `*00`: some meters give the present value no other.
    pub(super) is_first_period: bool,
    /// The contents of the parentheses.
    pub(super) groups: Vec<&'a str>,
}

/// Units that stand behind a number without an asterisk.
const UNITS: [&str; 34] = [
    "Wh", "kWh", "MWh", "GWh", "W", "kW", "MW", "varh", "kvarh", "Mvarh", "var", "kvar", "Mvar", "VAh", "kVAh", "VA",
    "kVA", "V", "kV", "mV", "A", "mA", "Hz", "%", "°", "°C", "m3", "m³", "l", "m3/h", "GJ", "MJ", "h", "s",
];

impl<'a> Object<'a> {
    /// Takes a line apart; `None` if it has no parentheses, or something stands outside of them.
    pub(super) fn new(line: &'a str) -> Option<Self> {
        let open = line.find('(')?;
        let (code, mut rest) = line.split_at(open);
        let mut groups = Vec::new();
        while !rest.is_empty() {
            let (group, after) = rest.strip_prefix('(')?.split_once(')')?;
            groups.push(group);
            rest = after.trim_end();
        }
        let code = code.trim();
        let end = code.find(['*', '&']).unwrap_or(code.len());
        let suffix = &code[end..];
        let (is_history, is_first_period) = (!matches!(suffix, "" | "*255"), matches!(suffix, "*00" | "&00"));
        Some(Self { code: &code[..end], is_history, is_first_period, groups })
    }

    /// The M-Bus channel of `0-n:…`.
    pub(super) fn channel(&self) -> u8 {
        let channel = self.code.strip_prefix("0-").and_then(|rest| rest.split_once(':'));
        channel.and_then(|(n, _)| n.parse().ok()).unwrap_or(0)
    }

    /// The groups C, D and E of the code.
    fn quantity(&self) -> Option<[u16; 3]> {
        let reduced = self.code.rsplit_once(':').map_or(self.code, |(_, reduced)| reduced);
        let mut parts = reduced.split('.').map(|part| part.parse().ok());
        let (c, d) = (parts.next()??, parts.next()??);
        let e = parts.next().unwrap_or(Some(0))?;
        parts.next().is_none().then_some([c, d, e])
    }

    /// Whether it names something: serial numbers, versions, addresses.
    fn is_identifier(&self) -> bool {
        matches!(self.quantity(), Some([0, 0 | 1 | 2 | 9, _] | [96, 1 | 2 | 13, _]))
    }

    /// Whether the object measures something even though it bears no unit.
    fn is_plain_quantity(&self) -> bool {
        match self.quantity() {
            // Power failures, sags and swells, the tariff, breaker and valve positions.
            Some([96, 7 | 14 | 3, _] | [32 | 52 | 72, 32 | 36, _] | [24, 4, _]) => true,
            // Power factors and energies of meters that leave out the unit.
            Some([c, d, _]) => (1..=95).contains(&c) && matches!(d, 4 | 6..=9 | 29),
            None => false,
        }
    }
}

/// What a group says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content<'a> {
    /// A number, with its unit if it has one.
    Number(Value, Option<&'a str>),
    /// It should be a number and is none, in words.
    Bad(String),
    /// A text, an identifier, a log: nothing that is measured.
    Other,
}

/// Reads the group of an object with exactly one.
pub(super) fn content<'a>(object: &Object<'_>, group: &'a str) -> Content<'a> {
    let (number, unit) = match group.split_once('*') {
        Some((number, unit)) => (number, Some(unit.trim())),
        // Some meters leave out the asterisk: `123.34kWh`. An identifier in hexadecimal may begin with digits, too.
        None => {
            let end = group.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(group.len());
            let (number, unit) = group.split_at(end);
            let is_unit = !number.is_empty() && UNITS.contains(&unit.trim());
            if is_unit { (number, Some(unit.trim())) } else { (group, None) }
        }
    };
    if object.is_identifier() {
        return Content::Other;
    }
    let unit = unit.filter(|unit| !unit.is_empty());
    if unit.is_none() && !object.is_plain_quantity() {
        return Content::Other;
    }
    match number::parse(number.trim()) {
        Some(Ok(value)) => Content::Number(value, unit),
        Some(Err(unfit)) => Content::Bad(format!("{} {unfit}", quoted(group))),
        None if unit.is_none() => Content::Other,
        None => Content::Bad(format!("{} is no number", quoted(group))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let check = |line: &str, expected: Option<(&str, bool, &[&str])>| {
            let object = Object::new(line);
            assert_eq!(object.as_ref().map(|o| (o.code, o.is_history, &o.groups[..])), expected, "{line}");
        };
        check("1-0:1.8.0*255(0.5*kWh)", Some(("1-0:1.8.0", false, &["0.5*kWh"])));
        check("1.8.1*01(5)", Some(("1.8.1", true, &["5"])));
        check(
            "0-1:24.2.1(161129200000W)(00981.443*m3)",
            Some(("0-1:24.2.1", false, &["161129200000W", "00981.443*m3"])),
        );
        check("0-0:96.13.0()", Some(("0-0:96.13.0", false, &[""])));
        for line in ["1.8.1", "1.8.1(5", "1.8.1(5)x", ""] {
            check(line, None);
        }
    }

    #[test]
    fn numbers_are_told_from_texts() {
        let check = |line: &str, expected: Content<'_>| {
            let object = Object::new(line).unwrap();
            assert_eq!(content(&object, object.groups[0]), expected, "{line}");
        };
        check("1-0:1.8.1(123.34kWh)", Content::Number(Value::F64(123.34), Some("kWh")));
        check("1-0:31.7.0(+000.8*A)", Content::Number(Value::F64(0.8), Some("A")));
        check("1-0:31.7.0(006*A)", Content::Number(Value::I64(6), Some("A")));
        check("0-0:96.14.0(0002)", Content::Number(Value::I64(2), None));
        check("1-0:13.7.0(0.98)", Content::Number(Value::F64(0.98), None));
        check("1-0:32.7.0(-----*V)", Content::Bad("`-----*V` is no number".to_owned()));
        for text in [
            "1-0:0.9.1(14:45:59)",
            "1-0:96.5.5(80)",
            "0-0:96.1.1(3030)",
            "1-3:0.2.8(50)",
            "F.F(00000000)",
            "0-1:24.1.0(003)",
            "0-0:96.1.1(4B414C37303035)",
            "0-1:96.1.1(37464C4F32313139)",
            "0-0:96.1.255*255(1ESY1)",
            "1-0:0.0.0(0A01454D48)",
            "0.0.0(4E)",
            "C.1.0(12E4)",
            "0.2.2(22A)",
        ] {
            check(text, Content::Other);
        }
    }

    #[test]
    fn the_channel_stands_in_the_code() {
        assert_eq!(Object::new("0-2:24.2.1(1)").unwrap().channel(), 2);
        assert_eq!(Object::new("1-0:1.8.1(1)").unwrap().channel(), 0);
    }
}
