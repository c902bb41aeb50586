//! Samples as what they add to a document that is there: `$push`, `$inc`, `$min`, `$max`.
//!
//! Only what can be added piece by piece: rows, counts, sums, least and greatest values.

use mongodb::bson::{RawBson, RawDocumentBuf};

use super::write::{Builder, date, number, whole};
use super::{Context, samples};
use crate::model::{FieldName, FieldStats, SealedBucket};
use crate::upstream::Rollups;
use crate::upstream::names::rollup_name;

/// An update under construction, operator by operator.
pub(super) struct Gain {
    pub(super) push: Builder,
    pub(super) inc: Builder,
    pub(super) min: Builder,
    pub(super) max: Builder,
    pub(super) set: Builder,
    /// What is said once, by the update that makes the document.
    pub(super) once: Builder,
}

impl Gain {
    /// What the samples of `bucket`, in time order, add; rollups are `stats`. `counts`: which fields have a count of their
    /// own beside flat rollups.
    pub(super) fn of(
        bucket: &SealedBucket,
        context: &Context,
        stats: &[(FieldName, FieldStats)],
        main: Option<&FieldName>,
        counts: impl Fn(&FieldName) -> bool,
    ) -> Self {
        let [push, inc, min, max, set, once] = std::array::from_fn(|_| Builder::new());
        let mut gain = Self { push, inc, min, max, set, once };
        let (shape, names) = (&context.shape, &context.shape.names);
        let mut each = Builder::new();
        each.put("$each", samples::rows(bucket, shape, main));
        gain.push.put(&names.samples, each.0);
        gain.inc.put(&names.count, whole(bucket.count()));
        if let Some((first, last)) = bucket.span() {
            gain.min.put(&names.first, date(first));
            gain.max.put(&names.last, date(last));
        }
        for (field, stats) in stats {
            let key = |name: &str| match shape.rollups {
                _ if name.is_empty() => String::new(),
                Rollups::Nested => path(&[&names.stats, &names.field(field.as_str()), name]),
                Rollups::Flat => rollup_name(name, field.as_str(), Some(field) == main),
                Rollups::None => String::new(),
            };
            match shape.rollups {
                Rollups::Flat if stats.numbers.is_some() && counts(field) && !names.stats_count.is_empty() => {
                    gain.inc.put(&rollup_name(&names.stats_count, field.as_str(), false), whole(stats.count));
                }
                Rollups::Nested => gain.inc.put(&key(&names.stats_count), whole(stats.count)),
                Rollups::Flat | Rollups::None => {}
            }
            if let Some((sum, min, max)) = stats.numbers {
                gain.inc.put(&key(&names.stats_sum), number(sum));
                gain.min.put(&key(&names.stats_min), number(min));
                gain.max.put(&key(&names.stats_max), number(max));
            }
        }
        gain
    }

    /// The update; operators that do nothing are left out.
    pub(super) fn update(self) -> RawDocumentBuf {
        let mut update = Builder::new();
        let operators = [
            ("$push", self.push),
            ("$inc", self.inc),
            ("$min", self.min),
            ("$max", self.max),
            ("$set", self.set),
            ("$setOnInsert", self.once),
        ];
        for (operator, what) in operators.into_iter().filter(|(_, what)| !what.0.is_empty()) {
            update.put(operator, what.0);
        }
        update.0
    }
}

/// A dotted path; empty if a part of it has no name.
pub(super) fn path(parts: &[&str]) -> String {
    if parts.iter().any(|part| part.is_empty()) { String::new() } else { parts.join(".") }
}

/// A statement of an update command.
pub(super) fn statement(filter: RawDocumentBuf, update: RawDocumentBuf) -> RawDocumentBuf {
    let mut statement = Builder::new();
    statement.put("q", filter);
    statement.put("u", update);
    statement.put("upsert", RawBson::Boolean(true));
    statement.0
}
