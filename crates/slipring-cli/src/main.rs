//! The command `slipring`: what it says of a machine is measured there. `slipring --help` tells the
//! rest.
//!
//! The exit code is 0 where everything was done, 1 where something failed, 2 where the arguments
//! are wrong. A reader of standard output that closes its pipe early (`| head`) is no failure: the
//! program saves what it was asked to save, stops, and exits with 0.
#![forbid(unsafe_code)]
// Both panic where the stream refuses a write; `console` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod console;
mod destination;
mod lab;
mod machine;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Experiments with slipring on this machine.
#[derive(Debug, Parser)]
#[command(name = "slipring", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What it can do.
#[derive(Debug, Subcommand)]
enum Command {
    /// Measures on this machine what a choice costs and brings.
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) if error.is::<console::ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            console::print_error(&format!("slipring: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    match Cli::try_parse() {
        Ok(Cli { command: Command::Lab(lab) }) => lab.run().map(|()| ExitCode::SUCCESS),
        Err(answer) => {
            // Help and the version go to standard output and are results; a misuse goes to standard
            // error and has its exit code.
            let told = answer.print().and_then(|()| io::stdout().flush());
            if !answer.use_stderr() {
                console::printed(told)?;
            }
            Ok(u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from))
        }
    }
}
