//! A recording of a line: a plain stream of bytes, or a dialogue as `tipbucket sniff --save` writes it.
//!
//! A dialogue is text: `> ` and hexadecimal bytes to the device, `< ` from it, `@+N` a pause of N milliseconds, `#` a
//! remark. A file with nothing but remarks and hexadecimal bytes is a payload.

use std::time::Duration;

/// Longest recording: an hour of a busy line is below it.
pub const MAX_RECORDING_BYTES: usize = 64 << 20;

/// One step of a dialogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The gateway sends this.
    ToDevice(Vec<u8>),
    /// The device sends this.
    FromDevice(Vec<u8>),
    /// Nothing happens for a while.
    Pause(Duration),
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// In the order in which it happened.
    pub steps: Vec<Step>,
    /// For a message: where it was published.
    pub topic: Option<String>,
    /// Messages that came before it, the first one first.
    pub before: Vec<Recording>,
}

impl Recording {
    /// Reads a file's content. A dialogue is told by its lines, hexadecimal by the file's ending `.hex`; everything else is
    /// taken as it is.
    pub fn read(bytes: Vec<u8>, is_hex: bool) -> Result<Self, String> {
        if bytes.len() > MAX_RECORDING_BYTES {
            return Err(format!("has {} bytes, at most {MAX_RECORDING_BYTES} are read", bytes.len()));
        }
        let text = std::str::from_utf8(&bytes).ok();
        let steps = match text {
            Some(text) if is_dialogue(text) || (is_hex && text.lines().any(is_step)) => dialogue(text)?,
            Some(text) if is_hex => vec![Step::FromDevice(plain_hex(text)?)],
            _ => vec![Step::FromDevice(bytes)],
        };
        Ok(Self { steps, ..Self::default() })
    }

    /// All bytes from the device, one after the other: a message's payload.
    pub fn payload(&self) -> Vec<u8> {
        let from_device = self.steps.iter().filter_map(|step| match step {
            Step::FromDevice(bytes) => Some(bytes.as_slice()),
            Step::ToDevice(_) | Step::Pause(_) => None,
        });
        from_device.collect::<Vec<_>>().concat()
    }
}

fn is_step(line: &str) -> bool {
    line.starts_with("> ") || line.starts_with("< ")
}

fn is_dialogue(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).peekable();
    let mut any = false;
    lines.all(|line| {
        any |= is_step(line);
        is_step(line) || line.starts_with('#') || line.starts_with("@+")
    }) && any
}

fn dialogue(text: &str) -> Result<Vec<Step>, String> {
    let mut steps: Vec<Step> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |why: String| format!("line {}: {why}", number + 1);
        if let Some(hex) = line.strip_prefix("> ") {
            steps.push(Step::ToDevice(hex_bytes(hex).map_err(at)?));
        } else if let Some(hex) = line.strip_prefix("< ") {
            let bytes = hex_bytes(hex).map_err(at)?;
            match steps.last_mut() {
                // Long replies stand on several lines.
                Some(Step::FromDevice(before)) => before.extend(bytes),
                _ => steps.push(Step::FromDevice(bytes)),
            }
        } else if let Some(pause) = line.strip_prefix("@+") {
            let millis = pause.split_whitespace().next().and_then(|n| n.parse().ok());
            let millis = millis.ok_or_else(|| at(format!("`{line}` names no pause, as @+300")))?;
            steps.push(Step::Pause(Duration::from_millis(millis)));
        } else if !line.trim().is_empty() && !line.starts_with('#') {
            return Err(at(format!(
                "`{}` is no line of a dialogue (`> FF`, `< FF`, `@+300`, `# remark`)",
                line.escape_debug()
            )));
        }
    }
    Ok(steps)
}

fn plain_hex(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        bytes.extend(hex_bytes(line).map_err(|why| format!("line {}: {why}", number + 1))?);
    }
    Ok(bytes)
}

/// Bytes from hexadecimal digits, with or without blanks between the bytes.
pub fn hex_bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for word in text.split_whitespace() {
        if !word.is_ascii() || !word.len().is_multiple_of(2) {
            return Err(format!("`{}` are no hexadecimal bytes, as FF 01", word.escape_debug()));
        }
        for at in (0..word.len()).step_by(2) {
            let byte = u8::from_str_radix(&word[at..at + 2], 16);
            bytes.push(byte.map_err(|_| format!("`{word}` are no hexadecimal bytes, as FF 01"))?);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, is_hex: bool, expected: &[Step]) {
        assert_eq!(Recording::read(text.as_bytes().to_vec(), is_hex).map(|r| r.steps), Ok(expected.to_vec()), "{text}");
    }

    #[test]
    fn dialogues_payloads_and_streams_are_told_apart() {
        let from = |bytes: &[u8]| Step::FromDevice(bytes.to_vec());
        let dialogue = "# id\n> 01 04\n@+300 later\n< 0A\n< FF\n";
        let pause = Step::Pause(Duration::from_millis(300));
        check(dialogue, false, &[Step::ToDevice(vec![1, 4]), pause, from(&[10, 255])]);
        check("# payload\n01 02\n0aff\n", true, &[from(&[1, 2, 10, 255])]);
        check("01 02\n", false, &[from(b"01 02\n")]);
        check("< 21.5 degrees\nhum=44\n", false, &[from(b"< 21.5 degrees\nhum=44\n")]);
    }

    #[test]
    fn what_is_no_recording_is_told_with_its_line() {
        let error = |text: &str, is_hex| Recording::read(text.into(), is_hex).unwrap_err();
        assert_eq!(error("# x\n< 0G\n", false), "line 2: `0G` are no hexadecimal bytes, as FF 01");
        assert_eq!(
            error("< 01\nxyz\n", true),
            "line 2: `xyz` is no line of a dialogue (`> FF`, `< FF`, `@+300`, `# remark`)"
        );
        assert_eq!(error("01 2\n", true), "line 1: `2` are no hexadecimal bytes, as FF 01");
        assert_eq!(error("@+x\n< 01\n", false), "line 1: `@+x` names no pause, as @+300");
    }
}
