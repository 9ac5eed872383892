//! The project's own checks: `cargo xtask test` before every commit, `cargo xtask test --deep`
//! before a release.
//!
//! What standard output refuses, for example where its reader has gone (`| head`), is left out: the
//! checks go on, and the exit code says how they ended.
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Prints a line, as `println!` does, but does not panic where standard output refuses it.
macro_rules! say {
    ($($line:tt)*) => { crate::say(format_args!($($line)*)) };
}

mod assembly;
mod checks;
mod command;
mod deep;
mod layout;
mod mutants;
mod source;
mod steps;
mod tidy;
mod workspace;

use std::{
    env,
    io::{Write as _, stderr},
    path::PathBuf,
    process::ExitCode,
};

use steps::{Policy, Run};

const USAGE: &str = "\
The project's own checks.

cargo xtask test              everything that a stable toolchain can check
cargo xtask test --deep       that, and all of: miri, tsan, msrv, mutants, soak

One check alone:
cargo xtask tidy              lengths, labels of edges, texts that must not be
cargo xtask fmt | clippy | doc | unit | examples
cargo xtask asm               the code that the compiler makes of a publication
cargo xtask loom [FILTER]     the models of the memory orderings
cargo xtask peers [ARGS]...   slipring beside its peers and beside hand-made limits; `cargo xtask peers --help` says more
cargo xtask miri [--seeds N] [FILTER]...
cargo xtask tsan [FILTER]...
cargo xtask msrv              the oldest compiler that the manifest promises
cargo xtask soak [FILTER]...  the tests that take their time
cargo xtask mutants [--list] [--only FILE-SUBSTRING] [--limit SECONDS] [--output FILE]
                              weaken one ordering, drop one fence, exchange two statements: does a test notice?

--allow-missing   a missing tool is a warning, not a failure
--fail-fast       stop at the first failure";

/// What the command line says.
#[derive(Debug, Default)]
struct Asked {
    command: String,
    filters: Vec<String>,
    deep: bool,
    allow_missing: bool,
    fail_fast: bool,
    seeds: Option<u32>,
    mutants: mutants::Options,
}

impl Asked {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut asked =
            Self { command: args.next().unwrap_or_else(|| "help".to_owned()), ..Self::default() };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
            let number =
                |text: String| text.parse::<u32>().map_err(|_| format!("`{text}` is not a number"));
            match arg.as_str() {
                _ if asked.command == "peers" => asked.filters.push(arg),
                "--deep" => asked.deep = true,
                "--allow-missing" => asked.allow_missing = true,
                "--fail-fast" => asked.fail_fast = true,
                "--seeds" => asked.seeds = Some(number(value()?)?),
                "--list" => asked.mutants.list = true,
                "--only" => asked.mutants.only = Some(value()?),
                "--output" => asked.mutants.output = Some(PathBuf::from(value()?)),
                "--limit" => asked.mutants.limit = Some(number(value()?)?.into()),
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                _ => asked.filters.push(arg),
            }
        }
        Ok(asked)
    }

    /// A missing tool fails a check that was asked for; the everyday run only warns, if loudly.
    fn policy(&self) -> Policy {
        let everyday = self.command == "test" && !self.deep;
        Policy { allow_missing: self.allow_missing || everyday, fail_fast: self.fail_fast }
    }
}

fn say(line: std::fmt::Arguments<'_>) {
    #[cfg(not(test))]
    let _ = writeln!(std::io::stdout(), "{line}");
    #[cfg(test)]
    #[allow(clippy::print_stdout, reason = "the test harness captures it")]
    {
        println!("{line}");
    }
}

fn main() -> ExitCode {
    let text =
        |arg: std::ffi::OsString| arg.into_string().map_err(|arg| format!("{arg:?} is not UTF-8"));
    let args: Result<Vec<String>, String> = env::args_os().skip(1).map(text).collect();
    let asked = match args.and_then(|args| Asked::parse(args.into_iter())) {
        Ok(asked) if matches!(asked.command.as_str(), "help" | "--help" | "-h") => {
            say!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(asked) => asked,
        Err(error) => return misused(&error),
    };
    let mut run = Run::new(asked.policy());
    let (filters, seeds) = (&asked.filters, asked.seeds.unwrap_or(deep::SEEDS));
    match asked.command.as_str() {
        "test" => {
            test(&mut run);
            if asked.deep {
                deeply(&mut run, &asked);
            }
        }
        "tidy" => run.step("tidy", checks::tidy),
        "fmt" => run.step("fmt", checks::fmt),
        "clippy" => run.step("clippy", checks::clippy),
        "doc" => run.step("doc", checks::doc),
        "unit" => run.step("tests", checks::tests),
        "examples" => run.step("examples", checks::examples),
        "asm" => run.step("asm", assembly::check),
        "loom" => run.step("loom", |step| checks::loom(step, filters.first().map(String::as_str))),
        "peers" => run.step("peers", |step| checks::peers(step, filters)),
        "miri" => run.step("miri", |step| deep::miri(step, seeds, filters)),
        "tsan" => run.step("tsan", |step| deep::tsan(step, filters)),
        "msrv" => run.step("msrv", deep::msrv),
        "soak" => run.step("soak", |step| deep::soak(step, filters)),
        "mutants" => run.step("mutants", |step| deep::mutants(step, &asked.mutants)),
        unknown => return misused(&format!("unknown command {unknown}")),
    }
    run.finish()
}

/// What must pass before every commit, the quickest first.
fn test(run: &mut Run) {
    say!("checking {}", run.root().display());
    run.step("tidy", checks::tidy);
    run.step("fmt", checks::fmt);
    run.step("clippy", checks::clippy);
    run.step("doc", checks::doc);
    run.step("tests", checks::tests);
    run.step("peers", checks::peers_smoke);
    run.step("examples", checks::examples);
    run.step("asm", assembly::check);
    run.step("loom", |step| checks::loom(step, None));
}

/// What takes longer or needs more tools.
fn deeply(run: &mut Run, asked: &Asked) {
    run.step("msrv", deep::msrv);
    run.step("soak", |step| deep::soak(step, &[]));
    run.step("tsan", |step| deep::tsan(step, &[]));
    run.step("miri", |step| deep::miri(step, asked.seeds.unwrap_or(deep::SEEDS), &[]));
    run.step("mutants", |step| deep::mutants(step, &asked.mutants));
}

fn misused(error: &str) -> ExitCode {
    let _ = writeln!(stderr(), "{error}\n\n{USAGE}");
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, String> {
        Asked::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn command_lines_are_read() {
        let all = asked("mutants --only gating --list --limit 9 --output a.txt").unwrap();
        assert_eq!(
            (all.mutants.only.as_deref(), all.mutants.list, all.mutants.limit),
            (Some("gating"), true, Some(9))
        );
        assert_eq!(
            asked("miri --seeds 4 a b").map(|asked| (asked.seeds, asked.filters.len())),
            Ok((Some(4), 2))
        );
        let peers = asked("peers --full --json a.json round").unwrap();
        assert_eq!(peers.filters, ["--full", "--json", "a.json", "round"]);
        assert!(
            asked("miri --seeds x").is_err()
                && asked("miri --seeds").is_err()
                && asked("test --deeper").is_err()
        );
    }

    #[test]
    fn missing_tools_fail_what_was_asked_for() {
        let allowed = |line| asked(line).unwrap().policy().allow_missing;
        assert!(
            allowed("test")
                && allowed("test --deep --allow-missing")
                && allowed("miri --allow-missing")
        );
        assert!(!allowed("test --deep") && !allowed("miri") && !allowed("clippy"));
    }
}
