//! Recognising messages that a broker delivers again.
//!
//! A message whose acknowledgement got lost comes again with the DUP flag, the same packet number, topic and payload.
//! So the content hash of the last message under each recent packet number is remembered per source; a repeat that
//! matches is dropped (and acknowledged). Retained values come at every subscription; the last one taken per topic is
//! remembered. All of it is written in the same commit as the readings, so a SIGKILL changes nothing.

use std::collections::VecDeque;

use super::{Origin, OriginKind};
use crate::model::SourceName;
use crate::model::varint::{self, Damaged, Reader};

/// Recent messages remembered per source: above what a broker may have in flight when the connection breaks.
const MAX_RECENT: usize = 4096;
/// Topics whose last value is remembered per source.
const MAX_TOPICS: usize = 10_000;
/// Sources remembered; a site has a handful.
const MAX_SOURCES: usize = 256;

type Map<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// What is remembered of every broker connection.
#[derive(Debug, Default)]
pub(super) struct Redelivery(Map<SourceName, Memory>);

#[derive(Debug, Default)]
struct Memory {
    by_packet: Map<u16, u32>,
    /// Packet numbers in order of arrival; a number may stand here several times.
    recent: VecDeque<(u16, u32)>,
    /// The last retained value taken, by topic.
    retained: Map<u32, u32>,
    /// The last value of any kind, by topic; not written.
    last: Map<u32, u32>,
    /// What was recent before the last start: a retained copy of one of these was taken.
    before_start: Map<u32, ()>,
}

/// What a record keeps of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub source: SourceName,
    pub kind: TraceKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TraceKind {
    Numbered { packet_id: u16, content: u32 },
    Retained { topic: u32, content: u32 },
    SessionLost,
}

impl Redelivery {
    /// Whether this message was committed before.
    pub(super) fn is_repeat(&self, origin: &Origin) -> bool {
        let Some(memory) = self.0.get(&origin.source) else { return false };
        let (topic, content) = short(origin);
        match origin.kind {
            OriginKind::Repeated { packet_id } => memory.by_packet.get(&packet_id) == Some(&content),
            OriginKind::Retained => {
                memory.retained.get(&topic) == Some(&content)
                    || memory.last.get(&topic) == Some(&content)
                    || (!memory.last.contains_key(&topic) && memory.before_start.contains_key(&content))
            }
            OriginKind::Fresh { .. } | OriginKind::Unnumbered | OriginKind::SessionLost => false,
        }
    }

    /// Remembers a message that is about to be committed; what the record must keep of it.
    pub(super) fn remember(&mut self, origin: &Origin) -> Option<Trace> {
        let (topic, content) = short(origin);
        let kind = match origin.kind {
            OriginKind::Fresh { packet_id } | OriginKind::Repeated { packet_id } => {
                TraceKind::Numbered { packet_id, content }
            }
            OriginKind::Retained => TraceKind::Retained { topic, content },
            OriginKind::SessionLost => TraceKind::SessionLost,
            OriginKind::Unnumbered => {
                self.memory(&origin.source)?.set_last(topic, content);
                return None;
            }
        };
        let memory = self.memory(&origin.source)?;
        if kind != TraceKind::SessionLost {
            memory.set_last(topic, content);
        }
        memory.apply(kind);
        Some(Trace { source: origin.source.clone(), kind })
    }

    /// Takes what a record kept.
    pub(super) fn apply(&mut self, trace: &Trace) {
        if let Some(memory) = self.memory(&trace.source) {
            memory.apply(trace.kind);
        }
    }

    /// After recovery: what is remembered now was taken before this start.
    pub(super) fn started(&mut self) {
        for memory in self.0.values_mut() {
            memory.before_start = memory.recent.iter().map(|(_, content)| (*content, ())).collect();
        }
    }

    fn memory(&mut self, source: &SourceName) -> Option<&mut Memory> {
        if !self.0.contains_key(source) {
            if self.0.len() >= MAX_SOURCES {
                return None;
            }
            self.0.insert(source.clone(), Memory::default());
        }
        self.0.get_mut(source)
    }

