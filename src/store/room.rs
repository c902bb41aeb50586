//! The engine's part in a budget, and a disk, that may be full: asked before a batch touches memory, so that being full is
//! a state of the engine and not a failure.

use std::time::Duration;

use super::database::Budget;
use super::engine::{Batch, Engine};
use super::error::Doing;
use super::pages::Pages;
use super::quarantine::Salvage;
use super::quota::Fill;
use super::state::State;
use super::{StoreError, database};
use crate::model::Timestamp;

/// Most commits that only make room before one that needs it: the journal gives up half of what it has in each.
const MAX_MAKING: usize = 4;
/// After so long a commit that found no room is tried even if there seems to be no more.
const TRY_ANYWAY: Duration = Duration::from_secs(60);

/// What there is room for before a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// What the store is held to, as far as the disk goes.
    pub budget: Budget,
    /// How full it is.
    pub fill: Fill,
}

/// How full the store is after a commit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Level {
    /// The share in use.
    pub fill: Fill,
    /// Bytes of the database in use, of its log, of what may lie beside it, and of damaged files that were set aside.
    pub bytes: u64,
}

impl Engine {
    /// The room for readings, made if need be: what is settled is deleted for it. `None`: there is none.
    pub(super) fn find_room(&mut self, batch: &Batch, now: Timestamp) -> Result<Option<Room>, StoreError> {
        let room = self.free_room(now)?;
        if room.is_some() {
            return Ok(room);
        }
        let settled = batch.settled.clone();
        let mut settled = Batch { settled, only_settle: true, ..Batch::default() };
        for _ in 0..MAX_MAKING {
            let made = self.write(&settled, now, true)?;
            self.made.join(made);
            settled.settled.clear();
            let room = self.free_room(now)?;
            if room.is_some() || !made.committed {
                return Ok(room);
            }
        }
        Ok(None)
    }

    /// Whether this engine can go on: nothing was begun, or what was begun is committed.
    pub(super) const fn is_sound(&self) -> bool {
        self.sound
    }

    /// A commit of an earlier engine found no room although there seemed to be some: not before there is more.
    pub(super) fn found_no_room(&mut self, now: Timestamp) {
        if let Ok(room) = self.room() {
            self.full = Some((room.fill, now.plus(TRY_ANYWAY)));
        }
    }

    /// How things stand, if readings can be taken.
    fn free_room(&mut self, now: Timestamp) -> Result<Option<Room>, StoreError> {
        let room = self.room()?;
        if self.full.is_some_and(|(before, until)| !room.fill.is_better_than(before) && now < until) {
            return Ok(None);
        }
        self.full = None;
        Ok(room.fill.has_room(self.state.setup.when_full).then_some(room))
    }

    /// How things stand. Holds SQLite to the budget, or to what the disk has room for; on a full disk the log must not
    /// outgrow its size.
    pub(super) fn room(&self) -> Result<Room, StoreError> {
        let setup = &self.state.setup;
        let (pages, free) = (Pages::of(&self.db)?, database::free_bytes(&setup.path));
        let budget = self.state.budget.on_disk(pages.all, free, setup);
        if self.state.held_to.replace(budget.max_pages) != budget.max_pages {
            let held = self.db.pragma_update(None, "max_page_count", budget.max_pages);
            held.doing("hold the database to its budget")?;
        }
        if database::is_disk_short(free) {
            let (frames, copied) = database::log_frames(&self.db)?;
            if frames * 2 > budget.checkpoint_frames() && frames > copied {
                database::checkpoint(&self.db)?;
            }
        }
        Ok(Room { budget, fill: Fill::of(pages, &self.state, budget) })
    }

    /// How full the store is.
    pub(super) fn level(&self) -> Result<Level, StoreError> {
        let State { setup, budget, aside, .. } = &self.state;
        let (pages, free) = (Pages::of(&self.db)?, database::free_bytes(&setup.path));
        let fill = Fill::of(pages, &self.state, budget.on_disk(pages.all, free, setup));
        let bytes = pages.used() * database::PAGE_BYTES + budget.wal_bytes + setup.beside + aside.bytes;
        Ok(Level { fill, bytes })
    }

    /// Brings some of a damaged file back; `true` when all of it is. Makes room for it first, if `when_full` allows that.
    pub(super) fn bring_back(&mut self, salvage: &mut Salvage, now: Timestamp) -> Result<bool, StoreError> {
        if self.room()?.fill.is_high() {
            self.write(&Batch { only_settle: true, ..Batch::default() }, now, true)?;
            if !self.room()?.fill.has_room(self.state.setup.when_full) {
                return Ok(false);
            }
        }
        let done = salvage.step(&self.db)?;
        if done {
            self.state.aside.is_busy = false;
            self.recount()?;
        }
        Ok(done)
    }

    /// Adds to the reserve, if it is time for that; after the receipts, and between two commits.
    pub(super) fn top_up(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if !self.state.reserve.is_due(now) {
            return Ok(());
        }
        let Room { budget, fill } = self.room()?;
        let done = self.state.reserve.top_up(&self.db, budget, fill.percent());
        // After a failure of the disk this connection is not believed any more.
        self.sound = matches!(done, Ok(()) | Err(StoreError::Full { .. }));
        done
    }
}
