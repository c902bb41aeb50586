//! Sparkplug B: edge nodes announce their metrics in a birth and then send data under short aliases.
//!
//! What must stay true: an alias means what the last whole birth of its edge node said, and nothing after a death; a gap in
//! the sequence, or data whose birth was not seen, asks for a new birth, at most once a minute. Readings are taken all the
//! same as long as their names and types are known.

mod metric;
mod wire;

use std::collections::HashMap;
use std::time::Duration;

use self::metric::Meaning;
use self::wire::Metric;
use super::found::{Decoded, Measured, Names, Taken};
use super::quoted;
use crate::model::Timestamp;

/// Most edge nodes remembered; a site has tens.
const MAX_NODES: usize = 1_000;
/// Most metrics remembered of all of them together: about 16 MiB.
const MAX_KNOWN: usize = 100_000;
/// An edge node is asked for a birth at most this often.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// What is known of the edge nodes of one broker.
#[derive(Debug, Default)]
pub struct Host {
    nodes: HashMap<String, Node>,
    asked: HashMap<String, Timestamp>,
    requests: Vec<Request>,
}

/// A message that should be published: the request for a birth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub topic: String,
    /// What.
    pub payload: Vec<u8>,
}

/// What is known of one edge node.
#[derive(Debug, Default)]
struct Node {
    /// By device (empty for the node itself) and alias.
    aliases: HashMap<(String, u64), Meaning>,
    /// By device and name, for nodes that send names without types.
    types: HashMap<(String, String), u32>,
    seq: Option<u64>,
    bd_seq: Option<u64>,
}

/// A topic of the namespace, taken apart.
struct Address<'t> {
    group: &'t str,
    kind: &'t str,
    edge: &'t str,
    device: &'t str,
}

impl<'t> Address<'t> {
    /// `spBv1.0/GROUP/KIND/EDGE[/DEVICE]`, whatever stands before it.
    fn new(topic: &'t str) -> Option<Self> {
        let at = topic.find("spBv1.0/")?;
        let mut levels = topic[at..].split('/').skip(1);
        let (group, kind, edge) = (levels.next()?, levels.next()?, levels.next()?);
        Some(Self { group, kind, edge, device: levels.next().unwrap_or_default() })
    }

    fn node(&self) -> String {
        format!("{}/{}", self.group, self.edge)
    }

    fn sensor(&self) -> String {
        if self.device.is_empty() { self.node() } else { format!("{}/{}", self.node(), self.device) }
    }
}

impl Host {
    /// What a message holds. Births, deaths and gaps change what is known.
    pub(super) fn decode(
        &mut self,
        topic: &str,
        payload: &[u8],
        names: &mut Names,
        now: Timestamp,
    ) -> Result<Decoded, String> {
        if topic.starts_with("STATE/") || topic.contains("spBv1.0/STATE/") {
            return Ok(Decoded::default());
        }
        let Some(address) = Address::new(topic) else {
            return Err("topic is not Sparkplug's (spBv1.0/GROUP/KIND/EDGE)".to_owned());
        };
        let mut decoded = Decoded::default();
        match address.kind {
            "NCMD" | "DCMD" => return Ok(decoded),
            "NBIRTH" | "DBIRTH" | "NDATA" | "DDATA" | "NDEATH" | "DDEATH" => {}
            other => return Err(format!("{} is no kind of Sparkplug message", quoted(other))),
        }
        let (header, metrics) = wire::read(payload)?;
        match address.kind {
            "NDEATH" => {
                self.node_death(&address, &metrics);
                return Ok(decoded);
            }
            "NBIRTH" | "DBIRTH" => self.birth(&address, (header.seq, now), &metrics, names, &mut decoded),
            "DDEATH" => {
                self.follow(&address, header.seq, &mut decoded, now);
                let node = self.node(&address);
                node.aliases.retain(|(device, _), _| device != address.device);
                node.types.retain(|(device, _), _| device != address.device);
                return Ok(decoded);
            }
            _ => self.follow(&address, header.seq, &mut decoded, now),
        }
        if self.readings(&address, header.timestamp, &metrics, names, &mut decoded) {
            self.ask(&address, now);
        }
        decoded.or_reasons()
    }

    /// What is to be published since the last call.
    pub fn requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    fn birth(
        &mut self,
        address: &Address<'_>,
        (seq, now): (Option<u64>, Timestamp),
        metrics: &[Metric],
        names: &mut Names,
        decoded: &mut Decoded,
    ) {
        if address.kind == "NBIRTH" {
            let bd_seq = metrics.iter().find(|m| m.name.as_deref() == Some("bdSeq")).and_then(metric::whole);
            *self.node(address) = Node { bd_seq, seq, ..Node::default() };
        } else {
            self.follow(address, seq, decoded, now);
        }
        let known: usize = self.nodes.values().map(|node| node.aliases.len() + node.types.len()).sum();
        if known + 2 * metrics.len() > MAX_KNOWN {
            decoded
                .refused
                .add(None, format_args!("more than {MAX_KNOWN} metrics are announced: these are not remembered"));
            return;
        }
        let node = self.node(address);
        for metric in metrics {
            let Some(name) = metric.name.as_deref() else { continue };
            let datatype = metric.datatype.unwrap_or(0);
            let device = address.device.to_owned();
            if let (Some(alias), Ok(field)) = (metric.alias, names.get(name)) {
                let meaning = Meaning { field, is_control: metric::is_control(name), datatype };
                node.aliases.insert((device.clone(), alias), meaning);
            }
            node.types.insert((device, name.to_owned()), datatype);
        }
    }

