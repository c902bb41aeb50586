//! What the store remembers of the clock: so that the steady line goes on over restarts, boots keep their order, and
//! what was stamped before the clock was trusted can be put right, also after a power cut in the middle of that.
//!
//! One row of `meta`, written in the commit that needs it: before anything is held in a new boot, and with the first
//! sample that is restamped.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::error::Doing;
use super::schema::META_CLOCK;
use super::{StoreError, frame};
use crate::clock::{Clock, Known, Moment, Standing, Trust};
use crate::model::Timestamp;
use crate::model::varint::{self, Damaged, Reader};
use crate::stats::StoreStats;

/// How old the noted time may be while the clock is trusted: the row is a page more in one commit.
const NOTE_EVERY: Duration = Duration::from_secs(600);
/// The same while it is not: the next boot's line begins where this one ended.
const NOTE_UNSYNCED_EVERY: Duration = Duration::from_secs(60);
/// Most boots whose corrections are remembered; one is, and more only if machines die while they restamp.
const MAX_BOOTS: usize = 64;
/// Longest boot id.
const MAX_BOOT_BYTES: usize = 64;

/// What is remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Calendar {
    pub known: Known,
    /// The number of the boot, counted by this store; 0 before the first.
    pub number: u64,
    /// By how many milliseconds stamps of a boot must be moved, for boots that were trusted and still have held samples.
    pub corrections: Vec<(u64, i64)>,
    /// The latest time that the clock itself is known to have said in an earlier run; found anew at each start.
    pub said: Timestamp,
}

impl Calendar {
    /// Whether another boot, or none, is remembered.
    pub(super) fn is_another(&self, moment: &Moment) -> bool {
        self.number == 0 || *self.known.boot != *moment.boot
    }

    /// A new boot begins.
    pub(super) fn turn(&mut self, moment: &Moment) {
        self.number += 1;
        self.known.boot = moment.boot.to_string();
        (self.known.trust, self.known.correction) = (Trust::Unsynced, 0);
    }

    /// The correction of a boot, if it is known.
    pub(super) fn correction(&self, boot: u64) -> Option<i64> {
        self.corrections.iter().find(|(number, _)| *number == boot).map(|(_, correction)| *correction)
    }

    /// Takes note of the moment; whether that must be written now.
    pub(super) fn note(&mut self, moment: &Moment) -> bool {
        let before = self.clone();
        let known = &mut self.known;
        known.base = moment.base;
        if moment.is_trusted() {
            (known.trust, known.correction) = (moment.trust, moment.correction());
            if before.known.trust != moment.trust {
                self.corrections.retain(|(number, _)| *number != self.number);
                self.corrections.push((self.number, moment.correction()));
                if self.corrections.len() > MAX_BOOTS {
                    self.corrections.remove(0);
                }
            }
        }
        let changed = (before.known.base, before.known.trust) != (self.known.base, self.known.trust);
        let every = if moment.is_trusted() { NOTE_EVERY } else { NOTE_UNSYNCED_EVERY };
        let noted = before.known.newest;
        let old = moment.now >= noted.plus(every) || (moment.is_trusted() && noted >= moment.now.plus(every));
        if changed || old {
            // A time that was not trusted may be far ahead; the first one that is trusted ends that.
            self.known.newest = if moment.is_trusted() { moment.now } else { self.known.newest.max(moment.now) };
            if moment.is_trusted() {
                self.known.trusted = moment.now;
            }
        }
        changed || old
    }

    /// After a start: the note of the time is older than what is stored. `line` is the latest sample of the steady line,
    /// `all` of everything else, of which a time may have been told by a device and be far ahead.
    pub(super) fn catch_up(&mut self, line: Timestamp, all: Timestamp) {
        let noted = self.known.newest;
        self.said = self.known.trusted.max(line);
        self.known.newest = noted.max(line).max(all.min(noted.plus(NOTE_EVERY)));
    }

    /// Nothing of a boot is held any more.
    pub(super) fn forget(&mut self, keep: impl Fn(u64) -> bool) {
        let own = self.number;
        self.corrections.retain(|(number, _)| *number == own || keep(*number));
    }

    /// Reads it; a damaged row counts as none, since the rest of the store can do without.
    pub(super) fn load(db: &Connection) -> Result<Self, StoreError> {
        let read = "SELECT data FROM meta WHERE id = ?1";
        let data: Option<Vec<u8>> =
            db.query_row(read, [META_CLOCK], |row| row.get(0)).optional().doing("read the calendar")?;
        let Some(data) = data else { return Ok(Self::default()) };
        Ok(frame::open(&data).and_then(|payload| Self::decode(&payload)).unwrap_or_else(|why| {
            tracing::error!("the calendar is damaged and left out: {why} (what is held is delivered as unsynced)");
            Self::default()
        }))
    }

