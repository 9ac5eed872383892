//! The checks that take long or need more than a stable toolchain.

use std::ffi::OsString;

use crate::{
    command::{Call, output},
    steps::{SLOW_TEST, Step, Trouble},
    workspace,
};

/// The default number of schedules that Miri tries.
pub const SEEDS: u32 = 16;

/// Fails unless the toolchain `name` is installed with `components`.
fn toolchain(name: &str, components: &[&str]) -> Result<(), Trouble> {
    let installed = output("rustup", &["toolchain", "list"])
        .ok_or_else(|| Trouble::missing("rustup", "see https://rustup.rs"))?;
    let is_there = |line: &str| {
        line.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ' ']))
    };
    if !installed.lines().any(is_there) {
        let extra: String =
            components.iter().map(|component| format!(" --component {component}")).collect();
        let install = format!("rustup toolchain install {name} --profile minimal{extra}");
        return Err(Trouble::missing(format!("the toolchain {name}"), install));
    }
    if components.is_empty() {
        return Ok(());
    }
    let has = output("rustup", &["component", "list", "--toolchain", name, "--installed"])
        .unwrap_or_default();
    let lacking: Vec<&str> = components
        .iter()
        .copied()
        .filter(|component| !has.lines().any(|line| line.starts_with(component)))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let lacking = lacking.join(" ");
    Err(Trouble::missing(
        format!("{lacking} of the {name} toolchain"),
        format!("rustup component add --toolchain {name} {lacking}"),
    ))
}

/// Runs the tests under Miri, over many schedules.
pub fn miri(step: &mut Step, seeds: u32, filters: &[String]) -> Result<(), Trouble> {
    toolchain("nightly", &["miri", "rust-src"])?;
    let folder = step.scratch("miri");
    step.run_slow(
        &Call::cargo_of("nightly", "miri test -p slipring --lib --tests")
            .target_dir(&folder)
            .args(["--"])
            .args(filters)
            .env("MIRIFLAGS", format!("-Zmiri-many-seeds=0..{seeds}")),
    )?;
    step.some_tests()
}

/// Runs the tests under ThreadSanitizer.
pub fn tsan(step: &mut Step, filters: &[String]) -> Result<(), Trouble> {
    toolchain("nightly", &["rust-src"])?;
    let about = output("rustup", &["run", "nightly", "rustc", "-vV"]).unwrap_or_default();
    let host = about
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or("x86_64-unknown-linux-gnu");
    let folder = step.scratch("tsan");
    step.run_slow(
        &Call::cargo_of("nightly", "test -Zbuild-std -p slipring --tests --target")
            .args([host])
            .target_dir(&folder)
            // The simulated machine of `queue_model` runs on one thread, where nothing can race.
            .args(["--", "--skip", "queue_model"])
            .args(filters)
            .env("RUSTFLAGS", "-Zsanitizer=thread")
            // Under the sanitizer each test takes many times as long.
            .env("SLIPRING_TEST_LIMIT", SLOW_TEST.as_secs().to_string())
            // A test forgets a pipeline and its threads on purpose, so leaked threads are not an
            // error. Some tests ask for more memory than there is, so the allocator returns null.
            .env("TSAN_OPTIONS", "report_thread_leaks=0 allocator_may_return_null=1"),
    )?;
    step.some_tests()
}

/// Counts what contenders cost on virtual cores, unchanged ones included: the compiler inserts
/// calls at their accesses, which report to the simulator.
pub fn simulated(step: &mut Step, args: &[OsString]) -> Result<(), Trouble> {
    toolchain("nightly", &[])?;
    let folder = step.scratch("simulated");
    let call = |command: &str| {
        Call::cargo_of("nightly", command)
            .args("--release --manifest-path peers/Cargo.toml -p peers-simulated".split(' '))
            .args(["--config", "peers/simulated/instrumented.toml"])
            .target_dir(&folder)
    };
    // A quiet build shows no progress, so the build comes first.
    step.run(&call("build"))?;
    step.run(&call("run --quiet").args(["--"]).args(args))
}

/// Builds with the oldest compiler that the manifest promises.
pub fn msrv(step: &mut Step) -> Result<(), Trouble> {
    let version = workspace::minimum_version(&step.root).ok_or_else(|| {
        Trouble::Failed("the workspace's Cargo.toml states no rust-version".to_owned())
    })?;
    toolchain(&version, &[])?;
    let folder = step.scratch("msrv");
    // The client library of `slipring-nats` needs a later compiler, which its own manifest names.
    let apart = "check --workspace --all-targets --exclude slipring-nats";
    step.run(&Call::cargo_of(&version, apart).target_dir(&folder))
}

/// Runs the slow tests: those marked `#[ignore]`, and those that do more under `SLIPRING_SOAK`.
pub fn soak(step: &mut Step, filters: &[String]) -> Result<(), Trouble> {
    step.run_slow(
        &Call::cargo("test --release --workspace --lib --bins --tests")
            .args(["--", "--include-ignored"])
            .args(filters)
            .env("SLIPRING_SOAK", "1"),
    )?;
    step.some_tests()
}

/// Judges every mutant of the orderings.
pub fn mutants(step: &mut Step, options: &crate::mutants::Options) -> Result<(), Trouble> {
    crate::mutants::run(step, options)
}
