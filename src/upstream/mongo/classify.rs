//! What an answer of the database means for a bucket: one pure table, tested row by row.
//!
//! The rule behind it: a bucket is dropped from the backlog only if the answer proves that it is stored (`Delivered`)
//! or that the database will never take it (`Poison`, put aside as a dead letter). Whatever is not understood is kept.
//! Codes are those of the server's `error_codes.yml`.

/// What was seen, freed of the driver's types.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// The command was answered, without a write concern error, and named no error for this document.
    Inserted,
    /// The `_id` is taken; what a majority read found under it.
    Taken(Stored),
    /// A write error or a failed command with this code and text.
    Code {
        /// The server's number.
        code: i32,
        /// Error labels that matter.
        labels: Labels,
        /// The server's words.
        message: String,
    },
    /// The write was applied but not confirmed by a majority.
    Concern {
        /// The server's number.
        code: i32,
    },
    /// No server could be reached; the driver's words.
    NoServer(String),
    /// A name could not be resolved; the resolver's words.
    NoName(String),
    /// The login was refused.
    Login,
    /// The TLS files or options cannot be used, or the server is too old.
    Setup,
    /// The connection broke, the deadline passed, or the reply made no sense: it may have been stored or not.
    Lost,
    /// The connection was closed instead of an answer: by the server or on the way, and it may have been stored or not.
    Closed,
    /// The driver refused to send it.
    Unsendable,
}

/// What stands under a taken `_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// The same content hash.
    Same,
    /// What we wrote of the bucket while it was open.
    Live,
    /// Another hash, or none.
    Other,
    /// Nothing (any more).
    Missing,
}

/// Error labels that matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// `RetryableWriteError`
    pub(crate) retryable: bool,
    /// `SystemOverloadedError`
    pub(crate) overloaded: bool,
    /// `NoWritesPerformed`
    pub(crate) untouched: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// It is stored: forget it here.
    Delivered,
    /// Perhaps stored: send it again, which is harmless.
    Unconfirmed,
    /// Passes by itself: wait a little.
    Transient,
    /// The database asks for less: wait longer, send less.
    Overload,
    /// Nothing gets through until a person acts: keep everything and ask rarely.
    Stop,
    /// This document will never be taken.
    Poison,
    /// Its `_id` may be its own from an earlier try: look at what is stored.
    LookUp,
    /// Its own live document has its `_id`: put it in that one's place.
    Replace,
    /// Other content has its `_id`: send it under another one.
    Conflict,
    /// Not in this table: transient for a while, then `Stop`; never a dead letter.
    Unknown,
}

/// The table.
pub(crate) fn classify(signal: &Signal) -> Class {
    match signal {
        Signal::Inserted | Signal::Taken(Stored::Same) => Class::Delivered,
        Signal::Taken(Stored::Live) => Class::Replace,
        Signal::Taken(Stored::Other) => Class::Conflict,
        // Deleted between the two looks, by its expiry or by a person: sending again settles it.
        Signal::Taken(Stored::Missing) => Class::Transient,
        Signal::Concern { code: UNSATISFIABLE_WRITE_CONCERN } => Class::Stop,
        Signal::Concern { .. } | Signal::Lost | Signal::Closed => Class::Unconfirmed,
        Signal::Code { labels: Labels { overloaded: true, .. }, .. } => Class::Overload,
        Signal::Code { labels: Labels { retryable: true, .. }, .. } => Class::Transient,
        Signal::Code { code: DUPLICATE_KEY, message, .. } => duplicate(message),
        Signal::Code { code, .. } => of_code(*code),
        // A name that does not exist now may tomorrow: resolvers say so too while a network comes up.
        Signal::NoServer(words) if is_tls(words) => Class::Stop,
        Signal::NoServer(_) | Signal::NoName(_) => Class::Transient,
        Signal::Login | Signal::Setup => Class::Stop,
        Signal::Unsendable => Class::Poison,
    }
}

