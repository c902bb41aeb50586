//! Inserts and looks at what is stored, each with a deadline of its own.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::RawBsonRef;
use mongodb::bson::{RawDocument, RawDocumentBuf, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{Acknowledgment, ReadConcern, WriteConcern};
use tokio::time::timeout;

use super::super::document::{is_live, is_same};
use super::super::{Document, Shape, Uri};
use super::advice;
use super::classify::{Signal, Stored};
use super::client::Link;
use super::deliver::{Answer, Problem, Wire};
use super::problem::{labels, nonsense, of_document};
use super::series::Series;

/// Time the server may wait for a majority.
pub(super) const MAJORITY_WITHIN: Duration = Duration::from_secs(30);

impl Wire for Link {
    async fn insert(&mut self, documents: &mut [&mut Document]) -> Answer {
        let Some(name) = documents.first().map(|document| document.collection.clone()) else {
            return Answer::Ran { errors: Vec::new(), concern: None };
        };
        self.insert_raw(&name, documents.iter_mut().map(|document| document.give())).await
    }

    async fn replace(&mut self, documents: &[&Document]) -> Answer {
        self.replace_live(documents).await
    }

    async fn stored(&mut self, documents: &[&Document]) -> Result<HashMap<String, Stored>, Problem> {
        let deadline = self.tuning.find;
        let shape = self.shape.clone();
        let open = self.open().await?;
        let Some(name) = documents.first().map(|document| &document.collection) else { return Ok(HashMap::new()) };
        let (uri, collection) = (open.uri.clone(), open.collection(name));
        let ids: Vec<&str> = documents.iter().map(|document| document.id.as_str()).collect();
        let mut find = collection.find(doc! { "_id": { "$in": ids } }).read_concern(ReadConcern::majority());
        if !shape.names.hash.is_empty() {
            let names = [&shape.names.hash, &shape.names.last_seq, &shape.names.store];
            let mut wanted = doc! { "_id": 1 };
            wanted.extend(names.iter().filter(|name| !name.is_empty()).map(|name| ((**name).clone(), 1.into())));
            find = find.projection(wanted);
        }
        let read = async move {
            let mut cursor = find.await?;
            let mut found = HashMap::new();
            while cursor.advance().await? {
                let stored = cursor.current();
                let ours = stored.get_str("_id").ok().and_then(|id| documents.iter().find(|ours| ours.id == id));
                if let Some(ours) = ours {
                    found.insert(ours.id.clone(), what_is(stored, ours, &shape));
                }
            }
            Ok::<_, Error>(found)
        };
        match timeout(deadline, read).await {
            Ok(result) => result.map_err(|error| self.problem(&error, &uri)),
            Err(_) => Err(self.late("a look at stored buckets", deadline)),
        }
    }

    async fn answers(&mut self) -> bool {
        self.run("admin", doc! { "ping": 1 }).await.is_ok()
    }
}

/// What stands under our `_id`.
pub(super) fn what_is(stored: &RawDocument, ours: &Document, shape: &Shape) -> Stored {
    if is_same(stored, ours, shape) {
        Stored::Same
    } else if is_live(stored, ours, shape) {
        Stored::Live
    } else {
        Stored::Other
    }
}

impl Series for Link {
    async fn insert_rows(&mut self, collection: &str, rows: &[&RawDocumentBuf]) -> Answer {
        self.insert_raw(collection, rows.iter().copied()).await
    }

    async fn ids(&mut self, document: &Document) -> Result<Vec<ObjectId>, Problem> {
        let deadline = self.tuning.find;
        let names = self.shape.names.clone();
        let times = [document.rows.first(), document.rows.last()]
            .map(|row| row.and_then(|row| row.get_datetime(&names.samples_t).ok()));
        let [Some(first), Some(last)] = times else { return Ok(Vec::new()) };
        let mut filter = doc! {};
        let subject = document.rows.first().and_then(|row| row.get_document(&names.meta).ok());
        for entry in subject.into_iter().flatten() {
            if let Ok((key, RawBsonRef::String(text))) = entry {
                filter.insert(format!("{}.{key}", names.meta), text);
            }
        }
        filter.insert(names.samples_t.as_str(), doc! { "$gte": first, "$lte": last });
        let open = self.open().await?;
        let (uri, collection) = (open.uri.clone(), open.collection(&document.collection));
        let find = collection.find(filter).projection(doc! { "_id": 1 }).read_concern(ReadConcern::majority());
        let ours: HashSet<ObjectId> = document.rows.iter().filter_map(|row| row.get_object_id("_id").ok()).collect();
        let read = async move {
            let mut cursor = find.await?;
            let mut found = Vec::new();
            while cursor.advance().await? {
                found.extend(cursor.current().get_object_id("_id").ok().filter(|id| ours.contains(id)));
            }
            Ok::<_, Error>(found)
        };
        match timeout(deadline, read).await {
            Ok(result) => result.map_err(|error| self.problem(&error, &uri)),
            Err(_) => Err(self.late("a look at stored measurements", deadline)),
        }
    }
}

impl Link {
    /// Inserts documents with one command. The driver copies each, and those that are given away are gone then.
    pub(super) async fn insert_raw<D: Borrow<RawDocumentBuf>>(
        &mut self,
        name: &str,
        documents: impl ExactSizeIterator<Item = D>,
    ) -> Answer {
        let (deadline, count) = (self.tuning.insert, documents.len());
        let open = match self.open().await {
            Ok(open) => open,
            Err(problem) => return Answer::Failed(problem),
        };
        let (uri, collection) = (open.uri.clone(), open.collection(name));
        let concern =
            WriteConcern::builder().w(Acknowledgment::Majority).journal(true).w_timeout(MAJORITY_WITHIN).build();
        let insert = collection.insert_many(documents).ordered(false).write_concern(concern);
        let result = timeout(deadline, async move { insert.await }).await;
        match result {
            Ok(Ok(result)) if result.inserted_ids.len() == count => Answer::Ran { errors: Vec::new(), concern: None },
            Ok(Ok(_)) => Answer::Failed(nonsense("fewer documents inserted than sent, and no error")),
            Ok(Err(error)) => self.answer(&error, &uri, name),
            Err(_) => Answer::Failed(self.late("an insert", deadline)),
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
