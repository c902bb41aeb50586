//! `modbus-rtu`: polls devices on a serial line. It reads (functions 1 to 4) and never writes.
//!
//! One task owns the line. Devices share it one after the other; each keeps its own rhythm, and one that is dead is asked
//! ever more rarely, so that it does not slow the others. A poll gives one reading with all fields that came.

mod bus;
mod config;
mod device;
mod owed;
mod plan;
mod tcp;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::bus::{Bus, Pace};
use self::config::Config;
use self::device::Device;
use super::serial::Keeper;
use super::serial::recording::Step;
use super::{Intake, Kind, Recording, Source};
use crate::decode::modbus::Request;
use crate::store::Closed;

/// The kind's row.
pub(super) const TCP: Kind = Kind { name: "modbus-tcp", read: super::read::<tcp::Config> };
/// The kind's row.
pub(super) const KIND: Kind = Kind { name: "modbus-rtu", read: super::read::<Config> };

/// A serial line with devices.
#[derive(Debug)]
struct ModbusRtu {
    keeper: Keeper,
    master: Master,
}

/// What is asked of whom, whatever the line is.
#[derive(Debug)]
struct Master {
    pace: Pace,
    retries: u32,
    devices: Vec<Device>,
}

/// Why polling ended.
#[derive(Debug)]
enum End {
    /// The line failed.
    Line(io::Error),
    /// The store has ended.
    Store(Closed),
}

impl ModbusRtu {
    fn new(keeper: Keeper, pace: Pace, retries: u32, devices: Vec<Device>) -> Self {
        Self { keeper, master: Master { pace, retries, devices } }
    }

    /// Reads a recording instead of the line, asking for the registers as they were asked for when it was made.
    fn replay(&mut self, recording: Recording, over: Arc<Notify>) {
        let asked = recording.steps.iter().filter_map(|step| match step {
            Step::ToDevice(request) => Request::recorded(request),
            Step::FromDevice(_) | Step::Pause(_) => None,
        });
        let asked: Vec<Request> = asked.collect();
        self.master.devices.iter_mut().for_each(|device| device.plan_as_recorded(&asked));
        self.keeper.replay(recording, over, true);
    }
}

impl Source for ModbusRtu {
    fn run<'a>(&'a mut self, intake: &'a Intake) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            loop {
                let stream = self.keeper.open(intake).await;
                let name = self.keeper.describe();
                // The stream is dropped, and so closed, before anything else happens.
                match self.master.serve(stream, &name, intake).await {
                    End::Line(error) => self.keeper.lost(intake, &error),
                    End::Store(closed) => return Err(closed.into()),
                }
            }
        })
    }
}

impl Master {
    /// Polls until the line or the store ends.
    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: S, name: &str, intake: &Intake) -> End {
        let now = Instant::now();
        self.devices.iter_mut().for_each(|device| device.start_anew(now));
        let mut bus = Bus::new(stream, self.pace);
        loop {
            if let Err(end) = self.next_poll(&mut bus, name, intake).await {
                return end;
            }
        }
    }

    async fn next_poll<S>(&mut self, bus: &mut Bus<S>, name: &str, intake: &Intake) -> Result<(), End>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let device = self.devices.iter_mut().min_by_key(|d| d.due).expect("a line without devices is refused");
        bus.idle_until(device.due).await.map_err(End::Line)?;
        if !intake.stats.tap.may_poll() {
            return Err(End::Line(super::serial::hung_up()));
        }
        let delivery = device.poll(bus, self.retries, intake).await.map_err(End::Line)?;
        if !delivery.readings.is_empty() || !delivery.dead_letters.is_empty() {
            intake.deliver(delivery).await.map_err(End::Store)?;
        }
        self.tell(name, intake);
        Ok(())
    }

    /// Puts into words how the devices are.
    fn tell(&self, name: &str, intake: &Intake) {
        let (now, all) = (intake.clock.now(), self.devices.len());
        let troubled = || self.devices.iter().filter_map(|d| Some((d, d.trouble()?)));
        if troubled().next().is_none() {
            let devices = if all == 1 { "1 device".to_owned() } else { format!("{all} devices") };
            return intake.stats.condition.up(now, format!("polls {devices} on {name}"));
        }
        let answering = all - self.devices.iter().filter(|d| d.is_silent()).count();
        let words: Vec<String> = troubled().map(|(device, words)| format!("{}: {words}", device.sensor)).collect();
        intake.stats.condition.down(now, format!("{answering} of {all} devices answer; {}", words.join("; ")));
    }
}

#[cfg(test)]
mod tests;
