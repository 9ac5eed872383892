//! `slipring top`: watches the segment of a ring, and says who waits for whom.
//!
//! `watch` looks at the segment repeatedly. `history` turns each look into a `view`, which has the
//! look's figures, their change since the previous look, and sentences from `notes`. `lines` prints
//! a view as text, and `screen` draws it. `terminal` runs the screen, and handles signals, the
//! terminal's state, and its `keys`.
//!
//! Invariants
//! - I1: each look opens the file and closes it again. So a removed segment is not kept open, and a
//!   segment that was created again is found.
//! - I2: only the first look can end the command with an error. A later look that fails is shown,
//!   and the command continues.

mod history;
mod keys;
mod lines;
mod notes;
mod screen;
#[cfg(test)]
mod screen_tests;
mod terminal;
#[cfg(test)]
mod terminal_tests;
mod view;
mod watch;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;

use crate::base::console;
use crate::segments::words;
use view::Look;
use watch::{Watch, next};

/// The help's paragraphs on the meaning of the columns.
const ABOUT_COLUMNS: &str = "\
Columns:
  position   events before it are released; for the producer: published
  lag        published events that the party has not released, and their share of
             the ring
  events/s   events per second since the previous look
  waiting    share of that time that its handles waited. Handles count a wait when
             it is over; a party that did not move, and had nothing to do, waited.
  asleep     threads that sleep until there is something to do
  state      alive, stopped, dead, free, orphan, held: see `slipring ls --help`
  waits for  the party for whose progress it waits now

  The figures of a running ring are of slightly different moments. A lag is never
  negative, and never more than the ring has slots. `ring full` is no guess: the
  ring was full at one moment of the look (behind a pool, it may have seemed so).

Keys on a terminal: q or Ctrl-C quits, space looks at once, the arrows scroll.
NO_COLOR in the environment turns colors off.

Exit code:
  0  ended by a key, by --count, or because the reader closed the pipe
  1  the segment NAME cannot be read; with --count: at the last look
  2  wrong arguments, or output that cannot be written";

/// Watches a ring between processes: positions, lags, rates, and who waits for whom
///
/// Looks at the segment once a second without attaching to it. No process waits for
/// this command, and it changes nothing. On a terminal it draws a screen; elsewhere
/// it prints a block of lines for each look.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_COLUMNS, verbatim_doc_comment)]
pub struct Args {
    /// The segment: a name, or a path with a slash
    name: OsString,
    /// Time between two looks, in seconds, from 0.01
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,
    /// End after N looks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print one JSON object for each look
    #[arg(long)]
    json: bool,
    /// Print lines, even on a terminal
    #[arg(long, conflicts_with = "json")]
    plain: bool,
}

/// Reads an interval in seconds.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    match seconds {
        0.01..=86_400.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("not from 0.01 to 86400 seconds".to_owned()),
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut watch = Watch::new(&args.name, args.interval, args.count.unwrap_or(u64::MAX));
    let first = watch.look().map_err(words::explain)?;
    let draws = !args.json && !args.plain && io::stdout().is_terminal();
    let last = if draws {
        terminal::run(&mut watch, first)?
    } else {
        print(&mut watch, first, args.json)?
    };
    // With `--count`, the exit code tells scripts whether the segment is still there.
    let gone = args.count.is_some() && last.result.is_err();
    Ok(if gone { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints each look, as JSON or as lines. Returns the last look.
fn print(watch: &mut Watch<'_>, first: Look, json: bool) -> Result<Look> {
    let mut look = first;
    let mut due = Instant::now();
    loop {
        console::print(&if json { lines::json(&look)? } else { lines::block(&look) })?;
        if watch.left == 0 {
            return Ok(look);
        }
        due = next(due, watch.interval);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        look = watch.look()?;
    }
}
