//! Disk and budget: what happens when one of them is full, and that every such state is left again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::model::LossReason;
use crate::store::engine::{Batch, Engine, Setup};

/// A small ext4 of its own; unmounted when it goes.
struct Disk {
    folder: tempfile::TempDir,
}

impl Disk {
    /// `None`, and that is said loudly, where it cannot be mounted.
    fn of(mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (image, at) = (folder.path().join("image"), folder.path().join("disk"));
        fs::create_dir(&at).unwrap();
        fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let run = |program: &str, arguments: &[&str], path: &Path| {
            Command::new(program).args(arguments).arg(&image).arg(path).output().is_ok_and(|run| run.status.success())
        };
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image).output();
        if !made.is_ok_and(|run| run.status.success()) || !run("mount", &["-o", "loop"], &at) {
            eprintln!("NOT TESTED: no file system can be mounted here (that takes root and a loop device)");
            return None;
        }
        Some(Self { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Others write until nothing is left.
    fn fill(&self) -> PathBuf {
        use std::io::Write;
        let path = self.path().join("others");
        let mut file = fs::File::create(&path).unwrap();
        for piece in [1 << 20, 4096, 512] {
            while file.write_all(&vec![7; piece]).is_ok() {}
        }
        let _ = file.sync_all();
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).output();
    }
}

/// Much to store, and little to compute.
fn bulky(n: i64) -> Delivery {
    let mut random = fastrand::Rng::with_seed(n as u64);
    let mut text = |_| Value::text(&(0..200).map(|_| random.alphanumeric()).collect::<String>()).unwrap();
    Delivery::of((0..100).map(|i| reading_ms("bulk", n * 6000 + i * 60, text(i))).collect())
}

/// Commits until one is not acknowledged within a minute; how many were.
async fn commit_until_full(site: &Site, from: i64, most: i64) -> (i64, mpsc::Receiver<u64>) {
    let (to, mut receipts) = mpsc::channel(1000);
    for n in from..from + most {
        let receipt = Some(Receipt::new(to.clone(), n as u64));
        site.inlet.push(Delivery { receipt, urgent: true, ..bulky(n) }).await.unwrap();
        if tokio::time::timeout(Duration::from_secs(60), receipts.recv()).await.is_err() {
            return (n - from, receipts);
        }
    }
    (most, receipts)
}

/// Delivers everything that is sealed.
async fn drain(site: &mut Site) {
    site.outlet.rewind();
    while let Ok(parcel) = tokio::time::timeout(Duration::from_millis(50), site.outlet.next()).await {
        let settled = Settled { segments: vec![parcel.unwrap().unwrap().id], dead_letters: vec![] };
        site.outlet.settle(settled).await.unwrap();
    }
}

fn refusing(mib: u64) -> impl Fn(&mut Config) {
    move |config| {
        config.max_bytes = ByteSize::mib(mib);
        config.when_full = WhenFull::Refuse;
    }
}

fn accounts_add_up(site: &Site) {
    let store = site.stats.store();
    let lost: i64 = store.lost.iter().map(|lost| lost.get()).sum();
    assert_eq!(store.accepted.get(), store.delivered.get() + store.stored.get() + lost);
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_others_filled_takes_readings_and_gives_them_up_until_the_reserve_is_used() {
    let Some(disk) = Disk::of(96) else { return };
    let mut site = site_with(&disk.path(), clock(), refusing(64), 500, 100).await;
    // The reserve comes a while after the start, piece by piece.
    for n in 0..20 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(commit_until_full(&site, n, 1).await.0, 1);
    }
    let others = disk.fill();
    // Far more than the log holds, so that it is copied into the file many times.
    for round in 0..25 {
        let (taken, _) = commit_until_full(&site, 20 + round * 20, 20).await;
        assert_eq!(taken, 20, "round {round}: {:?}", site.stats.store().condition.get());
        drain(&mut site).await;
    }
    let (taken, mut receipts) = commit_until_full(&site, 520, 5000).await;
    assert!((60..5000).contains(&taken), "the reserve holds some megabytes: {taken}");
    assert_eq!(site.stats.store().condition.get().up, Some(false));
    // Room that is delivered is room again, also while the disk is full.
    drain(&mut site).await;
    assert!(tokio::time::timeout(Duration::from_secs(120), receipts.recv()).await.is_ok(), "after a drain");
    let (_, mut receipts) = commit_until_full(&site, 10_000, 5000).await;
    fs::remove_file(others).unwrap();
    assert!(tokio::time::timeout(Duration::from_secs(120), receipts.recv()).await.is_ok(), "the disk has room again");
    assert_eq!(site.stats.store().condition.get().up, Some(true));
    accounts_add_up(&site);
    site.kill().await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_we_filled_has_room_again_after_a_drain() {
    let Some(disk) = Disk::of(20) else { return };
    // The budget is far above what the disk has.
    let mut site = site_with(&disk.path(), clock(), refusing(2048), 500, 100).await;
    for round in 0..2 {
        let (taken, mut receipts) = commit_until_full(&site, round * 10_000, 9000).await;
        assert!((100..9000).contains(&taken), "round {round}: {taken}");
        drain(&mut site).await;
        assert!(tokio::time::timeout(Duration::from_secs(120), receipts.recv()).await.is_ok(), "round {round}");
        assert_eq!(site.stats.store().condition.get().up, Some(true), "round {round}");
    }
    accounts_add_up(&site);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn room_is_used_again_after_a_drain() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site_with(folder.path(), clock(), refusing(48), 500, 100).await;
    let mut sizes = Vec::new();
    for round in 0..3 {
        for n in 0..300 {
            site.commit(Delivery { urgent: true, ..noise(round * 1000 + n, 500) }).await;
        }
        sizes.push(site.stats.store().bytes.get());
        drain(&mut site).await;
        let used = site.stats.store().bytes.get();
        assert!(used < sizes[0] - 900_000, "round {round}: {used} of {sizes:?}");
    }
    assert!(sizes[2] - sizes[1] < 50_000, "{sizes:?}");
    site.stop().await;
}

/// An engine without its task, on a small budget.
fn engine(folder: &Path) -> Engine {
    let setup = Setup {
        site: site_name(),
        path: folder.join("t.db"),
        max_bytes: 5 << 20,
        beside: 0,
        when_full: WhenFull::Refuse,
        max_sensors: 10,
        policies: policies(500),
        blocks: Default::default(),
        clock: Default::default(),
        write_behind: Duration::ZERO,
        pool: Default::default(),
        keep: (Duration::ZERO, Duration::ZERO),
    };
    recovery::recover(setup, &names::NameReader::default()).unwrap()
}

#[test]
fn a_full_budget_is_a_state_and_costs_no_new_start() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine(folder.path());
    let now = Timestamp::clamped(START);
    let batch = |n: i64| Batch { deliveries: vec![noise(n, 500)], ..Batch::default() };
    let full = (0..5000).find(|n| engine.commit(&batch(*n), now).is_err()).expect("it gets full");
    let seq = engine.last_record();
    for n in 0..100 {
        assert!(matches!(engine.commit(&batch(full + n), now), Err(StoreError::Full { .. })));
        assert!(engine.is_sound());
    }
    assert_eq!(engine.last_record(), seq, "nothing was written meanwhile");
    let oldest: Vec<u64> = {
        let mut select = engine.db.prepare("SELECT id FROM segment ORDER BY id LIMIT 20").unwrap();
        select.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let segments = oldest.into_iter().map(SegmentId).collect();
    let settled = vec![Settled { segments, dead_letters: vec![] }];
    let report = engine.commit(&Batch { settled, ..batch(full) }, now).unwrap();
    assert_eq!(report.readings, 500, "delivered and taken in one call");
}

#[tokio::test(start_paused = true)]
async fn readings_that_cannot_wait_any_longer_stand_in_the_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site_with(folder.path(), clock(), refusing(5), 500, 100).await;
    let (taken, mut receipts) = commit_until_full(&site, 0, 5000).await;
    // Without a receipt: nobody sends these again. Most weigh more than may wait.
    let before = site.stats.store().accepted.get();
    let mut sent = 100;
    for n in 0..400 {
        let pushed = tokio::time::timeout(Duration::from_secs(120), site.inlet.push(noise(taken + 1 + n, 500)));
        pushed.await.expect("a serial line is not stopped").unwrap();
        sent += 500;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    let lost = site.stats.store().lost[LossReason::StoreFull as usize].get();
    assert!(lost > 100_000, "put on record although nothing else can be: {lost}");
    drain(&mut site).await;
    assert!(tokio::time::timeout(Duration::from_secs(120), receipts.recv()).await.is_ok());
    site.commit(Delivery::of(vec![])).await;
    assert_eq!(site.stats.store().accepted.get(), before + sent, "what waited is taken");
    assert!(site.stats.store().lost[LossReason::StoreFull as usize].get() < sent);
    accounts_add_up(&site);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn damaged_files_make_room_before_live_data_does() {
    let folder = tempfile::tempdir().unwrap();
    let set = folder.path().join("quarantine/20260101T000000.000Z-0");
    fs::create_dir_all(&set).unwrap();
    fs::write(set.join("t.db"), vec![7; 2 << 20]).unwrap();
    let thin = |config: &mut Config| config.max_bytes = ByteSize::mib(5);
    let site = site_with(folder.path(), clock(), thin, 500, 100).await;
    assert!(site.stats.store().bytes.get() > 3 << 20, "they count");
    assert!(site.stats.store().fill_percent.get() > 60);
    let mut n = 0;
    while set.exists() {
        assert_eq!((site.stats.store().thinned.get(), site.stats.store().evicted.get()), (0, 0), "commit {n}");
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
        n += 1;
        assert!(n < 700, "they are never deleted");
    }
    assert!(n > 20);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn alarms_stand_while_the_budget_is_nearly_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site_with(folder.path(), clock(), refusing(20), 500, 100).await;
    let mut seen = vec![site.stats.store().alarm_percent.get()];
    let (to, mut receipts) = mpsc::channel(1);
    for n in 0..5000 {
        let receipt = Some(Receipt::new(to.clone(), 0));
        site.inlet.push(Delivery { receipt, urgent: true, ..bulky(n) }).await.unwrap();
        let full = tokio::time::timeout(Duration::from_secs(60), receipts.recv()).await.is_err();
        let alarm = site.stats.store().alarm_percent.get();
        if seen.last() != Some(&alarm) {
            seen.push(alarm);
        }
        if full {
            break;
        }
    }
    drain(&mut site).await;
    seen.push(site.stats.store().alarm_percent.get());
    assert_eq!(seen, [0, 70, 90, 0]);
    site.kill().await;
}

/// What lies in a folder, and in those inside it.
fn on_disk(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { on_disk(&path) } else { database::allocated(&path) }).sum()
}

#[tokio::test(start_paused = true)]
async fn a_full_store_and_everything_beside_it_stay_within_the_budget() {
    /// The least that a site may say.
    const BUDGET: u64 = 48 << 20;
    const BESIDE: u64 = 4 << 20;
    let folder = tempfile::tempdir().unwrap();
    // The others have all that they may have.
    fs::write(folder.path().join("t.db.receipts"), vec![7; (BESIDE / 2) as usize]).unwrap();
    fs::write(folder.path().join("t.db.receipts.1"), vec![7; (BESIDE / 2) as usize]).unwrap();
    let config = |config: &mut Config| {
        refusing(BUDGET >> 20)(config);
        config.beside = ByteSize::b(BESIDE);
    };
    let mut site = site_with(folder.path(), clock(), config, 500, 100).await;
    for round in 0..2 {
        let (taken, mut receipts) = commit_until_full(&site, round * 10_000, 9000).await;
        assert!((100..9000).contains(&taken), "round {round}: {taken}");
        let (found, told) = (on_disk(folder.path()), site.stats.store().bytes.get() as u64);
        assert!(found <= BUDGET && found > BUDGET * 3 / 4, "round {round}: {found} bytes of {BUDGET}");
        assert!(told <= BUDGET && told > BUDGET * 3 / 4, "round {round}: told of {told} bytes of {BUDGET}");
        assert_eq!(site.stats.store().max_bytes.get() as u64, BUDGET);
        drain(&mut site).await;
        assert!(tokio::time::timeout(Duration::from_secs(120), receipts.recv()).await.is_ok(), "round {round}");
    }
    accounts_add_up(&site);
    site.stop().await;
    assert!(on_disk(folder.path()) <= BUDGET);
}
