//! The connection: the driver's client, built at its first use and given up when it only waits.
//!
//! The driver has no deadline for a whole operation and no `socketTimeoutMS`; a call that is dropped closes its
//! connection, and the write may have happened.

use std::time::Duration;

use mongodb::bson::{Document, RawDocumentBuf, doc};
use mongodb::error::Error;
use mongodb::options::{ClientOptions, Compressor, ReadPreference, SelectionCriteria, ServerMonitoringMode};
use mongodb::{Client, Collection};
use tokio::time::{Instant, timeout};

use super::super::notebook::Notebook;
use super::super::{Config, Shape, Tuning, Uri};
use super::classify::Signal;
use super::deliver::Problem;
use super::problem::problem;
use super::{advice, srv, tls};
use crate::model::SiteName;

/// How often the monitor looks at an idle server: one small exchange a minute per node.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// The level at which zstd packs commands. What repeats in them lies close together, so a window of half a MiB and small
/// tables pack them about as level 3 does, in 0.8 MiB where that takes 1.9.
pub const ZSTD_LEVEL: i32 = 1;
/// Longest name an application may have (MongoDB's limit).
const MAX_APP_NAME: usize = 128;

/// A connection that is made when it is needed.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) config: Config,
    pub(super) shape: Shape,
    pub(super) tuning: Tuning,
    pub(super) notebook: Notebook,
    app: String,
    open: Option<Open>,
    /// What the server told of itself, once it did.
    server: Option<Server>,
    /// Connections made so far.
    connects: u64,
}

/// What a server tells of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) version: Option<String>,
    pub(super) compresses: bool,
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) client: Client,
    pub(super) uri: Uri,
    pub(super) since: Instant,
    database: String,
}

impl Open {
    pub(super) fn collection(&self, name: &str) -> Collection<RawDocumentBuf> {
        self.client.database(&self.database).collection(name)
    }
}

impl Link {
    pub(super) fn new(config: Config, site: &SiteName, tuning: Tuning, notebook: Notebook) -> Self {
        let mut app = format!("tipbucket/{} {site}", env!("CARGO_PKG_VERSION"));
        app.truncate(MAX_APP_NAME);
        let shape = Shape::of(&config);
        Self { config, shape, tuning, notebook, app, open: None, server: None, connects: 0 }
    }

    /// Whether there is a connection, and since when.
    pub(super) fn since(&self) -> Option<Instant> {
        self.open.as_ref().map(|open| open.since)
    }

    /// Connections made so far.
    pub(super) const fn connects(&self) -> u64 {
        self.connects
    }

    /// What the server told of itself.
    pub(super) const fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// Connects, logs in and asks the primary who it is.
    pub(super) async fn greet(&mut self) -> Result<(), Problem> {
        let deadline = self.tuning.find + self.tuning.selection;
        let open = self.open().await?;
        let (uri, database) = (open.uri.clone(), open.client.database(&open.database));
        let ask = async move {
            let hello = database.run_command(doc! { "hello": 1, "compression": ["zstd"] }).await?;
            let build = database.run_command(doc! { "buildInfo": 1 }).await.ok();
            let compresses =
                hello.get_array("compression").is_ok_and(|known| known.iter().any(|c| c.as_str() == Some("zstd")));
            let version = build.and_then(|build| Some(build.get_str("version").ok()?.to_owned()));
            Ok::<_, Error>(Server { version, compresses })
        };
        match timeout(deadline, ask).await {
            Ok(Ok(server)) => self.server = Some(server),
            Ok(Err(error)) => return Err(self.problem(&error, &uri)),
            Err(_) => return Err(self.late("a greeting", deadline)),
        }
        Ok(())
    }

    /// Runs one command on the primary.
    pub(super) async fn run(&mut self, database: &str, command: Document) -> Result<Document, Problem> {
        let deadline = self.tuning.insert + self.tuning.selection;
        let open = self.open().await?;
        let (uri, database) = (open.uri.clone(), open.client.database(database));
        match timeout(deadline, async move { database.run_command(command).await }).await {
            Ok(result) => result.map_err(|error| self.problem(&error, &uri)),
            Err(_) => Err(self.late("a command", deadline)),
        }
    }

    /// Looks that the collection is a time series collection, and makes it if there is none: a plain one would be made by
    /// the first insert.
    pub(super) async fn prepare_series(&mut self) -> Result<(), Problem> {
        let (database, name) = (self.config.database.clone(), self.config.collection.clone());
        let list = doc! { "listCollections": 1, "filter": { "name": name.as_str() } };
        let known = self.run(&database, list).await?;
        let first = known.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let first = first.ok().and_then(|batch| batch.first()).and_then(|one| one.as_document());
        match first.map(is_series) {
            Some(true) => Ok(()),
            Some(false) => Err(Problem {
                signal: Signal::Setup,
                text: format!(
                    "{database}.{name} is no time series collection: name another one in upstream.collection"
                ),
                wait: None,
            }),
            None => self.run(&database, series_options(&self.config, &self.shape)).await.map(|_| ()),
        }
    }

