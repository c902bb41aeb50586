//! The whole way out under fire: the real program, killed again and again, behind a network that swallows replies after
//! the server did what it was asked, cuts messages, delays and refuses. Between two of its lives readings are accepted
//! into its store. In the end the database holds each value of each reading once, and nothing else.
//!
//! `TIPBUCKET_UPSTREAM_BUCKETS` says how many buckets at least; `make upstream-drill` runs many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mongodb::bson::{Bson, Document};
use tipbucket::clock::Clock;
use tipbucket::model::{
    BucketPolicy, FieldName, Policies, Reading, SensorName, SiteName, Timestamp, Value, WindowLength,
};
use tipbucket::stats::Stats;
use tipbucket::store::{self, Config, Delivery, Receipt};

use crate::support::daemon::Daemon;
use crate::support::proxy::{Mode, Proxy};
use crate::support::{mongo, patience};

/// Buckets of a usual run, and those accepted between two lives.
const BUCKETS: usize = 1_000;
const BETWEEN: usize = 100;
/// Of each kind of fault there are at least so many.
const FAULTS: usize = 3;
/// Lives beyond those that the buckets need, for faults that did not come yet.
const MORE_LIVES: usize = 30;
const SENSORS: usize = 40;
const WINDOW_S: u32 = 10;
const MAX_SAMPLES: u32 = 6;
const GRACE: Duration = Duration::from_secs(1);
/// Longest life before a kill.
const LIFE_MS: u64 = 2_500;
/// The calm at the end may take this long for each thousand buckets.
const CALM: Duration = Duration::from_secs(120);

/// What was accepted, and what each sensor has so far.
struct Feed {
    random: fastrand::Rng,
    /// How often each value is to be found.
    accepted: BTreeMap<String, usize>,
    /// For each sensor the number of windows it has, and the times that are taken.
    windows: Vec<i64>,
    taken: BTreeSet<(usize, i64)>,
    buckets: usize,
    readings: i64,
    start: i64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_the_network_does_and_whoever_dies_each_value_is_upstream_once() {
    let buckets =
        std::env::var("TIPBUCKET_UPSTREAM_BUCKETS").map_or_else(|_| usual(), |n| n.parse().expect("a number"));
    let (server, database) = (mongo::server(), mongo::database());
    let proxy = Proxy::start(server.address()).await;
    let mut daemon = Daemon::new(&site(&proxy.mongodb_uri(), &database));
    let mut feed = Feed::new();
    let (begun, mut lives) = (Instant::now(), 0);
    while feed.buckets < buckets || !proxy.harm().each_at_least(FAULTS) {
        assert!(lives < buckets / BETWEEN + MORE_LIVES, "no storm: {:?}", proxy.harm());
        feed.accept(&daemon, BETWEEN).await;
        // Now and then everything goes well until the kill.
        proxy.mode(if lives % 5 == 4 { Mode::Pass } else { Mode::Storm });
        daemon.start();
        tokio::time::sleep(patience(Duration::from_millis(feed.random.u64(100..LIFE_MS)))).await;
        daemon.kill();
        lives += 1;
    }
    proxy.mode(Mode::Pass);
    let waiting = backlog_of(&mut daemon);
    let calm = CALM * (1 + u32::try_from(feed.buckets / 1_000).unwrap());
    daemon
        .until("all is delivered", calm, |status| status.store.backlog_buckets == 0 && status.store.open_buckets == 0);
    assert!(daemon.terminate().0.success(), "{}", daemon.log());
    let found = feed.compare(server, &database).await;
    println!(
        "{found} buckets, {} readings accepted, {} values, each upstream once; {lives} kills, {waiting} buckets left to the calm, {:?}, {:.0} s",
        feed.readings,
        feed.accepted.len(),
        proxy.harm(),
        begun.elapsed().as_secs_f64()
    );
}

/// Fewer under emulation, where every life takes longer.
fn usual() -> usize {
    let emulated = patience(Duration::from_secs(1)) > Duration::from_secs(1);
    if emulated { BUCKETS / 5 } else { BUCKETS }
}

/// Starts the last life; the buckets that wait then.
fn backlog_of(daemon: &mut Daemon) -> i64 {
    daemon.start();
    daemon.status().map_or(0, |status| status.store.backlog_buckets)
}

fn site(upstream: &str, database: &str) -> String {
    format!(
        "[site]\nname = 'storm'\n[store]\nwhen_full = 'refuse'\n\
         [bucket]\nwindow = '{WINDOW_S}s'\ngrace = '1s'\nmax_samples = {MAX_SAMPLES}\n\
         [upstream]\nuri = '{upstream}&serverSelectionTimeoutMS=2000'\ndatabase = '{database}'\nspread = '0s'\n\
         overflow_collection = 'overflow'\n\
         [sources.nobody]\ntype = 'mqtt'\nurl = 'mqtt://127.0.0.1:1'\nclient_id = 'storm'\n\
         [[sources.nobody.topics]]\nfilter = '+'\nsensor = '{{1}}'\n"
    )
}

impl Feed {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let days_ago = i64::try_from(now).unwrap() - 3 * 86_400_000;
        Self {
            random: fastrand::Rng::new(),
            accepted: BTreeMap::new(),
            windows: vec![0; SENSORS],
            taken: BTreeSet::new(),
            buckets: 0,
            readings: 0,
            start: days_ago - days_ago % 10_000,
        }
    }

