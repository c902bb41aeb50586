//! A source under test, with the test in the store's place.

use std::sync::Arc;
use std::time::Duration;

use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};
use tipbucket::clock::Clock;
use tipbucket::model::{Admission, SourceName};
use tipbucket::sources::{Intake, KINDS, SourceConfig, supervise};
use tipbucket::stats::{SourceStats, Stats};
use tipbucket::store::{Deliveries, Delivery, OriginKind, inlet};
use tokio::task::JoinHandle;

/// Longest that anything may take that must happen.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The source at work, and what it hands over.
#[derive(Debug)]
pub struct Running {
    task: JoinHandle<()>,
    deliveries: Deliveries,
    /// Its counters.
    pub stats: Arc<SourceStats>,
}

/// Reads a source's table as the site file's reader does.
pub fn read(table: &str) -> Box<dyn SourceConfig> {
    let file = config::File::from_str(table, config::FileFormat::Toml);
    let table = config::Config::builder().add_source(file).build().expect("TOML");
    let kind = KINDS.iter().find(|kind| kind.name == "mqtt").expect("registered");
    (kind.read)(config::Value::new(None, table.cache.kind)).expect("readable table")
}

/// Starts a source.
pub fn start(table: &str) -> Running {
    let config = read(table);
    assert_eq!(config.contradictions(), []);
    let name = SourceName::new("broker").expect("name");
    let stats = Stats::default().source(&name, "mqtt");
    let (inlet, deliveries) = inlet();
    let intake = Intake {
        name,
        clock: Clock::system(),
        stats: Arc::clone(&stats),
        admission: Admission { max_future: Duration::from_secs(600), max_age: None },
        timezone: None,
        inlet,
    };
    let task = tokio::spawn(supervise(config.build(), intake));
    Running { task, deliveries, stats }
}

impl Running {
    /// The next delivery that is a message.
    pub async fn message(&mut self) -> Delivery {
        loop {
            let delivery = self.delivery().await;
            if delivery.origin.as_ref().is_none_or(|origin| origin.kind != OriginKind::SessionLost) {
                return delivery;
            }
        }
    }

    /// The next delivery of any kind.
    pub async fn delivery(&mut self) -> Delivery {
        let next = tokio::time::timeout(PATIENCE, self.deliveries.next()).await;
        let (delivery, weight) =
            next.unwrap_or_else(|_| panic!("nothing arrives: {:?}", self.stats.condition.get())).expect("source runs");
        self.deliveries.release(weight as usize);
        delivery
    }

    /// Whether nothing waits now.
    pub fn is_idle(&mut self) -> bool {
        match self.deliveries.try_next() {
            Some((delivery, _)) => panic!("unexpected: {delivery:?}"),
            None => true,
        }
    }

    /// Waits until all filters are subscribed.
    pub async fn connected(&self) {
        self.condition(|up, _| up == Some(true)).await;
    }

    /// Waits until the condition's words hold `words`.
    pub async fn says(&self, words: &str) {
        self.condition(|_, detail| detail.contains(words)).await;
    }

    async fn condition(&self, wanted: impl Fn(Option<bool>, &str) -> bool) {
        eventually(|| {
            let state = self.stats.condition.get();
            wanted(state.up, &state.detail)
        })
        .await
        .unwrap_or_else(|()| panic!("condition stays {:?}", self.stats.condition.get()));
    }

    /// Ends the source as a crash would.
    pub async fn kill(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Polls until it is true.
pub async fn eventually(mut is_so: impl FnMut() -> bool) -> Result<(), ()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is_so() {
        if tokio::time::Instant::now() > deadline {
            return Err(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

/// A client that publishes.
#[derive(Debug)]
pub struct Publisher {
    client: AsyncClient,
    acknowledged: tokio::sync::mpsc::Receiver<()>,
    task: JoinHandle<()>,
}

impl Publisher {
    /// Connects with these options' address and credentials.
    pub fn new(port: u16) -> Self {
        let mut options = MqttOptions::new(format!("publisher-{}", fastrand::u64(..)), "127.0.0.1", port);
        options.set_max_packet_size(64 << 20, 64 << 20);
        Self::with(options)
    }

    /// Connects with any options.
    pub fn with(options: MqttOptions) -> Self {
        let (client, mut events) = AsyncClient::new(options, 100);
        let (to, acknowledged) = tokio::sync::mpsc::channel(100_000);
        let task = tokio::spawn(async move {
            loop {
                match events.poll().await {
                    Ok(Event::Incoming(Packet::PubAck(_))) => {
                        let _ = to.try_send(());
                    }
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        });
        Self { client, acknowledged, task }
    }

    /// Publishes with QoS 1 and waits until the broker has it.
    pub async fn publish(&mut self, topic: &str, payload: impl AsRef<[u8]>) {
        self.send(topic, QoS::AtLeastOnce, false, payload).await;
        self.acknowledged(1).await;
    }

    /// Publishes a retained value and waits until the broker has it.
    pub async fn retain(&mut self, topic: &str, payload: impl AsRef<[u8]>) {
        self.send(topic, QoS::AtLeastOnce, true, payload).await;
        self.acknowledged(1).await;
    }

    /// Publishes without waiting.
    pub async fn send(&mut self, topic: &str, qos: QoS, retain: bool, payload: impl AsRef<[u8]>) {
        self.client.publish(topic, qos, retain, payload.as_ref().to_vec()).await.expect("publisher runs");
    }

    /// Waits for so many acknowledgements of QoS 1 messages.
    pub async fn acknowledged(&mut self, n: usize) {
        for _ in 0..n {
            tokio::time::timeout(PATIENCE, self.acknowledged.recv()).await.expect("broker takes it").expect("runs");
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}
