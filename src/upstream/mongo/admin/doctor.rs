//! `doctor`: looks whether a database is in order for a site, and prints the exact remedy for what is not.

use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::options::{ClientOptions, Tls};
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::plan::actions;
use super::{Admin, Local, certificate};
use crate::model::Timestamp;
use crate::upstream::mongo::deliver::Problem;

/// A clock that differs by more makes documents that seem to come from elsewhere.
const CLOCK_OFF: i64 = 2000;
/// A certificate that ends sooner is told of.
const EXPIRES_SOON: Duration = Duration::from_secs(30 * 86_400);
/// The oldest server whose unordered inserts and labels are known.
const OLDEST: u32 = 4;

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// In order.
    Ok,
    /// Could be better.
    Advice,
    /// Delivery, or what is delivered, is in danger.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// What it is.
    pub what: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(what: impl Into<String>) -> Self {
        Self { level: Level::Ok, what: what.into(), remedy: None }
    }

    pub(super) fn advice(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Advice, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn wrong(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Wrong, what: what.into(), remedy: Some(remedy.into()) }
    }
}

impl Admin {
    /// Looks at everything; an error if the database cannot be reached at all.
    pub async fn doctor(&mut self, local: Local) -> anyhow::Result<Vec<Finding>> {
        let told = |problem: Problem| anyhow::anyhow!(problem.text);
        self.link.greet().await.map_err(told)?;
        let mut found = Vec::new();
        let hello = self.link.run("admin", doc! { "hello": 1, "compression": ["zstd"] }).await.map_err(told)?;
        self.server(&hello, local, &mut found);
        self.concern(&mut found).await;
        self.tls(local, &mut found).await;
        self.rights(&mut found).await;
        match self.collections().await {
            Ok(known) => self.known(&known, &hello, local, &mut found).await,
            Err(problem) => found.push(Finding::advice(
                format!("collections and indexes cannot be looked at: {}", problem.text),
                "run this as a user that may listCollections and listIndexes (role read)",
            )),
        }
        Ok(found)
    }

    /// Version, compression, kind of deployment, clock.
    fn server(&self, hello: &Document, local: Local, found: &mut Vec<Finding>) {
        let server = self.link.server();
        let version = server.and_then(|server| server.version.as_deref()).unwrap_or("unknown");
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        found.push(match major {
            Some(major) if major < OLDEST => Finding::advice(
                format!("server version {version}"),
                "upgrade to 4.4 or later: older ones do not tell which errors pass by themselves",
            ),
            _ => Finding::ok(format!("server version {version}")),
        });
        found.push(match server {
            Some(server) if server.compresses => Finding::ok("messages are compressed with zstd"),
            _ => Finding::advice(
                "the server does not take messages compressed with zstd: some seven times as many bytes go over the link",
                "net.compression.compressors: snappy,zstd,zlib in the server's configuration",
            ),
        });
        let is_sharded = hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid");
        found.push(if is_sharded {
            Finding::ok("sharded cluster")
        } else if let Ok(set) = hello.get_str("setName") {
            Finding::ok(format!("replica set {set}"))
        } else {
            Finding::advice(
                "a server without a replica set: no majority confirms what is written, and the driver does not retry",
                "start it as a replica set of one: rs.initiate(); or add retryWrites=false to the connection string",
            )
        });
        if let Ok(theirs) = hello.get_datetime("localTime") {
            let off = theirs.timestamp_millis() - local.now.as_millis();
            let words = format!("the server's clock and this one differ by {:.1} s", off as f64 / 1000.0);
            found.push(if off.abs() > CLOCK_OFF {
                Finding::advice(words, "set this gateway's clock (timedatectl set-ntp true), or the server's")
            } else {
                Finding::ok(words)
            });
        }
    }

    /// The cluster's default write concern: ours is stated with every write and does not depend on it.
    async fn concern(&mut self, found: &mut Vec<Finding>) {
        let Ok(answer) = self.link.run("admin", doc! { "getDefaultRWConcern": 1 }).await else { return };
        let default = answer.get_document("defaultWriteConcern").ok().and_then(|concern| concern.get("w").cloned());
        let words = match default {
            Some(w) => format!("default write concern w: {w} (ours is stated with every write: majority, journaled)"),
            None => "write concern is stated with every write: majority, journaled".to_owned(),
        };
        found.push(Finding::ok(words));
    }

