//! Manners towards a shared cluster: when a gateway of a fleet uploads, and when it connects. Pure.
//!
//! Windows end at the same second everywhere, and an outage ends for all at once. So each gateway has a place of its own
//! in every interval, made from its name: the same after every restart, and known to nobody but arithmetic.

use std::time::Duration;

use super::{Config, Kind};
use crate::model::{SiteName, Timestamp};

/// Connections that one gateway opens when it connects to a replica set of three: a monitor for each, and one that works.
const SOCKETS: u32 = 4;
/// Gateways at places made from names bunch: at some ten a second the fullest second has up to three times the mean.
const BUNCHING: u32 = 3;
/// At most this share of a window passes before its buckets are sent.
const WINDOW_SHARE: u32 = 10;

/// When to send and when to connect.
#[derive(Clone, Debug, PartialEq)]
pub struct Manners {
    /// This gateway's place in any interval, in `[0, 1)`.
    place: f64,
    spread: Duration,
    upload_every: Option<Duration>,
    splay: Duration,
    /// Commands of the backlog for each one of new buckets; 0: all in one line.
    pub backlog_share: u32,
}

impl Manners {
    /// As the site file asks.
    pub fn new(config: &Config, site: &SiteName) -> Self {
        let hash = xxhash_rust::xxh3::xxh3_64(site.as_str().as_bytes());
        let sockets = u64::from(config.fleet_size.unwrap_or(0)) * u64::from(SOCKETS * BUNCHING);
        let splay = Duration::from_secs(sockets) / config.max_connects_per_second.max(1);
        Self {
            place: (hash >> 11) as f64 / (1_u64 << 53) as f64,
            spread: config.spread,
            upload_every: config.upload_every,
            splay: if config.fleet_size == Some(1) { Duration::ZERO } else { splay },
            backlog_share: config.backlog_share,
        }
        .for_kind(config.kind)
    }

    /// Nobody has to be waited for.
    pub fn none() -> Self {
        let zero = Duration::ZERO;
        Self { place: 0.0, spread: zero, upload_every: None, splay: zero, backlog_share: 0 }
    }

    /// Files are nobody else's.
    fn for_kind(self, kind: Kind) -> Self {
        match kind {
            Kind::Mongodb => self,
            Kind::Archive => Self::none(),
        }
    }

    /// How long buckets wait whose window, of this length, has just been sealed.
    pub fn phase(&self, window: Duration) -> Duration {
        self.spread.min(window / WINDOW_SHARE).mul_f64(self.place)
    }

    /// How long until this gateway's next upload, if it uploads at times of its own.
    pub fn slot(&self, now: Timestamp) -> Option<Duration> {
        let every = self.upload_every?.as_millis() as i64;
        let place = (every as f64 * self.place) as i64;
        Some(Duration::from_millis((place - now.as_millis()).rem_euclid(every) as u64))
    }

    /// How long to wait before the first connection of all: a fleet may have been switched on together.
    pub fn first_connection(&self) -> Duration {
        self.splay.mul_f64(self.place)
    }

    /// How long to wait at least before connecting again; `random` is a uniform number in `[0, 1)`.
    pub fn next_connection(&self, random: f64) -> Duration {
        self.splay.mul_f64(random.clamp(0.0, 1.0))
    }

    /// The same manners with another splay, as the database's owner asked for.
    pub fn with_splay(self, splay: Duration) -> Self {
        Self { splay, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manners(name: &str, config: &Config) -> Manners {
        Manners::new(config, &SiteName::new(name).unwrap())
    }

    fn fleet(size: u32) -> impl Iterator<Item = Manners> {
        let config = Config { fleet_size: Some(size), ..Config::default() };
        (0..size).map(move |i| manners(&format!("gateway-{i:04}"), &config))
    }

    #[test]
    fn a_fleet_does_not_upload_in_the_same_second() {
        let mut seconds = [0_u32; 30];
        for gateway in fleet(3000) {
            let phase = gateway.phase(Duration::from_secs(600));
            assert!(phase < Duration::from_secs(30));
            seconds[phase.as_secs() as usize] += 1;
        }
        assert!(seconds.iter().all(|n| (60..=140).contains(n)), "{seconds:?}");
    }

    #[test]
    fn short_windows_wait_shortly() {
        for gateway in fleet(50) {
            assert!(gateway.phase(Duration::from_secs(1)) < Duration::from_millis(100));
        }
        assert_eq!(Manners::none().phase(Duration::from_secs(600)), Duration::ZERO);
    }

    #[test]
    fn a_fleet_that_is_switched_on_together_keeps_to_the_rate() {
        for size in [200_u32, 5000] {
            let mut seconds = std::collections::BTreeMap::<u64, u32>::new();
            for gateway in fleet(size) {
                *seconds.entry(gateway.first_connection().as_secs()).or_default() += SOCKETS;
            }
            // The fullest second may hold eight gateways where two are usual; a limiter's bucket takes that.
            let busiest = *seconds.values().max().unwrap();
            assert!(busiest <= 2 * 20, "{size} gateways: {busiest} connections in a second");
            for second in 0..seconds.keys().max().unwrap() - 5 {
                let five: u32 = seconds.range(second..second + 5).map(|(_, n)| n).sum();
                assert!(five <= 5 * 20, "{size} gateways: {five} connections in five seconds");
            }
        }
    }

    #[test]
    fn without_a_fleet_nobody_waits() {
        for config in [Config::default(), Config { fleet_size: Some(1), ..Config::default() }] {
            assert_eq!(manners("a", &config).first_connection(), Duration::ZERO);
            assert_eq!(manners("a", &config).next_connection(0.9), Duration::ZERO);
        }
        let archive = Config { kind: Kind::Archive, fleet_size: Some(100), ..Config::default() };
        assert_eq!(manners("a", &archive), Manners::none());
    }

    #[test]
    fn uploads_have_a_time_of_their_own_in_every_interval() {
        let hourly = Config { upload_every: Some(Duration::from_secs(3600)), ..Config::default() };
        let gateway = manners("gateway-1", &hourly);
        let at = |s: i64| Timestamp::clamped(1_796_043_600_000 + s * 1000);
        let first = at(0).plus(gateway.slot(at(0)).unwrap());
        assert_eq!(at(1800).plus(gateway.slot(at(1800)).unwrap()).since(first).as_secs() % 3600, 0);
        assert_eq!(gateway.slot(first), Some(Duration::ZERO));
        assert_ne!(gateway.slot(at(0)), manners("gateway-2", &hourly).slot(at(0)));
        assert_eq!(manners("a", &Config::default()).slot(at(0)), None);
    }
}
