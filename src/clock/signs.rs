//! What a system says of its clock, and what that is worth. Pure: the signs are gathered elsewhere.

use super::Belief;
use crate::model::Timestamp;

/// 2026-11-01: nothing runs before the program was written. Moved forward with releases.
const WRITTEN: Timestamp = Timestamp::clamped(1_793_491_200_000);
/// 2100-01-01: later times are clocks that lost their mind, not the present.
const ABSURD: Timestamp = Timestamp::clamped(4_102_444_800_000);

/// The reason where the site file decides.
pub(super) const ALWAYS: &str = "the site file says so (clock.trust)";

/// What a system says of its clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Whether the kernel holds it synchronised (NTP, PTP); `None` where it does not tell.
    pub kernel: Option<bool>,
    /// systemd-timesyncd has set it in this boot.
    pub timesync: bool,
    /// A real-time clock set it at boot.
    pub rtc: bool,
    /// This is a virtual machine, whose host gives the time.
    pub host: bool,
}

/// Whether it can be the present, given the newest time that was trusted before.
pub(super) fn is_plausible(now: Timestamp, newest: Timestamp) -> bool {
    now >= WRITTEN.max(newest) && now < ABSURD
}

/// Whether a wall clock that says `now` is trusted: the reason why, or why not.
pub(super) fn judge(signs: &Signs, belief: Belief, now: Timestamp, newest: Timestamp) -> Result<String, String> {
    if belief == Belief::Always {
        return Ok(ALWAYS.to_owned());
    }
    if signs.kernel == Some(true) {
        return Ok("the system's clock is synchronised".to_owned());
    }
    if signs.timesync {
        return Ok("systemd-timesyncd has synchronised the system's clock".to_owned());
    }
    let giver = match (belief, signs) {
        (Belief::Auto, Signs { rtc: true, .. }) => "a real-time clock",
        (Belief::Auto, Signs { host: true, .. }) => "the virtual machine's host",
        (Belief::Auto, _) => {
            return Err("the system's clock is not synchronised, and no real-time clock set it".to_owned());
        }
        _ => return Err("the system's clock is not synchronised".to_owned()),
    };
    if is_plausible(now, newest) {
        return Ok(format!("{giver} set the system's clock"));
    }
    let after = WRITTEN.max(newest);
    Err(format!("{giver} set the system's clock to {now}, which cannot be (it is after {after})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Signs = Signs { kernel: Some(false), timesync: false, rtc: false, host: false };
    const RTC: Signs = Signs { rtc: true, ..NONE };
    const HOST: Signs = Signs { host: true, kernel: None, ..NONE };

    fn check(signs: Signs, belief: Belief, now: Timestamp, expected: Result<&str, &str>) {
        let newest = WRITTEN.shifted(86_400_000);
        let judged = judge(&signs, belief, now, newest);
        match (&judged, expected) {
            (Ok(reason), Ok(part)) | (Err(reason), Err(part)) if reason.contains(part) => {}
            _ => panic!("{judged:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn synchronisation_is_believed_whatever_the_time() {
        check(Signs { kernel: Some(true), ..NONE }, Belief::Sync, WRITTEN, Ok("is synchronised"));
        check(Signs { timesync: true, ..NONE }, Belief::Auto, Timestamp::EPOCH, Ok("timesyncd"));
        check(NONE, Belief::Always, Timestamp::EPOCH, Ok("clock.trust"));
    }

    #[test]
    fn a_real_time_clock_and_a_host_are_believed_when_they_can_be_right() {
        let present = WRITTEN.shifted(2 * 86_400_000);
        check(RTC, Belief::Auto, present, Ok("a real-time clock"));
        check(HOST, Belief::Auto, present, Ok("the virtual machine's host"));
        check(RTC, Belief::Auto, Timestamp::EPOCH, Err("1970-01-01T00:00:00.000Z, which cannot be"));
        check(HOST, Belief::Auto, WRITTEN, Err("cannot be"));
        check(RTC, Belief::Auto, ABSURD, Err("cannot be"));
        check(RTC, Belief::Sync, present, Err("not synchronised"));
    }

    #[test]
    fn without_any_sign_it_is_not_trusted() {
        check(NONE, Belief::Auto, WRITTEN.shifted(2 * 86_400_000), Err("no real-time clock"));
    }
}
