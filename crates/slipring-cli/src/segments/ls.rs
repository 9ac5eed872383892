//! `slipring ls`: lists the segments in shared memory, their places, and the processes at these
//! places.
//!
//! The command copies words and probes locks. It maps nothing, locks nothing, and disturbs no
//! process.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use slipring_shm::{
    OnDeath,
    summaries::{Liveness, ParticipantSummary, SeatSummary, StageSummary, Summary},
};

use super::words::{self, ending, name, process, state};
use crate::base::console;

/// The help's paragraphs on the meaning of the columns.
const ABOUT_COLUMNS: &str = "\
Columns:
  position  events before it are released; for the producer: published
  lag       published events that the stage has not released
  state     alive    the process runs, or could
            stopped  alive, but stopped by a signal or a debugger
            dead     proven by a lock; the next process takes the place over
            free     no process has the place; the others wait for the next one
            orphan   a worker of a pool left it, or died, with events that it had
                     not released; another worker of the pool takes them over
            held     a process that the segment does not name holds the lock
            unread   events that a dead reader of a tap had not read
  deaths    processes that died at this place

  The figures of a running ring are of slightly different moments. A segment is
  stale while no process is attached; it keeps all events until it is removed.

Exit code:
  0  listed, also if some segments cannot be read, which are lines of their own
  1  the segment NAME or the folder cannot be read
  2  wrong arguments";

/// Lists rings between processes, their places, and the processes there
///
/// Reads segments of shared memory without attaching to them. No process waits for
/// this command, and it changes nothing.
#[derive(Debug, Parser)]
#[command(after_long_help = ABOUT_COLUMNS, verbatim_doc_comment)]
pub struct Args {
    /// Show this segment in detail: a name, or a path with a slash
    name: Option<OsString>,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let Some(name) = &args.name else {
        let mut parts = Vec::new();
        for segment in slipring_shm::list()? {
            parts.push(match segment {
                Ok(summary) => short(&summary),
                // The error takes one line, even if the system's message has more.
                Err(error) => error.to_string().replace('\n', " ") + "\n",
            });
        }
        if parts.is_empty() {
            parts.push("there are no segments in /dev/shm\n".into());
        }
        return console::print(&parts.join("\n"));
    };
    console::print(&detailed(&words::inspect(name).map_err(words::explain)?))
}

/// Renders a table without lines, indented by two. The columns in `right` are aligned to the right.
fn table(header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table.add_rows(rows);
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("  {}\n", line.trim_end())).collect()
}

/// Returns the time that has passed since `since`, which counts from 1970, in words.
fn age(since: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} ago", HumanDuration(now.saturating_sub(since)))
}

/// Returns the process that has a place, its state, and the number of processes that have died
/// there.
fn owner(summary: &Summary, seat: &SeatSummary) -> [String; 3] {
    let participant = words::occupant(summary, seat);
    let dead = participant.is_some_and(|participant| participant.liveness == Liveness::Dead);
    let deaths = seat.deaths.saturating_add(dead.into());
    [
        participant.map_or_else(|| "-".into(), process),
        words::seat_state(summary, seat).into(),
        deaths.to_string(),
    ]
}

/// Returns the rows of the producer and of the stages.
fn places(summary: &Summary) -> Vec<Vec<String>> {
    let rows = |[name, position, lag]: [String; 3], seats: &[SeatSummary]| -> Vec<Vec<String>> {
        let row = |(number, seat): (usize, &SeatSummary)| {
            let place = match seats.len() {
                1 => [name.clone(), position.clone(), lag.clone()],
                _ if number == 0 => [format!("{name} 1"), position.clone(), lag.clone()],
                _ => [format!("{name} {}", number + 1), String::new(), String::new()],
            };
            [place, owner(summary, seat)].concat()
        };
        seats.iter().enumerate().map(row).collect()
    };
    let producer = ["producer".into(), summary.published.to_string(), String::new()];
    let mut places = rows(producer, &summary.producer_seats);
    for stage in &summary.stages {
        if stage.delivery == "tap" {
            places.extend(members(summary, stage));
            continue;
        }
        let place = [stage.name.clone(), stage.position.to_string(), stage.lag.to_string()];
        places.extend(match stage.delivery == "shards" {
            true => shards(summary, stage),
            false => rows(place, &stage.seats),
        });
    }
    places
}

