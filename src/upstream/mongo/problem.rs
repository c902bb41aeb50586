//! The driver's errors as [`Problem`]s: a signal for the table, words for people.

use mongodb::bson::Document as Bsondoc;
use mongodb::error::{Error, ErrorKind, IndexedWriteError, RETRYABLE_WRITE_ERROR, SYSTEM_OVERLOADED_ERROR};

use super::advice;
use super::classify::{Labels, Signal};
use super::deliver::Problem;

/// The label of an error after which certainly nothing is written.
pub(super) const NO_WRITES_PERFORMED: &str = "NoWritesPerformed";
/// Longest errInfo that is kept with a refused bucket.
const MAX_DETAILS: usize = 4096;

pub(super) fn of_document(error: &IndexedWriteError, labels: Labels, namespace: &str) -> Problem {
    let name = error.code_name.as_deref().unwrap_or(match error.code {
        121 => "DocumentValidationFailure",
        _ => "",
    });
    let mut text = advice::code(error.code, name, &error.message, namespace);
    if let Some(details) = &error.details {
        text.push_str("; errInfo: ");
        text.push_str(&shown(details));
    }
    Problem { signal: Signal::Code { code: error.code, labels, message: error.message.clone() }, text, wait: None }
}

pub(super) fn shown(details: &Bsondoc) -> String {
    let mut text = details.to_string();
    if let Some((end, _)) = text.char_indices().nth(MAX_DETAILS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

pub(super) fn labels(error: &Error) -> Labels {
    Labels {
        retryable: error.contains_label(RETRYABLE_WRITE_ERROR),
        overloaded: error.contains_label(SYSTEM_OVERLOADED_ERROR),
        untouched: error.contains_label(NO_WRITES_PERFORMED),
    }
}

pub(super) fn nonsense(what: &str) -> Problem {
    Problem { signal: Signal::Lost, text: format!("the server's answer makes no sense: {what}"), wait: None }
}

pub(super) fn problem(error: &Error, namespace: &str, tls: bool) -> Problem {
    let plain = advice::plain(error);
    let of = |signal, text| Problem { signal, text, wait: error.base_backoff() };
    match &*error.kind {
        ErrorKind::Command(command) => {
            let text = advice::code(command.code, &command.code_name, &command.message, namespace);
            let signal = Signal::Code { code: command.code, labels: labels(error), message: command.message.clone() };
            of(signal, text)
        }
        ErrorKind::Authentication { message, .. } => of(Signal::Login, advice::login(message)),
        ErrorKind::ServerSelection { message, .. } => {
            of(Signal::NoServer(message.clone()), advice::no_server(message, tls))
        }
        ErrorKind::DnsResolve { message, .. } => of(Signal::NoName(message.clone()), advice::no_name(message)),
        ErrorKind::InvalidTlsConfig { message, .. } => {
            of(Signal::Setup, format!("the TLS settings in the connection string cannot be used: {message}"))
        }
        ErrorKind::IncompatibleServer { message, .. } => {
            of(Signal::Setup, format!("this server cannot be used: {message}"))
        }
        // The same kind tells of replies whose lengths make no sense; only this one blames a document.
        ErrorKind::InvalidArgument { message, .. } if message.starts_with("insert document must be within") => {
            of(Signal::Unsendable, format!("the driver refuses to send it: {message}"))
        }
        ErrorKind::Io(cause) if is_closed(cause) => {
            of(Signal::Closed, format!("the connection to the database broke: {plain}"))
        }
        // Also `Bson`: our documents are encoded already, so what cannot be decoded is the reply.
        _ => of(Signal::Lost, format!("the connection to the database broke: {plain}")),
    }
}

/// Whether the other side, or something on the way, closed the connection.
fn is_closed(cause: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(cause.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}
