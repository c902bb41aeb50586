//! How long to wait before the next try: full jitter, `rand(0, min(cap, base · 2^tries))`, reset after success.
//!
//! Full jitter because a fleet that lost its link together must not come back together.

use std::time::Duration;

/// A growing, jittered pause.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    tries: u32,
}

impl Backoff {
    /// Pauses that begin at up to `base` and grow to up to `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, tries: 0 }
    }

    /// The next pause; `random` is a uniform number in `[0, 1)`. Never under a tenth of the ceiling, so that nothing spins.
    pub fn next_pause(&mut self, random: f64) -> Duration {
        let ceiling = self.base.saturating_mul(2u32.saturating_pow(self.tries.min(31))).min(self.cap);
        self.tries = self.tries.saturating_add(1);
        ceiling.mul_f64(random.clamp(0.1, 1.0))
    }

    /// How many pauses since the last success.
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// After a success: the next pause is short again.
    pub fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_never_vanish() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let ceilings: Vec<u64> = (0..7).map(|_| backoff.next_pause(1.0).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.next_pause(0.0), Duration::from_secs(3));
        backoff.reset();
        assert_eq!(backoff.next_pause(0.5), Duration::from_millis(500));
    }
}
