//! The command `slipring`: what it says of a machine is measured there. `slipring --help` tells the rest.
#![forbid(unsafe_code)]

mod lab;
mod machine;

use std::process::ExitCode;

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
    let Command::Lab(lab) = Cli::parse().command;
    match lab.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slipring: {error:#}");
            ExitCode::FAILURE
        }
    }
}
