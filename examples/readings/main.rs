//! Hourly rows of weather stations, checked for readings that are out of the ordinary: on one
//! thread, on an executor, and on a ring. `cargo run --release --example readings -- --help` tells
//! the rest.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use slipring_examples::readings::{self, Args};

fn main() -> ExitCode {
    let args = Args::parse();
    let bar = io::stderr().is_terminal();
    match readings::run(&args, &mut io::stdout().lock(), &mut io::stderr(), bar) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`, which panics where standard error is closed or full.
            let _ = writeln!(io::stderr(), "readings: {error:#}");
            ExitCode::FAILURE
        }
    }
}
