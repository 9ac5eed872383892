//! The command `slipring`, which measures the library on the machine that it runs on. `slipring
//! --help` describes its arguments.
//!
//! The exit code is 0 for success, 1 for a failure, and 2 for wrong arguments. A reader of standard
//! output that closes its pipe early (`| head`) is no failure: the program saves the files that it
//! was asked for, stops, and exits with 0.
#![forbid(unsafe_code)]
// Both macros panic where the stream refuses a write; `console` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod console;
mod destination;
mod lab;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Measures slipring on this machine.
#[derive(Debug, Parser)]
#[command(name = "slipring", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The program's commands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Measures on this machine the costs and benefits of a choice
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) if error.is::<console::StdoutClosed>() => ExitCode::SUCCESS,
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
            // Help and version are results and go to standard output. Wrong arguments go to
            // standard error and set the exit code.
            let written = answer.print().and_then(|()| io::stdout().flush());
            if !answer.use_stderr() {
                console::stdout_result(written)?;
            }
            Ok(u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from))
        }
    }
}
