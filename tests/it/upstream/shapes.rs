//! Shapes and collections on a MongoDB-compatible server.

use mongodb::bson::doc;
use tipbucket::upstream::{Config, Document, Preset};

use super::{STORE, bucket, config, documents, fates, upstream};
use crate::support::mongo;

#[tokio::test]
async fn a_preset_without_its_hash_is_recognised_by_its_content() {
    let (server, database) = (mongo::server(), mongo::database());
    let mut config = Config { preset: Some(Preset::Hourly), ..config(&server.uri(), &database) };
    for hash in ["h", ""] {
        config.names.hash = hash.into();
        config.collection = format!("buckets{hash}");
        let mut upstream = upstream(config.clone());
        for _ in 0..2 {
            let mut sent = documents(&upstream, &["a", "b"]);
            let report = upstream.deliver(&mut sent, STORE).await;
            assert_eq!((fates(&report).as_str(), report.conflicts), ("dd", 0), "{hash:?}");
        }
        let mut other = [Document::of(&bucket("a", 0, &[7.0]), &upstream.context(STORE))];
        let report = upstream.deliver(&mut other, STORE).await;
        assert_eq!((fates(&report).as_str(), report.conflicts), ("d", 1), "{hash:?}");
        let stored = server.documents(&database, &config.collection).await;
        assert_eq!(stored.len(), 3);
        assert_eq!(stored[0].get_array("samples").unwrap()[0].as_document().unwrap(), &doc! { "m": 0, "t": 21.5 });
    }
}

#[tokio::test]
async fn sensors_and_overflow_may_have_collections_of_their_own() {
    let (server, database) = (mongo::server(), mongo::database());
    let config = Config {
        collection: "r_{sensor}".into(),
        overflow_collection: Some("overflow".into()),
        ..config(&server.uri(), &database)
    };
    let mut upstream = upstream(config);
    let context = upstream.context(STORE);
    let buckets = [bucket("a", 0, &[1.0]), bucket("b/c", 0, &[1.0]), bucket("a", 1, &[2.0]), bucket("b/c", 2, &[3.0])];
    for _ in 0..2 {
        let mut sent = buckets.each_ref().map(|bucket| Document::of(bucket, &context));
        let report = upstream.deliver(&mut sent, STORE).await;
        assert_eq!((fates(&report).as_str(), report.conflicts), ("dddd", 0));
    }
    for (collection, count) in [("r_a", 1), ("r_b%2Fc", 1), ("overflow", 2)] {
        assert_eq!(server.documents(&database, collection).await.len(), count, "{collection}");
    }
}