    async fn tls(&mut self, local: Local, found: &mut Vec<Finding>) {
        let Ok(options) = self.link.options().await else { return };
        if !matches!(options.tls, Some(Tls::Enabled(_))) {
            let is_local = hosts(&options).iter().all(|(host, _)| host == "localhost" || host.starts_with("127."));
            if !is_local {
                found.push(Finding::advice(
                    "the connection is not encrypted",
                    "add tls=true to the connection string, and tlsCAFile if the authority is your own",
                ));
            }
            return;
        }
        for (host, port) in hosts(&options) {
            let name = host.clone();
            let expiry = spawn_blocking(move || certificate::expiry(&name, port)).await;
            found.push(match expiry {
                Ok(Ok(Some(end))) => of_certificate(&host, end, local.now),
                _ => Finding::advice(
                    format!("the certificate of {host} could not be looked at"),
                    "openssl s_client -connect HOST:PORT </dev/null | openssl x509 -noout -enddate",
                ),
            });
        }
    }

    /// Whether the user may do what is needed, and not everything.
    async fn rights(&mut self, found: &mut Vec<Finding>) {
        let Ok(status) = self.link.run("admin", doc! { "connectionStatus": 1, "showPrivileges": true }).await else {
            return;
        };
        let Ok(info) = status.get_document("authInfo") else { return };
        let users = info.get_array("authenticatedUsers").map_or(0, |users| users.len());
        if users == 0 {
            found.push(Finding::advice(
                "the connection has no user: whoever reaches the server can do everything",
                "enable authorization on the server, and put user and password into upstream.uri_file",
            ));
            return;
        }
        let Ok(privileges) = info.get_array("authenticatedUserPrivileges") else { return };
        let privileges: Vec<&Document> = privileges.iter().filter_map(Bson::as_document).collect();
        for action in actions(self.config.mode) {
            if !privileges.iter().any(|privilege| self.allows(privilege, action)) {
                let namespace = format!("{}.{}", self.config.database, self.config.collection);
                found.push(Finding::wrong(
                    format!("the user may not {action} in {namespace}"),
                    "tipbucket upstream init makes the role tipbucketGateway: grant it with db.grantRolesToUser(USER, [\"tipbucketGateway\"])",
                ));
            }
        }
        let may_drop = privileges.iter().any(|privilege| self.allows(privilege, "dropCollection"));
        found.push(if may_drop {
            Finding::advice(
                "the user may even drop the collection",
                "give the gateways a user with the role tipbucketGateway alone (tipbucket upstream init makes it)",
            )
        } else {
            Finding::ok("the user may do no more than is needed")
        });
    }

    fn allows(&self, privilege: &Document, action: &str) -> bool {
        let Ok(resource) = privilege.get_document("resource") else { return false };
        let covers =
            |key: &str, ours: &str| resource.get_str(key).is_ok_and(|theirs| theirs.is_empty() || theirs == ours);
        let is_ours = resource.get_bool("anyResource").unwrap_or(false)
            || (covers("db", &self.config.database) && covers("collection", &self.config.collection));
        is_ours
            && privilege.get_array("actions").is_ok_and(|all| all.iter().any(|known| known.as_str() == Some(action)))
    }
}

fn of_certificate(host: &str, end: Timestamp, now: Timestamp) -> Finding {
    let words = format!("the certificate of {host} is valid until {end}");
    if end <= now {
        Finding::wrong(words, "renew it, or set this gateway's clock")
    } else if end < now.plus(EXPIRES_SOON) {
        Finding::advice(words, "renew it")
    } else {
        Finding::ok(words)
    }
}

fn hosts(options: &ClientOptions) -> Vec<(String, u16)> {
    let default = 27017;
    options
        .hosts
        .iter()
        .filter_map(|host| match host {
            mongodb::options::ServerAddress::Tcp { host, port } => Some((host.clone(), port.unwrap_or(default))),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_judged_by_their_end() {
        let now = Timestamp::clamped(1_796_043_600_000);
        let level =
            |days: i64| of_certificate("db", Timestamp::clamped(now.as_millis() + days * 86_400_000), now).level;
        assert_eq!([level(-1), level(10), level(100)], [Level::Wrong, Level::Advice, Level::Ok]);
    }
}
