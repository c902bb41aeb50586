//! One story each.

use super::*;

/// How a story ends: each sample with what is known of its clock, its time and its value.
#[track_caller]
fn check(gateway: &mut Gateway, expected: &[(&'static str, i64, i64)]) {
    assert_eq!(samples(&gateway.sealed()), expected);
    assert_eq!(gateway.held(), 0, "nothing waits for ever");
}

#[track_caller]
fn check_each_second(gateway: &mut Gateway, stories: &[(&'static str, i64, std::ops::Range<i64>)]) {
    let each = stories.iter().flat_map(|(clock, from, values)| {
        values.clone().map(move |value| (*clock, from + (value - values.start) * 1000, value))
    });
    check(gateway, &each.collect::<Vec<_>>());
}

#[test]
fn a_boot_in_1970_is_put_right_56_years_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", Timestamp::EPOCH, hold());
    gateway.stamp_each_second("s", 0..150);
    assert_eq!((gateway.held(), gateway.drawn()), (150, vec![]), "kept back, also in closed buckets");
    gateway.synchronise(150_000);
    gateway.stamp_each_second("s", 150..200);
    check_each_second(
        &mut gateway,
        &[("restamped", 0, 0..150), ("restamped", 151_000, 150..179), ("synced", 180_000, 179..200)],
    );
}

#[test]
fn a_wall_clock_that_is_set_while_it_is_not_trusted_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", Timestamp::EPOCH, hold());
    for (round, step) in [3_600_000, -3_600_000, 1_700_000_000_000, -5].into_iter().enumerate() {
        let from = 10 * round as i64;
        gateway.stamp_each_second("s", from..from + 10);
        gateway.script.step(step);
        gateway = gateway.restart();
    }
    gateway.synchronise(40_000);
    check_each_second(&mut gateway, &[("restamped", 0, 0..40)]);
}

#[test]
fn set_back_by_an_hour_no_sample_is_lost_or_put_in_another_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", at(0), hold());
    gateway.synchronise(-1000);
    gateway.stamp_each_second("s", 0..30);
    gateway.script.step(-3_600_000);
    gateway.stamp_each_second("s", 30..60);
    gateway.script.step(3_600_000);
    gateway.stamp_each_second("s", 60..90);
    gateway.script.step(-10_000);
    gateway.stamp_each_second("s", 90..110);
    let seen = gateway.sealed();
    assert!(seen.len() <= 7, "one step touches one bucket: {seen:?}");
    for bucket in &seen {
        assert!(bucket.samples.is_sorted_by_key(|(_, value)| *value), "order of arrival: {bucket:?}");
    }
    let times = |values: std::ops::Range<i64>, shift: i64| values.map(move |v| ("synced", v * 1000 + shift, v));
    let all: Vec<_> = times(0..30, 0)
        .chain(times(30..60, -3_600_000))
        .chain(times(60..90, 0))
        .chain(times(90..110, -10_000))
        .collect();
    assert_eq!(samples(&seen), all);
}

#[test]
fn set_forward_by_an_hour_what_is_over_ends_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", at(0), hold());
    gateway.synchronise(-1000);
    gateway.stamp_each_second("s", 0..10);
    gateway.script.step(3_600_000);
    gateway.stamp("s", 10);
    assert_eq!(gateway.drawn().len(), 1, "60 windows passed, one held something");
    assert_eq!(gateway.sealed().len(), 2);
}

#[test]
fn a_clock_that_is_slewed_keeps_its_buckets_and_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", at(0), hold());
    gateway.synchronise(-1000);
    for value in 0..300 {
        gateway.stamp("s", value);
        gateway.pass(1);
        // 500 parts in a million are the most that the kernel slews; here a hundred times that, back and forth.
        gateway.script.step(if value % 100 < 50 { -50 } else { 50 });
    }
    let seen = gateway.sealed();
    assert!(seen.len() <= 6 && seen.iter().all(|bucket| bucket.part == 0), "{seen:?}");
    assert_eq!(samples(&seen).len(), 300);
}

