//! IEC 62056-21 readouts (modes A to D): what the data block says, and the words of the dialogue that fetches it.
//!
//! A block between STX and ETX carries a block check (the exclusive or of all its characters after STX) that must fit; a
//! readout that a meter pushes by itself carries none, and says so by having no STX. Times in a readout are not used: most
//! meters' clocks run free.

use super::object::{Content, Object, content};
use super::{Read, lines};
use crate::decode::telegram::{Context, Measure, Telegram};

const STX: u8 = 0x02;
const ETX: u8 = 0x03;

/// The reader of telegrams.
pub const READ: Read = read;

/// The request that every meter answers with its identification.
pub const REQUEST: &[u8] = b"/?!\r\n";
/// The speed of the dialogue's beginning.
pub const INITIAL_BAUD: u32 = 300;

fn read(text: &[u8], _: &Context<'_>, telegram: &mut Telegram) {
    if let Some(at) = text.iter().position(|b| *b == STX)
        && let Err(why) = check_block(&text[at + 1..])
    {
        return telegram.refuse("block", why);
    }
    let objects: Vec<Object<'_>> = lines(text).filter_map(Object::new).collect();
    let has_present = |code: &str| objects.iter().any(|other| other.code == code && !other.is_history);
    for object in &objects {
        let counts = !object.is_history || (object.is_first_period && !has_present(object.code));
        let group = match object.groups[..] {
            [group] if counts => group,
            // A maximum and when it was.
            [group, when] if counts && is_moment(when) => group,
            _ => continue,
        };
        match content(object, group) {
            Content::Number(value, unit) => {
                let unit = unit.map(str::to_owned);
                telegram.measures.push(Measure { unit, ..Measure::new(object.code, value) });
            }
            Content::Bad(why) => telegram.refuse(object.code, why),
            Content::Other => {}
        }
    }
}

/// `2602281230`, `26-02-28 12:30`, `1602291200`.
fn is_moment(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    (8..=14).contains(&digits) && text.bytes().all(|b| b.is_ascii_digit() || b" -:.".contains(&b))
}

fn check_block(block: &[u8]) -> Result<(), String> {
    let &[ref body @ .., ETX, told] = block else { return Err("does not end with ETX and a block check".to_owned()) };
    let computed = body.iter().fold(ETX, |sum, b| sum ^ b) & 0x7f;
    if computed == told & 0x7f { Ok(()) } else { Err(format!("block check is {computed:02X} and not {told:02X}")) }
}

/// What a meter answers to [`REQUEST`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identification {
    /// Three letters of the manufacturer; the third is a small one if the meter answers fast.
    pub manufacturer: String,
    /// Which speed it offers: `0` to `6` in mode C, `A` to `I` in mode B, anything else in mode A.
    pub baud: char,
}

impl Identification {
    /// Reads the line, its parity taken off.
    pub fn new(line: &[u8]) -> Option<Self> {
        let line: Vec<u8> = line.iter().map(|b| b & 0x7f).collect();
        let begin = line.iter().rposition(|b| *b == b'/')?;
        let line = std::str::from_utf8(&line[begin + 1..]).ok()?.trim_end();
        let manufacturer = line.get(..3).filter(|m| m.bytes().all(|b| b.is_ascii_alphabetic()))?;
        Some(Self { manufacturer: manufacturer.to_owned(), baud: line[3..].chars().next()? })
    }

    /// What to send so that the readout comes, and the speed to go on with.
    pub fn acknowledgement(&self, most: u32) -> (Option<[u8; 6]>, u32) {
        let offered = |digit: u32| INITIAL_BAUD << digit;
        match self.baud {
            digit @ '0'..='6' => {
                let wanted = (0..=digit.to_digit(10).unwrap_or(0)).rev().find(|d| offered(*d) <= most).unwrap_or(0);
                let digit = b'0' + wanted as u8;
                (Some([0x06, b'0', digit, b'0', b'\r', b'\n']), offered(wanted))
            }
            // Mode B: the meter changes its speed by itself.
            letter @ 'A'..='F' => (None, INITIAL_BAUD << (letter as u32 - 'A' as u32 + 1)),
            _ => (None, INITIAL_BAUD),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identification_offers_a_speed() {
        let check = |line: &[u8], most: u32, sent: Option<&[u8]>, baud: u32| {
            let (ack, speed) = Identification::new(line).unwrap().acknowledgement(most);
            assert_eq!((ack.as_ref().map(|a| &a[..]), speed), (sent, baud), "{line:?}");
        };
        check(b"/ITR5EM214\r\n", 19_200, Some(b"\x06050\r\n"), 9600);
        check(b"/ITR5EM214\r\n", 300, Some(b"\x06000\r\n"), 300);
        check(&[0xaf, 0xc9, 0xd4, 0xd2, 0x35, 0xc5, 0x8d, 0x0a], 19_200, Some(b"\x06050\r\n"), 9600);
        check(b"/LGZ4ZMD\r\n", 19_200, Some(b"\x06040\r\n"), 4800);
        check(b"/ABBAxx\r\n", 19_200, None, 600);
        check(b"/ABBExx\r\n", 19_200, None, 9600);
        check(b"/ABB xx\r\n", 19_200, None, 300);
        for line in [&b""[..], b"/", b"/AB\r\n", b"/A1B5\r\n", b"noise\r\n"] {
            assert_eq!(Identification::new(line), None);
        }
    }
}