/// Returns the rows of a stage with shards, a row for each shard.
fn shards(summary: &Summary, stage: &StageSummary) -> Vec<Vec<String>> {
    let row = |(place, seat): (usize, &SeatSummary)| {
        let position = seat.position.unwrap_or(stage.position);
        let name = format!("{} {}", stage.name, words::place_number(Some(stage), place));
        let place = [name, position.to_string(), words::lag(summary, position).to_string()];
        [place, owner(summary, seat)].concat()
    };
    (1..).zip(&stage.seats).map(row).collect()
}

/// Returns the rows of a tap: its own, and a row for each place where a reader is or has died.
fn members(summary: &Summary, tap: &StageSummary) -> Vec<Vec<String>> {
    let lag = |position: u64| words::lag(summary, position).to_string();
    let taken = tap.seats.iter().filter(|seat| seat.participant.is_some()).count();
    let readers = format!("{taken} of {} readers", tap.room);
    let own = [tap.name.clone(), tap.position.to_string(), tap.lag.to_string()];
    let mut rows = vec![[&own[..], &[readers, String::new(), String::new()]].concat()];
    for (number, seat) in (1..).zip(&tap.seats) {
        if seat.participant.is_some() || seat.deaths != 0 {
            let position = seat.position.map_or_else(String::new, |position| position.to_string());
            let place = [format!("{} {number}", tap.name), position];
            let lag = seat.position.map_or_else(String::new, lag);
            let mut owner = owner(summary, seat);
            if seat.unread != 0 && seat.participant.is_none() {
                owner[1] = format!("free, {} unread", seat.unread);
            }
            rows.push([&place[..], &[lag], &owner[..]].concat());
        }
    }
    rows
}

const PLACES: [&str; 6] = ["place", "position", "lag", "process", "state", "deaths"];
/// Columns of [`PLACES`] with numbers.
const NUMBERS: [usize; 3] = [1, 2, 5];

/// Describes a segment in a few lines.
fn short(summary: &Summary) -> String {
    let Summary { type_name, type_version, capacity, length, created, .. } = summary;
    let mut text = format!(
        "{}: {type_name} v{type_version}, {} slots, {}, made {}{}{}\n",
        name(summary),
        HumanCount(*capacity),
        BinaryBytes(*length),
        age(*created),
        ending(summary).map_or_else(String::new, |ending| format!("; {ending}")),
        if summary.stale { "; stale: no process is attached" } else { "" }
    );
    text += &table(&PLACES, &places(summary), &NUMBERS);
    text
}

fn effect(on_death: OnDeath) -> &'static str {
    match on_death {
        OnDeath::Wait => "wait",
        OnDeath::Tell => "tell",
        OnDeath::Fail => "fail",
        OnDeath::Close => "close",
    }
}

/// Describes a segment in detail.
fn detailed(summary: &Summary) -> String {
    let mut text = short(summary);
    let _ = writeln!(
        text,
        "\n  file {}; an event has {} bytes; deaths are noticed within {:?}",
        summary.path.display(),
        HumanCount(summary.event_size),
        summary.notice
    );

    let mut rows = Vec::new();
    if !summary.producer_seats.is_empty() {
        let effect = effect(summary.producer_on_death).into();
        rows.push(vec![
            "producer".into(),
            "publishes".into(),
            String::new(),
            effect,
            String::new(),
        ]);
    }
    for stage in &summary.stages {
        let after = if stage.after.is_empty() { "producer".into() } else { stage.after.join(", ") };
        let again = match stage.held == stage.position {
            true => "-".into(),
            false => format!("{}..{}", stage.position, stage.held),
        };
        let access = if stage.writes { "updates" } else { "reads" }.into();
        let effect = effect(stage.on_death).into();
        rows.push(vec![stage.name.clone(), access, after, effect, again]);
    }
    text.push('\n');
    text += &table(&["place", "access", "after", "on death", "lent, not released"], &rows, &[]);

    let _ = writeln!(
        text,
        "\n  {} of {} participants",
        summary.participants.len(),
        HumanCount(summary.places.into())
    );
    let row = |participant: &ParticipantSummary| {
        let ParticipantSummary { number, pid, uid, name, joined, .. } = participant;
        let [number, pid, uid] = [number, pid, uid].map(|number| number.to_string());
        vec![number, name.clone(), pid, uid, age(*joined), state(participant).into()]
    };
    let rows: Vec<_> = summary.participants.iter().map(row).collect();
    if !rows.is_empty() {
        let header = ["number", "name", "pid", "user", "attached", "state"];
        text += &table(&header, &rows, &[0, 2, 3]);
    }
    text
}
