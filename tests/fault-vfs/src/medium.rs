//! What a medium holds after the power went: replays a log of events, and makes images of what may be left.
//!
//! A sector of 512 bytes is written whole or not at all; in which order sectors reach the medium between two syncs is
//! up to the medium. What must stay true: a sector holds what it held at some moment since the last sync of its file.

use fastrand::Rng;

use crate::watch::{Event, Part};

const SECTOR: usize = 512;

/// What becomes of writes that were not synced yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Each write is there or not.
    Drop,
    /// All writes up to one are there, and of that one its first sectors.
    Tear,
    /// Each sector of each write is there or not.
    Reorder,
}

/// All ways to lose something.
impl Style {
    /// Every style.
    pub const ALL: [Self; 3] = [Self::Drop, Self::Tear, Self::Reorder];
}

/// Both files as a start finds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// The database.
    pub database: Vec<u8>,
    /// Its write-ahead log.
    pub log: Vec<u8>,
}

/// A medium on which the events happen one after the other.
#[derive(Clone, Debug, Default)]
pub struct Medium {
    database: Store,
    log: Store,
}

/// One file: what is on the medium for certain, what programs see, and what lies between.
#[derive(Clone, Debug, Default)]
struct Store {
    durable: Vec<u8>,
    seen: Vec<u8>,
    /// In order: each call's changes.
    pending: Vec<Vec<Change>>,
}

#[derive(Clone, Debug)]
enum Change {
    Sector { at: usize, data: Vec<u8> },
    Length(usize),
}

impl Medium {
    /// A medium on which both files lie safely.
    pub fn with(image: Image) -> Self {
        let store = |bytes: Vec<u8>| Store { seen: bytes.clone(), durable: bytes, pending: Vec::new() };
        Self { database: store(image.database), log: store(image.log) }
    }

    /// Lets an event happen.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { part, at, data } => self.of(*part, |store| store.write(*at as usize, data)),
            Event::Truncate { part, length } => self.of(*part, |store| store.set_length(*length as usize)),
            Event::Sync { part } => self.of(*part, Store::sync),
            Event::FailedSync { part } => self.of(*part, |store| store.pending.clear()),
            Event::Mark(_) => {}
        }
    }

    /// Writes that would be lost if the power went now.
    pub fn unsynced(&self) -> usize {
        self.database.pending.len() + self.log.pending.len()
    }

    /// What a start might find if the power went now.
    pub fn cut(&self, style: Style, random: &mut Rng) -> Image {
        Image { database: self.database.cut(style, random), log: self.log.cut(style, random) }
    }

    /// What a start finds at worst: nothing that was not synced.
    pub fn synced(&self) -> Image {
        Image { database: self.database.durable.clone(), log: self.log.durable.clone() }
    }

    fn of(&mut self, part: Part, change: impl FnOnce(&mut Store)) {
        match part {
            Part::Database => change(&mut self.database),
            Part::Log => change(&mut self.log),
            Part::Other => {}
        }
    }
}

impl Store {
    fn write(&mut self, at: usize, data: &[u8]) {
        let end = at + data.len();
        if self.seen.len() < end {
            self.seen.resize(end, 0);
        }
        self.seen[at..end].copy_from_slice(data);
        let sectors = at / SECTOR..end.div_ceil(SECTOR);
        let change = |sector: usize| {
            let (from, to) = (sector * SECTOR, ((sector + 1) * SECTOR).min(self.seen.len()));
            Change::Sector { at: from, data: self.seen[from..to].to_vec() }
        };
        self.pending.push(sectors.map(change).collect());
    }

    fn set_length(&mut self, length: usize) {
        self.seen.resize(length, 0);
        self.pending.push(vec![Change::Length(length)]);
    }

    fn sync(&mut self) {
        for change in self.pending.drain(..).flatten() {
            change.make(&mut self.durable);
        }
    }

    fn cut(&self, style: Style, random: &mut Rng) -> Vec<u8> {
        let mut left = self.durable.clone();
        // Sometimes nearly everything is there, sometimes nearly nothing.
        let share = [0.1, 0.5, 0.9][random.usize(..3)];
        let torn = random.usize(..=self.pending.len());
        for (i, call) in self.pending.iter().enumerate() {
            let whole = random.f64() < share;
            let sectors = random.usize(..=call.len());
            for (j, change) in call.iter().enumerate() {
                let kept = match style {
                    Style::Drop => whole,
                    Style::Tear => i < torn || i == torn && j < sectors,
                    Style::Reorder => random.f64() < share,
                };
                if kept {
                    change.make(&mut left);
                }
            }
        }
        left
    }
}

impl Change {
    fn make(&self, file: &mut Vec<u8>) {
        match self {
            Self::Length(length) => file.resize(*length, 0),
            Self::Sector { at, data } => {
                let end = at + data.len();
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[*at..end].copy_from_slice(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, byte: u8, length: usize) -> Event {
        Event::Write { part: Part::Log, at, data: vec![byte; length] }
    }

    fn medium(events: &[Event]) -> Medium {
        let mut medium = Medium::default();
        events.iter().for_each(|event| medium.apply(event));
        medium
    }

    #[test]
    fn what_is_synced_stays_and_the_rest_may_go() {
        let medium = medium(&[write(0, 1, 512), Event::Sync { part: Part::Log }, write(512, 2, 1024)]);
        let mut random = Rng::with_seed(1);
        let lengths: std::collections::BTreeSet<_> = (0..100)
            .flat_map(|_| Style::ALL)
            .map(|style| {
                let log = medium.cut(style, &mut random).log;
                assert!(log[..512].iter().all(|byte| *byte == 1));
                log.len()
            })
            .collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [512, 1024, 1536]);
        assert_eq!(medium.synced().log.len(), 512);
    }

    #[test]
    fn a_sector_holds_what_it_held_at_some_moment() {
        let medium = medium(&[write(0, 1, 400), write(400, 2, 112)]);
        let mut random = Rng::with_seed(1);
        for style in Style::ALL.repeat(100) {
            let log = medium.cut(style, &mut random).log;
            let whole = log.len() == 512 && log[..400].iter().all(|b| *b == 1) && log[400..].iter().all(|b| *b == 2);
            assert!(log.is_empty() || log == [1; 400] || whole, "{style:?}: {log:?}");
        }
    }

    #[test]
    fn what_a_failed_sync_lost_no_later_sync_brings_back() {
        let medium = medium(&[
            write(0, 1, 512),
            Event::FailedSync { part: Part::Log },
            write(512, 2, 512),
            Event::Sync { part: Part::Log },
        ]);
        assert_eq!(medium.synced().log, [[0; 512], [2; 512]].concat());
    }
}
