//! Inserts and looks at what is stored, each with a deadline of its own.

use std::collections::HashMap;
use std::time::Duration;

use mongodb::bson::doc;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use tokio::time::timeout;

use super::super::document::is_same;
use super::super::{Document, Uri};
use super::advice;
use super::classify::Signal;
use super::client::Link;
use super::deliver::{Answer, Problem, Wire};
use super::problem::{labels, nonsense, of_document};

/// Time the server may wait for a majority.
const MAJORITY_WITHIN: Duration = Duration::from_secs(30);

impl Wire for Link {
    async fn insert(&mut self, documents: &[&Document]) -> Answer {
        let deadline = self.tuning.insert;
        let open = match self.open().await {
            Ok(open) => open,
            Err(problem) => return Answer::Failed(problem),
        };
        let Some(name) = documents.first().map(|document| &document.collection) else {
            return Answer::Ran { errors: Vec::new(), concern: None };
        };
        let (uri, collection) = (open.uri.clone(), open.collection(name));
        let concern =
            WriteConcern::builder().w(Acknowledgment::Majority).journal(true).w_timeout(MAJORITY_WITHIN).build();
        let insert = collection
            .insert_many(documents.iter().map(|document| &document.bson))
            .ordered(false)
            .write_concern(concern);
        let result = timeout(deadline, async move { insert.await }).await;
        match result {
            Ok(Ok(result)) if result.inserted_ids.len() == documents.len() => {
                Answer::Ran { errors: Vec::new(), concern: None }
            }
            Ok(Ok(_)) => Answer::Failed(nonsense("fewer documents inserted than sent, and no error")),
            Ok(Err(error)) => self.answer(&error, &uri, name),
            Err(_) => Answer::Failed(self.late("an insert", deadline)),
        }
    }

    async fn stored(&mut self, documents: &[&Document]) -> Result<HashMap<String, bool>, Problem> {
        let deadline = self.tuning.find;
        let shape = self.shape.clone();
        let open = self.open().await?;
        let Some(name) = documents.first().map(|document| &document.collection) else { return Ok(HashMap::new()) };
        let (uri, collection) = (open.uri.clone(), open.collection(name));
        let ids: Vec<&str> = documents.iter().map(|document| document.id.as_str()).collect();
        let mut find = collection.find(doc! { "_id": { "$in": ids } }).read_concern(ReadConcern::majority());
        if !shape.names.hash.is_empty() {
            let mut wanted = doc! { "_id": 1 };
            wanted.insert(shape.names.hash.as_str(), 1);
            find = find.projection(wanted);
        }
        let read = async move {
            let mut cursor = find.await?;
            let mut found = HashMap::new();
            while cursor.advance().await? {
                let stored = cursor.current();
                let ours = stored.get_str("_id").ok().and_then(|id| documents.iter().find(|ours| ours.id == id));
                if let Some(ours) = ours {
                    found.insert(ours.id.clone(), is_same(stored, ours, &shape));
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
    fn answer(&self, error: &Error, uri: &Uri, collection: &str) -> Answer {
        let ErrorKind::InsertMany(many) = &*error.kind else { return Answer::Failed(self.problem(error, uri)) };
        let namespace = format!("{}.{collection}", self.config.database);
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
