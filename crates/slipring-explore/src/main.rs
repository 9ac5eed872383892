//! Random programs on the library, under random schedules: `cargo xtask explore` starts it.
//!
//! A *program* is plain data: graphs, and threads that use them (`program.rs`). A *schedule*
//! decides which thread makes the next access, when stores become visible, and which sleeps end
//! early ([`Schedule`](slipring_coherence::Schedule)). Both follow from a seed, so each run can be
//! repeated. An *oracle* that knows the library's promises checks the run (`oracle.rs`). A run that
//! fails is made smaller (`shrink.rs`), and becomes a line of a file of cases (`case.rs`).

mod bytes;
mod case;
mod content;
mod event;
mod explore;
mod generate;
mod hunt;
mod oracle;
mod plan;
mod play;
mod program;
mod segment;
mod shape;
mod shrink;
mod twins;
mod watch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use std::{fs, io};

use clap::Parser;

use case::Case;
use explore::Search;
use shape::Shape;
use twins::Twin;

/// Gives each allocation lines of its own while a simulation runs.
#[global_allocator]
static LINES: slipring_coherence::Lines = slipring_coherence::Lines;

/// Runs random programs under random schedules, and checks what the library promises.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask explore", bin_name = "cargo xtask explore")]
#[command(disable_version_flag = true)]
struct Options {
    /// How long to explore; with `--twins`, how long for each.
    #[arg(default_value_t = 60)]
    seconds: u64,
    /// Run the program of this seed alone, and show its last accesses if it fails.
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    /// Explore from this seed on, in place of one by the clock.
    #[arg(long, value_parser = seed, conflicts_with = "seed")]
    from: Option<u64>,
    /// Stop after so many programs.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    programs: u64,
    /// Only programs of this family: handles, handlers, visitors, disrupted, rings, processes,
    /// contents, closing, bare, pools or taps.
    #[arg(long, value_parser = family)]
    shape: Option<Shape>,
    /// Plant this defect, and look for a program that fails with it. Half of the schedules hold
    /// threads, or end their processes, just where the defect is.
    #[arg(long, value_parser = twin)]
    twin: Option<Twin>,
    /// Number of programs at a time; as many as there are cores by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Run the cases of a file instead, each under so many schedules. A case with a twin has to
    /// fail under one of them, any other has to hold under all.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "from", "twin"])]
    cases: Option<PathBuf>,
    /// Number of schedules for each case.
    #[arg(long, default_value_t = 200, requires = "cases")]
    schedules: u64,
    /// Hunt for each twin that is no ordering, or whose name contains one of these texts, and print
    /// whether a program fails with it.
    #[arg(long, value_name = "TEXT", num_args = 0.., conflicts_with_all = ["seed", "from", "twin", "cases"])]
    twins: Option<Vec<String>>,
    /// Write the cases of `--twins` to this file, or those of `--cases` with the schedules under
    /// which they fail now.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("a seed is a whole number from 0 to {}", u64::MAX))
}

fn family(text: &str) -> Result<Shape, String> {
    let named = Shape::ALL.into_iter().find(|shape| shape.name() == text);
    named.ok_or_else(|| {
        let names = Shape::ALL.map(Shape::name).join(", ");
        format!("no family of programs has this name; there are {names}")
    })
}

fn twin(text: &str) -> Result<Twin, String> {
    if let Some(twin) = twins::all().find(|twin| twin.name == text) {
        return Ok(twin);
    }
    let names: Vec<&str> = twins::all().map(|twin| twin.name).collect();
    let parts: Vec<&str> = text.split('-').collect();
    let alike = |name: &&&str| name.split('-').any(|part| parts.contains(&part));
    let near: Vec<&str> = names.iter().filter(alike).copied().collect();
    Err(match near.is_empty() {
        true => format!("no twin has this name; there are {}", names.join(", ")),
        false => format!("no twin has this name; similar ones are {}", near.join(", ")),
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    // The programs' own panics are no news.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !slipring_coherence::is_simulating() {
            hook(info);
        }
    }));
    slipring::waiting::on_warning(|_| ());
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Writes cases to the file that the options name, if they do.
fn keep(options: &Options, cases: Vec<u8>) -> Result<(), String> {
    let Some(path) = &options.write else { return Ok(()) };
    fs::write(path, cases).map_err(|e| format!("{}: {e}", path.display()))
}

/// Does what the options say. Returns whether it came out well.
fn run(options: &Options) -> Result<bool, Box<dyn std::error::Error>> {
    // A closed pipe or a full disk does not change the outcome.
    let out = &mut io::stdout();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = options.threads.unwrap_or(cores);
    let time = Duration::from_secs(options.seconds);
    if let Some(path) = &options.cases {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let cases = Case::all(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut kept = Vec::new();
        let all = case::run_all(&cases, options.schedules, out, &mut kept);
        keep(options, kept)?;
        return Ok(all);
    }
    if let Some(filters) = &options.twins {
        let mut cases = Vec::new();
        let all = hunt::hunt(filters, options.shape, time, threads, out, &mut cases)?;
        keep(options, cases)?;
        return Ok(all);
    }
    let clock = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // The seeds of two runs that begin a second apart differ.
    let first = options.from.unwrap_or_else(|| clock().map_or(0, |time| time.as_secs() << 20));
    let Options { shape, twin, programs, .. } = *options;
    let search = Search { shape, twin, first, programs, time, threads };
    Ok(match options.seed {
        Some(seed) => search.replay(seed, out),
        None => search.run(out).map(|case| case.twin) == twin.map(Some),
    })
}
