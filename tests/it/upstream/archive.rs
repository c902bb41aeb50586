//! Archive files read back by an independent implementation (pymongo's `bson`, the reference for the formats that
//! `mongorestore`, `bsondump` and `mongoimport` read).

use std::path::{Path, PathBuf};
use std::process::Command;

use mongodb::bson::{Document as Bsondoc, RawDocumentBuf};
use tipbucket::model::{FieldName, Value};
use tipbucket::upstream::{Config, Document, Format, Kind};

use super::{STORE, bucket, fates, upstream};

/// Decodes every file, prints one canonical Extended JSON line per document.
const READER: &str = r"
import sys, bson, json
from bson import json_util
from bson.codec_options import CodecOptions
strict = json_util.CANONICAL_JSON_OPTIONS
for path in sys.argv[1:]:
    data = open(path, 'rb').read()
    if path.endswith('.bson'):
        documents = bson.decode_all(data, CodecOptions(document_class=bson.SON, tz_aware=True))
    else:
        options = json_util.JSONOptions(document_class=bson.SON, tz_aware=True)
        documents = [json_util.loads(line, json_options=options) for line in data.decode().split('\n') if line]
    for document in documents:
        print(json_util.dumps(document, json_options=strict))
";

fn config(folder: &Path, format: Format) -> Config {
    Config { kind: Kind::Archive, folder: folder.to_owned(), format, database: "plant".into(), ..Config::default() }
}

fn python() -> PathBuf {
    let server = std::env::var_os("TIPBUCKET_TEST_SECANTUSD").map(PathBuf::from);
    let folder = server.and_then(|path| path.parent().map(Path::to_owned));
    folder.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv/bin")).join("python3")
}

fn read(files: &[PathBuf]) -> Vec<String> {
    let output = Command::new(python()).args(["-c", READER]).args(files).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.to_str().unwrap().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn both_formats_hold_the_same_documents_type_for_type() {
    let (dump, lines) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut read_back = Vec::new();
    let mut sent = Vec::new();
    for (folder, format, ending) in [(&dump, Format::Bson, ".bson"), (&lines, Format::Ndjson, ".ndjson")] {
        let mut upstream = upstream(config(folder.path(), format));
        let context = upstream.context(STORE);
        sent = (0..50)
            .map(|part| {
                let mut bucket = bucket("odd \"sensor\" 🌡", part, &[21.0, -0.0, 1e300, 0.1 + 0.2, 5e-324]);
                let field = |name: &str, value| (FieldName::new(name).unwrap(), value);
                bucket.samples[0].fields.extend([
                    field("whole", Value::I64(7)),
                    field("huge", Value::U64(u64::MAX)),
                    field("on", Value::Bool(true)),
                    field("mode", Value::text("a\"b\\c\n\u{2028}é\0z").unwrap()),
                    field("min", Value::I64(i64::MIN)),
                ]);
                Document::of(&bucket, &context)
            })
            .collect();
        assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "h".repeat(50));
        assert!(files(folder.path(), ending).iter().all(|file| file.to_str().unwrap().contains("/.")), "hidden");
        assert!(upstream.close().await.flushed);
        read_back.push(read(&files(folder.path(), ending)));
    }
    assert_eq!(read_back[0].len(), 50);
    assert_eq!(read_back[0], read_back[1]);
    assert!(read_back[0][0].contains(r#""$numberDecimal": "18446744073709551615""#), "{}", read_back[0][0]);
    assert!(read_back[0][0].contains(r#""whole": {"$numberLong": "7"}"#));

    // And by the driver's own decoder: byte for byte what MongoDB delivery sends.
    let bytes = std::fs::read(&files(dump.path(), ".bson")[0]).unwrap();
    let mut rest = &bytes[..];
    for document in &sent {
        let found = RawDocumentBuf::from_reader(&mut rest).unwrap();
        assert_eq!(&found, document.bson());
        assert!(Bsondoc::try_from(found).is_ok());
    }
    assert!(rest.is_empty());
}

#[tokio::test]
async fn a_dump_has_the_layout_that_mongorestore_expects() {
    let folder = tempfile::tempdir().unwrap();
    let mut upstream = upstream(config(folder.path(), Format::Bson));
    let context = upstream.context(STORE);
    for part in 0..2 {
        let mut sent = [Document::of(&bucket("a", part, &[1.0]), &context)];
        upstream.deliver(&mut sent, STORE).await;
        assert!(upstream.attend().await.flushed);
    }
    let dumps: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(dumps.len(), 2, "one dump folder per file");
    for dump in dumps {
        let mut inside: Vec<_> = std::fs::read_dir(dump.join("plant"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        inside.sort();
        assert_eq!(inside, ["buckets.bson", "buckets.metadata.json"]);
        let metadata = std::fs::read(dump.join("plant/buckets.metadata.json")).unwrap();
        let metadata: serde_json::Value = serde_json::from_slice(&metadata).unwrap();
        assert_eq!(metadata["collectionName"], "buckets");
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_loses_nothing() {
    // /dev/full cannot be a folder; a file where the folder should be fails in the same place.
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("not-a-folder");
    std::fs::write(&blocked, "").unwrap();
    let mut upstream = upstream(config(&blocked, Format::Bson));
    let context = upstream.context(STORE);
    let mut sent = [Document::of(&bucket("a", 0, &[1.0]), &context)];
    let report = upstream.deliver(&mut sent, STORE).await;
    assert_eq!(fates(&report), "-");
    assert!(report.trouble.unwrap().text.contains("cannot write an archive file into"));
    std::fs::remove_file(&blocked).unwrap();
    std::fs::create_dir(&blocked).unwrap();
    assert_eq!(fates(&upstream.deliver(&mut sent, STORE).await), "h");
    assert!(upstream.close().await.flushed);
    assert_eq!(read(&files(&blocked, ".bson")).len(), 1);
}
