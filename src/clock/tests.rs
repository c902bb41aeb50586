//! The clock through its scripted kind: what it tells as a machine wakes up, is set, sleeps, and is synchronised.

use super::*;

const TRUE_TIME: i64 = 1_796_043_600_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::clamped(TRUE_TIME + seconds * 1000)
}

fn pass(script: &Script, seconds: u64) {
    script.pass(Duration::from_secs(seconds));
}

fn machine(wall: Timestamp) -> (Script, Clock) {
    let script = Script::boot_at("a", wall);
    let clock = Clock::scripted(&script, Config::default());
    (script, clock)
}

/// The time told, and whether it is trusted.
fn check(clock: &Clock, now: Timestamp, trust: Trust) {
    let moment = clock.look();
    assert_eq!((moment.now, moment.trust), (now, trust), "{}", clock.standing().reason);
    assert_eq!(clock.now(), now);
}

#[test]
fn until_it_is_trusted_no_setting_of_the_wall_clock_is_seen() {
    let (script, clock) = machine(Timestamp::EPOCH);
    pass(&script, 10);
    check(&clock, Timestamp::EPOCH.shifted(10_000), Trust::Unsynced);
    script.set(at(0));
    check(&clock, Timestamp::EPOCH.shifted(10_000), Trust::Unsynced);
    script.step(-3_600_000);
    pass(&script, 5);
    check(&clock, Timestamp::EPOCH.shifted(15_000), Trust::Unsynced);
    script.synchronise(at(0));
    pass(&script, 1);
    check(&clock, at(1), Trust::System);
    assert_eq!(clock.look().correction(), at(1).as_millis() - 16_000);
}

#[test]
fn trust_is_kept_for_the_rest_of_the_boot() {
    let (script, clock) = machine(at(0));
    script.synchronise(at(0));
    check(&clock, at(0), Trust::System);
    script.tell(Signs::default());
    pass(&script, 86_400);
    check(&clock, at(86_400), Trust::System);
}

#[test]
fn a_restart_in_the_same_boot_goes_on_and_another_boot_begins_after_all_that_is_known() {
    let (script, clock) = machine(Timestamp::EPOCH);
    let moment = clock.look();
    let known = Known { boot: moment.boot.to_string(), base: moment.base, newest: at(0), ..Known::default() };
    pass(&script, 60);
    script.set(at(5));
    let again = Clock::scripted(&script, Config::default());
    again.begin(&known);
    check(&again, Timestamp::EPOCH.shifted(60_000), Trust::Unsynced);
    let next = Clock::scripted(&Script::boot_at("b", Timestamp::EPOCH), Config::default());
    next.begin(&known);
    check(&next, at(0).shifted(1), Trust::Unsynced);
    let trusted = Clock::scripted(&script, Config::default());
    trusted.begin(&Known { trust: Trust::System, ..known });
    check(&trusted, at(5), Trust::System);
}

#[test]
fn stamps_of_arrivals_say_whether_they_are_unsynced() {
    let (script, clock) = machine(Timestamp::EPOCH);
    let arrivals = clock.for_arrivals(None);
    pass(&script, 3);
    assert!(arrivals.now().is_unsynced());
    assert_eq!(arrivals.now().plain(), clock.now());
    script.synchronise(at(0));
    clock.look();
    assert_eq!(arrivals.now(), at(0), "the clones are one clock");
}

#[test]
fn two_times_of_a_source_that_confirm_each_other_set_the_clock() {
    let (script, clock) = machine(Timestamp::EPOCH);
    let gps = clock.for_arrivals(Some(SourceName::new("gps").unwrap()));
    assert!(gps.wants_offers() && !clock.wants_offers());
    gps.offer(at(0));
    gps.offer(at(0));
    check(&clock, Timestamp::EPOCH, Trust::Unsynced);
    pass(&script, 1);
    // One garbled sentence, and a memory that is replayed: nothing confirms them.
    gps.offer(at(700));
    gps.offer(Timestamp::EPOCH.shifted(5000));
    check(&clock, Timestamp::EPOCH.shifted(1000), Trust::Unsynced);
    pass(&script, 1);
    gps.offer(at(2));
    pass(&script, 1);
    gps.offer(at(3).shifted(200));
    check(&clock, at(3).shifted(200), Trust::Source);
    assert_eq!(clock.standing().reason, "source gps brought the time");
    pass(&script, 100);
    gps.offer(at(101));
    pass(&script, 1);
    gps.offer(at(102));
    check(&clock, at(102), Trust::Source);
    script.synchronise(at(104));
    pass(&script, 1);
    check(&clock, at(105), Trust::System);
    assert!(!gps.wants_offers());
}

#[test]
fn a_source_that_lags_behind_what_was_trusted_is_not_believed() {
    let (script, clock) = machine(Timestamp::EPOCH);
    clock.begin(&Known { trusted: at(0), newest: at(0), ..Known::default() });
    let gps = clock.for_arrivals(Some(SourceName::new("gps").unwrap()));
    gps.offer(at(-10));
    pass(&script, 2);
    gps.offer(at(-8));
    check(&clock, at(2).shifted(1), Trust::Unsynced);
}
