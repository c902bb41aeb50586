//! Programs of this build under emulation: `TIPBUCKET_TEST_RUNNER` names an emulator to put in front (`qemu-arm-static -L …`).

/// The words that start `program`, the emulator's in front where there is one.
pub fn words(program: &str) -> Vec<String> {
    let runner = std::env::var("TIPBUCKET_TEST_RUNNER").unwrap_or_default();
    let mut words: Vec<String> = runner.split_whitespace().map(ToOwned::to_owned).collect();
    words.push(program.to_owned());
    words
}