    /// Puts readings of at least so many buckets into the store of a daemon that does not run, and notes those that are
    /// on disk.
    async fn accept(&mut self, daemon: &Daemon, buckets: usize) {
        let config = Config { path: daemon.folder().join("tipbucket.db"), ..Config::default() };
        let policy = BucketPolicy {
            window: WindowLength::from_seconds(WINDOW_S).unwrap(),
            max_samples: MAX_SAMPLES,
            max_bytes: 64 << 10,
            grace: GRACE,
            decimals: None,
        };
        let policies = Policies { default: policy, by_sensor: Default::default() };
        let site = SiteName::new("storm").unwrap();
        let opened = store::open(&config, site, policies, 10_000, Clock::system(), Stats::default()).await;
        let (inlet, outlet, writer) = opened.unwrap();
        let writer = tokio::spawn(writer.run());
        let (to, mut receipts) = tokio::sync::mpsc::channel(1);
        let mut made = 0;
        while made < buckets {
            let readings: Vec<Reading> = (0..10).flat_map(|_| self.bucket()).collect();
            made += 10;
            let values: Vec<String> = readings.iter().flat_map(values_of).collect();
            self.readings += i64::try_from(readings.len()).unwrap();
            let receipt = Some(Receipt::new(to.clone(), 1));
            inlet.push(Delivery { receipt, urgent: true, ..Delivery::of(readings) }).await.unwrap();
            receipts.recv().await.expect("the store takes them");
            for value in values {
                *self.accepted.entry(value).or_default() += 1;
            }
        }
        self.buckets += made;
        drop((inlet, outlet));
        writer.await.unwrap().unwrap();
    }

    /// Readings of one sensor in a window of its own, sometimes more than a bucket holds, sometimes one that comes late.
    fn bucket(&mut self) -> Vec<Reading> {
        let sensor = self.random.usize(..SENSORS);
        self.windows[sensor] += 1;
        let (newest, late) = (self.windows[sensor], self.random.u8(..5) == 0);
        let count = self.random.usize(1..=9);
        let mut readings: Vec<Reading> = (0..count).map(|_| self.reading(sensor, newest)).collect();
        if late {
            let older = self.random.i64(1..=newest);
            readings.push(self.reading(sensor, older));
        }
        readings
    }

