//! Pauses and deadlines. Their defaults are the product's; tests shorten them.

use std::time::Duration;

/// Pauses and deadlines of delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How long the driver looks for a server before it gives up. Longer than its own 500 ms between two looks by far,
    /// short because it hammers a dead server meanwhile: waiting is our business.
    pub selection: Duration,
    /// How long a TCP and TLS connection may take.
    pub connect: Duration,
    /// How long a DNS answer for a `mongodb+srv` address may take.
    pub resolve: Duration,
    /// How long one insert may take.
    pub insert: Duration,
    /// How long one look at stored hashes may take.
    pub find: Duration,
    /// How long closing a connection may take.
    pub shutdown: Duration,
    /// A connection without work for this long is closed: sockets of a shared cluster are scarce.
    pub idle: Duration,
    /// The same where connections are not kept, or buckets come rarely.
    pub hang_up: Duration,
    /// How long nothing may go wrong before open buckets are sent again that were left alone because of trouble.
    pub calm: Duration,
    /// How long a bucket waits of which it is not certain what became of it in a time series collection: a first attempt
    /// must not be running any more.
    pub quarantine: Duration,
    /// First pause after trouble that passes by itself, and the longest.
    pub retry: (Duration, Duration),
    /// The same after the server asked for less.
    pub overload: (Duration, Duration),
    /// Between two probes while a person must act: from, to. The first few come sooner, after a tenth of it: what looks
    /// like a person's business may be a network that is not up yet.
    pub probe: (Duration, Duration),
}

impl Default for Tuning {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            selection: s(15),
            connect: s(10),
            resolve: s(10),
            insert: s(30),
            find: s(15),
            shutdown: s(5),
            idle: s(900),
            hang_up: s(30),
            calm: s(60),
            quarantine: s(60),
            retry: (s(1), s(300)),
            overload: (s(5), s(900)),
            probe: (s(300), s(900)),
        }
    }
}