/// Another document has the same unique key.
pub(crate) const DUPLICATE_KEY: i32 = 11000;
const UNSATISFIABLE_WRITE_CONCERN: i32 = 100;

/// Which unique index was hit stands in the words only. A server that names none (FerretDB) has no other unique index
/// unless somebody made one.
fn duplicate(message: &str) -> Class {
    match message.split_once("index: ") {
        Some((_, rest)) if !rest.starts_with("_id_") => Class::Poison,
        _ => Class::LookUp,
    }
}

fn of_code(code: i32) -> Class {
    match code {
        // WriteConcernTimeout, UnknownReplWriteConcern at the top level.
        64 | 79 => Class::Unconfirmed,
        // HostUnreachable, HostNotFound, NetworkTimeout, SocketException, ShutdownInProgress, PrimarySteppedDown,
        // ExceededTimeLimit, NotPrimary…, Interrupted…
        6 | 7 | 89 | 9001 | 91 | 189 | 262 | 10058 | 10107 | 11600 | 11601 | 11602 | 13435 | 13436 => Class::Transient,
        // LockTimeout, MaxTimeMSExpired, WriteConflict, FailedToSatisfyReadPreference, ClientDisconnect,
        // TemporarilyUnavailable, ResourceExhausted…, ClientMarkedKilled, InternalError
        1 | 24 | 50 | 112 | 133 | 279 | 365 | 402 | 46841 => Class::Transient,
        // The rate limiters and their kin.
        433 | 449 | 450 | 462 | 463 | 473 => Class::Overload,
        // UserNotFound, Unauthorized, AuthenticationFailed, RoleNotFound, MechanismUnavailable,
        // ReauthenticationRequired, AtlasError (over quota, bad login), OutOfDiskSpace, UserWritesBlocked
        11 | 13 | 18 | 31 | 334 | 391 | 8000 | 14031 | 371 | UNSATISFIABLE_WRITE_CONCERN => Class::Stop,
        // NamespaceNotFound, InvalidNamespace, CommandNotSupportedOnView, API version errors, IllegalOperation
        // ("Transaction numbers are only allowed on a replica set"), ShardKeyNotFound
        26 | 73 | 166 | 322 | 323 | 324 | 20 | 61 => Class::Stop,
        // DocumentValidationFailure, BSONObjectTooLarge (two numbers), BadValue, FailedToParse, TypeMismatch,
        // Overflow, InvalidBSON, PathNotViable, DollarPrefixedFieldName, InvalidIdField, EmptyFieldName,
        // DottedFieldName, ImmutableField
        121 | 10334 | 17419 | 2 | 9 | 14 | 15 | 22 | 28 | 52 | 53 | 56 | 57 | 66 => Class::Poison,
        _ => Class::Unknown,
    }
}

/// Whether the words of a failed server selection tell of TLS rather than of the network.
pub(crate) fn is_tls(words: &str) -> bool {
    ["invalid peer certificate", "received fatal alert", "received corrupt message"]
        .iter()
        .any(|sign| words.contains(sign))
}

