//! The engine's part in a budget, and a disk, that may be full: asked before a batch touches memory, so that being full is
//! a state of the engine and not a failure.

use std::time::Duration;

use super::database::Budget;
use super::engine::{Batch, Engine};
use super::error::Doing;
use super::quarantine::Salvage;
use super::quota::Fill;
use super::{StoreError, database};
use crate::model::Timestamp;

/// Most commits that only make room before one that needs it: the journal gives up half of what it has in each.
const MAX_MAKING: usize = 4;
/// After so long a commit that found no room is tried even if there seems to be no more.
const TRY_ANYWAY: Duration = Duration::from_secs(60);

impl Engine {
    /// Whether there is room for readings, or could be made. What is settled is deleted for it.
    pub(super) fn find_room(&mut self, batch: &Batch, now: Timestamp) -> Result<bool, StoreError> {
        let settled = batch.settled.clone();
        let mut settled = Batch { settled, only_settle: true, ..Batch::default() };
        for _ in 0..MAX_MAKING {
            if self.has_room(now)? {
                return Ok(true);
            }
            let made = self.write(&settled, now, true)?;
            self.made.join(made);
            settled.settled.clear();
            if !made.committed {
                break;
            }
        }
        self.has_room(now)
    }

    /// Whether this engine can go on: nothing was begun, or what was begun is committed.
    pub(super) const fn is_sound(&self) -> bool {
        self.sound
    }

    /// A commit of an earlier engine found no room although there seemed to be some: not before there is more.
    pub(super) fn found_no_room(&mut self, now: Timestamp) {
        if let Ok(fill) = self.limit().and_then(|budget| Fill::of(&self.db, &self.state, budget)) {
            self.full = Some((fill, now.plus(TRY_ANYWAY)));
        }
    }

    fn has_room(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        let fill = Fill::of(&self.db, &self.state, self.limit()?)?;
        if self.full.is_some_and(|(before, until)| !fill.is_better_than(before) && now < until) {
            return Ok(false);
        }
        self.full = None;
        Ok(fill.has_room(self.state.setup.when_full))
    }

    /// How full the budget is.
    pub(super) fn fill(&self) -> Result<Fill, StoreError> {
        let (pages, setup) = (database::pages(&self.db)?, &self.state.setup);
        Fill::of(&self.db, &self.state, self.state.budget.on_disk(&setup.path, pages, &setup.blocks))
    }

    /// Holds SQLite to the budget, or to what the disk has room for; on a full disk the log must not outgrow its size.
    pub(super) fn limit(&self) -> Result<Budget, StoreError> {
        let path = &self.state.setup.path;
        let budget = self.state.budget.on_disk(path, database::pages(&self.db)?, &self.state.setup.blocks);
        if self.state.held_to.replace(budget.max_pages) != budget.max_pages {
            let held = self.db.pragma_update(None, "max_page_count", budget.max_pages);
            held.doing("hold the database to its budget")?;
        }
        if database::is_disk_short(path) {
            let (frames, copied) = database::log_frames(&self.db)?;
            if frames * 2 > budget.checkpoint_frames() && frames > copied {
                database::checkpoint(&self.db)?;
            }
        }
        Ok(budget)
    }

    /// Brings some of a damaged file back; `true` when all of it is. Makes room for it first, if `when_full` allows that.
    pub(super) fn bring_back(&mut self, salvage: &mut Salvage, now: Timestamp) -> Result<bool, StoreError> {
        let budget = self.limit()?;
        if Fill::of(&self.db, &self.state, budget)?.is_high() {
            self.write(&Batch { only_settle: true, ..Batch::default() }, now, true)?;
            if !Fill::of(&self.db, &self.state, budget)?.has_room(self.state.setup.when_full) {
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
        let percent = self.fill()?.percent();
        let budget = self.limit()?;
        let done = self.state.reserve.top_up(&self.db, budget, percent, now);
        // After a failure of the disk this connection is not believed any more.
        self.sound = matches!(done, Ok(()) | Err(StoreError::Full { .. }));
        done
    }
}
