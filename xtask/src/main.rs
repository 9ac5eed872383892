//! The project's own checks: `cargo xtask test` before every commit, `cargo xtask test --deep`
//! before a release.
//!
//! The checks continue when standard output is closed or full (`| head`); the exit code tells their
//! outcome.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod assembly;
mod checks;
mod cli;
mod command;
mod contributing;
mod deep;
mod findings;
mod house;
mod instructions;
mod layout;
mod models;
mod mutants;
mod nats;
mod parts;
mod progress;
mod prose;
mod say;
mod source;
mod steps;
mod tidy;
mod workspace;

use std::{
    env,
    ffi::OsString,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use cli::{Cli, Command};
use house::crates::Crate;
use say::say;
use steps::CheckRun;

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
    let mut run = CheckRun::new(cli.policy());
    let Some(command) = cli.command else {
        let _ = write!(io::stdout(), "{}", Cli::help());
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
        Command::House(asked) => {
            let root = asked.root.as_deref().unwrap_or(run.root());
            return print_house(root, asked.krate.as_deref());
        }
        Command::Tidy => run.step("tidy", checks::tidy),
        Command::Paragraphs(draw) => {
            return print(prose::paragraphs(run.root(), draw.seed, draw.count), run.root());
        }
        Command::Claims(draw) => {
            return print(prose::claims(run.root(), draw.seed, draw.count), run.root());
        }
        Command::Fmt => run.step("fmt", checks::fmt),
        Command::Clippy => run.step("clippy", checks::clippy),
        Command::Doc => run.step("doc", checks::doc),
        Command::Unit => run.step("tests", checks::tests),
        Command::Contributing => run.step("contributing", contributing::check),
        Command::Examples => run.step("examples", checks::examples),
        Command::Asm => run.step("asm", assembly::check),
        Command::Instructions { renew } => {
            run.step("instructions", |step| instructions::check(step, *renew));
        }
        Command::Loom { filter } => {
            run.step("loom", |step| checks::loom(step, filter.as_slice()));
        }
        Command::Each { program, filters } => return models::run(program, filters),
        Command::Peers { args } => run.step("peers", |step| checks::peers(step, args)),
        Command::Simulated { args } => {
            run.step("simulated", |step| deep::simulated(step, args));
        }
        Command::Explore { args } => run.step("explore", |step| checks::explore(step, args)),
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

/// Prints the numbers of all crates in the checkout at `root`, or the map of one.
fn print_house(root: &Path, krate: Option<&str>) -> ExitCode {
    let text = match krate {
        Some(folder) => Crate::read(root, folder).map(|krate| house::map::draw(&krate)),
        None => Crate::all(root).map(|crates| house::count::draw(&crates)),
    };
    print(text, root)
}

/// Prints `text`, which was read from the checkout at `root`, or the error.
fn print(text: io::Result<String>, root: &Path) -> ExitCode {
    match text {
        Ok(text) => {
            say!("{}", text.trim_end());
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
fn test(run: &mut CheckRun) {
    say!("checking {}", run.root().display());
    run.step("tidy", checks::tidy);
    run.step("fmt", checks::fmt);
    run.step("clippy", checks::clippy);
    run.step("doc", checks::doc);
    run.step("tests", checks::tests);
    run.step("contributing", contributing::check);
    run.step("peers", checks::peers_smoke);
    run.step("examples", checks::examples);
    run.step("asm", assembly::check);
    run.step("instructions", |step| instructions::check(step, false));
    run.step("explored", checks::explored);
    run.step("loom", |step| checks::loom(step, &[]));
}

/// Runs the checks that take long or need more tools.
fn deeply(run: &mut CheckRun, asked: &cli::Test) {
    run.step("msrv", deep::msrv);
    run.step("soak", |step| deep::soak(step, &[]));
    run.step("tsan", |step| deep::tsan(step, &[]));
    run.step("simulated", |step| deep::simulated(step, &["--smoke".into()]));
    run.step("miri", |step| deep::miri(step, asked.seeds.seeds, &[]));
    run.step("mutants", |step| deep::mutants(step, &asked.mutants.options(false)));
}
