//! `[clock]` of the site file.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// When the system's clock is believed, and what happens until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// What makes the clock trusted.
    pub trust: Belief,
    /// What becomes of readings that are stamped before.
    pub unsynced: WhenUnsynced,
    /// How long such a reading is held back at most.
    #[serde(with = "humantime_serde")]
    pub hold_for: Duration,
}

/// What makes the clock trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Belief {
    /// Synchronisation, a real-time clock, or the host of a virtual machine.
    Auto,
    /// Nothing: it always is.
    Always,
    /// Synchronisation alone.
    Sync,
}

/// What becomes of readings that are stamped by a clock that is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUnsynced {
    /// They wait until their times can be put right.
    Hold,
    /// They are delivered as they are, in buckets that say so.
    Flag,
}

impl Default for Config {
    fn default() -> Self {
        Self { trust: Belief::Auto, unsynced: WhenUnsynced::Hold, hold_for: Duration::from_secs(6 * 3600) }
    }
}

impl Config {
    /// A clock that is believed as it is.
    pub(super) fn believing() -> Self {
        Self { trust: Belief::Always, ..Self::default() }
    }

    /// What it means, in words for `check`.
    pub fn explain(&self) -> String {
        let trusted = match self.trust {
            Belief::Always => return "believed as it is".to_owned(),
            Belief::Auto => "believed once synchronised, or set by a real-time clock or a virtual machine's host",
            Belief::Sync => "believed once synchronised",
        };
        let before = match self.unsynced {
            WhenUnsynced::Hold => {
                format!("what is stamped before waits for that, {} at most", humantime::format_duration(self.hold_for))
            }
            WhenUnsynced::Flag => "what is stamped before is delivered as it is, and says so".to_owned(),
        };
        format!("{trusted}; {before}")
    }
}