    /// A reading in this window of the sensor, at a time that no other has.
    fn reading(&mut self, sensor: usize, window: i64) -> Reading {
        let at = loop {
            let at = self.start + (window * i64::from(WINDOW_S)) * 1000 + self.random.i64(0..10_000);
            if self.taken.insert((sensor, at)) {
                break at;
            }
        };
        let (n, random) = (self.taken.len() as i64, &mut self.random);
        let name = |name: &str| FieldName::new(name).unwrap();
        let temp = f64::from(random.i32(-4000..4000)) / 100.0;
        let mut fields = vec![(name("n"), Value::I64(n)), (name("temp"), Value::F64(temp))];
        match random.u8(..6) {
            0 => fields.push((name("on"), Value::Bool(random.bool()))),
            1 => fields.push((name("total"), Value::U64(u64::MAX - random.u64(..100)))),
            2 => fields.push((name("state"), Value::Text(Arc::from(format!("is {}", "é".repeat(random.usize(..60))))))),
            3 => drop(fields.pop()),
            _ => {}
        }
        let sensor = SensorName::new(&format!("s/{sensor}")).unwrap();
        Reading::new(sensor, Timestamp::from_millis(at).unwrap(), fields.into_iter().collect()).unwrap()
    }

    /// Compares everything that was accepted with everything that is stored; how many documents there are.
    async fn compare(&self, server: &mongo::Server, database: &str) -> usize {
        let (mut stored, mut documents) = (BTreeMap::<String, usize>::new(), 0);
        for collection in ["buckets", "overflow"] {
            for document in server.documents(database, collection).await {
                assert!(
                    !document.get_str("_id").unwrap().contains('~'),
                    "no content was other than our own: {document}"
                );
                documents += 1;
                values_in(&document).for_each(|value| *stored.entry(value).or_default() += 1);
            }
        }
        let wrong = |ours: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>| -> Vec<String> {
            let more = |(value, n): (&String, &usize)| *n > other.get(value).copied().unwrap_or(0);
            ours.iter().filter(|entry| more(*entry)).map(|(value, n)| format!("{value} ({n} times)")).collect()
        };
        let (missing, surplus) = (wrong(&self.accepted, &stored), wrong(&stored, &self.accepted));
        assert!(
            missing.is_empty() && surplus.is_empty(),
            "of {} values {} are missing, such as {:?}, and {} are there too often, such as {:?}",
            self.accepted.len(),
            missing.len(),
            missing.iter().take(5).collect::<Vec<_>>(),
            surplus.len(),
            surplus.iter().take(5).collect::<Vec<_>>()
        );
        assert!(documents >= self.buckets, "{documents} documents for {} buckets", self.buckets);
        documents
    }
}

fn values_of(reading: &Reading) -> Vec<String> {
    let at = reading.at.as_millis();
    let told = |(field, value): &(FieldName, Value)| format!("{} {at} {field} {}", reading.sensor, word(&bson(value)));
    reading.fields.iter().map(told).collect()
}

fn values_in(document: &Document) -> impl Iterator<Item = String> {
    let sensor = document.get_str("sensor").unwrap();
    document.get_array("samples").unwrap().iter().flat_map(move |sample| {
        let sample = sample.as_document().unwrap();
        let at = sample.get_datetime("t").unwrap().timestamp_millis();
        let fields = sample.iter().filter(|(field, _)| *field != "t");
        fields.map(move |(field, value)| format!("{sensor} {at} {field} {}", word(value)))
    })
}

/// A value with its type, every bit of it.
fn word(value: &Bson) -> String {
    match value {
        Bson::Double(v) => format!("double {:x}", v.to_bits()),
        other => format!("{:?} {other}", other.element_type()),
    }
}

fn bson(value: &Value) -> Bson {
    match value {
        Value::F64(v) => Bson::Double(*v),
        Value::I64(v) => Bson::Int64(*v),
        Value::U64(v) => Bson::Decimal128(v.to_string().parse().unwrap()),
        Value::Bool(v) => Bson::Boolean(*v),
        Value::Text(v) => Bson::String(v.to_string()),
    }
}