#[test]
fn an_oscillator_that_drifts_makes_restamped_times_wrong_by_no_more_than_its_drift() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", Timestamp::EPOCH, hold());
    // Each second of the machine takes 1.0001 seconds: 100 parts in a million.
    for value in 0..360 {
        gateway.stamp("s", value);
        gateway.pass(10);
    }
    gateway.synchronise(3_600_360);
    for (clock, told, value) in samples(&gateway.sealed()) {
        let truth = value * 10_000 + value;
        assert!(clock == "restamped" && (told - truth).abs() <= 360, "{value} came at {truth}, not {told}");
    }
}

#[test]
fn two_boots_without_sync_come_in_order_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", at(0), hold());
    gateway.synchronise(-1000);
    gateway.stamp_each_second("s", 0..10);
    for (boot, from) in [("b", 10), ("c", 20)] {
        gateway = gateway.reboot(boot, Timestamp::EPOCH);
        gateway.stamp_each_second("s", from..from + 10);
    }
    gateway = gateway.reboot("d", Timestamp::EPOCH);
    gateway.synchronise(3_600_000);
    gateway.stamp_each_second("s", 30..32);
    let seen = gateway.sealed();
    let all = samples(&seen);
    let clocks: Vec<_> = all.iter().map(|(clock, ..)| *clock).collect();
    assert_eq!(clocks, [vec!["synced"; 10], vec!["unsynced"; 20], vec!["synced"; 2]].concat());
    assert!(all.is_sorted_by_key(|(_, at, _)| *at), "boots come one after the other: {all:?}");
}

#[test]
fn what_a_boot_put_right_in_part_the_next_one_finishes_with_the_same_correction() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::boot_at("a", Timestamp::EPOCH);
    let mut gateway = Gateway::open(folder.path(), &script, hold(), 2);
    gateway.stamp_each_second("s", 0..20);
    assert!(gateway.engine.state.held.rows >= 9);
    gateway.synchronise(20_000);
    gateway.pass(1);
    gateway.commit(Vec::new());
    assert!(gateway.engine.state.held.rows >= 5, "one row in a commit");
    let mut gateway = gateway.reboot("b", Timestamp::EPOCH);
    check_each_second(&mut gateway, &[("restamped", 0, 0..20)]);
}

#[test]
fn a_kill_after_each_commit_of_restamping_neither_loses_nor_doubles() {
    let folder = tempfile::tempdir().unwrap();
    let script = Script::boot_at("a", Timestamp::EPOCH);
    let mut gateway = Gateway::open(folder.path(), &script, hold(), 7);
    gateway.stamp_each_second("s", 0..100);
    gateway.stamp_each_second("t", 100..130);
    gateway.synchronise(130_000);
    for _ in 0..40 {
        gateway.commit(Vec::new());
        gateway = gateway.restart();
    }
    check_each_second(&mut gateway, &[("restamped", 0, 0..130)]);
}

#[test]
fn a_suspend_of_a_month_is_time_that_passes() {
    let folder = tempfile::tempdir().unwrap();
    let long = Config { hold_for: Duration::from_secs(60 * 86_400), ..hold() };
    let mut gateway = Gateway::boot(folder.path(), "a", Timestamp::EPOCH, long);
    const MONTH: i64 = 30 * 86_400;
    gateway.stamp("s", 0);
    gateway.pass(MONTH as u64);
    gateway.stamp("s", 1);
    gateway.synchronise(MONTH * 1000);
    gateway.pass(MONTH as u64);
    gateway.stamp("s", 2);
    check(&mut gateway, &[("restamped", 0, 0), ("restamped", MONTH * 1000, 1), ("synced", (2 * MONTH + 1) * 1000, 2)]);
}

#[test]
fn with_flag_nothing_waits_and_nothing_pretends() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", at(0), flag());
    gateway.stamp_each_second("s", 0..10);
    assert_eq!(gateway.held(), 0);
    // The same window, once trusted and once not: two buckets.
    gateway.synchronise(10_000);
    gateway.stamp_each_second("s", 10..20);
    let seen = gateway.sealed();
    assert_eq!(
        seen.iter().map(|bucket| (bucket.clock, bucket.part)).collect::<Vec<_>>(),
        [("unsynced", 0), ("synced", 1)]
    );
    assert_eq!(samples(&seen).len(), 20);
}

