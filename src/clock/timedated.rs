//! Where the kernel cannot be asked (there is no safe call of `adjtimex` for 32 bits), systemd-timedated asks in our place.
//!
//! It is asked by its own program, `timedatectl`, which is on every system that has it. What must stay true: nobody waits
//! for the answer. It may have to be started first and take seconds; until then the last answer counts.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Who answers with a line `yes` or `no`.
const QUESTION: [&str; 4] = ["timedatectl", "show", "--property=NTPSynchronized", "--value"];
/// Pause between two questions, in milliseconds: each starts a process.
const EVERY: i64 = 30_000;
/// How long an answer may take, in milliseconds; the bus itself gives up after 25 s.
const PATIENCE: i64 = 28_000;
/// Longest answer that is read.
const MAX_ANSWER: u64 = 64;

/// Who is asked, and what was answered.
#[derive(Debug)]
pub(super) struct Timedated {
    question: Vec<String>,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    /// The question under way.
    running: Option<Child>,
    /// When it was asked.
    since: Option<i64>,
    /// The last answer.
    answer: Option<bool>,
}

impl Default for Timedated {
    fn default() -> Self {
        Self::by(QUESTION.map(str::to_owned).to_vec())
    }
}

impl Timedated {
    fn by(question: Vec<String>) -> Self {
        Self { question, asked: Mutex::default() }
    }

    /// Whether the clock is synchronised, as far as that was answered; asks anew now and then. `now` is a steady time in
    /// milliseconds. Never waits.
    pub(super) fn is_synchronised(&self, now: i64) -> Option<bool> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let age = asked.since.map(|since| now - since);
        if let Some(mut child) = asked.running.take() {
            match child.try_wait() {
                Ok(None) if age.is_some_and(|age| age < PATIENCE) => asked.running = Some(child),
                Ok(Some(status)) if status.success() => asked.answer = answer(&mut child),
                _ => {
                    end(&mut child);
                    asked.answer = None;
                }
            }
        } else if age.is_none_or(|age| age >= EVERY) {
            asked.since = Some(now);
            asked.running = self.ask();
        }
        asked.answer
    }

    fn ask(&self) -> Option<Child> {
        let (program, arguments) = self.question.split_first()?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Without systemd there is no such program, and the other signs decide.
        command.spawn().ok()
    }
}

impl Drop for Timedated {
    fn drop(&mut self) {
        let asked = self.asked.get_mut().unwrap_or_else(PoisonError::into_inner);
        asked.running.take().iter_mut().for_each(end);
    }
}

/// What a program said that has ended.
fn answer(child: &mut Child) -> Option<bool> {
    let mut said = String::new();
    child.stdout.take()?.take(MAX_ANSWER).read_to_string(&mut said).ok()?;
    match said.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(script: &str) -> Timedated {
        Timedated::by(["sh", "-c", script].map(str::to_owned).to_vec())
    }

    /// Looks at it until the question under way is over.
    fn after_the_answer(timedated: &Timedated, now: i64) -> Option<bool> {
        let mut answer = timedated.is_synchronised(now);
        while timedated.asked.lock().unwrap().running.is_some() {
            std::thread::yield_now();
            answer = timedated.is_synchronised(now);
        }
        answer
    }

    #[test]
    fn its_answer_is_taken_when_it_is_there() {
        for (script, expected) in
            [("echo yes", Some(true)), ("echo no", Some(false)), ("echo maybe", None), ("echo yes; exit 1", None)]
        {
            let timedated = by(script);
            assert_eq!(timedated.is_synchronised(0), None, "{script}: nobody waits for it");
            assert_eq!(after_the_answer(&timedated, 0), expected, "{script}");
        }
        let nobody = Timedated::by(vec!["/nowhere/timedatectl".to_owned()]);
        assert_eq!(after_the_answer(&nobody, 0), None);
    }

    #[test]
    fn it_is_asked_again_after_a_while_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        std::fs::write(&told, "no").unwrap();
        let timedated = by(&format!("cat '{}'", told.display()));
        assert_eq!(after_the_answer(&timedated, 0), Some(false));
        std::fs::write(&told, "yes").unwrap();
        assert_eq!(after_the_answer(&timedated, EVERY - 1), Some(false));
        assert_eq!(after_the_answer(&timedated, EVERY), Some(true));
    }

    #[test]
    fn one_that_hangs_is_given_up() {
        let timedated = by("exec sleep 1000");
        for now in [0, 1000, PATIENCE - 1] {
            assert_eq!(timedated.is_synchronised(now), None);
            assert!(timedated.asked.lock().unwrap().running.is_some(), "{now}");
        }
        assert_eq!(timedated.is_synchronised(PATIENCE), None);
        assert!(timedated.asked.lock().unwrap().running.is_none());
    }
}
