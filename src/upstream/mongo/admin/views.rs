//! Ready-made views: `readings` (one document for each sample), `latest`, `hourly` (from rollups). Pure.

use mongodb::bson::{Bson, Document, doc};

use crate::upstream::{Layout, Names, Rollups, Shape, Times};

/// Milliseconds of a minute.
const MINUTE: i32 = 60_000;

/// A view's name and pipeline.
type View = (&'static str, Vec<Document>);

/// The views that this shape allows, and why one is left out.
pub(super) fn views(shape: &Shape) -> (Vec<View>, Vec<String>) {
    let mut views = vec![("readings", readings(shape))];
    let mut left_out = Vec::new();
    match latest(shape) {
        Some(pipeline) => views.push(("latest", pipeline)),
        None => left_out.push("no view `latest`: documents do not name their sensor".to_owned()),
    }
    match hourly(shape) {
        Some(pipeline) => views.push(("hourly", pipeline)),
        None => left_out.push(
            "no view `hourly`: it needs rollups under names that are the same for all sensors, and sensor and start"
                .to_owned(),
        ),
    }
    (views, left_out)
}

fn path(name: &str) -> String {
    format!("${name}")
}

/// `{site: "$site", sensor: "$sensor"}`, as far as there are such fields.
fn subject(names: &Names, prefix: &str) -> Document {
    let fields = [("site", &names.site), ("sensor", &names.sensor)];
    let known = fields.into_iter().filter(|(_, name)| !name.is_empty());
    known.map(|(key, name)| (key.to_owned(), Bson::String(format!("${prefix}{name}")))).collect()
}

/// The time of a sample as a date, from the expression that reads it.
fn time(shape: &Shape, stored: &str) -> Bson {
    let start = path(&shape.names.start);
    match shape.times {
        Times::Auto | Times::Date => stored.into(),
        Times::Offset => doc! { "$add": [start, stored] }.into(),
        Times::Minute => doc! { "$add": [start, { "$multiply": [stored, MINUTE] }] }.into(),
    }
}

fn readings(shape: &Shape) -> Vec<Document> {
    let names = &shape.names;
    let samples = path(&names.samples);
    let mut pipeline = Vec::new();
    if shape.layout == Layout::Columns {
        let column = doc! { "k": "$$column.k", "v": { "$arrayElemAt": ["$$column.v", "$$row"] } };
        let row = doc! { "$arrayToObject": { "$map": {
            "input": { "$objectToArray": samples.as_str() }, "as": "column", "in": column,
        } } };
        let rows = doc! { "$range": [0, { "$size": { "$ifNull": [format!("{samples}.{}", names.samples_t), []] } }] };
        let mut set = Document::new();
        set.insert(names.samples.as_str(), doc! { "$map": { "input": rows, "as": "row", "in": row } });
        pipeline.push(doc! { "$set": set });
    }
    pipeline.push(doc! { "$unwind": samples.as_str() });
    let mut own = doc! {};
    own.insert(names.samples_t.as_str(), time(shape, &format!("{samples}.{}", names.samples_t)));
    let merged: Vec<Bson> = vec![subject(names, "").into(), samples.into(), own.into()];
    pipeline.push(doc! { "$replaceWith": { "$mergeObjects": merged } });
    pipeline
}

/// The last sample of each sensor: `_id` is in the order of time, so its index serves.
fn latest(shape: &Shape) -> Option<Vec<Document>> {
    let names = &shape.names;
    if names.sensor.is_empty() {
        return None;
    }
    let mut pipeline = vec![
        doc! { "$sort": { "_id": -1 } },
        doc! { "$group": { "_id": subject(names, ""), "bucket": { "$first": "$$ROOT" } } },
        doc! { "$replaceWith": "$bucket" },
    ];
    pipeline.extend(readings(shape));
    let order = subject(names, "");
    let last: Document =
        [("_id".to_owned(), Bson::from(order)), ("reading".to_owned(), doc! { "$last": "$$ROOT" }.into())]
            .into_iter()
            .collect();
    pipeline.push(doc! { "$group": last });
    pipeline.push(doc! { "$replaceWith": "$reading" });
    Some(pipeline)
}

/// Rollups by hour, and by field where documents say it.
fn hourly(shape: &Shape) -> Option<Vec<Document>> {
    let names = &shape.names;
    let of_stats = [&names.stats_sum, &names.stats_min, &names.stats_max];
    if names.sensor.is_empty() || names.start.is_empty() || of_stats.iter().any(|name| name.is_empty()) {
        return None;
    }
    let mut group = subject(names, "");
    group.insert("hour", doc! { "$dateTrunc": { "date": path(&names.start), "unit": "hour" } });
    let (mut pipeline, prefix, count) = match shape.rollups {
        Rollups::Nested if !names.stats_count.is_empty() && !names.stats.is_empty() => {
            group.insert("field", "$rollup.k");
            let unwound = vec![
                doc! { "$set": { "rollup": { "$objectToArray": path(&names.stats) } } },
                doc! { "$unwind": "$rollup" },
            ];
            (unwound, "$rollup.v.", format!("$rollup.v.{}", names.stats_count))
        }
        Rollups::Flat if !names.count.is_empty() && of_stats.iter().all(|name| !name.contains('{')) => {
            (Vec::new(), "$", path(&names.count))
        }
        _ => return None,
    };
    pipeline.push(doc! { "$group": {
        "_id": group,
        "count": { "$sum": count },
        "sum": { "$sum": format!("{prefix}{}", names.stats_sum) },
        "min": { "$min": format!("{prefix}{}", names.stats_min) },
        "max": { "$max": format!("{prefix}{}", names.stats_max) },
    } });
    pipeline.push(doc! { "$set": { "avg": { "$cond": [{ "$gt": ["$count", 0] }, { "$divide": ["$sum", "$count"] }, Bson::Null] } } });
    pipeline.push(doc! { "$replaceWith": { "$mergeObjects": ["$_id", "$$ROOT"] } });
    pipeline.push(doc! { "$unset": "_id" });
    Some(pipeline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{Config, Preset};

    fn check(config: &Config, expected: &[&str]) {
        let (views, left_out) = views(&Shape::of(config));
        assert_eq!(views.iter().map(|(name, _)| *name).collect::<Vec<_>>(), expected, "{left_out:?}");
        assert_eq!(left_out.len(), 3 - expected.len());
    }

    #[test]
    fn a_shape_has_the_views_that_it_allows() {
        check(&Config::default(), &["readings", "latest", "hourly"]);
        check(&Config { layout: Layout::Columns, ..Config::default() }, &["readings", "latest", "hourly"]);
        check(&Config { preset: Some(Preset::Hourly), ..Config::default() }, &["readings", "latest", "hourly"]);
        check(&Config { preset: Some(Preset::Samples), ..Config::default() }, &["readings", "latest"]);
        check(&Config { preset: Some(Preset::Measurements), ..Config::default() }, &["readings", "latest"]);
        let mut nameless = Config::default();
        nameless.names.sensor = String::new();
        check(&nameless, &["readings"]);
    }
}