    /// Writes it.
    pub(super) fn save(&self, db: &Connection) -> Result<(), StoreError> {
        let sql = "INSERT INTO meta (id, data) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET data = ?2";
        let mut write = db.prepare_cached(sql).doing("store the calendar")?;
        write.execute(params![META_CLOCK, frame::seal(&self.encode())]).doing("store the calendar")?;
        Ok(())
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, self.number);
        varint::put_bytes(&mut out, self.known.boot.as_bytes());
        varint::put_signed(&mut out, self.known.base);
        out.push(match self.known.trust {
            Trust::Unsynced => 0,
            Trust::Source => 1,
            Trust::System => 2,
        });
        varint::put_signed(&mut out, self.known.correction);
        varint::put_signed(&mut out, self.known.trusted.as_millis());
        varint::put_signed(&mut out, self.known.newest.as_millis());
        varint::put(&mut out, self.corrections.len() as u64);
        for (number, correction) in &self.corrections {
            varint::put(&mut out, *number);
            varint::put_signed(&mut out, *correction);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut input = Reader::new(bytes);
        let number = input.varint()?;
        let boot = input.bytes()?;
        let boot = std::str::from_utf8(boot).ok().filter(|id| id.len() <= MAX_BOOT_BYTES).ok_or(Damaged("boot id"))?;
        let mut known = Known { boot: boot.to_owned(), base: input.signed()?, ..Known::default() };
        known.trust = match input.byte()? {
            0 => Trust::Unsynced,
            1 => Trust::Source,
            2 => Trust::System,
            _ => return Err(Damaged("trust")),
        };
        known.correction = input.signed()?;
        known.trusted = Timestamp::clamped(input.signed()?);
        known.newest = Timestamp::clamped(input.signed()?);
        let mut corrections = Vec::new();
        for _ in 0..input.bounded(MAX_BOOTS)? {
            corrections.push((input.varint()?, input.signed()?));
        }
        Ok(Self { known, number, corrections, said: Timestamp::EPOCH })
    }
}

/// Tells how the clock stands.
pub(super) fn tell(clock: &Clock, stats: &StoreStats) {
    let now = clock.now();
    let Standing { trust, reason, offset_ms } = clock.standing();
    stats.clock_offset_ms.set(offset_ms);
    if trust > Trust::Unsynced {
        stats.clock_condition.up(now, format_args!("trusted: {reason}"));
    } else {
        let words = format_args!("not trusted: {reason} ({})", clock.config().explain());
        stats.clock_condition.down(now, words);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn moment(seconds: i64, correction: i64, trust: Trust) -> Moment {
        let steady = Timestamp::clamped(1_796_043_600_000 + seconds * 1000);
        Moment { now: steady.shifted(correction), steady, trust, boot: Arc::from("a"), base: 77 }
    }

    #[test]
    fn it_survives_and_no_bytes_make_it_panic() {
        let mut calendar = Calendar::default();
        calendar.turn(&moment(0, 0, Trust::Unsynced));
        calendar.note(&moment(1, 0, Trust::Unsynced));
        calendar.note(&moment(2, -5000, Trust::System));
        assert_eq!(Calendar::decode(&calendar.encode()).unwrap(), calendar);
        assert_eq!(calendar.correction(1), Some(-5000));
        proptest::proptest!(|(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80))| {
            let _ = Calendar::decode(&bytes);
        });
    }

    #[test]
    fn it_is_written_when_it_says_something_new_and_now_and_then() {
        let mut calendar = Calendar::default();
        assert!(calendar.is_another(&moment(0, 0, Trust::Unsynced)));
        calendar.turn(&moment(0, 0, Trust::Unsynced));
        assert!(!calendar.is_another(&moment(0, 0, Trust::Unsynced)));
        let steps = [
            (0, 0, Trust::Unsynced, true),
            (30, 0, Trust::Unsynced, false),
            (61, 0, Trust::Unsynced, true),
            (62, 1_000_000, Trust::System, true),
            (500, 1_000_010, Trust::System, false),
            (700, 1_000_010, Trust::System, true),
            (701, -9_000_000, Trust::System, true),
        ];
        for (seconds, correction, trust, written) in steps {
            assert_eq!(calendar.note(&moment(seconds, correction, trust)), written, "{seconds}");
        }
        assert_eq!(calendar.correction(1), Some(1_000_000), "as it was on the day of trust");
    }
}
