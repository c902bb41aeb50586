//! The store and the clock against a plain model: a list of what arrived, and when that was in truth.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Event {
    /// A reading that is stamped on arrival.
    Stamp {
        sensor: u8,
    },
    /// A reading with a time of its own, that far back.
    Tell {
        sensor: u8,
        back: i64,
    },
    Pass {
        seconds: u64,
    },
    /// Somebody sets the wall clock.
    Step {
        seconds: i64,
    },
    /// The wall clock is set to the true time, and synchronised.
    Synchronise,
    Restart,
    /// The power is cut; the clock of the next boot says 1970, or nearly the truth, or the far future.
    Reboot {
        wall: u8,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        14 => (0u8..3).prop_map(|sensor| Event::Stamp { sensor }),
        4 => (0u8..3, 0i64..100).prop_map(|(sensor, back)| Event::Tell { sensor, back }),
        8 => (1u64..90).prop_map(|seconds| Event::Pass { seconds }),
        1 => prop_oneof![-4000i64..4000, -100i64..100].prop_map(|seconds| Event::Step { seconds }),
        1 => Just(Event::Synchronise),
        1 => Just(Event::Restart),
        1 => (0u8..3).prop_map(|wall| Event::Reboot { wall }),
    ];
    prop::collection::vec(event, 1..120)
}

/// What is known of one reading.
#[derive(Clone, Debug)]
struct Truth {
    sensor: String,
    /// When it arrived in truth, or the time that it told.
    at: i64,
    boot: usize,
    /// What the store may say of its clock.
    clocks: &'static [&'static str],
    /// Whether the time in its bucket must be `at`.
    exact: bool,
    stamped: bool,
}

struct Story {
    folder: tempfile::TempDir,
    truth: i64,
    boot: usize,
    /// Whether the boot was trusted yet, and whether its wall clock was set wrongly since.
    trusted: bool,
    astray: bool,
    arrived: Vec<Truth>,
}

impl Story {
    fn play(&mut self, mut gateway: Gateway, events: Vec<Event>) -> Gateway {
        for event in events {
            match event {
                Event::Pass { seconds } => {
                    gateway.pass(seconds);
                    self.truth += seconds as i64 * 1000;
                    gateway.commit(Vec::new());
                }
                Event::Step { seconds } => {
                    gateway.script.step(seconds * 1000);
                    self.astray |= self.trusted;
                }
                Event::Synchronise => {
                    gateway.script.synchronise(at(self.truth));
                    // The system is asked once a second.
                    gateway.pass(1);
                    self.truth += 1000;
                    gateway.commit(Vec::new());
                    if !self.trusted {
                        self.put_right();
                    }
                    (self.trusted, self.astray) = (true, false);
                }
                Event::Restart => gateway = gateway.restart(),
                Event::Reboot { wall } => {
                    self.boot += 1;
                    (self.trusted, self.astray) = (false, false);
                    let wall =
                        [Timestamp::EPOCH, at(self.truth - 5000), at(self.truth + 400 * 86_400_000)][wall as usize];
                    gateway = gateway.reboot(&format!("boot-{}", self.boot), wall);
                }
                Event::Stamp { sensor } => {
                    let sensor = format!("s{sensor}");
                    gateway.stamp(&sensor, self.arrived.len() as i64);
                    let clocks: &[_] = if self.trusted { &["synced", "restamped"] } else { &["unsynced"] };
                    let exact = self.trusted && !self.astray;
                    self.arrived.push(Truth { sensor, at: self.truth, boot: self.boot, clocks, exact, stamped: true });
                }
                Event::Tell { sensor, back } => {
                    let (sensor, told) = (format!("s{sensor}"), self.truth - back * 1000);
                    gateway.tell(&sensor, at(told), self.arrived.len() as i64);
                    let clocks = &["synced", "restamped"];
                    self.arrived.push(Truth { sensor, at: told, boot: self.boot, clocks, exact: true, stamped: false });
                }
            }
        }
        gateway
    }

    /// Trust came: what this boot stamped before can be put right.
    fn put_right(&mut self) {
        for truth in self.arrived.iter_mut().filter(|truth| truth.boot == self.boot && truth.clocks == ["unsynced"]) {
            (truth.clocks, truth.exact) = (&["restamped"], true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn whatever_happens_to_clock_and_power_every_reading_is_delivered_once_and_its_time_is_honest(
        events in events(),
        max_samples in 2u32..9,
        lazy: bool,
    ) {
        let mut story = Story {
            folder: tempfile::tempdir().unwrap(), truth: 0, boot: 0, trusted: false, astray: false, arrived: Vec::new(),
        };
        let script = Script::boot_at("boot-0", Timestamp::EPOCH);
        let long = Config { hold_for: Duration::from_secs(30 * 86_400), ..hold() };
        let gateway = Gateway::open_with(story.folder.path(), &script, long, max_samples, lazy);
        let gateway = story.play(gateway, events);
        // The last boot ends the story: it is synchronised at once, and everything that waits is released.
        let mut gateway = gateway.reboot("last", at(story.truth));
        gateway.script.synchronise(at(story.truth + 86_400_000));
        let seen = gateway.sealed();
        prop_assert_eq!(gateway.held(), 0);

        let mut found: BTreeMap<i64, (&Seen, i64)> = BTreeMap::new();
        for bucket in &seen {
            prop_assert!(bucket.samples.len() <= max_samples as usize);
            for (time, value) in &bucket.samples {
                prop_assert!(found.insert(*value, (bucket, *time)).is_none(), "{value} is delivered twice");
            }
        }
        prop_assert_eq!(found.len(), story.arrived.len(), "each reading is delivered");
        let mut last_unsynced: BTreeMap<(&str, usize), i64> = BTreeMap::new();
        for (truth, (value, (bucket, time))) in story.arrived.iter().zip(&found) {
            prop_assert_eq!(&bucket.sensor, &truth.sensor);
            prop_assert!(truth.clocks.contains(&bucket.clock), "{} is {}, not one of {:?}", value, bucket.clock, truth.clocks);
            if truth.exact {
                prop_assert_eq!(*time, truth.at, "time of {}", value);
            }
            if truth.stamped && truth.clocks == ["unsynced"] {
                let last = last_unsynced.insert((&truth.sensor, truth.boot), *time);
                prop_assert!(last.is_none_or(|last| last <= *time), "{} comes before what was stamped earlier", value);
            }
        }
    }
}
