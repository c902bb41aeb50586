//! The only file that talks to the driver: it builds the client at its first use, puts a deadline on every call and
//! turns the driver's errors into [`Problem`]s.
//!
//! The driver has no deadline for a whole operation and no `socketTimeoutMS`; a call that is dropped closes its
//! connection, and the write may have happened.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::{Document as Bsondoc, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind, IndexedWriteError, RETRYABLE_WRITE_ERROR, SYSTEM_OVERLOADED_ERROR};
use mongodb::options::{
    Acknowledgment, ClientOptions, Compressor, ReadConcern, ReadPreference, SelectionCriteria, ServerMonitoringMode,
    WriteConcern,
};
use mongodb::{Client, Collection};
use tokio::time::timeout;

use super::super::document::stored_hash;
use super::super::{Config, Document, Tuning, Uri};
use super::advice;
use super::classify::{Labels, Signal};
use super::deliver::{Answer, Problem, Wire};
use crate::model::SiteName;

/// Time the server may wait for a majority.
const MAJORITY_WITHIN: Duration = Duration::from_secs(30);
/// How often the monitor looks at an idle server: one small exchange a minute per node.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Longest errInfo that is kept with a refused bucket.
const MAX_DETAILS: usize = 4096;
/// Longest name an application may have (MongoDB's limit).
const MAX_APP_NAME: usize = 128;

/// A connection that is made when it is needed.
#[derive(Debug)]
pub(super) struct Link {
    config: Config,
    app: String,
    tuning: Tuning,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    client: Client,
    collection: Collection<RawDocumentBuf>,
    uri: Uri,
}

impl Link {
    pub(super) fn new(config: Config, site: &SiteName, tuning: Tuning) -> Self {
        let mut app = format!("tipbucket/{} {site}", env!("CARGO_PKG_VERSION"));
        app.truncate(MAX_APP_NAME);
        Self { config, app, tuning, open: None }
    }

    /// Closes the connection, if there is one.
    pub(super) async fn close(&mut self) {
        if let Some(Open { client, collection, .. }) = self.open.take() {
            drop(collection);
            if timeout(self.tuning.shutdown, client.shutdown()).await.is_err() {
                tracing::debug!("the database connection did not close in time; it is dropped");
            }
        }
    }

    async fn open(&mut self) -> Result<&Open, Problem> {
        let open = match self.open.take() {
            Some(open) => open,
            None => self.connect().await?,
        };
        Ok(self.open.insert(open))
    }

    async fn connect(&self) -> Result<Open, Problem> {
        let setup = |text: String| Problem { signal: Signal::Setup, text, wait: None };
        let uri = self.config.address().map_err(|error| setup(format!("{error:#}")))?;
        let mut options = match timeout(self.tuning.resolve, ClientOptions::parse(uri.expose())).await {
            Ok(Ok(options)) => options,
            Ok(Err(error)) if advice::is_argument(&error) => {
                return Err(setup(format!("not a connection string: {}", uri.scrub(&advice::plain(&error)))));
            }
            Ok(Err(error)) => return Err(self.problem(&error, &uri)),
            Err(_) => {
                let text = advice::no_name("no answer in time");
                return Err(Problem { signal: Signal::NoName("timed out".to_owned()), text, wait: None });
            }
        };
        self.tune(&mut options);
        let client = Client::with_options(options).map_err(|error| {
            setup(format!("cannot use the connection string: {}", uri.scrub(&advice::plain(&error))))
        })?;
        let collection = client.database(&self.config.database).collection(&self.config.collection);
        Ok(Open { client, collection, uri })
    }

    /// What an operator set in the connection string stays, except where delivery depends on it.
    fn tune(&self, options: &mut ClientOptions) {
        options.app_name.get_or_insert_with(|| self.app.clone());
        options.max_pool_size.get_or_insert(1);
        options.server_monitoring_mode.get_or_insert(ServerMonitoringMode::Poll);
        options.heartbeat_freq.get_or_insert(HEARTBEAT);
        options.server_selection_timeout.get_or_insert(self.tuning.selection);
        options.connect_timeout.get_or_insert(self.tuning.connect);
        options.compressors.get_or_insert_with(|| vec![Compressor::Zstd { level: None }]);
        options.retry_writes.get_or_insert(true);
        // Backing off for minutes is our business, not milliseconds inside the driver.
        options.max_adaptive_retries = Some(0);
        options.selection_criteria = Some(SelectionCriteria::ReadPreference(ReadPreference::Primary));
    }

    fn problem(&self, error: &Error, uri: &Uri) -> Problem {
        let namespace = format!("{}.{}", self.config.database, self.config.collection);
        let mut problem = problem(error, &namespace);
        problem.text = uri.scrub(&problem.text);
        problem
    }

    fn late(&self, what: &str, deadline: Duration) -> Problem {
        let deadline = humantime::format_duration(deadline);
        let text = format!("the database did not answer {what} within {deadline}: is the network slow or broken?");
        Problem { signal: Signal::Lost, text, wait: None }
    }
}

