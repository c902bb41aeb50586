//! `tipbucket upstream`: prepares a database, looks whether it is in order, compares it with our receipts.
//!
//! Only `init` changes anything, and only what it names.

mod audit;
mod certificate;
mod collections;
mod doctor;
mod plan;
mod script;
mod views;

use mongodb::bson::{Document, doc};

pub use audit::{Audited, Period, SensorAudit};
pub use doctor::{Finding, Level};

use super::super::notebook::Notebook;
use super::super::{Collections, Config, Shape, Tuning};
use super::classify::Signal;
use super::client::Link;
use super::deliver::Problem;
use crate::model::{SiteName, Timestamp};
use plan::Step;

/// The server's numbers for "it is there already".
const EXISTS: [i32; 2] = [48, 51002];

/// A database, looked at by a person.
#[derive(Debug)]
pub struct Admin {
    link: Link,
    config: Config,
    shape: Shape,
    site: SiteName,
    collections: Collections,
}

/// What is known here and matters there.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// Now.
    pub now: Timestamp,
    /// When the oldest bucket that waits here begins.
    pub oldest: Option<Timestamp>,
    /// Most samples in a bucket of any sensor.
    pub max_samples: u32,
}

impl Admin {
    /// For a site's upstream.
    pub fn new(config: Config, site: SiteName, tuning: Tuning) -> Self {
        let collections = Collections::new(&config.database, &config.collection, config.overflow_collection.as_deref());
        let link = Link::new(config.clone(), &site, tuning, Notebook::default());
        Self { link, shape: Shape::of(&config), config, site, collections }
    }

    /// What `init` would do, as lines for mongosh, each after a comment; and what it leaves out.
    pub fn script(&self, local: Local, clustered: bool) -> (Vec<String>, Vec<String>) {
        let (steps, notes) = plan::plan(&self.config, local.max_samples, clustered);
        let lines = steps
            .iter()
            .flat_map(|step| [format!("// {}", step.what), script::line(&self.config.database, &step.command)]);
        (lines.collect(), notes)
    }

    /// Does it; tells of each step what was done.
    pub async fn init(&mut self, local: Local, clustered: bool) -> anyhow::Result<Vec<String>> {
        let (steps, notes) = plan::plan(&self.config, local.max_samples, clustered);
        let mut done = Vec::new();
        for step in &steps {
            match self.step(step).await {
                Ok(how) => done.push(format!("{}: {how}", step.what)),
                Err(problem) => {
                    let line = script::line(&self.config.database, &step.command);
                    anyhow::bail!("{}: {} (as a person with the rights for it: {line})", step.what, problem.text);
                }
            }
        }
        done.extend(notes);
        Ok(done)
    }

    async fn step(&mut self, step: &Step) -> Result<&'static str, Problem> {
        let database = self.config.database.clone();
        match self.link.run(&database, step.command.clone()).await {
            Ok(_) => Ok("done"),
            Err(problem) => match (&problem.signal, &step.otherwise) {
                (Signal::Code { code, .. }, None) if EXISTS.contains(code) => Ok("was there"),
                (Signal::Code { code, .. }, Some(otherwise)) if EXISTS.contains(code) => {
                    self.link.run(&database, otherwise.clone()).await.map(|_| "was there, brought up to date")
                }
                _ => Err(problem),
            },
        }
    }

    /// Hangs up.
    pub async fn close(mut self) {
        self.link.close().await;
    }

    /// All documents of a command that answers with a cursor, within one batch: what is listed here is short.
    async fn listed(&mut self, database: &str, command: Document) -> Result<Vec<Document>, Problem> {
        let answer = self.link.run(database, command).await?;
        let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        Ok(batch.map(|batch| batch.iter().filter_map(|item| item.as_document().cloned()).collect()).unwrap_or_default())
    }

    async fn collections(&mut self) -> Result<Vec<Document>, Problem> {
        let database = self.config.database.clone();
        self.listed(&database, doc! { "listCollections": 1, "cursor": { "batchSize": 10_000 } }).await
    }
}