#[test]
fn what_is_held_too_long_is_delivered_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", at(0), hold());
    gateway.stamp("s", 0);
    gateway.pass(5 * 3600);
    gateway.stamp("s", 1);
    gateway.settle();
    assert_eq!(gateway.held(), 2);
    gateway.pass(3600 + 120);
    gateway.settle();
    assert_eq!(gateway.held(), 1, "six hours are over for the first");
    gateway.synchronise(1_000_000_000);
    let told = 1_000_000_000 - (3600 + 120) * 1000;
    check(&mut gateway, &[("unsynced", 0, 0), ("restamped", told, 1)]);
}

#[test]
fn a_source_that_brings_the_time_puts_right_what_was_held() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", Timestamp::EPOCH, hold());
    gateway.stamp_each_second("s", 0..10);
    gateway.arrivals.offer(at(10_000));
    gateway.pass(2);
    gateway.arrivals.offer(at(12_000));
    gateway.stamp("s", 10);
    check(
        &mut gateway,
        &[(0..10).map(|v| ("restamped", v * 1000, v)).collect(), vec![("restamped", 12_000, 10)]].concat(),
    );
}

#[test]
fn readings_with_their_own_time_are_sealed_in_time_whatever_the_clock_says() {
    for wall in [Timestamp::EPOCH, at(50 * 365 * 86_400_000)] {
        let folder = tempfile::tempdir().unwrap();
        let mut gateway = Gateway::boot(folder.path(), "a", wall, hold());
        gateway.tell("s", at(1000), 1);
        gateway.pass(66);
        gateway.tell("s", at(67_000), 2);
        assert_eq!(samples(&gateway.drawn()), [("synced", 1000, 1)], "a window and its grace after it was opened");
        gateway.synchronise(70_000);
        gateway.pass(70);
        gateway.settle();
        assert_eq!(samples(&gateway.drawn()).len(), 2, "the wrong clock does not keep it open");
    }
}

#[test]
fn a_stamp_that_was_under_way_when_trust_came_is_put_right_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut gateway = Gateway::boot(folder.path(), "a", Timestamp::EPOCH, hold());
    let waiting = reading("s", gateway.arrivals.now(), 1);
    gateway.pass(5);
    gateway.synchronise(5000);
    gateway.stamp("s", 2);
    gateway.commit(vec![Delivery { stamped: true, ..Delivery::of(vec![waiting]) }]);
    check(&mut gateway, &[("restamped", 0, 1), ("restamped", 6000, 2)]);
}

#[test]
fn three_weeks_without_network_with_power_cuts_and_a_clock_that_jumps_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut gateway = Gateway::boot(folder.path(), "boot-0", at(0), hold());
    gateway.synchronise(-1000);
    let (mut value, mut truth) = (0, 0);
    for day in 0..21 {
        for _ in 0..48 {
            for _ in 0..3 {
                gateway.stamp("s", value);
                value += 1;
                gateway.pass(10);
            }
            gateway.pass(1770);
            truth += 1_800_000;
            match random.u32(..20) {
                0 => gateway.script.step(3_600_000),
                1 => gateway.script.step(-3_600_000),
                2 => gateway = gateway.restart(),
                3 => {
                    gateway =
                        gateway.reboot(&format!("boot-{truth}"), [Timestamp::EPOCH, at(truth)][random.usize(..2)]);
                }
                _ => {}
            }
        }
        // The network is there for a moment every third day.
        if day % 3 == 2 {
            gateway.synchronise(truth);
            truth += 1000;
        }
        assert!(gateway.engine.state.bucketer.open_buckets() < 20, "a jump opens no windows");
    }
    gateway = gateway.reboot("last", Timestamp::EPOCH);
    gateway.synchronise(truth);
    let seen = gateway.sealed();
    let all = samples(&seen);
    assert_eq!(all.iter().map(|(_, _, value)| *value).collect::<Vec<_>>(), (0..value).collect::<Vec<_>>());
    assert_eq!(gateway.held(), 0);
    let count = |clock| all.iter().filter(|(of, ..)| *of == clock).count();
    assert!(["synced", "restamped", "unsynced"].into_iter().all(|clock| count(clock) > 30), "the story has everything");
    assert!(seen.len() < 21 * 48 * 2, "{} buckets", seen.len());
}
