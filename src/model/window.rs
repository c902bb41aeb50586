//! Half-open intervals `[start, end)`, aligned to the epoch; every instant lies in exactly one.

use std::time::Duration;

use super::Timestamp;

/// Shortest window: below a second a bucket would hold next to nothing.
const MIN_SECONDS: u32 = 1;
/// Longest window: 31 days.
const MAX_SECONDS: u32 = 31 * 24 * 3600;

/// How long a window is: whole seconds, from one second to 31 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WindowLength(u32);

/// Why a length was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("window must be whole seconds, from 1s to 31days")]
pub struct WindowError;

impl WindowLength {
    /// Checks and takes a length.
    pub const fn from_seconds(seconds: u32) -> Result<Self, WindowError> {
        if seconds >= MIN_SECONDS && seconds <= MAX_SECONDS { Ok(Self(seconds)) } else { Err(WindowError) }
    }

    /// Checks and takes a length.
    pub fn from_duration(length: Duration) -> Result<Self, WindowError> {
        if length.subsec_nanos() != 0 {
            return Err(WindowError);
        }
        Self::from_seconds(u32::try_from(length.as_secs()).map_err(|_| WindowError)?)
    }

    /// The length in seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// The length in milliseconds.
    pub const fn millis(self) -> i64 {
        self.0 as i64 * 1000
    }

    /// The window in which `at` lies.
    pub fn window_of(self, at: Timestamp) -> Window {
        Window { index: at.as_millis().div_euclid(self.millis()), length: self }
    }
}

/// One window: the `index`-th of its length since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    index: i64,
    length: WindowLength,
}

impl Window {
    /// The `index`-th window of `length` since the epoch; `None` outside the years 1970 to 9999.
    pub fn from_index(index: i64, length: WindowLength) -> Option<Self> {
        Timestamp::from_millis(index.checked_mul(length.millis())?)?;
        Some(Self { index, length })
    }

    /// Its number since the epoch.
    pub const fn index(self) -> i64 {
        self.index
    }

    /// Its length.
    pub const fn length(self) -> WindowLength {
        self.length
    }

    /// The first instant inside.
    pub fn start(self) -> Timestamp {
        Timestamp::clamped(self.index.saturating_mul(self.length.millis()))
    }

    /// The first instant after it.
    pub fn end(self) -> Timestamp {
        Timestamp::clamped(self.index.saturating_add(1).saturating_mul(self.length.millis()))
    }

    /// Whether `at` lies inside.
    pub fn contains(self, at: Timestamp) -> bool {
        // Asked for each reading: no division.
        let offset = at.as_millis() - self.index * self.length.millis();
        offset >= 0 && offset < self.length.millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instant_lies_in_exactly_one_window() {
        let ten_minutes = WindowLength::from_seconds(600).unwrap();
        let at = |ms| Timestamp::from_millis(ms).unwrap();
        let window = ten_minutes.window_of(at(600_000));
        assert_eq!((window.start(), window.end()), (at(600_000), at(1_200_000)));
        assert!(window.contains(at(1_199_999)));
        assert!(!window.contains(at(1_200_000)));
        assert!(!window.contains(at(599_999)));
        assert_eq!(Window::from_index(1, ten_minutes), Some(window));
        assert_eq!(Window::from_index(i64::MAX, ten_minutes), None);
    }

    #[test]
    fn lengths_are_whole_seconds_within_bounds() {
        assert!(WindowLength::from_duration(Duration::from_millis(1500)).is_err());
        assert!(WindowLength::from_duration(Duration::ZERO).is_err());
        assert!(WindowLength::from_duration(Duration::from_secs(32 * 86400)).is_err());
        assert_eq!(WindowLength::from_duration(Duration::from_secs(60)).unwrap().seconds(), 60);
    }
}
