//! The project's own checks: `cargo xtask test` before every commit, `cargo xtask test --deep`
//! before a release.
//!
//! The checks go on when standard output is closed or full (`| head`); the exit code tells their
//! outcome.
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Prints a line as `println!` does, and ignores a closed or full standard output.
macro_rules! say {
    ($($line:tt)*) => { crate::say(format_args!($($line)*)) };
}

mod assembly;
mod checks;
mod cli;
mod command;
mod deep;
mod findings;
mod house;
mod layout;
mod models;
mod mutants;
mod nats;
mod parts;
mod progress;
mod source;
mod steps;
mod tidy;
mod workspace;

use std::{env, ffi::OsString, io::Write as _, path::Path, process::ExitCode};

use cli::{Cli, Command};
use steps::Run;

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
    let args: Vec<OsString> = env::args_os().collect();
    let cli = match Cli::read(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // A full disk or a closed pipe does not change the exit code.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let mut run = Run::new(cli.policy());
    let Some(command) = cli.command else {
        let _ = write!(std::io::stdout(), "{}", Cli::help());
        return ExitCode::SUCCESS;
    };
    match &command {
        Command::Test(asked) if !asked.names.is_empty() => {
            let index = match parts::Index::read(run.root()) {
                Ok(index) => index,
                Err(error) => return failed(&error.to_string(), ExitCode::FAILURE),
            };
            if let Err(error) = index.run(&mut run, &asked.names) {
                return failed(&error, ExitCode::from(2));
            }
        }
        Command::Test(asked) => {
            test(&mut run);
            if asked.deep {
                deeply(&mut run, asked);
            }
        }
        Command::Tidy(asked) if asked.map => {
            let root = asked.root.clone().unwrap_or_else(|| run.root().to_owned());
            return map(&root);
        }
        Command::Tidy(asked) if asked.update => {
            run.step("tidy", |step| Ok(tidy::examples::update(&step.root)?));
        }
        Command::Tidy(_) => run.step("tidy", checks::tidy),
        Command::Fmt => run.step("fmt", checks::fmt),
        Command::Clippy => run.step("clippy", checks::clippy),
        Command::Doc => run.step("doc", checks::doc),
        Command::Unit => run.step("tests", checks::tests),
        Command::Examples => run.step("examples", checks::examples),
        Command::Asm => run.step("asm", assembly::check),
        Command::Loom { filter } => {
            run.step("loom", |step| checks::loom(step, filter.as_slice()));
        }
        Command::Each { program, filters } => return models::run(program, filters),
        Command::Peers { args } => run.step("peers", |step| checks::peers(step, args)),
        Command::Nats { command } => {
            return match nats::run(command.as_ref()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&error.to_string(), ExitCode::FAILURE),
            };
        }
        Command::Miri { seeds, filters } => {
            run.step("miri", |step| deep::miri(step, seeds.seeds, filters));
        }
        Command::Tsan { filters } => run.step("tsan", |step| deep::tsan(step, filters)),
        Command::Msrv => run.step("msrv", deep::msrv),
        Command::Soak { filters } => run.step("soak", |step| deep::soak(step, filters)),
        Command::Mutants { list, options } => {
            run.step("mutants", |step| deep::mutants(step, &options.options(*list)));
        }
    }
    run.finish()
}

/// Prints the map of the library in the checkout at `root`.
fn map(root: &Path) -> ExitCode {
    match house::House::read(root) {
        Ok(house) => {
            say!("{}", house::map::draw(&house));
            ExitCode::SUCCESS
        }
        Err(error) => failed(&format!("{}: {error}", root.display()), ExitCode::FAILURE),
    }
}

/// Says why nothing was done.
fn failed(error: &str, code: ExitCode) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{error}");
    code
}

/// Runs the checks that must pass before every commit, the quickest first.
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
    run.step("loom", |step| checks::loom(step, &[]));
}

/// Runs the checks that take long or need more tools.
fn deeply(run: &mut Run, asked: &cli::Test) {
    run.step("msrv", deep::msrv);
    run.step("soak", |step| deep::soak(step, &[]));
    run.step("tsan", |step| deep::tsan(step, &[]));
    run.step("miri", |step| deep::miri(step, asked.seeds.seeds, &[]));
    run.step("mutants", |step| deep::mutants(step, &asked.mutants.options(false)));
}
