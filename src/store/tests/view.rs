//! The view beside a running store: every sample once, wherever it lies, and nothing changed by looking.

use super::*;

fn name(sensor: &str) -> SensorName {
    SensorName::new(sensor).unwrap()
}

fn all(folder: &Path, sensor: &str) -> Vec<(i64, Value)> {
    let mut view = View::open(&folder.join("t.db")).unwrap();
    let found = view.find(&name(sensor), Timestamp::EPOCH, Timestamp::LAST).unwrap();
    let mut samples: Vec<_> = found.iter().flat_map(|found| values(&view.bucket(found).unwrap().unwrap())).collect();
    let exported = view.packs(Timestamp::EPOCH, Timestamp::LAST);
    let exported = exported.iter().flat_map(|pack| view.buckets(pack).unwrap());
    let exported: usize =
        exported.map(|b| b.unwrap()).filter(|b| b.sensor == name(sensor)).map(|b| b.samples.len()).sum();
    assert_eq!(exported, samples.len());
    samples.sort_by_key(|(at, _)| *at);
    samples
}

fn digest(folder: &Path) -> (Vec<u8>, Vec<u8>) {
    let file = |name| std::fs::read(folder.join(name)).unwrap();
    (file("t.db"), file("t.db-wal"))
}

#[tokio::test(start_paused = true)]
async fn every_sample_is_seen_once_wherever_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let raw = |config: &mut Config| config.keep_raw = Duration::from_secs(86_400);
    let mut site = site_with(folder.path(), clock(), raw, 1000, 10).await;
    let samples = |from: i64, n: i64| Delivery::of((from..from + n).map(|i| reading("s", i, Value::I64(i))).collect());
    // Delivered and kept; written and waiting; sealed in memory; open.
    site.commit(samples(0, 10)).await;
    let (_, segments) = site.buckets(1).await;
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    site.commit(samples(70, 10)).await;
    site.buckets(1).await;
    site.outlet.upstream_takes(true);
    site.commit(samples(140, 10)).await;
    site.buckets(1).await;
    site.commit(samples(200, 10)).await;
    let before = digest(folder.path());
    let expected: Vec<_> =
        [0, 70, 140, 200].iter().flat_map(|from| (*from..from + 10).map(|i| (i, Value::I64(i)))).collect();
    assert_eq!(all(folder.path(), "s"), expected);
    assert_eq!(all(folder.path(), "unknown"), []);
    assert_eq!(digest(folder.path()), before, "looking changes nothing");

    let mut view = View::open(&folder.path().join("t.db")).unwrap();
    let at = |seconds: i64| Timestamp::clamped(START + seconds * 1000);
    let found = view.find(&name("s"), at(75), at(150)).unwrap();
    assert_eq!(found.iter().map(|found| found.open).collect::<Vec<_>>(), [false, false]);
    let summaries = view.summaries(&name("s"), Timestamp::EPOCH, Timestamp::LAST).unwrap();
    let counts: Vec<_> = summaries.iter().map(|found| view.summary(found).unwrap().unwrap()).collect();
    assert_eq!(
        counts.iter().map(|summary| (summary.count, summary.open)).collect::<Vec<_>>(),
        [(10, false), (10, false), (10, false), (10, true)]
    );
    let bucket = view.bucket(&summaries[1]).unwrap().unwrap();
    assert_eq!(counts[1].stats, bucket.stats(), "the rollup in front is what the samples give");
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_delivered_meanwhile_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let mut site = site(folder.path(), clock()).await;
    site.commit(Delivery::of(vec![reading("s", 1, Value::I64(1))])).await;
    let (_, segments) = site.buckets(1).await;
    let mut view = View::open(&folder.path().join("t.db")).unwrap();
    let found = view.find(&name("s"), Timestamp::EPOCH, Timestamp::LAST).unwrap();
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    assert_eq!(view.bucket(&found[0]).unwrap(), None);
    assert_eq!(view.vanished, 1);
    site.stop().await;
}

#[tokio::test(start_paused = true)]
async fn thinned_buckets_show_their_rollup_also_after_delivery() {
    let folder = tempfile::tempdir().unwrap();
    let thin = |config: &mut Config| config.max_bytes = ByteSize::mib(5);
    let mut site = site_with(folder.path(), clock(), thin, 500, 100).await;
    for n in 0..1100 {
        site.commit(Delivery { urgent: true, ..noise(n, 500) }).await;
    }
    assert!(site.stats.store().thinned.get() > 0);
    let first = |folder: &Path| {
        let mut view = View::open(&folder.join("t.db")).unwrap();
        let found = view.summaries(&name("noise"), Timestamp::EPOCH, Timestamp::clamped(START + 500)).unwrap();
        view.summary(&found[0]).unwrap().unwrap()
    };
    let summary = first(folder.path());
    let samples: Vec<_> =
        noise(0, 500).readings.iter().map(|r| Sample { at: r.at, fields: r.fields.clone() }).collect();
    assert_eq!((summary.count, summary.last), (500, samples[499].at));
    let (_, segments) = site.buckets(1).await;
    site.outlet.settle(Settled { segments, dead_letters: vec![] }).await.unwrap();
    site.stop().await;
    assert_eq!(first(folder.path()), summary);
}

#[test]
fn a_store_that_is_not_there_is_named() {
    let error = View::open(Path::new("nowhere/t.db")).unwrap_err();
    assert!(error.to_string().contains("there is no store at nowhere/t.db"), "{error}");
}
