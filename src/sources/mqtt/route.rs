//! From a message's topic to what is taken from its payload: the first filter that matches decides.

use std::collections::HashMap;

use jiff::tz::TimeZone;
use rumqttc::QoS;

use super::config::{Decode, Topic};
use super::topics::{Filter, Template};
use crate::decode::json::{self, Pointer};
use crate::decode::times;
use crate::model::{FieldName, SensorName};

/// Most topics remembered, so that a known one costs no allocation; a site has at most so many sensors.
const MAX_REMEMBERED: usize = 10_000;

/// One `topics` entry, checked.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) filter: Filter,
    pub(super) qos: QoS,
    pub(super) retained: bool,
    pub(super) decode: Decode,
    pub(super) json: json::Decoder,
    /// `None` if the payload names the sensor.
    sensor: Option<Template>,
    field: Template,
}

/// What is known of one topic.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Index of the route; `None` if no filter matches.
    pub(super) route: Option<usize>,
    /// The sensor, unless the payload names it; or why the topic makes no name.
    pub(super) sensor: Option<Result<SensorName, String>>,
    /// The field of a plain payload; or why the topic makes no name.
    pub(super) field: Result<FieldName, String>,
    /// Hash of the topic.
    pub(super) hash: u64,
}

impl Route {
    /// Checks an entry; each fault as (key, words).
    pub(super) fn new(topic: &Topic) -> Result<Self, Vec<(String, String)>> {
        let mut faults = Vec::new();
        let mut note = |key: &str, words: String| faults.push((key.to_owned(), words));
        let filter = Filter::new(&topic.filter).map_err(|e| note("filter", e)).ok();
        let wildcards = filter.as_ref().map_or(9, Filter::wildcards);
        let structured = matches!(topic.decode, Decode::Json | Decode::Auto);
        let mut shape = json::Shape::default();
        let mut sensor = None;
        if topic.sensor.starts_with('/') {
            shape.sensor = Pointer::new(&topic.sensor).map_err(|e| note("sensor", e)).ok();
            if topic.decode != Decode::Json {
                note("sensor", format!("`{}` points into JSON; plain payloads need a template", topic.sensor));
            }
        } else {
            sensor = template("sensor", &topic.sensor, wildcards, |name| SensorName::new(name).map(drop), &mut note);
        }
        for (name, pointer) in &topic.fields {
            let key = format!("fields.{name}");
            match (FieldName::new(name), Pointer::new(pointer)) {
                (Ok(name), Ok(_)) if shape.fields.iter().any(|(earlier, _)| *earlier == name) => {
                    note(&key, format!("would be stored as `{name}`, as another field is"));
                }
                (Ok(name), Ok(pointer)) => shape.fields.push((name, pointer)),
                (Err(e), _) => note(&key, e.to_string()),
                (_, Err(e)) => note(&key, e),
            }
        }
        if topic.fields.len() > crate::model::MAX_FIELDS {
            note(
                "fields",
                format!("holds {} fields, at most {} are allowed", topic.fields.len(), crate::model::MAX_FIELDS),
            );
        }
        if let Some(time) = &topic.time {
            shape.time = Pointer::new(time).map_err(|e| note("time", e)).ok();
        }
        if let Some(zone) = &topic.timezone {
            shape.zone = times::zone(zone).map_err(|e| note("timezone", e)).ok();
            if topic.time.is_none() {
                note("timezone", "has no use without `time`".to_owned());
            }
        }
        if !structured && (!topic.fields.is_empty() || topic.time.is_some()) {
            note("decode", "plain payloads have no `fields` and no `time`; they need decode = \"json\"".to_owned());
        }
        let field = template("field", &topic.field, wildcards, |name| FieldName::new(name).map(drop), &mut note);
        let qos = rumqttc::qos(topic.qos).map_err(|_| note("qos", format!("{} is not 0, 1 or 2", topic.qos))).ok();
        match (filter, qos, field) {
            (Some(filter), Some(qos), Some(field)) if faults.is_empty() => {
                let json = json::Decoder::new(shape);
                Ok(Self { filter, qos, retained: topic.retained, decode: topic.decode, json, sensor, field })
            }
            _ => Err(faults),
        }
    }
}

impl Route {
    /// The same route for a site in this zone, unless its topic names one of its own.
    pub(super) fn in_zone(mut self, zone: Option<&TimeZone>) -> Self {
        zone.into_iter().for_each(|zone| self.json.assume_zone(zone));
        self
    }
}

/// Checks a template, and the name itself if it is fixed.
fn template(
    key: &str,
    text: &str,
    wildcards: usize,
    check: impl Fn(&str) -> Result<(), crate::model::NameError>,
    note: &mut impl FnMut(&str, String),
) -> Option<Template> {
    let template = Template::new(text, wildcards).map_err(|e| note(key, e)).ok()?;
    if template.is_fixed()
        && let Err(e) = check(text)
    {
        note(key, e.to_string());
        return None;
    }
    Some(template)
}

/// All routes of a source, in the order of the site file.
#[derive(Debug)]
pub(super) struct Routes {
    routes: Vec<Route>,
    known: HashMap<Box<str>, Known, foldhash::fast::RandomState>,
}

impl Routes {
    /// Routes that were checked.
    pub(super) fn new(routes: Vec<Route>) -> Self {
        Self { routes, known: HashMap::default() }
    }

