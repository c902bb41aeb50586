//! A kind of source that exists only for tests of the settings: it claims what its table says and does nothing.

use serde::Deserialize;
use tipbucket::sources::{Claims, Kind, ReadError, Source, SourceConfig, table};

/// The kinds for tests of the settings.
pub(crate) const TEST_KINDS: &[Kind] = &[Kind { name: "probe", read }, Kind { name: "probe-bus", read }];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Probe {
    port: Option<String>,
    url: Option<String>,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    baud: u32,
    #[serde(default)]
    topics: Vec<Topic>,
    #[serde(default)]
    units: Vec<(String, String, String)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Topic {
    filter: String,
    sensor: Option<String>,
    #[serde(default)]
    decode: Decode,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Decode {
    #[default]
    Json,
    Number,
    Text,
}

fn read(value: config::Value) -> Result<Box<dyn SourceConfig>, ReadError> {
    Ok(Box::new(table::read::<Probe>(value)?))
}

impl SourceConfig for Probe {
    fn claims(&self) -> Claims {
        Claims {
            port: self.port.clone(),
            client: self.url.clone().map(|url| (url, self.client_id.clone())),
            sensors: self.topics.iter().filter_map(|topic| topic.sensor.clone()).collect(),
            units: self.units.clone(),
            resends: false,
        }
    }

    fn contradictions(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if self.port.is_none() && self.url.is_none() {
            found.push(("port".to_owned(), "is missing, and there is no `url` either".to_owned()));
        }
        if self.baud == 1 || self.password == "secret-1" {
            found.push(("baud".to_owned(), "1 is no speed".to_owned()));
        }
        for (index, topic) in self.topics.iter().enumerate() {
            if topic.filter.is_empty() {
                found.push((format!("topics[{index}].filter"), "is empty".to_owned()));
            }
            if topic.decode == Decode::Text && topic.sensor.is_none() {
                found.push((format!("topics[{index}].sensor"), "is needed to decode text".to_owned()));
            }
        }
        found
    }

    fn build(self: Box<Self>) -> Box<dyn Source> {
        unreachable!("settings are only read here")
    }
}
