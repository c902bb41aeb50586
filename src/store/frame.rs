//! The outer form of everything the store writes as bytes: `crc32 · version · flags · payload`, the payload by zstd where that helps.

use std::borrow::Cow;
use std::sync::{LazyLock, Mutex, PoisonError};

use zstd::bulk::{Compressor, Decompressor};

use crate::model::varint::{Damaged, Reader};

const VERSION: u8 = 1;
const FLAG_ZSTD: u8 = 1;
/// Below this zstd's frame costs more than it saves.
const MIN_ZSTD_BYTES: usize = 1024;
/// zstd-1: level 3 was not smaller on sensor data.
const ZSTD_LEVEL: i32 = 1;
/// Largest payload that is unpacked: far above what a commit or a segment can hold.
const MAX_PAYLOAD_BYTES: usize = 256 << 20;

/// Kept, since to set one up costs more than to compress a commit. The writer is the only one who does so all the time.
static COMPRESSOR: LazyLock<Mutex<Option<Compressor<'static>>>> =
    LazyLock::new(|| Mutex::new(Compressor::new(ZSTD_LEVEL).ok()));
/// Kept for the same reason.
static DECOMPRESSOR: LazyLock<Mutex<Option<Decompressor<'static>>>> =
    LazyLock::new(|| Mutex::new(Decompressor::new().ok()));

/// Frames a payload.
pub(super) fn seal(payload: &[u8]) -> Vec<u8> {
    let packed = (payload.len() >= MIN_ZSTD_BYTES)
        .then(|| COMPRESSOR.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.compress(payload).ok())
        .flatten()
        .filter(|packed| packed.len() < payload.len());
    let (flags, body) = packed.as_deref().map_or((0, payload), |packed| (FLAG_ZSTD, packed));
    let mut frame = Vec::with_capacity(body.len() + 6);
    frame.extend_from_slice(&[0; 4]);
    frame.push(VERSION);
    frame.push(flags);
    frame.extend_from_slice(body);
    let crc = crc32fast::hash(&frame[4..]);
    frame[..4].copy_from_slice(&crc.to_le_bytes());
    frame
}

/// A frame that is as it was written, not yet unpacked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked<'a> {
    body: &'a [u8],
    is_packed: bool,
    /// Bytes of its payload.
    pub len: usize,
}

impl<'a> Checked<'a> {
    /// Its payload, by a context that goes again: where large payloads are unpacked one would stay among them.
    pub(super) fn unpack(self) -> Result<Cow<'a, [u8]>, Damaged> {
        self.unpack_with(|body, len| zstd::bulk::decompress(body, len).ok())
    }

    fn unpack_with(self, unpack: impl FnOnce(&[u8], usize) -> Option<Vec<u8>>) -> Result<Cow<'a, [u8]>, Damaged> {
        if !self.is_packed {
            return Ok(Cow::Borrowed(self.body));
        }
        let payload = unpack(self.body, self.len).filter(|payload| payload.len() == self.len);
        payload.map(Cow::Owned).ok_or(Damaged("zstd frame does not unpack"))
    }
}

/// Checks a frame.
pub(super) fn check(frame: &[u8]) -> Result<Checked<'_>, Damaged> {
    let mut input = Reader::new(frame);
    let crc = u32::from_le_bytes(input.array()?);
    if crc32fast::hash(input.rest()) != crc {
        return Err(Damaged("checksum does not match"));
    }
    if input.byte()? != VERSION {
        return Err(Damaged("unknown version of the frame"));
    }
    let is_packed = input.byte()? & FLAG_ZSTD != 0;
    let body = input.rest();
    if !is_packed {
        return Ok(Checked { body, is_packed, len: body.len() });
    }
    let size = zstd::zstd_safe::get_frame_content_size(body).ok().flatten();
    let size = size.ok_or(Damaged("zstd frame without a size"))?;
    let len = usize::try_from(size).ok().filter(|&n| n <= MAX_PAYLOAD_BYTES);
    Ok(Checked { body, is_packed, len: len.ok_or(Damaged("zstd frame too large"))? })
}

/// Checks a frame and gives back its payload.
pub(super) fn open(frame: &[u8]) -> Result<Cow<'_, [u8]>, Damaged> {
    check(frame)?.unpack_with(|body, len| {
        DECOMPRESSOR.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.decompress(body, len).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_survive_and_a_flipped_bit_is_seen() {
        for payload in [vec![], vec![7; 10], vec![7; 5000], (0..5000u32).map(|i| ((i * i) >> 3) as u8).collect()] {
            let mut frame = seal(&payload);
            assert_eq!((&*open(&frame).unwrap(), check(&frame).unwrap().len), (&*payload, payload.len()));
            for place in [0, 4, frame.len() - 1] {
                frame[place] ^= 1;
                assert!(open(&frame).is_err());
                frame[place] ^= 1;
            }
        }
        assert!(open(&[]).is_err());
    }
}
