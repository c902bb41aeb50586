//! The driver's errors in words that help: what failed, why, what to do. Without the secrets of the connection string.

use mongodb::error::{Error, ErrorKind};

use super::classify::{is_tls, is_unknown_name};
use super::tls;

/// Longest text of a server that is repeated.
const MAX_WORDS: usize = 600;

/// The driver's own message, without its list of labels.
pub(in crate::upstream) fn plain(error: &Error) -> String {
    cut(&error.kind.to_string())
}

/// A connection string that cannot be used.
pub(in crate::upstream) fn argument(error: &Error) -> String {
    let words = plain(error);
    if words.contains("tlsCertificateKeyFilePassword") {
        return "tlsCertificateKeyFilePassword in the connection string is not supported: take the password off the key (`openssl pkey -in KEY -out PLAIN`), let only this service read the file, and leave the option out".to_owned();
    }
    format!("not a connection string: {words} (expected mongodb://user:password@host:27017)")
}

/// What is known about a failed login.
pub(super) fn login(words: &str) -> String {
    format!("the database refused user or password ({}): check the connection string, and authSource in it", cut(words))
}

/// Why no server was found, from the driver's description of every server it tried; `tls`: we speak TLS.
pub(super) fn no_server(words: &str, tls: bool) -> String {
    let cause = cause(words);
    let hint = if is_tls(words) {
        tls::hint(words)
    } else if is_unknown_name(words) {
        "no such host: check its name in the connection string, and DNS"
    } else if words.contains("Temporary failure in name resolution") {
        "names cannot be resolved now: is the network up?"
    } else if words.contains("Connection refused") {
        "is the server running, and is the port right?"
    } else if ["end of file", "reset by peer", "Broken pipe", "handshake eof"].iter().any(|sign| words.contains(sign)) {
        // A refusal of our certificate may be lost when the server closes at once.
        if tls {
            "the server hangs up: does it ask for a client certificate that it knows (tlsCertificateKeyFile)? Its log tells why"
        } else {
            "the server hangs up: does it want TLS (tls=true)?"
        }
    } else if words.contains("timed out") || words.contains("No route") || words.contains("unreachable") {
        "is the network up, and does a firewall or an access list let this gateway through?"
    } else {
        "is the address right, and is there a primary?"
    };
    format!("cannot reach the database: {cause}: {hint}")
}

/// A name that was not resolved.
pub(super) fn no_name(words: &str) -> String {
    format!("cannot resolve the database's address: {}: is the name right, and does DNS work here?", cut(words))
}

/// An error code with the server's words, and what to do about some.
pub(super) fn code(code: i32, name: &str, words: &str, namespace: &str) -> String {
    let hint = match code {
        13 => format!(": grant the user insert and find on {namespace} (modes live and append: update too)"),
        18 => ": check user and password in the connection string".to_owned(),
        8000 if words.contains("auth") => ": check user and password in the connection string".to_owned(),
        8000 | 14031 => ": free space or enlarge the cluster".to_owned(),
        20 => ": run the server as a replica set, or add retryWrites=false to the connection string".to_owned(),
        61 => format!(": the shard key of {namespace} must be a field that every bucket has"),
        73 | 166 => format!(": {namespace} cannot be inserted into"),
        100 => ": the replica set has too few members for a majority".to_owned(),
        371 => ": writes are blocked by the administrator".to_owned(),
        _ => String::new(),
    };
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("the database answered {code}{name}: {}{hint}", cut(words))
}

/// The first server's own error out of `… Topology: { …, Servers: [ { Address: …, Error: … } ] }`.
fn cause(words: &str) -> String {
    let Some((_, rest)) = words.split_once("Error: ") else { return cut(words) };
    let rest = rest.strip_prefix("Kind: ").unwrap_or(rest);
    let end = [", labels:", ", source:", " }"].iter().filter_map(|end| rest.find(end)).min();
    let address = words.split_once("Address: ").and_then(|(_, rest)| rest.split([',', ' ']).next());
    let cause = cut(rest[..end.unwrap_or(rest.len())].trim());
    match address {
        Some(address) => format!("{address}: {cause}"),
        None => cause,
    }
}

fn cut(words: &str) -> String {
    match words.char_indices().nth(MAX_WORDS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

/// Whether an error is the driver's refusal to send, or to be set up.
pub(super) fn is_argument(error: &Error) -> bool {
    matches!(*error.kind, ErrorKind::InvalidArgument { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: &str = "Server selection timeout: No available servers. Topology: { Type: Unknown, Set Name: None, Servers: [ { Address: 127.0.0.1:1, Type: Unknown, Error: Kind: I/O error: CAUSE, labels: {}, source: None } ] }";

    fn check(cause: &str, expected: &[&str]) {
        let text = no_server(&TIMEOUT.replace("CAUSE", cause), false);
        assert!(text.starts_with("cannot reach the database: 127.0.0.1:1: I/O error"), "{text}");
        for part in expected {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("Topology"), "{text}");
    }

    #[test]
    fn the_drivers_long_story_becomes_one_line_of_advice() {
        check("Connection refused (os error 111)", &["Connection refused", "is the server running"]);
        check("invalid peer certificate: UnknownIssuer", &["tlsCAFile"]);
        check("invalid peer certificate: Expired", &["clock"]);
        check("failed to lookup address information: Name or service not known", &["no such host"]);
        check("failed to lookup address information: Temporary failure in name resolution", &["network up"]);
        check("timed out", &["firewall"]);
        check("unexpected end of file", &["tls=true"]);
        check("received corrupt message of type InvalidContentType", &["speak TLS"]);
        check("something new", &["something new"]);
        let hangs_up = no_server(&TIMEOUT.replace("CAUSE", "Connection reset by peer (os error 104)"), true);
        assert!(hangs_up.contains("client certificate"), "{hangs_up}");
    }

    #[test]
    fn codes_come_with_what_to_do() {
        let text = code(13, "Unauthorized", "not authorized on telemetry", "telemetry.buckets");
        assert_eq!(
            text,
            "the database answered 13 Unauthorized: not authorized on telemetry: grant the user insert and find on telemetry.buckets (modes live and append: update too)"
        );
        assert!(code(8000, "AtlasError", "bad auth : authentication failed", "a.b").contains("user and password"));
        assert!(code(8000, "AtlasError", "you are over your space quota", "a.b").contains("enlarge"));
        assert_eq!(code(121, "", "no", "a.b"), "the database answered 121: no");
        assert!(code(2, "", &"x".repeat(5000), "a.b").len() < 700);
    }
}
