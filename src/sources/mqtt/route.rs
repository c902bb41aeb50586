//! From a message's topic to what is taken from its payload: the first filter that matches decides.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::tz::TimeZone;
use rumqttc::QoS;

use super::packets::Properties;
use super::recipe::{Note, Recipe};
use super::topic::{Decode, Topic};
use super::topics::{Filled, Filter, Template};
use crate::decode::auto::Pick;
use crate::decode::pointer::Pointer;
use crate::model::{FieldName, SensorName};

/// Most topics remembered, so that a known one costs no allocation; a site has at most so many sensors.
const MAX_REMEMBERED: usize = 10_000;
/// The field of a plain payload, if nothing else is said.
const PLAIN_FIELD: &str = "value";

/// One `topics` entry, checked.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) filter: Filter,
    pub(super) qos: QoS,
    pub(super) retained: bool,
    pub(super) recipe: Recipe,
    sensor: Naming,
    field: Template,
}

/// Who names the sensor.
#[derive(Clone, Debug)]
enum Naming {
    Template(Template),
    /// The payload, at a place that is declared.
    Payload,
    /// The payload if it does, else the topic.
    Either,
}

/// The sensor's name as far as the topic tells it.
#[derive(Clone, Debug)]
pub(super) enum Named {
    /// Wholly; or why the topic makes no name.
    Fixed(Result<SensorName, String>),
    /// With what only the message gives.
    Around(Filled),
    /// The payload must give it.
    Payload,
    /// The payload may give it, else this.
    Else(Result<SensorName, String>),
}

/// What is known of one topic.
#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Index of the route; `None` if no filter matches.
    pub(super) route: Option<usize>,
    pub(super) sensor: Named,
    /// The field of a plain payload.
    pub(super) field: FieldNamed,
    /// What its messages were found to be, if that was left open.
    pub(super) picked: Option<Pick>,
    /// Hash of the topic.
    pub(super) hash: u64,
}

/// A field's name as far as the topic tells it.
#[derive(Clone, Debug)]
pub(super) enum FieldNamed {
    /// Wholly; or why the topic makes no name.
    Fixed(Result<FieldName, String>),
    /// With what only the message gives.
    Around(Filled),
}

impl FieldNamed {
    fn of(filled: Filled) -> Self {
        match filled.fixed() {
            Some(name) => Self::Fixed(FieldName::new(name).map_err(|e| e.to_string())),
            None => Self::Around(filled),
        }
    }

    /// The field of a message with these properties.
    pub(super) fn field(&self, properties: &Properties) -> Cow<'_, Result<FieldName, String>> {
        match self {
            Self::Fixed(name) => Cow::Borrowed(name),
            Self::Around(filled) => {
                let name = filled.with(None, properties);
                Cow::Owned(name.and_then(|name| FieldName::new(&name).map_err(|e| e.to_string())))
            }
        }
    }
}

impl Named {
    /// The sensor of a reading of a message with these properties, for which the payload gave this name, and which is this
    /// part of several of one name.
    pub(super) fn sensor(
        &self,
        given: Option<&str>,
        part: Option<&str>,
        properties: &Properties,
    ) -> Result<SensorName, String> {
        let made = |name: &str| SensorName::new(name).map_err(|e| e.to_string());
        let whole = match (self, given) {
            (Self::Fixed(name), _) | (Self::Else(name), None) => name.clone()?,
            (Self::Payload | Self::Else(_), Some(given)) => made(given)?,
            (Self::Around(filled), given) => made(&filled.with(given, properties)?)?,
            (Self::Payload, None) => return Err("the payload names no sensor".to_owned()),
        };
        part.map_or(Ok(whole.clone()), |part| made(&format!("{whole}:{part}")))
    }
}

impl Route {
    /// Checks an entry; each fault as (key, words).
    pub(super) fn new(topic: &Topic) -> Result<Self, Vec<(String, String)>> {
        let mut faults = Vec::new();
        let mut note = |key: &str, words: String| faults.push((key.to_owned(), words));
        let filter = Filter::new(&topic.filter).map_err(|e| note("filter", e)).ok();
        let wildcards = filter.as_ref().map_or(9, Filter::wildcards);
        let mut pointer = None;
        let sensor = match topic.sensor.as_deref() {
            None => Some(Naming::Either),
            Some(text) if text.starts_with('/') => {
                pointer = Pointer::new(text).map_err(|e| note("sensor", e)).ok();
                if !matches!(topic.decode, Decode::Json | Decode::Cbor) {
                    note("sensor", format!("`{text}` points into JSON or CBOR; other payloads need a template"));
                }
                Some(Naming::Payload)
            }
            Some(text) => {
                let check = |name: &str| SensorName::new(name).map(drop);
                template("sensor", text, wildcards, check, &mut note).map(Naming::Template)
            }
        };
        let recipe = Recipe::new(topic, pointer, &mut note);
        let field = topic.field.as_deref().unwrap_or(PLAIN_FIELD);
        let field = template("field", field, wildcards, |name| FieldName::new(name).map(drop), &mut note);
        if field.as_ref().is_some_and(Template::has_name) {
            note("field", "`{name}` is the sensor's name; a field's comes from the topic or a property".to_owned());
        }
        let qos = rumqttc::qos(topic.qos).map_err(|_| note("qos", format!("{} is not 0, 1 or 2", topic.qos))).ok();
        match (filter, qos, field, sensor) {
            (Some(filter), Some(qos), Some(field), Some(sensor)) if faults.is_empty() => {
                Ok(Self { filter, qos, retained: topic.retained, recipe, sensor, field })
            }
            _ => Err(faults),
        }
    }

