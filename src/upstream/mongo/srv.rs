//! Offline starts with `mongodb+srv`: where the name led last time is remembered, and used when it cannot be resolved.
//!
//! A gateway that boots before its modem has a network, or whose resolver is dead, connects as soon as the servers
//! themselves can be reached.

use mongodb::options::ClientOptions;

use super::super::notebook::Srv;
use super::super::{Uri, secret};

/// Options that only make sense while names are being resolved.
const ONLY_SRV: [&str; 2] = ["srvmaxhosts", "srvservicename"];

/// The name that is resolved, if this connection string has one.
pub(super) fn name(uri: &Uri) -> Option<&str> {
    let rest = uri.expose().strip_prefix("mongodb+srv://")?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    host.split(['/', '?']).next().filter(|name| !name.is_empty())
}

/// What is worth remembering of resolved options.
pub(super) fn remembered(name: &str, options: &ClientOptions) -> Srv {
    Srv {
        name: name.to_owned(),
        hosts: options.hosts.iter().map(ToString::to_string).collect(),
        replica_set: options.repl_set_name.clone(),
        auth_source: options.credential.as_ref().and_then(|credential| credential.source.clone()),
        load_balanced: options.load_balanced,
    }
}

/// The connection string with the remembered hosts in the name's place; `None` if they belong to another name.
pub(super) fn without_dns(uri: &Uri, known: &Srv) -> Option<Uri> {
    let wanted = name(uri)?;
    if known.name != wanted || known.hosts.is_empty() {
        return None;
    }
    let rest = uri.expose().strip_prefix("mongodb+srv://")?;
    let (login, rest) =
        rest.rsplit_once('@').map_or((String::new(), rest), |(login, rest)| (format!("{login}@"), rest));
    let rest = rest.strip_prefix(wanted)?;
    let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
    let mut options: Vec<String> = options
        .split('&')
        .filter(|option| !option.is_empty() && !ONLY_SRV.contains(&key(option).as_str()))
        .map(str::to_owned)
        .collect();
    let mut add = |names: &[&str], value: Option<String>| {
        let is_given = options.iter().any(|option| names.contains(&key(option).as_str()));
        if let Some(value) = value.filter(|_| !is_given) {
            options.push(format!("{}={}", names[0], secret::encoded(&value)));
        }
    };
    // With `mongodb+srv` TLS is on unless it is switched off.
    add(&["tls", "ssl"], Some("true".to_owned()));
    add(&["replicaset"], known.replica_set.clone());
    add(&["authsource"], known.auth_source.clone().filter(|_| !login.is_empty()));
    add(&["loadbalanced"], known.load_balanced.map(|on| on.to_string()));
    let path = if path.is_empty() { "/" } else { path };
    Some(Uri::new(format!("mongodb://{login}{}{path}?{}", known.hosts.join(","), options.join("&"))))
}

fn key(option: &str) -> String {
    option.split('=').next().unwrap_or(option).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, expected: Option<&str>) {
        let known = Srv {
            name: "c0.example.net".into(),
            hosts: vec!["a.example.net:27017".into(), "b.example.net:27018".into()],
            replica_set: Some("atlas-1".into()),
            auth_source: Some("admin".into()),
            load_balanced: None,
        };
        let made = without_dns(&Uri::new(uri), &known);
        assert_eq!(made.as_ref().map(Uri::expose), expected);
        if let Some(made) = made {
            mongodb::options::ConnectionString::parse(made.expose()).unwrap();
        }
    }

    #[test]
    fn remembered_hosts_stand_in_for_the_name() {
        let hosts = "a.example.net:27017,b.example.net:27018";
        check(
            "mongodb+srv://zoe:p%40ss@c0.example.net/x?retryWrites=true&srvMaxHosts=2",
            Some(&format!(
                "mongodb://zoe:p%40ss@{hosts}/x?retryWrites=true&tls=true&replicaset=atlas-1&authsource=admin"
            )),
        );
        check("mongodb+srv://c0.example.net", Some(&format!("mongodb://{hosts}/?tls=true&replicaset=atlas-1")));
        check(
            "mongodb+srv://c0.example.net/?ssl=false&replicaSet=other",
            Some(&format!("mongodb://{hosts}/?ssl=false&replicaSet=other")),
        );
    }

    #[test]
    fn another_name_is_not_answered_from_memory() {
        check("mongodb+srv://c1.example.net/", None);
        check("mongodb://c0.example.net/", None);
        assert_eq!(name(&Uri::new("mongodb+srv://u:p@c0.example.net/db?x=y")), Some("c0.example.net"));
        assert_eq!(name(&Uri::new("mongodb://a/")), None);
    }
}
