//! A writer under load that is killed, or whose file system is shut down under it or becomes read-only, again and again.
//! What it was told to be on disk must be there in the end, once: in the store, or among what it drew for delivery.
//!
//! `TIPBUCKET_KILLS=…` says how often it is killed (`make kill-drill`), `TIPBUCKET_EXT4_CUTS=…` how often a private ext4 is
//! shut down or finds an error (`make ext4-drill`, needs root). Not run by the usual harness, since the program starts itself as the writer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr, missing_docs, unreachable_pub)]
#![allow(dead_code, reason = "what it shares with the tests of the store it uses in part")]

#[path = "../it/support/emulator.rs"]
mod emulator;
#[path = "../store/site.rs"]
mod site;
#[path = "../store/told.rs"]
mod told;
mod writer;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fault_vfs::Ext4;
use rustix::process::{Pid, Signal, kill_process};

/// Kills in a run of the suite.
const KILLS: usize = 25;
const NAME: &str = "a_writer_that_dies_loses_nothing";
/// Shortest life of a writer.
const LEAST: Duration = Duration::from_millis(5);
/// Longest life of a writer, if it gets started in less: some die while they start, most later.
const MOST: Duration = Duration::from_millis(300);
/// Numbers left out between two writers, so that none is used twice.
const GAP: u64 = 10_000;
/// Room of the private ext4.
const MEBIBYTES: u64 = 64;
/// How long a writer goes on after its file system has become read-only: it tries again after a second.
const AFTER_AN_ERROR: Duration = Duration::from_millis(1500);

/// What all writers together said.
#[derive(Default)]
struct Account {
    acknowledged: BTreeSet<u64>,
    /// Drawn for delivery: may be gone.
    drawn: BTreeSet<u64>,
    last: u64,
}

fn main() {
    if let Some(first) = writer::role() {
        return writer::write(&first.0, first.1);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        if !arguments.iter().any(|argument| argument == "--ignored") {
            println!("{NAME}: test");
        }
        return;
    }
    let wanted =
        arguments.iter().filter(|argument| !argument.starts_with('-')).any(|filter| NAME.contains(filter.as_str()));
    let skips = arguments.iter().any(|argument| argument == "--skip");
    if !wanted && !skips && arguments.iter().any(|argument| !argument.starts_with('-')) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<usize>().expect("a number"));
    match number("TIPBUCKET_EXT4_CUTS") {
        Some(cuts) => shut_downs(cuts),
        None => kills(number("TIPBUCKET_KILLS").unwrap_or(KILLS)),
    }
}

fn kills(kills: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut account = Account::default();
    let mut random = fastrand::Rng::with_seed(5);
    let most = longest_life();
    for _ in 0..kills {
        let child = start(folder.path(), account.last + GAP);
        std::thread::sleep(life(&mut random, most));
        account.end(child);
    }
    account.settle(folder.path(), &format!("{kills} kills"));
}

fn shut_downs(cuts: usize) {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let mut card = Ext4::new(folder.path(), MEBIBYTES, "noatime,errors=remount-ro")
        .expect("a private ext4 needs root, mkfs.ext4 and loop devices");
    let mut account = Account::default();
    let mut random = fastrand::Rng::with_seed(6);
    let most = longest_life();
    let mut errors = 0;
    for _ in 0..cuts {
        let child = start(&card.path(), account.last + GAP);
        std::thread::sleep(life(&mut random, most));
        if random.u8(0..4) == 0 {
            errors += 1;
            card.find_error().expect("an error");
            // It goes on trying, and must not say that anything is on disk.
            std::thread::sleep(AFTER_AN_ERROR);
        } else {
            // It must not go on writing, and saying so, while the file system goes.
            signal(&child, Signal::STOP);
            card.shut_down().expect("shut down");
        }
        account.end(child);
        card.mount_again().expect("mounted again");
    }
    account.settle(&card.path(), &format!("{} shutdowns of ext4 and {errors} errors", cuts - errors));
}

/// What lets most writers get to work, on any machine: three times as long as a first acknowledgement takes here.
fn longest_life() -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let mut child = start(folder.path(), 0);
    let said = BufReader::new(child.stdout.take().unwrap());
    let acknowledged = said.lines().map_while(Result::ok).any(|line| line.starts_with("acknowledged"));
    let first = begun.elapsed();
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    assert!(acknowledged, "a writer that is left alone acknowledges");
    MOST.max(first * 3)
}

fn life(random: &mut fastrand::Rng, most: Duration) -> Duration {
    LEAST + most.mul_f64(random.f64())
}

fn start(folder: &Path, first: u64) -> Child {
    let words = emulator::words(std::env::current_exe().unwrap().to_str().unwrap());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    writer::give_role(&mut command, folder, first);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

impl Account {
    /// Kills a writer and takes down what it said.
    fn end(&mut self, mut child: Child) {
        signal(&child, Signal::KILL);
        let said = BufReader::new(child.stdout.take().unwrap());
        // The last line may be cut off.
        for line in said.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8(line).unwrap();
            let mut words = line.split(' ');
            let kind = words.next();
            let complete = words.next_back() == Some(".");
            let numbers = words.map(|n| n.parse::<u64>().unwrap());
            match kind {
                Some("acknowledged") if complete => self.acknowledged.extend(numbers),
                Some("drawn") if complete => self.drawn.extend(numbers),
                Some("pushed") if complete => self.last = numbers.fold(self.last, u64::max),
                _ => {}
            }
        }
        child.wait().unwrap();
    }

    /// Looks at what is left.
    fn settle(&self, folder: &Path, what: &str) {
        let told = site::runtime().block_on(told::tell(folder)).unwrap();
        let twice = told.samples.iter().find(|(_, samples)| samples.len() > 1);
        assert!(twice.is_none(), "after {what} it is there twice: {twice:?}");
        let stored: BTreeSet<u64> = told.samples.keys().map(|(_, at)| *at as u64).collect();
        let lost: Vec<_> =
            self.acknowledged.iter().filter(|n| !stored.contains(n) && !self.drawn.contains(n)).collect();
        assert!(
            lost.is_empty(),
            "after {what} {} readings are lost, such as {:?}",
            lost.len(),
            &lost[..lost.len().min(5)]
        );
        assert!(told.ledger.is_empty(), "nothing was given up: {:?}", told.ledger);
        let (acknowledged, drawn) = (self.acknowledged.len(), self.drawn.len());
        assert!(acknowledged > 100, "only {acknowledged} readings were acknowledged");
        println!(
            "{what}: {acknowledged} readings acknowledged, {drawn} drawn for delivery, none lost, none twice, no damage"
        );
    }
}
