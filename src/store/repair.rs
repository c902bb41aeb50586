//! The writer's part in repairing a damaged store: setting the file aside, and bringing back what can be read of it.

use anyhow::Context;

use super::writer::Writer;
use super::{StoreError, quarantine};

impl Writer {
    /// The outlet cannot read the file: set it aside and go on with a fresh one.
    pub(super) async fn quarantine(&mut self, damage: &StoreError) {
        self.stats.store().condition.down(self.clock.now(), damage);
        let (engine, setup, names, now) =
            (self.engine.take(), self.setup.clone(), self.names.clone(), self.clock.now());
        let work = move || {
            drop(engine);
            quarantine::replace(&setup, &names, now)
        };
        // On an error the next commit opens whatever there is then, and reports what is wrong with it.
        match self.lane.run(work).await {
            Ok(Ok((engine, salvage))) => self.advance(engine, Some(salvage)),
            Ok(Err(error)) => self.stats.store().condition.down(self.clock.now(), error),
            Err(panic) => self.stats.store().condition.down(self.clock.now(), panic),
        }
    }

    /// Brings some of a damaged file back, between two commits.
    pub(super) async fn bring_back(&mut self) -> anyhow::Result<()> {
        if self.salvage.is_none() || self.engine.is_none() {
            return Ok(());
        }
        let (Some(mut salvage), Some(mut engine)) = (self.salvage.take(), self.engine.take()) else { return Ok(()) };
        let now = self.clock.now();
        let work = move || {
            let done = engine.bring_back(&mut salvage, now);
            (engine, salvage, done)
        };
        let (engine, salvage, done) = self.lane.run(work).await.context("the store panicked")?;
        match done {
            Ok(true) => {
                // What came back is older than what the outlet has seen.
                self.head.send_modify(|head| head.generation += 1);
                self.tell_level(&engine, engine.level().ok());
                self.engine = Some(engine);
            }
            Ok(false) => {
                self.engine = Some(engine);
                self.salvage = Some(salvage);
            }
            Err(error) => {
                // There may be room later, or the fresh file is damaged too; the next commit tells.
                self.stats.store().condition.down(self.clock.now(), &error);
                self.salvage = Some(salvage);
            }
        }
        Ok(())
    }
}