impl Wire for Link {
    async fn insert(&mut self, documents: &[&Document]) -> Answer {
        let deadline = self.tuning.insert;
        let open = match self.open().await {
            Ok(open) => open,
            Err(problem) => return Answer::Failed(problem),
        };
        let uri = open.uri.clone();
        let concern =
            WriteConcern::builder().w(Acknowledgment::Majority).journal(true).w_timeout(MAJORITY_WITHIN).build();
        let insert = open
            .collection
            .insert_many(documents.iter().map(|document| &document.bson))
            .ordered(false)
            .write_concern(concern);
        let result = timeout(deadline, async move { insert.await }).await;
        match result {
            Ok(Ok(result)) if result.inserted_ids.len() == documents.len() => {
                Answer::Ran { errors: Vec::new(), concern: None }
            }
            Ok(Ok(_)) => Answer::Failed(nonsense("fewer documents inserted than sent, and no error")),
            Ok(Err(error)) => self.answer(&error, &uri),
            Err(_) => Answer::Failed(self.late("an insert", deadline)),
        }
    }

    async fn stored(&mut self, ids: &[&str]) -> Result<HashMap<String, Option<String>>, Problem> {
        let deadline = self.tuning.find;
        let names = self.config.names.clone();
        let open = self.open().await?;
        let uri = open.uri.clone();
        let mut find = doc! { "_id": 1 };
        find.insert(names.hash.as_str(), 1);
        let find = open
            .collection
            .find(doc! { "_id": { "$in": ids.to_vec() } })
            .projection(find)
            .read_concern(ReadConcern::majority());
        let read = async move {
            let mut cursor = find.await?;
            let mut found = HashMap::new();
            while cursor.advance().await? {
                let document = cursor.current();
                if let Ok(id) = document.get_str("_id") {
                    found.insert(id.to_owned(), stored_hash(document, &names).map(str::to_owned));
                }
            }
            Ok::<_, Error>(found)
        };
        match timeout(deadline, read).await {
            Ok(result) => result.map_err(|error| self.problem(&error, &uri)),
            Err(_) => Err(self.late("a look at stored buckets", deadline)),
        }
    }
}

impl Link {
    fn answer(&self, error: &Error, uri: &Uri) -> Answer {
        let ErrorKind::InsertMany(many) = &*error.kind else { return Answer::Failed(self.problem(error, uri)) };
        let namespace = format!("{}.{}", self.config.database, self.config.collection);
        let labels = labels(error);
        let concern = many.write_concern_error.as_ref().map(|concern| {
            let words = uri.scrub(&concern.message);
            let text = advice::code(concern.code, &concern.code_name, &words, &namespace);
            Problem { signal: Signal::Concern { code: concern.code }, text, wait: None }
        });
        let errors = many.write_errors.iter().flatten();
        let errors = errors.map(|one| (one.index, of_document(one, labels, &namespace))).collect();
        Answer::Ran { errors, concern }
    }
}

fn of_document(error: &IndexedWriteError, labels: Labels, namespace: &str) -> Problem {
    let name = error.code_name.as_deref().unwrap_or(match error.code {
        121 => "DocumentValidationFailure",
        _ => "",
    });
    let mut text = advice::code(error.code, name, &error.message, namespace);
    if let Some(details) = &error.details {
        text.push_str("; errInfo: ");
        text.push_str(&shown(details));
    }
    Problem { signal: Signal::Code { code: error.code, labels, message: error.message.clone() }, text, wait: None }
}

fn shown(details: &Bsondoc) -> String {
    let mut text = details.to_string();
    if let Some((end, _)) = text.char_indices().nth(MAX_DETAILS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

fn labels(error: &Error) -> Labels {
    Labels {
        retryable: error.contains_label(RETRYABLE_WRITE_ERROR),
        overloaded: error.contains_label(SYSTEM_OVERLOADED_ERROR),
    }
}

fn nonsense(what: &str) -> Problem {
    Problem { signal: Signal::Lost, text: format!("the server's answer makes no sense: {what}"), wait: None }
}

fn problem(error: &Error, namespace: &str) -> Problem {
    let plain = advice::plain(error);
    let of = |signal, text| Problem { signal, text, wait: error.base_backoff() };
    match &*error.kind {
        ErrorKind::Command(command) => {
            let text = advice::code(command.code, &command.code_name, &command.message, namespace);
            let signal = Signal::Code { code: command.code, labels: labels(error), message: command.message.clone() };
            of(signal, text)
        }
        ErrorKind::Authentication { message, .. } => of(Signal::Login, advice::login(message)),
        ErrorKind::ServerSelection { message, .. } => of(Signal::NoServer(message.clone()), advice::no_server(message)),
        ErrorKind::DnsResolve { message, .. } => of(Signal::NoName(message.clone()), advice::no_name(message)),
        ErrorKind::InvalidTlsConfig { message, .. } => {
            of(Signal::Setup, format!("the TLS settings in the connection string cannot be used: {message}"))
        }
        ErrorKind::IncompatibleServer { message, .. } => {
            of(Signal::Setup, format!("this server cannot be used: {message}"))
        }
        // The same kind tells of replies whose lengths make no sense; only this one blames a document.
        ErrorKind::InvalidArgument { message, .. } if message.starts_with("insert document must be within") => {
            of(Signal::Unsendable, format!("the driver refuses to send it: {message}"))
        }
        // Also `Bson`: our documents are encoded already, so what cannot be decoded is the reply.
        _ => of(Signal::Lost, format!("the connection to the database broke: {plain}")),
    }
}
