//! What stands around the program: the unit, the cross builds, the scripts and the licence list, held to each other and
//! to the tools that read them.
#![allow(clippy::unwrap_used, clippy::panic, unreachable_pub)]

#[path = "it/support/emulator.rs"]
mod emulator;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use toml::{Table, Value};

/// The highest exposure `systemd-analyze security` may find, times ten. A network daemon with serial ports cannot go
/// much below 15; that it asks the kernel about its clock costs another 5.
const MAX_EXPOSURE: &str = "20";
/// What `cross` 0.2.5 reads; it warns about other keys and goes on without them.
const CROSS_BUILD_KEYS: [&str; 6] = ["build-std", "xargo", "default-target", "pre-build", "dockerfile", "env"];
const CROSS_TARGET_KEYS: [&str; 7] = ["build-std", "xargo", "image", "runner", "pre-build", "dockerfile", "env"];
const CROSS_ENV_KEYS: [&str; 2] = ["volumes", "passthrough"];
const CROSS_RUNNERS: [&str; 3] = ["native", "qemu-user", "qemu-system"];

const ARM_TARGETS: [&str; 2] = ["aarch64-unknown-linux-gnu", "armv7-unknown-linux-gnueabihf"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn read_toml(name: &str) -> Table {
    read(name).parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A table inside a table; an absent one is empty.
fn table<'a>(outer: &'a Table, key: &str) -> &'a Table {
    static EMPTY: std::sync::LazyLock<Table> = std::sync::LazyLock::new(Table::new);
    match outer.get(key) {
        None => &EMPTY,
        Some(inner) => inner.as_table().unwrap_or_else(|| panic!("`{key}` is not a table")),
    }
}

fn strings(table: &Table, key: &str) -> Vec<String> {
    let list = table.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
}

#[track_caller]
fn assert_known(what: &str, table: &Table, known: &[&str]) {
    for key in table.keys() {
        assert!(known.contains(&key.as_str()), "{what}: `cross` does not know `{key}`; it knows {known:?}");
    }
}

#[test]
fn the_cross_tool_knows_every_key() {
    let cross = read_toml("Cross.toml");
    assert_known("Cross.toml", &cross, &["build", "target"]);
    let build = table(&cross, "build");
    assert_known("[build]", build, &CROSS_BUILD_KEYS);
    assert_known("[build.env]", table(build, "env"), &CROSS_ENV_KEYS);
    for (name, target) in table(&cross, "target") {
        let target = target.as_table().unwrap();
        assert_known(name, target, &CROSS_TARGET_KEYS);
        assert_known(name, table(target, "env"), &CROSS_ENV_KEYS);
        let runner = target.get("runner").and_then(Value::as_str).unwrap_or("native");
        assert!(CROSS_RUNNERS.contains(&runner), "{name}: no such runner: {runner}");
    }
}

#[test]
fn the_cross_tool_passes_on_what_cargo_config_sets() {
    let passed = strings(table(table(&read_toml("Cross.toml"), "build"), "env"), "passthrough");
    for variable in table(&read_toml(".cargo/config.toml"), "env").keys() {
        assert!(passed.contains(variable), "Cross.toml does not pass {variable} into the container");
    }
    assert!(passed.iter().any(|variable| variable == "LIBSQLITE3_FLAGS"));
}

#[test]
fn every_file_names_the_same_arm_targets() {
    let names = |table: &Table| table.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(table(&read_toml("Cross.toml"), "target")), ARM_TARGETS);
    let config = read_toml(".cargo/config.toml");
    assert_eq!(names(table(&config, "target")), ARM_TARGETS);
    let graph = strings(table(&read_toml("deny.toml"), "graph"), "targets");
    for target in ARM_TARGETS {
        assert!(graph.iter().any(|name| name == target), "deny.toml does not look at {target}");
        for name in ["Makefile", "scripts/setup-test.sh"] {
            assert!(read(name).contains(target), "{name} does not know {target}");
        }
        // `make test-arm` starts spawned binaries the way cargo starts the tests.
        let runner = strings(table(table(&config, "target"), target), "runner").join(" ");
        let prefix = format!("TIPBUCKET_TEST_RUNNER=\"{runner}\"");
        assert!(read("Makefile").contains(&prefix), "the Makefile does not set {prefix}");
    }
}

#[test]
fn time_zones_come_along() {
    // Slim images have no zone database; where there is one, it goes first.
    let zone = jiff::tz::TimeZoneDatabase::bundled().get("Europe/Amsterdam").unwrap();
    let summer = zone.to_timestamp(jiff::civil::date(2026, 7, 1).at(12, 0, 0, 0)).unwrap();
    assert_eq!(summer.to_string(), "2026-07-01T10:00:00Z");
}

#[test]
fn the_lock_file_holds_no_banned_crate() {
    let locked = read_toml("Cargo.lock");
    let packages = locked["package"].as_array().unwrap();
    let banned = table(&read_toml("deny.toml"), "bans")["deny"].as_array().unwrap().clone();
    assert!(banned.len() >= 3);
    for entry in &banned {
        let name = entry["crate"].as_str().unwrap();
        assert!(packages.iter().all(|package| package["name"].as_str() != Some(name)), "Cargo.lock holds {name}");
    }
}

