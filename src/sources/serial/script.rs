//! A recording that behaves like a line: it answers what it was asked when it was recorded, and sends the rest by itself.
//!
//! Requests are matched whatever their order. A Modbus request that was not recorded as it is now asked is answered out of
//! a recorded reply that holds what it asks for: how registers are joined into requests may have changed since. What was
//! not recorded at all is refused, as by a device that does not have it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::recording::{Recording, Step};
use crate::decode::modbus::replay;
use crate::stats::SourceStats;

/// How long the line stays open after the last byte, in its own time: what was incomplete runs into its timeout.
const LINGER: Duration = Duration::from_secs(60);

/// A request and what came after it.
#[derive(Debug)]
struct Exchange {
    request: Vec<u8>,
    steps: Vec<Step>,
    is_used: bool,
    /// Modbus requests that were answered out of it.
    served: Vec<Vec<u8>>,
}

/// The device's end of a recording.
#[derive(Debug)]
pub(super) struct Script {
    exchanges: Vec<Exchange>,
    /// Which exchange was used last.
    current: usize,
    /// What is to be sent, and from when on.
    sending: Vec<(Instant, Vec<u8>)>,
    sleep: Pin<Box<Sleep>>,
    has_requests: bool,
    /// What was recorded without any question, for a source that asks: the answer to its first one.
    unasked: Vec<Step>,
    /// Whether anything was ever asked.
    is_asked: bool,
    stats: Arc<SourceStats>,
    over: Arc<tokio::sync::Notify>,
}

impl Script {
    pub(super) fn new(
        recording: Recording,
        stats: &Arc<SourceStats>,
        over: Arc<tokio::sync::Notify>,
        asks: bool,
    ) -> Self {
        let mut exchanges =
            vec![Exchange { request: Vec::new(), steps: Vec::new(), is_used: true, served: Vec::new() }];
        for step in recording.steps {
            match step {
                Step::ToDevice(request) => {
                    exchanges.push(Exchange { request, steps: Vec::new(), is_used: false, served: Vec::new() });
                }
                other => exchanges.last_mut().into_iter().for_each(|exchange| exchange.steps.push(other.clone())),
            }
        }
        let has_requests = exchanges.len() > 1;
        let sleep = Box::pin(sleep_until(Instant::now()));
        stats.tap.begin_replay();
        let stats = Arc::clone(stats);
        let unasked = std::mem::take(&mut exchanges[0].steps);
        let mut script = Self {
            exchanges,
            current: 0,
            sending: Vec::new(),
            sleep,
            has_requests: has_requests || asks,
            unasked: Vec::new(),
            is_asked: false,
            stats,
            over,
        };
        if asks && !has_requests {
            script.unasked = unasked;
        } else {
            script.send(&unasked);
        }
        script
    }

    /// Sends what was recorded, with its pauses. A pause before the next request is the gateway's own.
    fn send(&mut self, steps: &[Step]) {
        let mut at = Instant::now().max(self.sending.last().map_or_else(Instant::now, |(at, _)| *at));
        for step in steps {
            match step {
                Step::Pause(pause) => at += *pause,
                Step::FromDevice(bytes) => self.sending.push((at, bytes.clone())),
                Step::ToDevice(_) => {}
            }
        }
        self.stats.tap.progress();
    }

    fn asked(&mut self, request: &[u8]) {
        if !self.unasked.is_empty() {
            let steps = std::mem::take(&mut self.unasked);
            self.stats.tap.exhausted();
            return self.send(&steps);
        }
        let unused = |e: &Exchange| !e.is_used;
        if let Some(at) = self.exchanges.iter().position(|e| unused(e) && replay::is_same(&e.request, request)) {
            let steps = self.use_up(at, request);
            let steps = renumbered(&steps, &self.exchanges[at].request, request);
            return self.send(&steps);
        }
        if replay::refusal(request).is_none()
            && let Some(at) = self.exchanges.iter().position(|e| unused(e) && e.request.first() == request.first())
        {
            // Not Modbus: the same kind of question in other words, as another speed or an address.
            let steps = self.use_up(at, request);
            return self.send(&steps);
        }
        let covers = |e: &Exchange| replay::covers(&e.request, request);
        let again = &self.exchanges[self.current];
        let again = covers(again).then(|| (self.current, again.served.iter().any(|served| served == request)));
        let next = || self.exchanges.iter().position(|e| unused(e) && covers(e));
        let at = match again {
            Some((at, false)) => Some(at),
            Some((at, true)) => next().or(Some(at)),
            None => next(),
        };
        if at.is_none()
            && let Some(refusal) = replay::refusal(request)
        {
            // A device that has only what was recorded.
            self.sending.push((Instant::now(), refusal));
        }
        if let Some(at) = at {
            let steps = self.use_up(at, request);
            let recorded = &self.exchanges[at].request;
            let steps: Vec<Step> = steps
                .into_iter()
                .map(|step| match &step {
                    Step::FromDevice(reply) => {
                        replay::part(recorded, reply, request).map_or(step.clone(), Step::FromDevice)
                    }
                    _ => step,
                })
                .collect();
            self.send(&steps);
        }
    }

    /// Nobody asks: a listener hears everything that was recorded.
    fn tell_all(&mut self) {
        self.has_requests = false;
        for exchange in std::mem::take(&mut self.exchanges) {
            if !exchange.is_used {
                self.send(&exchange.steps);
            }
        }
    }

    fn use_up(&mut self, at: usize, request: &[u8]) -> Vec<Step> {
        self.current = at;
        let exchange = &mut self.exchanges[at];
        exchange.is_used = true;
        exchange.served.push(request.to_vec());
        let steps = exchange.steps.clone();
        if self.exchanges.iter().all(|exchange| exchange.is_used) {
            self.stats.tap.exhausted();
        }
        steps
    }
}

/// Modbus TCP replies under the number of the request that is answered now, however they are cut.
fn renumbered(steps: &[Step], recorded: &[u8], request: &[u8]) -> Vec<Step> {
    let bytes = |step: &Step| match step {
        Step::FromDevice(bytes) => bytes.clone(),
        Step::ToDevice(_) | Step::Pause(_) => Vec::new(),
    };
    let whole: Vec<u8> = steps.iter().flat_map(bytes).collect();
    let mut rest = replay::renumbered(&whole, recorded, request);
    let taken = steps.iter().map(|step| match step {
        Step::FromDevice(bytes) => Step::FromDevice(rest.drain(..bytes.len()).collect()),
        other => other.clone(),
    });
    taken.collect()
}

impl AsyncRead for Script {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let now = Instant::now();
            if let Some((at, bytes)) = self.sending.first_mut() {
                if *at <= now {
                    let count = bytes.len().min(buf.remaining());
                    buf.put_slice(&bytes[..count]);
                    bytes.drain(..count);
                    if bytes.is_empty() {
                        self.sending.remove(0);
                    }
                    return Poll::Ready(Ok(()));
                }
                let at = *at;
                self.sleep.as_mut().reset(at);
            } else if !self.has_requests {
                // Nothing more will come: the line hangs up.
                return Poll::Ready(Ok(()));
            } else if self.sleep.deadline() <= now {
                self.sleep.as_mut().reset(now + LINGER);
            }
            std::task::ready!(self.sleep.as_mut().poll(cx));
            if self.sending.is_empty() {
                if self.is_asked {
                    return Poll::Ready(Ok(()));
                }
                self.tell_all();
            }
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        self.asked(buf);
        // What is sent from now on is waited for, and silence after it begins anew.
        let linger = Instant::now() + LINGER;
        self.sleep.as_mut().reset(linger);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.over.notify_one();
    }
}