    /// The same route for a site in this zone, unless its topic names one of its own.
    pub(super) fn in_zone(mut self, zone: Option<&TimeZone>) -> Self {
        zone.into_iter().for_each(|zone| self.recipe.assume_zone(zone));
        self
    }

    /// The keys that only MQTT 5 can serve.
    pub(super) fn needs_five(&self) -> impl Iterator<Item = &'static str> {
        let sensor = matches!(&self.sensor, Naming::Template(template) if template.has_properties());
        let keys = [
            ("sensor", sensor),
            ("field", self.field.has_properties()),
            ("properties", !self.recipe.properties.is_empty()),
        ];
        keys.into_iter().filter_map(|(key, needs)| needs.then_some(key))
    }

    fn named(&self, topic: &str, texts: &[&str]) -> Named {
        let made = |name: &str| SensorName::new(name).map_err(|e| e.to_string());
        match &self.sensor {
            Naming::Payload => Named::Payload,
            Naming::Either => Named::Else(made(topic)),
            Naming::Template(template) => {
                let filled = template.fill(topic, texts);
                match filled.fixed() {
                    Some(name) => Named::Fixed(made(name)),
                    None => Named::Around(filled),
                }
            }
        }
    }
}

/// Checks a template, and the name itself if it is fixed.
fn template(
    key: &str,
    text: &str,
    wildcards: usize,
    check: impl Fn(&str) -> Result<(), crate::model::NameError>,
    note: Note<'_>,
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

    /// What is known of a topic.
    pub(super) fn of(&mut self, topic: &str) -> Known {
        match self.known.get(topic) {
            Some(known) => known.clone(),
            None => self.learn(topic),
        }
    }

    /// The route of that number.
    pub(super) fn get_mut(&mut self, i: usize) -> Option<&mut Route> {
        self.routes.get_mut(i)
    }

    /// Remembers what the messages of a topic were found to be.
    pub(super) fn picked(&mut self, topic: &str, pick: Pick) {
        if let Some(known) = self.known.get_mut(topic) {
            known.picked = Some(pick);
        }
    }

    fn learn(&mut self, topic: &str) -> Known {
        let found =
            self.routes.iter().enumerate().find_map(|(i, r)| r.filter.matches(topic).map(|texts| (i, r, texts)));
        let hash = xxhash_rust::xxh3::xxh3_64(topic.as_bytes());
        let known = match found {
            Some((i, route, texts)) => Known {
                route: Some(i),
                sensor: route.named(topic, &texts),
                field: FieldNamed::of(route.field.fill(topic, &texts)),
                picked: None,
                hash,
            },
            None => Known {
                route: None,
                sensor: Named::Payload,
                field: FieldNamed::Fixed(Err("no filter matches".to_owned())),
                picked: None,
                hash,
            },
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
        fault("filter = 'a'\nfields = { t = '/*/t' }", "fields.t", "needs a `*` for each of the 1");
        fault("filter = 'a'\nfields = { t = '/t', u = { max = 1 } }", "fields", "some say where they stand");
        fault(
            "filter = 'a'\nfields = { t = { pointer = '/t', scale = 0 } }",
            "fields.t.scale",
            "every value would be 0",
        );
        fault("filter = 'a'\nfields = { t = { at = 0 } }", "fields.t.at", "decode = \"packed\"");
        fault("filter = 'a'\ndecode = 'packed'", "fields", "are needed");
        fault("filter = 'a'\ndecode = 'packed'\nfields = { t = { at = 0 } }", "fields.t", "needs `at` and `type`");
        fault(
            "filter = 'a'\ndecode = 'packed'\nfields = { t = { at = 5000, type = 'u8' } }",
            "fields.t.at",
            "beyond 4096",
        );
        fault("filter = 'a'\ndecode = 'tasmota'\nfields = { t = '/t' }", "fields.t.pointer", "no such places");
        fault("filter = 'a'\ntime = 'ts'", "time", "must begin with `/`");
        fault("filter = 'a'\ntime = '/ts'\ntime_format = 'iso'", "time_format", "neither auto");
        fault("filter = 'a'\ndecode = 'number'\ntime = '/ts'", "decode", "no `time`");
        fault("filter = 'a'\ndecode = 'tasmota'\ntime = '/ts'", "time", "a preset knows");
        fault("filter = 'a'\ndecode = 'tasmota'\neach = '/x'", "each", "is for");
        fault("filter = 'a'\ntime = '/ts'\ntimezone = 'Mars/Olympus'", "timezone", "not known");
        fault("filter = 'a'\ntimezone = 'UTC'", "timezone", "without `time`");
        fault("filter = 'a'\nbad_time = 'arrival'", "bad_time", "without `time`");
        fault("filter = 'a'\nlength = 3", "length", "packed");
        fault("filter = 'a'\nqos = 3", "qos", "3 is not");
        fault("filter = 'a'\nfield = 'x'", "field", "names of their own");
        fault("filter = 'a'\ndecode = 'number'\nfield = ''", "field", "empty");
    }

    #[test]
    fn the_first_matching_filter_decides() {
        let mut routes =
            routes(&["filter = 's/+/state'\nsensor = '{1}'", "filter = 's/#'\nsensor = 'rest-{1}'\nqos = 2"]);
        let mut name = |topic: &str| {
            routes.of(topic).sensor.sensor(None, None, &Properties::default()).ok().map(|s| s.to_string())
        };
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
        assert!(routes.of(&long).sensor.sensor(None, None, &Properties::default()).unwrap_err().contains("200 bytes"));
    }
}
