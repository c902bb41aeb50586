//! The operating system's clocks, and the signs by which they are judged. Nothing here needs rights, and whatever cannot
//! be read counts as not being there.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use super::Signs;
use super::timedated::Timedated;
use crate::model::Timestamp;

/// A random number that the kernel draws at each boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// systemd-timesyncd makes this file when it first sets the clock; `/run` is empty after a boot.
const TIMESYNC: &str = "/run/systemd/timesync/synchronized";

/// The system's clock.
#[derive(Clone, Debug, Default)]
pub(super) struct System(Arc<Fixed>);

/// What does not change within a boot, and who answers for us.
#[derive(Debug, Default)]
struct Fixed {
    boot: OnceLock<Arc<str>>,
    /// A real-time clock; a host.
    givers: OnceLock<(bool, bool)>,
    /// Who asks the kernel where we cannot.
    timedated: Timedated,
}

impl System {
    pub(super) fn wall(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp::EPOCH.plus(since)
    }

    pub(super) fn boot_time(&self) -> i64 {
        let since = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }

    pub(super) fn boot(&self) -> Arc<str> {
        let read = || match fs::read_to_string(BOOT_ID) {
            Ok(id) => Arc::from(id.trim()),
            Err(error) => {
                tracing::warn!("cannot read {BOOT_ID}: {error} (each start of the program counts as a boot)");
                Arc::from(format!("unknown-{:016x}", fastrand::u64(..)))
            }
        };
        Arc::clone(self.0.boot.get_or_init(read))
    }

    pub(super) fn signs(&self) -> Signs {
        let (rtc, host) = *self.0.givers.get_or_init(|| (has_rtc(), has_host()));
        let kernel = kernel().or_else(|| self.0.timedated.is_synchronised(self.boot_time()));
        Signs { kernel, timesync: Path::new(TIMESYNC).exists(), rtc, host }
    }
}

/// Asks only: with `modes` 0 the kernel changes nothing. Fails where a filter of system calls forbids even that.
#[cfg(target_pointer_width = "64")]
fn kernel() -> Option<bool> {
    use rtime_clock::adjtime::{Timex, adjtimex};

    /// `STA_UNSYNC` of adjtimex(2).
    const STA_UNSYNC: i32 = 0x0040;
    /// `TIME_ERROR` of adjtimex(2): the clock is not synchronised.
    const TIME_ERROR: i32 = 5;

    let mut answer = Timex::new();
    let state = adjtimex(&mut answer).ok()?;
    Some(state != TIME_ERROR && answer.0.status & STA_UNSYNC == 0)
}

/// The crate that asks the kernel is for 64 bits only.
#[cfg(not(target_pointer_width = "64"))]
fn kernel() -> Option<bool> {
    None
}

/// Whether the kernel took its time from a real-time clock when it started.
fn has_rtc() -> bool {
    let Ok(clocks) = fs::read_dir("/sys/class/rtc") else { return false };
    clocks.flatten().any(|clock| fs::read_to_string(clock.path().join("hctosys")).is_ok_and(|text| text.trim() == "1"))
}

/// Whether a hypervisor is beneath us: x86 has a flag, ARM a node in the device tree, Xen a folder.
fn has_host() -> bool {
    let flagged = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| {
        let mut flags = text.lines().filter(|line| line.starts_with("flags"));
        flags.next().is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
    });
    let folders = ["/sys/hypervisor/type", "/proc/device-tree/hypervisor"];
    flagged || folders.iter().any(|path| Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_its_boot_and_a_time_that_goes_on() {
        let system = System::default();
        assert_eq!(system.boot(), system.boot());
        assert!(!system.boot().is_empty());
        let before = system.boot_time();
        assert!(before > 0 && system.boot_time() >= before);
        // Whatever this machine says, asking again says the same.
        assert_eq!(system.signs().host, system.signs().host);
    }
}
