//! The checks that need a stable toolchain and nothing else.

use std::{
    ffi::OsString,
    io::{IsTerminal, stdout},
};

use crate::{
    command::{Call, cores},
    layout,
    say::say,
    steps::{Step, Trouble},
    tidy, workspace,
};

/// The cfg that switches the library's atomics to the model checker's, with debug assertions.
pub const LOOM: &str = "--cfg slipring_loom -C debug-assertions";
/// The part that the names of all models share.
pub const MODELS: &str = "loom_";

/// Checks the project's own rules.
pub fn tidy(step: &mut Step) -> Result<(), Trouble> {
    let found = tidy::check(&step.root)?;
    for note in &found.notes {
        say!("{note}");
    }
    for warning in &found.warnings {
        say!("warning: {warning}");
    }
    if found.errors.is_empty() { Ok(()) } else { Err(found.errors.join("\n").into()) }
}

/// Checks the formatting.
pub fn fmt(step: &mut Step) -> Result<(), Trouble> {
    need(step, "fmt", "rustfmt")?;
    // rustfmt colours its output always.
    let colour = if stdout().is_terminal() { "auto" } else { "never" };
    step.run(&Call::cargo("fmt --all --check -- --color").args([colour]))
}

/// Runs the lints.
pub fn clippy(step: &mut Step) -> Result<(), Trouble> {
    need(step, "clippy", "clippy")?;
    step.run(&Call::cargo("clippy --workspace --all-targets --all-features -- -D warnings"))
}

/// Fails unless the toolchain's `component` answers to `cargo <command> --version`.
fn need(step: &Step, command: &str, component: &str) -> Result<(), Trouble> {
    if Call::cargo(command).args(["--version"]).succeeds(&step.root) {
        return Ok(());
    }
    Err(Trouble::missing(component, format!("rustup component add {component}")))
}

/// Builds the documentation; a broken link is an error.
pub fn doc(step: &mut Step) -> Result<(), Trouble> {
    step.run(
        &Call::cargo("doc --workspace --no-deps --all-features").env("RUSTDOCFLAGS", "-Dwarnings"),
    )
}

/// Runs the unit, integration, documentation and compile-fail tests.
pub fn tests(step: &mut Step) -> Result<(), Trouble> {
    // Most tests spend their time waiting for other threads, processes or servers, so more tests
    // run at once than there are cores.
    let call = Call::cargo("test --workspace --no-fail-fast --all-features")
        .env("RUST_TEST_THREADS", (2 * cores()).to_string());
    step.run(&call)?;
    step.some_tests()
}

/// Builds the comparison with other queues, and runs every measurement once with small amounts.
/// Each measurement must find correct results. The contenders are many crates, so they are built
/// without optimization here, and what the main workspace has built is used again.
pub fn peers_smoke(step: &mut Step) -> Result<(), Trouble> {
    let target = step.target.clone();
    for folder in layout::BESIDE {
        let manifest = format!("{folder}/Cargo.toml");
        let call = |command| Call::cargo(command).args(["--manifest-path", &manifest]);
        step.run(&call("fmt --check"))?;
        let call = |command| call(command).target_dir(&target);
        step.run(&call("clippy --all-targets").args(["--", "-D", "warnings"]))?;
        step.run(&call("test"))?;
        if !step.root.join(folder).join("src/main.rs").is_file() {
            continue;
        }
        // A quiet build shows no progress, so the build comes first and leaves nothing to build for
        // `run`.
        step.run(&call("build"))?;
        let run = call("run --quiet").args(["--", "--smoke"]);
        step.run(&run.env("SLIPRING_PROGRESS", "1"))?;
    }
    Ok(())
}

/// Measures the same work through slipring, its peers and hand-made limits. The measurements are a
/// workspace of their own, with a lock file and a target folder.
pub fn peers(step: &mut Step, args: &[OsString]) -> Result<(), Trouble> {
    step.run(&Call::cargo("build --release --manifest-path peers/Cargo.toml"))?;
    let call = Call::cargo("run --quiet --release --manifest-path peers/Cargo.toml --").args(args);
    step.run(&call.env("SLIPRING_PROGRESS", "1"))
}

/// Runs random programs under random schedules.
pub fn explore(step: &mut Step, args: &[OsString]) -> Result<(), Trouble> {
    // A quiet build shows no progress, so the build comes first.
    step.run(&Call::cargo("build -p slipring-explore"))?;
    step.run(&Call::cargo("run --quiet -p slipring-explore --").args(args))
}

/// Runs the cases that once failed, those that a twin still has to fail, and random programs for a
/// minute. The last commit's files determine the first seed: each change explores new programs, and
/// a second run of the same code repeats the first.
pub fn explored(step: &mut Step) -> Result<(), Trouble> {
    let run = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
    for file in layout::CASES {
        explore(step, &run(&["--cases", file]))?;
    }
    let first = workspace::number_of_files(&step.root).unwrap_or(1).to_string();
    explore(step, &run(&["60", "--from", &first]))?;
    // Seeds for sinks and sources against a simulated server.
    let simulated = Call::cargo("test -p slipring-nats --all-features --lib simulation");
    step.run(&simulated.env("SLIPRING_SEED", first).env("SLIPRING_SEEDS", "2000"))
}

/// Runs the models of the memory orderings whose names contain one of `filters`, or all models if
/// there is no filter. This program starts the models itself: see `models.rs`.
pub fn loom(step: &mut Step, filters: &[String]) -> Result<(), Trouble> {
    let folder = step.scratch("loom");
    let all = [MODELS.to_owned()];
    let runner = format!("target.'cfg(all())'.runner=[{:?}, \"each\"]", step.program);
    let call = Call::cargo("test --release -p slipring --lib --config")
        .args([runner])
        .target_dir(&folder)
        .args(["--"])
        .args(if filters.is_empty() { &all } else { filters })
        .env("RUSTFLAGS", LOOM);
    step.run(&call)?;
    step.some_tests()
}

/// Runs every example program with a small amount of data.
pub fn examples(step: &mut Step) -> Result<(), Trouble> {
    step.run(&Call::cargo("build -p slipring-examples --examples"))?;
    workspace::examples(&step.root).iter().try_for_each(|name| run_example(step, name))
}

/// Runs one example program with a small amount of data.
pub fn example(step: &mut Step, name: &str) -> Result<(), Trouble> {
    step.run(&Call::cargo("build -p slipring-examples --example").args([name]))?;
    run_example(step, name)
}

fn run_example(step: &mut Step, name: &str) -> Result<(), Trouble> {
    let call = Call::cargo("run --quiet -p slipring-examples --example");
    step.run(&call.args([name, "--", "--smoke"]))
}
