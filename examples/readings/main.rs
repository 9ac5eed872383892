//! Finds weather readings that are out of the ordinary: on one thread, on an executor, and on a
//! ring. `cargo run --release --example readings -- --help` describes the arguments.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use slipring_examples::readings::{self, Args};
use slipring_support::streams::stdout_width;

fn main() -> ExitCode {
    let args = Args::parse();
    let (bar, width) = (io::stderr().is_terminal(), stdout_width());
    match readings::run(&args, &mut io::stdout().lock(), &mut io::stderr(), bar, width) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // `eprintln!` would panic where standard error is closed or full.
            let _ = writeln!(io::stderr(), "readings: {error:#}");
            ExitCode::FAILURE
        }
    }
}
