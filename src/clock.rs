//! The only file that asks the operating system what time it is. Everywhere else time is an argument, or comes from here.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Where the time comes from. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    System,
    Virtual { start: Timestamp, origin: tokio::time::Instant },
    Fixed(Timestamp),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Arc::new(Kind::System))
    }

    /// Always the same time: that at which a recording was made.
    pub fn fixed(at: Timestamp) -> Self {
        Self(Arc::new(Kind::Fixed(at)))
    }

    /// A clock that reads `start` now and goes on with tokio's own, so that paused time is virtual time.
    /// Must be called inside a runtime.
    pub fn virtual_from(start: Timestamp) -> Self {
        Self(Arc::new(Kind::Virtual { start, origin: tokio::time::Instant::now() }))
    }

    /// What time it is. A system clock before 1970 reads as 1970.
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Kind::System => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                Timestamp::EPOCH.plus(since)
            }
            Kind::Virtual { start, origin } => start.plus(origin.elapsed()),
            Kind::Fixed(at) => *at,
        }
    }
}
