//! Reports to the fleet: this gateway's document, its gaps, and the owner's orders.
//!
//! They are a courtesy: whatever becomes of them, buckets go on. What is not allowed is told once.

use mongodb::bson::{Document, doc};

use super::super::fleet::{CONTROL, EVERYBODY, GAPS, GATEWAYS};
use super::super::{Gap, Orders, Vitals};
use super::classify::{DUPLICATE_KEY, Signal};
use super::deliver::Problem;
use super::{Mongo, client::Link};
use crate::model::SiteName;

/// Not authorised.
const UNAUTHORIZED: i32 = 13;

impl Mongo {
    /// Updates this gateway's document and reads the orders; `None` if they cannot be read.
    pub(in crate::upstream) async fn report(&mut self, vitals: &Vitals, site: &SiteName) -> Option<Orders> {
        let asked = self.clock.now();
        let hello = self.link.run("admin", doc! { "hello": 1 }).await.ok();
        let now = self.clock.now();
        // The server looked at its clock somewhere between asking and now.
        let middle = asked.plus(now.since(asked) / 2);
        let theirs = hello.as_ref().and_then(|hello| hello.get_datetime("localTime").ok());
        let offset = theirs.map(|theirs| theirs.timestamp_millis() - middle.as_millis());
        let concern = doc! { "w": "majority", "j": true };
        let update =
            doc! { "update": GATEWAYS, "updates": [vitals.update(site, now, offset)], "writeConcern": concern };
        if let Err(problem) = write(&mut self.link, update).await {
            self.tell("this gateway's document", GATEWAYS, &problem);
        }
        let find = doc! { "find": CONTROL, "filter": { "_id": { "$in": [EVERYBODY, site.as_str()] } }, "limit": 2, "singleBatch": true };
        self.used = Some(tokio::time::Instant::now());
        self.pay(3 * super::COMMAND_BYTES);
        self.link.notebook.save().await;
        let database = self.link.config.database.clone();
        match self.link.run(&database, find).await {
            Ok(answer) => Some(Orders::of(&batch(&answer), site, now)),
            Err(problem) => {
                self.tell("orders", CONTROL, &problem);
                None
            }
        }
    }

    /// Stores gaps; whether all of them are there now.
    pub(in crate::upstream) async fn gaps(&mut self, gaps: &[Gap], site: &SiteName, store: &str) -> bool {
        let documents: Vec<Document> = gaps.iter().map(|gap| gap.document(site, store)).collect();
        let concern = doc! { "w": "majority", "j": true };
        let insert = doc! { "insert": GAPS, "documents": documents, "ordered": false, "writeConcern": concern };
        match write(&mut self.link, insert).await {
            Ok(()) => {
                self.link.notebook.notes.gaps_after = gaps.last().map(|gap| gap.id);
                self.link.notebook.save().await;
                true
            }
            Err(problem) => {
                self.tell("gaps", GAPS, &problem);
                false
            }
        }
    }

    /// The number of the last gap that is stored.
    pub(in crate::upstream) fn gaps_after(&self) -> i64 {
        self.link.notebook.notes.gaps_after.unwrap_or(0)
    }

    /// When it was last used, if it is connected.
    pub(in crate::upstream) fn is_open(&self) -> bool {
        self.link.since().is_some()
    }

    fn tell(&mut self, what: &str, collection: &str, problem: &Problem) {
        let is_forbidden = matches!(problem.signal, Signal::Code { code: UNAUTHORIZED, .. });
        if is_forbidden && !self.told.iter().any(|told| told == collection) {
            self.told.push(collection.to_owned());
            tracing::warn!(
                "upstream: {what} cannot be exchanged with {collection}: {} (tipbucket upstream init makes a role that may; reports = \"0s\" switches this off)",
                problem.text
            );
        } else if !is_forbidden {
            tracing::debug!("{what} cannot be exchanged with {collection}: {}", problem.text);
        }
    }
}

/// Runs a write; what is there already counts as written.
async fn write(link: &mut Link, command: Document) -> Result<(), Problem> {
    let database = link.config.database.clone();
    let answer = link.run(&database, command).await?;
    let errors = answer.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
    let error = errors
        .iter()
        .filter_map(|error| error.as_document())
        .find(|error| error.get_i32("code").is_ok_and(|code| code != DUPLICATE_KEY));
    let concern = answer.get_document("writeConcernError").ok();
    match error.or(concern) {
        None => Ok(()),
        Some(error) => {
            let code = error.get_i32("code").unwrap_or(0);
            let message = error.get_str("errmsg").unwrap_or_default().to_owned();
            let labels = super::classify::Labels::default();
            Err(Problem { text: message.clone(), signal: Signal::Code { code, labels, message }, wait: None })
        }
    }
}

fn batch(answer: &Document) -> Vec<Document> {
    let batch = answer.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
    batch.map(|batch| batch.iter().filter_map(|item| item.as_document().cloned()).collect()).unwrap_or_default()
}