    /// Appends everything that must survive a restart.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        varint::put(out, self.0.len() as u64);
        for (source, memory) in &self.0 {
            varint::put_bytes(out, source.as_str().as_bytes());
            varint::put(out, memory.recent.len() as u64);
            for (packet_id, content) in &memory.recent {
                out.extend_from_slice(&packet_id.to_le_bytes());
                out.extend_from_slice(&content.to_le_bytes());
            }
            varint::put(out, memory.retained.len() as u64);
            for (topic, content) in &memory.retained {
                out.extend_from_slice(&topic.to_le_bytes());
                out.extend_from_slice(&content.to_le_bytes());
            }
        }
    }

    /// Reads what [`Self::encode`] wrote.
    pub(super) fn decode(input: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut all = Self::default();
        for _ in 0..input.bounded(MAX_SOURCES)? {
            let source = SourceName::new(input.text()?).map_err(|_| Damaged("source name"))?;
            let memory = all.0.entry(source).or_default();
            for _ in 0..input.bounded(MAX_RECENT)? {
                memory.set_packet(u16::from_le_bytes(input.array()?), u32::from_le_bytes(input.array()?));
            }
            for _ in 0..input.bounded(MAX_TOPICS)? {
                memory.retained.insert(u32::from_le_bytes(input.array()?), u32::from_le_bytes(input.array()?));
            }
        }
        Ok(all)
    }
}

impl Memory {
    fn apply(&mut self, kind: TraceKind) {
        match kind {
            TraceKind::Numbered { packet_id, content } => self.set_packet(packet_id, content),
            TraceKind::Retained { topic, content } => bounded_insert(&mut self.retained, topic, content),
            TraceKind::SessionLost => {
                self.by_packet.clear();
                self.recent.clear();
            }
        }
    }

    fn set_packet(&mut self, packet_id: u16, content: u32) {
        self.by_packet.insert(packet_id, content);
        self.recent.push_back((packet_id, content));
        if self.recent.len() > MAX_RECENT
            && let Some((old, content)) = self.recent.pop_front()
            && self.by_packet.get(&old) == Some(&content)
        {
            self.by_packet.remove(&old);
        }
    }

    fn set_last(&mut self, topic: u32, content: u32) {
        bounded_insert(&mut self.last, topic, content);
    }
}

/// Inserts; a map that is full forgets all: a retained value may then be taken a second time, never lost.
fn bounded_insert(map: &mut Map<u32, u32>, topic: u32, content: u32) {
    if map.len() >= MAX_TOPICS && !map.contains_key(&topic) {
        map.clear();
    }
    map.insert(topic, content);
}

/// 32 bits of each hash: a repeat must match in packet number, too, and is only looked for under the DUP flag.
fn short(origin: &Origin) -> (u32, u32) {
    (origin.topic as u32, origin.content as u32)
}

/// Appends the traces of one record.
pub(super) fn encode_traces(traces: &[Trace], out: &mut Vec<u8>) {
    let mut sources: Vec<&SourceName> = traces.iter().map(|trace| &trace.source).collect();
    sources.sort_unstable();
    sources.dedup();
    varint::put(out, sources.len() as u64);
    for source in sources {
        varint::put_bytes(out, source.as_str().as_bytes());
        let traces = || traces.iter().filter(|trace| trace.source == *source);
        varint::put(out, traces().count() as u64);
        let mut expected = 0u16;
        for trace in traces() {
            match trace.kind {
                TraceKind::Numbered { packet_id, content } => {
                    // Packet numbers mostly follow each other: the step is then 0.
                    varint::put(out, u64::from(packet_id.wrapping_sub(expected)) << 2);
                    out.extend_from_slice(&content.to_le_bytes());
                    expected = packet_id.wrapping_add(1);
                }
                TraceKind::Retained { topic, content } => {
                    varint::put(out, 1);
                    out.extend_from_slice(&topic.to_le_bytes());
                    out.extend_from_slice(&content.to_le_bytes());
                }
                TraceKind::SessionLost => varint::put(out, 2),
            }
        }
    }
}

