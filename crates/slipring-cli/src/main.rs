//! The command `slipring`, which shows rings between processes, and measures the library on the
//! machine that it runs on. `slipring --help` describes its arguments.
//!
//! The exit code is 0 for success, 1 for a failure, 2 for wrong arguments and for output that
//! cannot be written, and 130 for a measurement that Ctrl-C ended (`base/exit.rs`). A reader that
//! closes the pipe of printed tables early (`| head`) is no failure: the program still saves the
//! files that it was asked for, and exits with 0. A reader that closes the pipe of such a file
//! (`--json - | head`) is a failure.
// Only the tests need unsafe code, to attach to segments of their own.
#![cfg_attr(not(test), forbid(unsafe_code))]
// Both macros panic when the stream refuses a write; `base::console` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod base;
mod lab;
mod machine;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod segments;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod top;
mod tune;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use base::{console, exit};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use segments::{evict, ls, rm};

/// Outside of a simulation (`lab scaling --simulate`), this is the system's allocator. Within one,
/// each allocation has cache lines of its own, so that the simulator's counts are repeatable.
#[global_allocator]
static ALLOCATOR: slipring_coherence::Lines = slipring_coherence::Lines;

/// Shows rings between processes, and measures slipring on this machine.
#[derive(Debug, Parser)]
#[command(name = "slipring", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The program's commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Measures what a design choice costs and gains on this machine
    #[command(subcommand)]
    Lab(lab::Lab),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Evict(evict::Args),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Ls(ls::Args),
    Machine(machine::Args),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Rm(rm::Args),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Top(top::Args),
    Tune(tune::Args),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) if error.is::<console::StdoutClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            console::print_error(&format!("slipring: {error:#}\n"));
            ExitCode::from(exit::code(&error))
        }
    }
}

fn run() -> Result<ExitCode> {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Lab(lab) }) => lab.run().map(|()| ExitCode::SUCCESS),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Ok(Cli { command: Command::Evict(args) }) => evict::run(&args).map(|()| ExitCode::SUCCESS),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Ok(Cli { command: Command::Ls(args) }) => ls::run(&args).map(|()| ExitCode::SUCCESS),
        Ok(Cli { command: Command::Machine(args) }) => {
            machine::run(&args).map(|()| ExitCode::SUCCESS)
        }
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Ok(Cli { command: Command::Rm(args) }) => rm::run(&args),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Ok(Cli { command: Command::Top(args) }) => top::run(&args),
        Ok(Cli { command: Command::Tune(args) }) => tune::run(&args).map(|()| ExitCode::SUCCESS),
        Err(answer) => match answer.kind() {
            // Help and version are results and go to standard output.
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                let written = answer.print().and_then(|()| io::stdout().flush());
                console::stdout_result(written).map(|()| ExitCode::SUCCESS)
            }
            // Without a command, the program prints its help, which says what to do.
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                console::print_error(&answer.render().to_string());
                Ok(ExitCode::from(exit::USAGE))
            }
            _ => Err(exit::refused(&answer)),
        },
    }
}