/// Whether the resolver said that the name does not exist, rather than that it cannot tell now.
pub(crate) fn is_unknown_name(words: &str) -> bool {
    ["Name or service not known", "No address associated", "NXDomain", "NXDOMAIN", "no record found", "nodename nor"]
        .iter()
        .any(|sign| words.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(code: i32) -> Signal {
        Signal::Code { code, labels: Labels::default(), message: String::new() }
    }

    fn check(codes: &[i32], expected: Class) {
        for &number in codes {
            assert_eq!(classify(&code(number)), expected, "{number}");
        }
    }

    #[test]
    fn every_code_of_the_table_has_its_class() {
        check(&[64, 79], Class::Unconfirmed);
        let away = [6, 7, 89, 9001, 91, 189, 262, 10058, 10107, 11600, 11601, 11602, 13435, 13436];
        check(&away, Class::Transient);
        check(&[1, 24, 50, 112, 133, 279, 365, 402, 46841], Class::Transient);
        check(&[433, 449, 450, 462, 463, 473], Class::Overload);
        check(&[11, 13, 18, 31, 334, 391, 8000, 14031, 371, 100, 26, 73, 166, 322, 323, 324, 20, 61], Class::Stop);
        check(&[121, 10334, 17419, 2, 9, 14, 15, 22, 28, 52, 53, 56, 57, 66], Class::Poison);
        check(&[0, -1, 3, 12345, i32::MAX, i32::MIN], Class::Unknown);
    }

    #[test]
    fn only_proof_counts_as_delivered() {
        let signals = [
            (Signal::Inserted, Class::Delivered),
            (Signal::Taken(Stored::Same), Class::Delivered),
            (Signal::Taken(Stored::Live), Class::Replace),
            (Signal::Taken(Stored::Other), Class::Conflict),
            (Signal::Taken(Stored::Missing), Class::Transient),
            (Signal::Lost, Class::Unconfirmed),
            (Signal::Closed, Class::Unconfirmed),
            (Signal::Login, Class::Stop),
            (Signal::Setup, Class::Stop),
            (Signal::Unsendable, Class::Poison),
        ];
        for (signal, class) in signals {
            assert_eq!(classify(&signal), class, "{signal:?}");
        }
        for number in (-10..20_000).chain([i32::MIN, i32::MAX]) {
            for labels in [(false, false), (true, false), (false, true), (true, true)] {
                let labels = Labels { retryable: labels.0, overloaded: labels.1, untouched: false };
                let signal = Signal::Code { code: number, labels, message: "index: _id_".into() };
                assert_ne!(classify(&signal), Class::Delivered, "{number}");
            }
        }
    }

    #[test]
    fn a_write_concern_error_leaves_it_unconfirmed() {
        for code in [64, 79, 91, 189, 11602, 4711] {
            assert_eq!(classify(&Signal::Concern { code }), Class::Unconfirmed);
        }
        assert_eq!(classify(&Signal::Concern { code: 100 }), Class::Stop);
    }

    #[test]
    fn labels_weigh_more_than_codes() {
        let of = |number, retryable, overloaded| {
            classify(&Signal::Code {
                code: number,
                labels: Labels { retryable, overloaded, untouched: false },
                message: String::new(),
            })
        };
        assert_eq!(of(4711, true, false), Class::Transient);
        assert_eq!(of(91, true, true), Class::Overload);
        assert_eq!(of(4711, false, true), Class::Overload);
    }

    #[test]
    fn a_duplicate_on_another_index_is_not_ours() {
        let of = |message: &str| {
            classify(&Signal::Code { code: 11000, labels: Labels::default(), message: message.to_owned() })
        };
        assert_eq!(of("E11000 duplicate key error collection: a.b index: _id_ dup key: { _id: \"x\" }"), Class::LookUp);
        assert_eq!(of("E11000 duplicate key error collection: a.b index: seq_1 dup key: { seq: 1 }"), Class::Poison);
        assert_eq!(of("E11000 duplicate key error"), Class::LookUp);
    }

    #[test]
    fn what_keeps_a_server_away_decides_how_long_to_wait() {
        let away = |words: &str| classify(&Signal::NoServer(words.to_owned()));
        assert_eq!(away("Connection refused (os error 111)"), Class::Transient);
        assert_eq!(away("invalid peer certificate: UnknownIssuer"), Class::Stop);
        assert_eq!(away("failed to lookup address information: Name or service not known"), Class::Transient);
        assert_eq!(
            away("failed to lookup address information: Temporary failure in name resolution"),
            Class::Transient
        );
        assert_eq!(classify(&Signal::NoName("NXDomain".into())), Class::Transient);
        assert_eq!(classify(&Signal::NoName("request timed out".into())), Class::Transient);
    }
}
