//! Checksums of binary frames.

use crc::{
    CRC_8_MAXIM_DOW, CRC_16_ARC, CRC_16_IBM_3740, CRC_16_IBM_SDLC, CRC_16_KERMIT, CRC_16_MODBUS, CRC_16_XMODEM, Crc,
};

/// Which sum protects a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The sum of all bytes, its low eight bits.
    Sum8,
    /// What has to be added to that sum to give 0 (MH-Z19, Winsen).
    Sum8Negated,
    /// That sum with all bits inverted.
    Sum8Inverted,
    /// All bytes, exclusive-ored.
    Xor8,
    /// The sum of all bytes, 16 bits (Plantower).
    Sum16,
    /// CRC-8 of Dallas and Maxim.
    Crc8Maxim,
    /// CRC-16 of Modbus.
    #[serde(rename = "crc16-modbus")]
    Crc16Modbus,
    /// CRC-16/ARC.
    #[serde(rename = "crc16-arc")]
    Crc16Arc,
    /// CRC-16 of XMODEM (Davis).
    #[serde(rename = "crc16-xmodem")]
    Crc16Xmodem,
    /// CRC-16 of the CCITT that begins with FFFF.
    #[serde(rename = "crc16-ccitt-false")]
    Crc16CcittFalse,
    /// CRC-16/X-25.
    #[serde(rename = "crc16-x25")]
    Crc16X25,
    /// CRC-16/KERMIT.
    #[serde(rename = "crc16-kermit")]
    Crc16Kermit,
}

/// Which sum, over what, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    /// Which sum.
    pub kind: Kind,
    /// The first byte that is counted.
    pub from: usize,
    /// Bytes behind the sum, mostly none: a closing byte.
    pub behind: usize,
    /// Whether its low byte comes first.
    pub little: bool,
}

impl Kind {
    /// How many bytes the sum has.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sum8 | Self::Sum8Negated | Self::Sum8Inverted | Self::Xor8 | Self::Crc8Maxim => 1,
            _ => 2,
        }
    }

    fn of(self, bytes: &[u8]) -> u16 {
        let sum = || bytes.iter().fold(0u16, |sum, b| sum.wrapping_add(u16::from(*b)));
        let crc = |algorithm| Crc::<u16>::new(algorithm).checksum(bytes);
        match self {
            Self::Sum8 => sum() & 0xff,
            Self::Sum8Negated => sum().wrapping_neg() & 0xff,
            Self::Sum8Inverted => !sum() & 0xff,
            Self::Xor8 => u16::from(bytes.iter().fold(0, |sum, b| sum ^ b)),
            Self::Sum16 => sum(),
            Self::Crc8Maxim => u16::from(Crc::<u8>::new(&CRC_8_MAXIM_DOW).checksum(bytes)),
            Self::Crc16Modbus => crc(&CRC_16_MODBUS),
            Self::Crc16Arc => crc(&CRC_16_ARC),
            Self::Crc16Xmodem => crc(&CRC_16_XMODEM),
            Self::Crc16CcittFalse => crc(&CRC_16_IBM_3740),
            Self::Crc16X25 => crc(&CRC_16_IBM_SDLC),
            Self::Crc16Kermit => crc(&CRC_16_KERMIT),
        }
    }
}

impl Checksum {
    /// Whether it fits a whole frame; why not otherwise.
    pub fn check(&self, frame: &[u8]) -> Result<(), String> {
        let short = || "checksum: the frame is too short for one".to_owned();
        let end = frame.len().checked_sub(self.behind).ok_or_else(short)?;
        let at = end.checked_sub(self.kind.bytes()).filter(|at| *at >= self.from).ok_or_else(short)?;
        let join = |sum: u16, b: &u8| sum << 8 | u16::from(*b);
        let told = &frame[at..end];
        let told = if self.little { told.iter().rev().fold(0, join) } else { told.iter().fold(0, join) };
        let sum = self.kind.of(&frame[self.from..at]);
        if sum == told { Ok(()) } else { Err(format!("checksum is {sum:02X} and not {told:02X}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sum_gives_its_published_check_value() {
        let check = |kind: Kind, expected: u16| assert_eq!(kind.of(b"123456789"), expected, "{kind:?}");
        check(Kind::Sum8, 0xdd);
        check(Kind::Sum8Negated, 0x23);
        check(Kind::Sum8Inverted, 0x22);
        check(Kind::Xor8, 0x31);
        check(Kind::Sum16, 0x01dd);
        check(Kind::Crc8Maxim, 0xa1);
        check(Kind::Crc16Modbus, 0x4b37);
        check(Kind::Crc16Arc, 0xbb3d);
        check(Kind::Crc16Xmodem, 0x31c3);
        check(Kind::Crc16CcittFalse, 0x29b1);
        check(Kind::Crc16X25, 0x906e);
        check(Kind::Crc16Kermit, 0x2189);
    }
}