/// Reads what [`encode_traces`] wrote.
pub(super) fn decode_traces(input: &mut Reader<'_>) -> Result<Vec<Trace>, Damaged> {
    let mut traces = Vec::new();
    for _ in 0..input.bounded(MAX_SOURCES)? {
        let source = SourceName::new(input.text()?).map_err(|_| Damaged("source name"))?;
        let mut expected = 0u16;
        for _ in 0..input.bounded(input.left())? {
            let head = input.varint()?;
            let kind = match head & 3 {
                0 => {
                    let packet_id = expected.wrapping_add((head >> 2) as u16);
                    expected = packet_id.wrapping_add(1);
                    TraceKind::Numbered { packet_id, content: u32::from_le_bytes(input.array()?) }
                }
                1 => TraceKind::Retained {
                    topic: u32::from_le_bytes(input.array()?),
                    content: u32::from_le_bytes(input.array()?),
                },
                2 => TraceKind::SessionLost,
                _ => return Err(Damaged("unknown kind of trace")),
            };
            traces.push(Trace { source: source.clone(), kind });
        }
    }
    Ok(traces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(kind: OriginKind, topic: u64, content: u64) -> Origin {
        Origin { source: SourceName::new("broker").unwrap(), content, topic, kind }
    }

    fn restarted(memory: &Redelivery, later: &[Trace]) -> Redelivery {
        let mut bytes = Vec::new();
        memory.encode(&mut bytes);
        let mut back = Redelivery::decode(&mut Reader::new(&bytes)).unwrap();
        let mut bytes = Vec::new();
        encode_traces(later, &mut bytes);
        let traces = decode_traces(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(traces, later);
        traces.iter().for_each(|trace| back.apply(trace));
        back.started();
        back
    }

    #[test]
    fn a_repeat_is_recognised_also_after_a_restart() {
        let mut memory = Redelivery::default();
        let first = memory.remember(&origin(OriginKind::Fresh { packet_id: 7 }, 1, 100));
        let second = memory.remember(&origin(OriginKind::Fresh { packet_id: 8 }, 1, 200));
        let again = |memory: &Redelivery, packet_id, content| {
            memory.is_repeat(&origin(OriginKind::Repeated { packet_id }, 1, content))
        };
        for memory in
            [&memory, &restarted(&memory, &[]), &restarted(&Redelivery::default(), &[first.unwrap(), second.unwrap()])]
        {
            assert!(again(memory, 7, 100));
            assert!(again(memory, 8, 200));
            assert!(!again(memory, 7, 200), "another payload under the same number is another message");
            assert!(!again(memory, 9, 100));
            assert!(
                !memory.is_repeat(&origin(OriginKind::Fresh { packet_id: 7 }, 1, 100)),
                "equal readings in a row are readings"
            );
        }
    }

    #[test]
    fn a_lost_session_begins_packet_numbers_anew() {
        let mut memory = Redelivery::default();
        memory.remember(&origin(OriginKind::Fresh { packet_id: 7 }, 1, 100));
        memory.remember(&origin(OriginKind::SessionLost, 0, 0));
        assert!(!memory.is_repeat(&origin(OriginKind::Repeated { packet_id: 7 }, 1, 100)));
    }

    #[test]
    fn a_retained_value_is_taken_once() {
        let mut memory = Redelivery::default();
        let retained = |content| origin(OriginKind::Retained, 5, content);
        assert!(!memory.is_repeat(&retained(1)));
        memory.remember(&retained(1));
        assert!(memory.is_repeat(&retained(1)));
        memory.remember(&origin(OriginKind::Fresh { packet_id: 1 }, 5, 2));
        assert!(memory.is_repeat(&retained(2)), "the retained copy of what came live is no news");
        assert!(!memory.is_repeat(&retained(3)));
        let memory = restarted(&memory, &[]);
        assert!(memory.is_repeat(&retained(1)));
        assert!(memory.is_repeat(&retained(2)));
        assert!(!memory.is_repeat(&retained(3)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Redelivery::default();
        for i in 0..200_000u64 {
            memory.remember(&origin(OriginKind::Fresh { packet_id: (i % 65_535) as u16 }, i, i));
        }
        let memory = &memory.0[&SourceName::new("broker").unwrap()];
        assert!(
            memory.recent.len() <= MAX_RECENT
                && memory.by_packet.len() <= MAX_RECENT
                && memory.last.len() <= MAX_TOPICS
        );
    }
}