    /// The options of the connection, and its address without secrets.
    pub(super) async fn options(&mut self) -> Result<ClientOptions, Problem> {
        let uri = self.config.address().map_err(|error| Problem {
            signal: Signal::Setup,
            text: format!("{error:#}"),
            wait: None,
        })?;
        self.resolve(&uri).await
    }

    /// Closes the connection, if there is one.
    pub(super) async fn close(&mut self) {
        if let Some(open) = self.open.take()
            && timeout(self.tuning.shutdown, open.client.shutdown()).await.is_err()
        {
            tracing::debug!("the database connection did not close in time; it is dropped");
        }
        self.notebook.save().await;
    }

    pub(super) async fn open(&mut self) -> Result<&Open, Problem> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        Ok(self.open.insert(open))
    }

    async fn connect(&mut self) -> Result<Open, Problem> {
        let setup = |text: String| Problem { signal: Signal::Setup, text, wait: None };
        let uri = self.config.address().map_err(|error| setup(format!("{error:#}")))?;
        let mut options = self.resolve(&uri).await?;
        tls::check_files(&options).await.map_err(setup)?;
        self.tune(&mut options);
        let client = Client::with_options(options).map_err(|error| {
            setup(format!("cannot use the connection string: {}", uri.scrub(&advice::plain(&error))))
        })?;
        self.connects += 1;
        Ok(Open { client, uri, since: Instant::now(), database: self.config.database.clone() })
    }

    /// The connection string as options; a name that cannot be resolved now leads where it led last time.
    async fn resolve(&mut self, uri: &Uri) -> Result<ClientOptions, Problem> {
        let problem = match timeout(self.tuning.resolve, ClientOptions::parse(uri.expose())).await {
            Ok(Ok(options)) => {
                if let Some(name) = srv::name(uri) {
                    self.notebook.notes.srv = Some(srv::remembered(name, &options));
                    self.notebook.save().await;
                }
                return Ok(options);
            }
            Ok(Err(error)) if advice::is_argument(&error) => {
                let text = uri.scrub(&advice::argument(&error));
                return Err(Problem { signal: Signal::Setup, text, wait: None });
            }
            Ok(Err(error)) => self.problem(&error, uri),
            Err(_) => {
                let text = advice::no_name("no answer in time");
                Problem { signal: Signal::NoName("timed out".to_owned()), text, wait: None }
            }
        };
        let known = self.notebook.notes.srv.as_ref().and_then(|known| srv::without_dns(uri, known));
        let Some(known) = known.filter(|_| matches!(problem.signal, Signal::NoName(_))) else { return Err(problem) };
        tracing::debug!("the database's name cannot be resolved; trying where it led last time");
        ClientOptions::parse(known.expose()).await.map_err(|_| problem)
    }

    /// What an operator set in the connection string stays, except where delivery depends on it.
    fn tune(&self, options: &mut ClientOptions) {
        options.app_name.get_or_insert_with(|| self.app.clone());
        options.max_pool_size.get_or_insert(1);
        options.server_monitoring_mode.get_or_insert(ServerMonitoringMode::Poll);
        options.heartbeat_freq.get_or_insert(HEARTBEAT);
        options.server_selection_timeout.get_or_insert(self.tuning.selection);
        options.connect_timeout.get_or_insert(self.tuning.connect);
        options.compressors.get_or_insert_with(|| vec![Compressor::Zstd { level: Some(ZSTD_LEVEL) }]);
        options.retry_writes.get_or_insert(true);
        // Backing off for minutes is our business, not milliseconds inside the driver.
        options.max_adaptive_retries = Some(0);
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    }

    pub(super) fn problem(&self, error: &Error, uri: &Uri) -> Problem {
        let namespace = format!("{}.{}", self.config.database, self.config.collection);
        let mut problem = problem(error, &namespace, uri.speaks_tls());
        problem.text = uri.scrub(&problem.text);
        problem
    }

    pub(super) fn late(&self, what: &str, deadline: Duration) -> Problem {
        let deadline = humantime::format_duration(deadline);
        let text = format!("the database did not answer {what} within {deadline}: is the network slow or broken?");
        Problem { signal: Signal::Lost, text, wait: None }
    }
}

/// Whether an entry of `listCollections` is a time series collection.
pub(super) fn is_series(entry: &Document) -> bool {
    let options = entry.get_document("options").ok();
    entry.get_str("type").is_ok_and(|kind| kind == "timeseries")
        || options.is_some_and(|options| options.contains_key("timeseries"))
}

/// The command that makes the time series collection.
pub(super) fn series_options(config: &Config, shape: &Shape) -> Document {
    let mut options = doc! { "timeField": shape.names.samples_t.as_str(), "metaField": shape.names.meta.as_str() };
    match config.bucket_span {
        None => drop(options.insert("granularity", config.granularity.word())),
        Some(span) => {
            let seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
            options.insert("bucketMaxSpanSeconds", seconds);
            options.insert("bucketRoundingSeconds", seconds);
        }
    }
    let mut create = doc! { "create": config.collection.as_str(), "timeseries": options };
    if let Some(retention) = config.retention {
        create.insert("expireAfterSeconds", i64::try_from(retention.as_secs()).unwrap_or(i64::MAX));
    }
    create
}