    /// The sequence number must be one above the last, of the edge node and its devices together.
    fn follow(&mut self, address: &Address<'_>, seq: Option<u64>, decoded: &mut Decoded, now: Timestamp) {
        let (Some(node), Some(seq)) = (self.nodes.get_mut(&address.node()), seq) else { return };
        let expected = node.seq.map(|last| (last + 1) % 256);
        node.seq = Some(seq);
        if let Some(expected) = expected.filter(|expected| *expected != seq) {
            decoded.notes.push(format!(
                "edge node {}: sequence {seq} where {expected} was expected (a message was lost); a new birth is asked for",
                address.node()
            ));
            self.ask(address, now);
        }
    }

    /// Only the death that belongs to the last birth counts: an older one may come late.
    fn node_death(&mut self, address: &Address<'_>, metrics: &[Metric]) {
        let bd_seq = metrics.iter().find(|m| m.name.as_deref() == Some("bdSeq")).and_then(metric::whole);
        if self.nodes.get(&address.node()).is_some_and(|node| node.bd_seq == bd_seq) {
            self.nodes.remove(&address.node());
        }
    }

    fn ask(&mut self, address: &Address<'_>, now: Timestamp) {
        let node = address.node();
        if self.asked.get(&node).is_some_and(|asked| *asked <= now && now < asked.plus(ASK_EVERY)) {
            return;
        }
        if self.asked.len() >= MAX_NODES {
            self.asked.clear();
        }
        self.asked.insert(node, now);
        if self.requests.len() < MAX_NODES {
            let topic = format!("spBv1.0/{}/NCMD/{}", address.group, address.edge);
            let payload = wire::rebirth(u64::try_from(now.as_millis()).unwrap_or(0));
            self.requests.push(Request { topic, payload });
        }
    }

    /// What is known of an edge node; nothing of all the others once there are too many.
    fn node(&mut self, address: &Address<'_>) -> &mut Node {
        let name = address.node();
        if self.nodes.len() >= MAX_NODES && !self.nodes.contains_key(&name) {
            self.nodes.clear();
        }
        self.nodes.entry(name).or_default()
    }

    /// The metrics as readings, one for each instant. True if a birth is needed to understand all of them.
    fn readings(
        &self,
        address: &Address<'_>,
        timestamp: Option<u64>,
        metrics: &[Metric],
        names: &mut Names,
        decoded: &mut Decoded,
    ) -> bool {
        let mut is_unborn = false;
        let node = self.nodes.get(&address.node());
        let mut instants: HashMap<Option<u64>, usize> = HashMap::new();
        let mut taken: Vec<(Option<u64>, crate::model::Fields)> = Vec::new();
        for metric in metrics {
            let (field, datatype) = match identify(node, address, metric, names) {
                Ok(Some(known)) => known,
                Ok(None) => continue,
                Err(Unidentified { reason, needs_birth }) => {
                    is_unborn |= needs_birth;
                    decoded.refused.add(None, reason);
                    continue;
                }
            };
            let value = match metric::value(metric, datatype) {
                Ok(Some(value)) => value,
                Ok(None) => continue,
                Err(reason) => {
                    decoded.refused.add(None, format_args!("metric {} {reason}", quoted(field.as_str())));
                    continue;
                }
            };
            let at = metric.timestamp.or(timestamp);
            let slot = *instants.entry(at).or_insert_with(|| {
                taken.push((at, crate::model::Fields::new()));
                taken.len() - 1
            });
            let mut fields = Taken::new(None, &mut decoded.refused);
            fields.fields = std::mem::take(&mut taken[slot].1);
            fields.push(field, value);
            taken[slot].1 = fields.fields;
        }
        for (at, fields) in taken {
            let told = at.map(|at| i64::try_from(at).ok().and_then(Timestamp::from_millis).ok_or(at));
            match told.transpose() {
                Ok(at) => {
                    decoded.push(Measured { sensor: Some(address.sensor()), at, fields, ..Measured::default() });
                }
                Err(at) => decoded.refused.add(None, format_args!("time `{at}` is outside the years 1970 to 9999")),
            }
        }
        is_unborn
    }
}

/// Why a metric is not known.
struct Unidentified {
    reason: String,
    needs_birth: bool,
}

/// The field and type of a metric; `None` for those that are no measurements.
fn identify(
    node: Option<&Node>,
    address: &Address<'_>,
    metric: &Metric,
    names: &mut Names,
) -> Result<Option<(crate::model::FieldName, u32)>, Unidentified> {
    let bad = |reason| Unidentified { reason, needs_birth: false };
    if let Some(name) = &metric.name {
        if metric::is_control(name) {
            return Ok(None);
        }
        let field = names.get(name).map_err(|reason| bad(format!("metric {}: {reason}", quoted(name))))?;
        let key = (address.device.to_owned(), name.clone());
        let announced = node.and_then(|node| node.types.get(&key).copied());
        return Ok(Some((field, metric.datatype.or(announced).unwrap_or(0))));
    }
    let Some(alias) = metric.alias else { return Err(bad("a metric without name and alias".to_owned())) };
    match node.and_then(|node| node.aliases.get(&(address.device.to_owned(), alias))) {
        Some(meaning) if meaning.is_control => Ok(None),
        Some(meaning) => Ok(Some((meaning.field.clone(), metric.datatype.unwrap_or(meaning.datatype)))),
        None => Err(Unidentified {
            reason: format!("alias {alias} is not known: its birth was not seen; a new one is asked for"),
            needs_birth: true,
        }),
    }
}

#[cfg(test)]
mod tests;