    /// What is known of a topic, and its route.
    pub(super) fn of(&mut self, topic: &str) -> (Known, Option<&mut Route>) {
        let known = match self.known.get(topic) {
            Some(known) => known.clone(),
            None => self.learn(topic),
        };
        let route = known.route.map(|i| &mut self.routes[i]);
        (known, route)
    }

    fn learn(&mut self, topic: &str) -> Known {
        let found =
            self.routes.iter().enumerate().find_map(|(i, r)| r.filter.matches(topic).map(|texts| (i, r, texts)));
        let hash = xxhash_rust::xxh3::xxh3_64(topic.as_bytes());
        let known = match found {
            Some((i, route, texts)) => {
                let sensor = route.sensor.as_ref().map(|template| template.fill(topic, &texts));
                Known {
                    route: Some(i),
                    sensor: sensor.map(|name| SensorName::new(&name).map_err(|e| e.to_string())),
                    field: FieldName::new(&route.field.fill(topic, &texts)).map_err(|e| e.to_string()),
                    hash,
                }
            }
            None => Known { route: None, sensor: None, field: Err("no filter matches".to_owned()), hash },
        };
        if self.known.len() >= MAX_REMEMBERED {
            // A flood of invented topics must not push the memory up; real ones are learned again at once.
            self.known.clear();
        }
        self.known.insert(topic.into(), known.clone());
        known
    }

    /// What to subscribe to.
    pub(super) fn subscriptions(&self) -> Vec<(String, QoS)> {
        let broad = self.routes.iter().enumerate().filter(|(i, _)| !self.is_covered(*i));
        broad
            .map(|(_, route)| {
                let inside = self.routes.iter().filter(|other| route.filter.covers(&other.filter));
                let qos = inside.map(|other| other.qos as u8).max().unwrap_or(1);
                (route.filter.text.clone(), rumqttc::qos(qos).unwrap_or(QoS::AtLeastOnce))
            })
            .collect()
    }

    /// What an earlier session may be subscribed to and must not be any more.
    pub(super) fn covered(&self) -> Vec<String> {
        let narrow = self.routes.iter().enumerate().filter(|(i, _)| self.is_covered(*i));
        narrow.map(|(_, route)| route.filter.text.clone()).collect()
    }

    /// Whether another filter covers this one. It is then left out, because brokers send a message once for each
    /// subscription that matches it.
    fn is_covered(&self, i: usize) -> bool {
        // Twins, and a broad filter before a narrow one, are refused when the site file is read.
        let filter = &self.routes[i].filter;
        self.routes.iter().enumerate().any(|(j, other)| j != i && other.filter.covers(filter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Result<Route, Vec<(String, String)>> {
        Route::new(&toml::from_str(text).unwrap())
    }

    fn fault(text: &str, key: &str, words: &str) {
        let faults = route(text).unwrap_err();
        assert!(faults.iter().any(|(k, w)| k == key && w.contains(words)), "{text}: {faults:?}");
    }

    fn routes(texts: &[&str]) -> Routes {
        Routes::new(texts.iter().map(|text| route(text).unwrap()).collect())
    }

    #[test]
    fn faults_are_named_by_key() {
        fault("filter = 'a/#/b'", "filter", "`#`");
        fault("filter = 'a/+'\nsensor = '{2}'", "sensor", "only one wildcard");
        fault("filter = 'a'\nsensor = '/a~'", "sensor", "`~0`");
        fault("filter = 'a'\nsensor = ''", "sensor", "empty");
        fault("filter = 'a'\nsensor = '/id'\ndecode = 'number'", "sensor", "template");
        fault("filter = 'a'\nfields = { t = 't' }", "fields.t", "must begin with `/`");
        fault("filter = 'a'\nfields = { 'a.b' = '/a', a_b = '/b' }", "fields.a_b", "stored as `a_b`");
        fault("filter = 'a'\ntime = 'ts'", "time", "must begin with `/`");
        fault("filter = 'a'\ndecode = 'number'\ntime = '/ts'", "decode", "no `time`");
        fault("filter = 'a'\ntime = '/ts'\ntimezone = 'Mars/Olympus'", "timezone", "not known");
        fault("filter = 'a'\ntimezone = 'UTC'", "timezone", "without `time`");
        fault("filter = 'a'\nqos = 3", "qos", "3 is not");
        fault("filter = 'a'\nfield = ''", "field", "empty");
    }

    #[test]
    fn the_first_matching_filter_decides() {
        let mut routes =
            routes(&["filter = 's/+/state'\nsensor = '{1}'", "filter = 's/#'\nsensor = 'rest-{1}'\nqos = 2"]);
        let mut name = |topic: &str| routes.of(topic).0.sensor.map(|s| s.unwrap().to_string());
        assert_eq!(name("s/k/state").as_deref(), Some("k"));
        assert_eq!(name("s/k/other").as_deref(), Some("rest-k/other"));
        assert_eq!(name("x"), None);
        assert_eq!(routes.subscriptions(), [("s/#".to_owned(), QoS::ExactlyOnce)]);
    }

    #[test]
    fn the_memory_of_topics_is_bounded() {
        let mut routes = routes(&["filter = '#'"]);
        for i in 0..MAX_REMEMBERED * 2 + 5 {
            routes.of(&format!("t/{i}"));
        }
        assert!(routes.known.len() <= MAX_REMEMBERED);
        let long = "x".repeat(200);
        assert!(routes.of(&long).0.sensor.unwrap().unwrap_err().contains("200 bytes"));
    }
}
