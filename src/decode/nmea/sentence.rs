//! What each known sentence says: which cell is which quantity, in which unit. A receiver without a fix, or one that
//! warns of its own data, says nothing.

use super::fields::{Cells, angle, decimal, whole};
use crate::decode::telegram::{Measure, Telegram};
use crate::model::Value;

/// Most transducers of one XDR sentence: more do not fit into its length.
const MAX_TRANSDUCERS: usize = 32;

/// Reads a sentence; one nobody knows says nothing. The address was taken.
pub(super) fn read(kind: &str, cells: &mut Cells<'_>, telegram: &mut Telegram) {
    let mut taker = Taker { cells, telegram };
    match kind {
        "GGA" => taker.gga(),
        "GNS" => taker.gns(),
        "RMC" => taker.rmc(),
        "GLL" => taker.gll(),
        "XDR" => taker.xdr(),
        "MWV" => taker.mwv(),
        _ => taker.plain(kind),
    }
}

/// Name, unit, cell, and the letter that must stand after it.
type Cell = (&'static str, &'static str, usize, &'static str);

/// Sentences whose cells have fixed meanings.
const PLAIN: &[(&str, &[Cell])] = &[
    (
        "VTG",
        &[
            ("course_true", "°", 1, "T"),
            ("course_mag", "°", 3, "M"),
            ("speed_kn", "kn", 5, "N"),
            ("speed_kmh", "km/h", 7, "K"),
        ],
    ),
    ("DBT", &[("depth_m", "m", 3, "M")]),
    ("DBS", &[("depth_surface_m", "m", 3, "M")]),
    ("DBK", &[("depth_keel_m", "m", 3, "M")]),
    ("DPT", &[("depth_dpt", "m", 1, "")]),
    ("MTW", &[("water_temp", "°C", 1, "C")]),
    ("MTA", &[("air_temp", "°C", 1, "C")]),
    ("HDT", &[("heading_true", "°", 1, "T")]),
    ("HDM", &[("heading_mag", "°", 1, "M")]),
    ("HDG", &[("heading_mag", "°", 1, "")]),
    ("ROT", &[("rate_of_turn", "°/min", 1, "")]),
    (
        "VHW",
        &[
            ("heading_true", "°", 1, "T"),
            ("heading_mag", "°", 3, "M"),
            ("water_speed_kn", "kn", 5, "N"),
            ("water_speed_kmh", "km/h", 7, "K"),
        ],
    ),
    ("VLW", &[("distance_total_nm", "nmi", 1, "N"), ("distance_trip_nm", "nmi", 3, "N")]),
    (
        "MWD",
        &[
            ("wind_dir_true", "°", 1, "T"),
            ("wind_dir_mag", "°", 3, "M"),
            ("wind_speed_kn", "kn", 5, "N"),
            ("wind_speed_ms", "m/s", 7, "M"),
        ],
    ),
    (
        "MDA",
        &[
            ("pressure_bar", "bar", 3, "B"),
            ("air_temp", "°C", 5, "C"),
            ("water_temp", "°C", 7, "C"),
            ("humidity", "%", 9, ""),
            ("dew_point", "°C", 11, "C"),
            ("wind_dir_true", "°", 13, "T"),
            ("wind_dir_mag", "°", 15, "M"),
            ("wind_speed_kn", "kn", 17, "N"),
            ("wind_speed_ms", "m/s", 19, "M"),
        ],
    ),
    ("GSA", &[("pdop", "", 15, ""), ("hdop", "", 16, ""), ("vdop", "", 17, "")]),
];

struct Taker<'t, 'a> {
    cells: &'t Cells<'a>,
    telegram: &'t mut Telegram,
}

impl Taker<'_, '_> {
    /// Takes a value; an empty cell says nothing.
    fn take(&mut self, name: &str, unit: &str, value: Option<Result<Value, String>>) {
        match value {
            None => {}
            Some(Ok(value)) => {
                let unit = (!unit.is_empty()).then(|| unit.to_owned());
                self.telegram.measures.push(Measure { unit, ..Measure::new(name, value) });
            }
            Some(Err(why)) => self.telegram.refuse(name, why),
        }
    }

    fn number(&mut self, name: &str, unit: &str, cell: usize) {
        let value = decimal(self.cells.at(cell)).map(|value| match value {
            Ok(Value::F64(v)) if unit == "°" && !(-180.0..=360.0).contains(&v) => Err(format!("{v} is no direction")),
            other => other,
        });
        self.take(name, unit, value);
    }

    fn position(&mut self, first: usize) {
        let at = |i| self.cells.at(first + i);
        let (lat, lon) = (angle(at(0), at(1), 90.0), angle(at(2), at(3), 180.0));
        self.take("lat", "°", lat);
        self.take("lon", "°", lon);
    }

    fn gga(&mut self) {
        if matches!(self.cells.at(6), "" | "0") {
            return;
        }
        self.position(2);
        self.number("alt", "m", 9);
        self.take("sats", "", whole(self.cells.at(7)));
        self.number("hdop", "", 8);
        self.take("fix", "", whole(self.cells.at(6)));
    }

    fn gns(&mut self) {
        if self.cells.at(6).chars().all(|mode| mode == 'N') {
            return;
        }
        self.position(2);
        self.take("sats", "", whole(self.cells.at(7)));
        self.number("hdop", "", 8);
        self.number("alt", "m", 9);
    }

    fn rmc(&mut self) {
        if self.cells.at(2) != "A" {
            return;
        }
        self.position(3);
        self.number("speed", "kn", 7);
        self.number("course", "°", 8);
    }

    fn gll(&mut self) {
        // Old receivers send no status.
        if !matches!(self.cells.at(6), "A" | "") {
            return;
        }
        self.position(1);
    }

    fn mwv(&mut self) {
        if self.cells.at(5) != "A" {
            return;
        }
        let unit = match self.cells.at(4) {
            "N" => "kn",
            "M" => "m/s",
            "K" => "km/h",
            "S" => "mph",
            other => {
                return self.telegram.refuse("wind", format!("{} is no unit of speed", crate::decode::quoted(other)));
            }
        };
        let (angle, speed) = match self.cells.at(2) {
            "R" => ("wind_angle_rel", "wind_speed_rel"),
            "T" => ("wind_angle_true", "wind_speed_true"),
            other => {
                return self.telegram.refuse("wind", format!("{} is neither R nor T", crate::decode::quoted(other)));
            }
        };
        self.number(angle, "°", 1);
        self.number(speed, unit, 3);
    }

    /// Groups of type, value, unit, name.
    fn xdr(&mut self) {
        let groups = (self.cells.len() - 1).div_ceil(4).min(MAX_TRANSDUCERS);
        for group in 0..groups {
            let at = |i: usize| self.cells.at(1 + group * 4 + i);
            let (kind, value, unit, name) = (at(0), at(1), at(2), at(3));
            let name = if name.is_empty() { format!("xdr.{kind}{group}") } else { format!("xdr.{name}") };
            let unit = match (kind, unit) {
                (_, "C") => "°C",
                (_, "F") => "°F",
                ("H", "P") => "%",
                (_, "P") => "Pa",
                (_, "B") => "bar",
                (_, other) => other,
            };
            match decimal(value) {
                None => self.telegram.refuse(&name, "is empty"),
                some => self.take(&name, unit, some),
            }
        }
    }

    fn plain(&mut self, kind: &str) {
        let Some((_, columns)) = PLAIN.iter().find(|(known, _)| *known == kind) else { return };
        let says_nothing = match kind {
            // NMEA 2.3 added a mode: N means that nothing in the sentence is valid.
            "VTG" => self.cells.at(9) == "N",
            // Without a fix the dilutions are 99.99.
            "GSA" => self.cells.at(2) == "1",
            "ROT" => self.cells.at(2) == "V",
            _ => false,
        };
        if says_nothing {
            return;
        }
        for (name, unit, cell, letter) in *columns {
            let after = self.cells.at(cell + 1);
            if !letter.is_empty() && !after.is_empty() && after != *letter && !self.cells.at(*cell).is_empty() {
                self.telegram.refuse(name, format!("unit {} is not {letter}", crate::decode::quoted(after)));
            } else {
                self.number(name, unit, *cell);
            }
        }
    }
}