#[test]
fn every_ignored_advisory_is_explained_to_users() {
    let deny = read_toml("deny.toml");
    let security = read("SECURITY.md");
    for entry in table(&deny, "advisories")["ignore"].as_array().unwrap() {
        let id = entry["id"].as_str().unwrap();
        assert!(!entry["reason"].as_str().unwrap().is_empty(), "deny.toml gives no reason for {id}");
        assert!(security.contains(id), "SECURITY.md does not mention {id}");
    }
}

#[test]
fn scripts_are_executable_and_parse() {
    let scripts = fs::read_dir(root().join("scripts")).unwrap().map(|entry| entry.unwrap().path());
    let scripts: Vec<PathBuf> = scripts.chain([root().join(".ci/run")]).collect();
    assert!(scripts.len() >= 4);
    for path in scripts {
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{} is not executable", path.display());
        assert!(
            fs::read_to_string(&path).unwrap().contains("set -euo pipefail"),
            "{} goes on after errors",
            path.display()
        );
        let parsed = Command::new("bash").arg("-n").arg(&path).output().unwrap();
        assert!(parsed.status.success(), "{}: {}", path.display(), said(&parsed));
    }
}

#[test]
fn systemd_reads_the_unit_without_a_word() {
    let (_folder, unit) = unit_for_this_build();
    let verified = systemd_analyze(&["verify", "--man=no"], &unit);
    assert!(verified.status.success(), "{}", said(&verified));
    // Unknown keys are only warnings: silence is the test.
    assert_eq!(said(&verified), "");
}

#[test]
fn the_unit_is_hardened() {
    let (_folder, unit) = unit_for_this_build();
    let threshold = format!("--threshold={MAX_EXPOSURE}");
    let judged = systemd_analyze(&["security", "--no-pager", "--offline=true", &threshold], &unit);
    assert!(judged.status.success(), "{}", said(&judged));
}

#[test]
fn the_unit_keeps_its_promises() {
    let unit = read("systemd/tipbucket.service");
    for line in [
        "Type=notify",
        "ExecStart=/usr/bin/tipbucket run --config /etc/tipbucket/site.toml",
        "Restart=always",
        "StartLimitIntervalSec=0",
        "User=tipbucket",
        "SupplementaryGroups=dialout",
        "StateDirectory=tipbucket",
        "StateDirectoryMode=0750",
        "DevicePolicy=closed",
        "UMask=0027",
        "Environment=MALLOC_MMAP_THRESHOLD_=131072 MALLOC_ARENA_MAX=1",
    ] {
        assert!(unit.lines().any(|present| present == line), "the unit lacks `{line}`");
    }
    for driver in ["ttyUSB", "ttyACM", "ttyAMA", "ttyS"] {
        assert!(unit.contains(&format!("DeviceAllow=char-{driver} rw\n")), "{driver} ports are closed");
    }
    assert!(read("systemd/tipbucket.sysusers").contains("u tipbucket "), "nobody makes the service's account");
}

#[test]
fn the_demo_site_is_sound_with_every_choice_of_parts() {
    for parts in [&["archive"][..], &["mongodb"], &["archive", "mqtt"], &["mongodb", "mqtt"]] {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path();
        fs::create_dir_all(dir.join("site.toml.d")).unwrap();
        fs::create_dir(dir.join("archive")).unwrap();
        let render = |part: &str, to: PathBuf| {
            let text = read(&format!("config/demo/{part}.toml"))
                .replace("@DIR@", dir.to_str().unwrap())
                .replace("@WEB_PORT@", "8780")
                .replace("@MQTT_PORT@", "1883")
                .replace("@MONGODB_URI@", "mongodb://127.0.0.1:27017");
            fs::write(to, text).unwrap();
        };
        render("site", dir.join("site.toml"));
        for part in parts {
            render(part, dir.join(format!("site.toml.d/{part}.toml")));
        }
        let checked = tipbucket().arg("check").arg("--config").arg(dir.join("site.toml")).output().unwrap();
        assert!(checked.status.success(), "with {parts:?}: {}", said(&checked));
    }
}

/// The program of this build.
fn tipbucket() -> Command {
    let words = emulator::words(env!("CARGO_BIN_EXE_tipbucket"));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// The unit with the binary of this build, since the real path exists on installed machines only.
fn unit_for_this_build() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("tipbucket");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tipbucket"), &program).unwrap();
    let text = read("systemd/tipbucket.service");
    assert!(text.contains("/usr/bin/tipbucket"));
    let unit = folder.path().join("tipbucket.service");
    fs::write(&unit, text.replace("/usr/bin/tipbucket", program.to_str().unwrap())).unwrap();
    (folder, unit)
}

fn systemd_analyze(arguments: &[&str], unit: &Path) -> Output {
    let run = Command::new("systemd-analyze").args(arguments).arg(unit).output();
    run.unwrap_or_else(|error| panic!("systemd-analyze: {error}; scripts/setup-test.sh installs it"))
}

/// Both streams of a finished program.
fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
