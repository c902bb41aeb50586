//! The archive against a real folder.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use mongodb::bson::RawDocument;

use super::*;
use crate::model::samples;
use crate::model::{SiteName, Timestamp};
use crate::upstream::{Collections, Context, Shape};

fn config(folder: &Path, format: Format) -> Config {
    let (folder, max_file_age) = (folder.to_owned(), Duration::from_secs(60));
    Config { folder, format, max_file_bytes: ByteSize(2000), max_file_age, ..Config::default() }
}

fn archive(config: &Config) -> Archive {
    Archive::new(config, Clock::virtual_from(Timestamp::EPOCH.plus(Duration::from_secs(1_796_043_600))))
}

fn documents(range: std::ops::Range<u32>) -> Vec<Document> {
    let context = Context {
        site: SiteName::new("s").unwrap(),
        store: "0badcafe".into(),
        retention: None,
        shape: Shape::default(),
        collections: Collections::new("telemetry", "buckets", None),
        form: Default::default(),
        meta: HashMap::new(),
    };
    range
        .map(|part| Document::of(&samples::bucket("a", 1_796_043_600, part, &[(0, 1.0), (1, 2.5)]), &context))
        .collect()
}

/// Every finished data file, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true if !name.starts_with('.') => folders.push(path),
                false if name.ends_with(".bson") || (name.ends_with(".ndjson") && !name.starts_with('.')) => {
                    found.push(path);
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

fn split(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = bytes;
    let mut found = Vec::new();
    while let Some(length) = rest.first_chunk::<4>() {
        let (one, tail) = rest.split_at(i32::from_le_bytes(*length) as usize);
        found.push(RawDocument::from_bytes(one).unwrap().as_bytes().to_vec());
        rest = tail;
    }
    assert!(rest.is_empty());
    found
}

#[tokio::test(start_paused = true)]
async fn documents_are_held_until_their_file_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let mut archive = archive(&config(folder.path(), Format::Bson));
    assert_eq!(archive.due(), None);
    let sent = documents(0..2);
    let report = archive.deliver(&sent).await;
    assert_eq!(report.fates, [Fate::Held, Fate::Held]);
    assert!(!report.flushed && archive.due().is_some());
    assert_eq!(files(folder.path()).len(), 0, "nothing half-written is visible");
    let report = archive.finish().await;
    assert!(report.flushed && report.trouble.is_none());
    assert_eq!(archive.due(), None);
    let found = files(folder.path());
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with("20261130T130000.000Z-000/telemetry/buckets.bson"), "{found:?}");
    assert!(found[0].with_extension("metadata.json").exists());
    let expected: Vec<_> = sent.iter().map(|document| document.bson().as_bytes().to_vec()).collect();
    assert_eq!(split(&fs::read(&found[0]).unwrap()), expected, "byte for byte");
}

#[tokio::test(start_paused = true)]
async fn a_file_is_finished_when_it_is_full() {
    for format in [Format::Bson, Format::Ndjson] {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = archive(&config(folder.path(), format));
        let report = archive.deliver(&documents(0..20)).await;
        let held = report.fates.iter().filter(|&fate| *fate == Fate::Held).count();
        let delivered = report.fates.iter().filter(|&fate| *fate == Fate::Delivered).count();
        assert_eq!(held + delivered, 20);
        assert!(delivered > 10 && held < 8, "{:?}", report.fates);
        let last = report.fates.iter().rposition(|fate| *fate == Fate::Delivered).unwrap();
        assert!(report.fates[..last].iter().all(|fate| *fate == Fate::Delivered), "oldest first");
        assert!(archive.finish().await.flushed);
        let found = files(folder.path());
        assert!(found.len() > 3);
        for file in found {
            assert!(fs::metadata(&file).unwrap().len() <= 2000, "{}", file.display());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_larger_than_a_file_gets_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut small = config(folder.path(), Format::Bson);
    small.max_file_bytes = ByteSize(10);
    let report = archive(&small).deliver(&documents(0..3)).await;
    assert_eq!(report.fates, vec![Fate::Delivered; 3]);
    assert_eq!(files(folder.path()).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_full_archive_stops_and_goes_on_when_files_are_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut bounded = config(folder.path(), Format::Ndjson);
    bounded.max_bytes = ByteSize(3000);
    let mut archive = archive(&bounded);
    let sent = documents(0..20);
    let report = archive.deliver(&sent).await;
    let trouble = report.trouble.unwrap();
    assert_eq!(trouble.kind, TroubleKind::Stopped);
    assert!(trouble.text.contains("move files away"), "{}", trouble.text);
    assert!(!report.fates.contains(&Fate::Held), "what fits is finished");
    let delivered = report.fates.iter().filter(|&fate| *fate == Fate::Delivered).count();
    assert!((1..20).contains(&delivered));
    assert!(file::usage(folder.path()).unwrap() <= 3000);
    assert!(archive.deliver(&sent[delivered..]).await.trouble.is_some());
    files(folder.path()).iter().for_each(|file| fs::remove_file(file).unwrap());
    let report = archive.deliver(&sent[delivered..delivered + 1]).await;
    assert_eq!((report.fates, report.trouble), (vec![Fate::Held], None));
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_vanishes_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("stick");
    fs::create_dir(&inner).unwrap();
    let mut archive = archive(&config(&inner, Format::Bson));
    assert_eq!(archive.deliver(&documents(0..1)).await.fates, [Fate::Held]);
    fs::remove_dir_all(&inner).unwrap();
    let report = archive.finish().await;
    assert!(report.dropped && !report.flushed);
    let text = report.trouble.unwrap().text;
    assert!(text.contains("mounted"), "{text}");
    assert_eq!(archive.deliver(&documents(0..1)).await.fates, [Fate::Unsent]);
    fs::create_dir(&inner).unwrap();
    assert_eq!(archive.deliver(&documents(0..1)).await.fates, [Fate::Held]);
    assert!(archive.finish().await.flushed);
    assert_eq!(files(&inner).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_restart_removes_what_was_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), Format::Bson);
    let mut first = archive(&config);
    first.deliver(&documents(0..1)).await;
    std::mem::forget(first);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let mut second = archive(&config);
    second.deliver(&documents(0..1)).await;
    second.finish().await;
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(files(folder.path()).len(), 1);
}
