//! What is known of each sensor: its open buckets, and which windows it has used.

use smallvec::SmallVec;

use super::held::{held_series, is_held, sensor_of};
use crate::Used;
use crate::varint::Damaged;

/// No sensor's number is as large: a bound on what damaged bytes can ask for.
const MAX_SENSORS: u32 = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Sensor {
    /// Where its open buckets are.
    pub(super) open: SmallVec<[u32; 4]>,
    pub(super) used: Option<Used>,
}

/// By their numbers, which the store's dictionary gives without gaps: the ordinary series, and the held ones.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    ordinary: Vec<Sensor>,
    held: Vec<Sensor>,
}

impl Sensors {
    pub(super) fn get(&self, series: u32) -> Option<&Sensor> {
        let table = if is_held(series) { &self.held } else { &self.ordinary };
        table.get(sensor_of(series) as usize)
    }

    pub(super) fn entry(&mut self, series: u32) -> &mut Sensor {
        let table = if is_held(series) { &mut self.held } else { &mut self.ordinary };
        let place = sensor_of(series) as usize;
        if place >= table.len() {
            table.resize_with(place + 1, Sensor::default);
        }
        &mut table[place]
    }

    /// All, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Sensor)> {
        let series = |table, number: fn(u32) -> u32| (0..).map(number).zip(table);
        series(&self.ordinary, sensor_of).chain(series(&self.held, held_series))
    }
}

/// The number of a series, if it can be one.
pub(super) fn known(series: u32) -> Result<u32, Damaged> {
    if sensor_of(series) < MAX_SENSORS { Ok(series) } else { Err(Damaged("sensor number too high")) }
}
