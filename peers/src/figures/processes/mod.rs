//! Compares slipring between processes with slipring between threads, with pipes, sockets, iceoryx2
//! and Aeron, and with hand-made limits in a shared mapping.
//!
//! A run starts this program once for each role, writer and reader, and gives each process a core
//! of its own, as it does with threads. To measure threads, one process plays the same roles with
//! the same code, each on a thread.
//!
//! Before the timed events, all pages are touched, and a lap of the ring passes untimed. The reader
//! checks the order and the sum of the events. A stream ends when the writer sees in shared memory
//! that the reader has finished.

mod death;
mod ends;
mod links;
mod mapping;
mod run;
mod sleeper;
mod task;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use self::mapping::Control;
use self::run::{Folder, Roles};
use self::task::{Fate, Role, RoleResult, Task, Work, own_task};
use super::one_by_one::events;
use crate::contenders::StreamSpec;
use crate::contenders::foreign::{self, Programs};
use crate::measure::{Contender, ContenderKind, Figure, Size, Values};
use crate::work::{amount, baseline, steps_for};

/// If the measuring process has started this process to play a role, plays the role and returns the
/// exit code.
pub fn play_role() -> Option<ExitCode> {
    let task = own_task()?;
    match task.and_then(|task| play(&task)) {
        Ok(values) => {
            let said = writeln!(io::stdout(), "{}", run::render(&values));
            Some(if said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "peers: {error}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn play(task: &Task) -> RoleResult<Values> {
    task::bind_to_parent(task)?;
    match task.role {
        Role::Threads => play_threads(task),
        _ => match task.work {
            Work::Death { .. } => death::play(task),
            Work::Sleeper { .. } => sleeper::play(task),
            _ => play_one(task),
        },
    }
}

/// Stack size of a thread that makes rings, in bytes. The stack is large because it holds each
/// slot, of up to a megabyte, while the slot is built.
const STACK: usize = 64 << 20;

/// Plays all roles of a run, each on a thread. A role that fails ends the process, and with it all
/// other roles.
fn play_threads(task: &Task) -> RoleResult<Values> {
    let ends = links::ends(&task.link, task.bytes).ok_or("no such link")?;
    thread::scope(|scope| {
        let prepare = || (ends.prepare)(task).map_err(|error| error.to_string());
        let prepared = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, prepare)?;
        Ok::<_, Box<dyn std::error::Error>>(prepared.join().map_err(|_| "no ring")??)
    })?;
    let play = |&role: &Role| {
        let task = Task { role, ..task.clone() };
        move || {
            play_one(&task).unwrap_or_else(|error| {
                let _ = writeln!(io::stderr(), "peers: {error}");
                std::process::exit(1)
            })
        }
    };
    thread::scope(|scope| {
        let threads = task.work.roles().iter().map(|role| scope.spawn(play(role)));
        let threads: Vec<_> = threads.collect();
        let mut values = Values::new();
        for thread in threads {
            values.extend(thread.join().map_err(|_| "a role panicked")?);
        }
        Ok(values)
    })
}

fn play_one(task: &Task) -> RoleResult<Values> {
    let ends = links::ends(&task.link, task.bytes);
    (ends.ok_or_else(|| format!("no link {} for {} bytes", task.link, task.bytes))?.play)(task)
}

/// Default time within which a segment notices a dead process, in milliseconds.
const NOTICE_MS: u64 = 20;

/// Runs one contender once, in a process for each role.
fn measure(link: &str, bytes: usize, work: Work, notice_ms: u64) -> Result<Values, String> {
    measure_in(work.roles(), link, bytes, work, notice_ms)
}

/// Runs one contender once, in a process for each of these roles.
fn measure_in(
    roles: &[Role],
    link: &str,
    bytes: usize,
    work: Work,
    notice_ms: u64,
) -> Result<Values, String> {
    let folder = Folder::new().map_err(|error| format!("a folder in shared memory: {error}"))?;
    let task = Task {
        role: Role::Writer,
        link: link.to_owned(),
        bytes,
        work,
        notice_ms,
        folder: folder.path().to_owned(),
        parent: std::process::id(),
    };
    Control::create(folder.path()).map_err(|error| error.to_string())?;
    match work {
        Work::Death { .. } => return death::run(&task, &folder),
        Work::Sleeper { .. } => return sleeper::run(&task, &folder),
        _ => {}
    }
    let ends = links::ends(link, bytes).ok_or("no such link")?;
    (ends.make)(&task).map_err(|error| error.to_string())?;
    Roles::start(&task, roles)?.finish(&[])
}

/// A contender's kind, its name in tables, and its name in [`links::ends`].
type Row = (ContenderKind, &'static str, &'static str);

const STREAMS: [Row; 5] = [
    (ContenderKind::Ours, "slipring, two processes", "slipring"),
    (ContenderKind::Limit, "limit in a shared mapping", "ring"),
    (ContenderKind::Peer, "iceoryx2", "iceoryx2"),
    (ContenderKind::Peer, "pipe", "pipe"),
    (ContenderKind::Peer, "Unix socket", "socket"),
];

const BATCHES: [Row; 5] = [
    STREAMS[0],
    STREAMS[1],
    (ContenderKind::Peer, "iceoryx2, a slice for each batch", "iceoryx2 slices"),
    STREAMS[3],
    STREAMS[4],
];

const ROUND_TRIPS: [Row; 5] = [
    STREAMS[0],
    (ContenderKind::Limit, "raw atomics in a shared mapping", "word"),
    STREAMS[2],
    STREAMS[3],
    STREAMS[4],
];

const WAKES: [Row; 5] = [
    (ContenderKind::Ours, "slipring, blocking", "slipring blocking"),
    (ContenderKind::Limit, "futex in a shared mapping", "futex"),
    (ContenderKind::Peer, "iceoryx2 with notifications", "iceoryx2 notified"),
    STREAMS[3],
    STREAMS[4],
];

/// Makes contenders that do the same work between two processes.
fn between(rows: &[Row], bytes: usize, work: Work) -> Vec<Contender> {
    let contender = |&(kind, name, link): &Row| {
        Contender::fallible(kind, name, move || measure(link, bytes, work, NOTICE_MS))
    };
    rows.iter().map(contender).collect()
}

/// Makes contenders of slipring whose roles are threads of one process.
fn within(rows: &[(&'static str, &'static str)], bytes: usize, work: Work) -> Vec<Contender> {
    let contender = |&(name, link)| {
        Contender::fallible(ContenderKind::Ours, name, move || {
            measure_in(&[Role::Threads], link, bytes, work, NOTICE_MS)
        })
    };
    rows.iter().map(contender).collect()
}

/// The contenders whose roles are threads: for each its name in tables, and its name in
/// [`links::ends`].
const THREADS: [(&str, &str); 2] =
    [("slipring, two threads", "heap"), ("slipring, two threads on a segment", "slipring")];

/// Returns the figures of rings between processes.
pub fn figures(size: Size, programs: &Programs) -> Vec<Figure> {
    let one_by_one = |nanos| one_by_one(size, nanos, programs);
    let mut figures: Vec<Figure> = [0, 10, 20, 40].map(one_by_one).into();
    figures.extend([10, 100].map(|batch| batches(size, batch)));
    figures.extend([round_trip(size, programs), wake(size), kilobytes(size), megabytes(size)]);
    figures.extend(several(size));
    figures.extend(notices(size));
    figures.push(dead_sleeper(size));
    figures.push(death());
    figures
}

fn figure(table: &str, column: &str, contenders: Vec<Contender>) -> Figure {
    let (table, column) = (format!("between processes: {table}"), column.to_owned());
    Figure { table, column, baseline: None, contenders }
}

/// Returns the contenders of a stream: those between threads, then those between processes.
fn streams(bytes: usize, rows: &[Row], spec: StreamSpec) -> Vec<Contender> {
    let mut contenders = within(&THREADS, bytes, Work::Stream(spec));
    contenders.extend(between(rows, bytes, Work::Stream(spec)));
    contenders
}

fn one_by_one(size: Size, nanos: u32, programs: &Programs) -> Figure {
    let events = events(size, nanos);
    let spec = StreamSpec { ring: 1024, events, batch: 1, steps: steps_for(nanos) };
    let contenders = streams(8, &STREAMS, spec);
    let mut figure = figure("one by one, 8 bytes, ring 1024", &amount(nanos), contenders);
    let work = foreign::Work::Stream(spec);
    figure.contenders.extend(programs.between_processes(nanos != 0, work));
    figure.baseline = baseline(nanos, events);
    figure
}

fn batches(size: Size, batch: u64) -> Figure {
    let events = size.pick(20_000, 500_000, 1_000_000);
    let spec = StreamSpec { ring: 1024, events, batch, steps: 0 };
    let column = format!("batches of {batch}");
    figure("batches, 8 bytes, ring 1024", &column, streams(8, &BATCHES, spec))
}

fn kilobytes(size: Size) -> Figure {
    let events = size.pick(2_000, 30_000, 100_000);
    let spec = StreamSpec { ring: 1024, events, batch: 1, steps: 0 };
    let contenders = streams(1024, &STREAMS, spec);
    figure("large events, written and summed", "1 KiB, ring 1024", contenders)
}

fn megabytes(size: Size) -> Figure {
    let events = size.pick(20, 200, 1_000);
    let spec = StreamSpec { ring: 8, events, batch: 1, steps: 0 };
    let contenders = streams(1_048_576, &STREAMS, spec);
    figure("large events, written and summed", "1 MiB, ring 8", contenders)
}

fn round_trip(size: Size, programs: &Programs) -> Figure {
    let rounds = size.pick(500, 10_000, 30_000);
    let mut contenders = within(&THREADS, 8, Work::RoundTrip { rounds });
    contenders.extend(between(&ROUND_TRIPS, 8, Work::RoundTrip { rounds }));
    // An event that arrives during a spin hint waits until the hint ends, and a hint lasts a
    // noticeable part of a round trip. So these contenders poll without hints.
    let unpaused = [
        ("slipring, two threads, no spin hints", "polling on the heap"),
        ("slipring, two threads on a segment, no spin hints", "polling"),
    ];
    contenders.extend(within(&unpaused, 8, Work::RoundTrip { rounds }));
    let row = (ContenderKind::Ours, "slipring, two processes, no spin hints", "polling");
    contenders.extend(between(&[row], 8, Work::RoundTrip { rounds }));
    contenders.extend(programs.between_processes(false, foreign::Work::RoundTrip { rounds }));
    figure("round trip, 8 bytes", "ns", contenders)
}

/// Returns the figures of handles for several producers: one producer with a core of its own, and
/// two producers and a reader on two cores.
fn several(size: Size) -> [Figure; 2] {
    let column = |name, places: [&'static str; 3], work| {
        let [heap, segment, processes] = places;
        let mut contenders =
            within(&[(heap, "several on the heap"), (segment, "several")], 8, work);
        contenders.extend(between(&[(ContenderKind::Ours, processes, "several")], 8, work));
        figure("handles for several producers, ring 1024", name, contenders)
    };
    let two = ["slipring, two threads", "slipring, two threads on a segment", STREAMS[0].1];
    let three = [
        "slipring, three threads",
        "slipring, three threads on a segment",
        "slipring, three processes",
    ];
    let spec = StreamSpec { ring: 1024, events: events(size, 0), batch: 1, steps: 0 };
    [
        column("one producer", two, Work::Stream(spec)),
        column("two producers, yielding, two cores", three, Work::FanIn(spec)),
    ]
}

/// Returns the figure of a wake: the time from before the sending call until a sleeping reader has
/// the event.
fn wake(size: Size) -> Figure {
    let rounds = size.pick(50, 1_000, 3_000);
    figure("wake of a sleeping reader", "ns", between(&WAKES, 8, Work::Wake { rounds }))
}

/// Returns the figures for the cost of checks for deaths: nanoseconds per event for a busy ring,
/// and processor time per second for a sleeping reader.
fn notices(size: Size) -> [Figure; 2] {
    let stream = StreamSpec { ring: 1024, events: events(size, 0), batch: 1, steps: 0 };
    let idle = Work::Idle { time: Duration::from_millis(size.pick(100, 1_000, 3_000)) };
    let column = |name, link: &'static str, work| {
        let contender = |notice_ms| {
            let name = format!("slipring, notice {notice_ms} ms");
            Contender::fallible(ContenderKind::Ours, name, move || {
                measure(link, 8, work, notice_ms)
            })
        };
        figure("checks for deaths", name, [1, NOTICE_MS, 1_000].map(contender).into())
    };
    [
        column("busy ring, ns per event", "slipring", Work::Stream(stream)),
        column("idle reader, ns per s", "slipring blocking", idle),
    ]
}

/// Returns the figure of a stream that begins after a tap's sleeping reader was killed or has left.
fn dead_sleeper(size: Size) -> Figure {
    let spec = StreamSpec { ring: 1024, events: events(size, 0), batch: 1, steps: 0 };
    let contender = |(name, fate, notice_ms)| {
        let work = Work::Sleeper { spec, fate };
        Contender::fallible(ContenderKind::Ours, name, move || {
            measure("slipring", 8, work, notice_ms)
        })
    };
    let all = [
        ("slipring, a tap's reader left", Fate::Leaves, NOTICE_MS),
        ("slipring, a tap's reader was killed, notice 1 ms", Fate::Killed, 1),
        ("slipring, a tap's reader was killed, notice 20 ms", Fate::Killed, NOTICE_MS),
    ];
    let column = format!("{} events, ns per event", spec.all());
    figure("a dead sleeper, one by one, ring 1024", &column, all.map(contender).into())
}

/// Returns the figure of a reader that is killed while the writer waits for it.
fn death() -> Figure {
    let all = [
        (ContenderKind::Ours, "slipring told, notice 1 ms", "slipring", 1, false),
        (ContenderKind::Ours, "slipring told, notice 20 ms", "slipring", 20, false),
        (ContenderKind::Ours, "slipring with a successor, notice 1 ms", "slipring", 1, true),
        (ContenderKind::Ours, "slipring with a successor, notice 20 ms", "slipring", 20, true),
        (ContenderKind::Peer, "iceoryx2", "iceoryx2", 20, false),
        (ContenderKind::Peer, "pipe", "pipe", 20, false),
        (ContenderKind::Peer, "Unix socket", "socket", 20, false),
    ];
    let contenders = all.map(|(kind, name, link, notice_ms, successor)| {
        let name = if link == "iceoryx2" { given_up(death::PATIENCE) } else { name.to_owned() };
        let work = Work::Death { successor };
        Contender::fallible(kind, name, move || measure(link, 8, work, notice_ms))
    });
    figure("a killed reader, until the writer's call returns", "ns", contenders.into())
}

/// Returns the name of a contender whose call would wait forever. The figure gives that contender
/// up after `patience`.
fn given_up(patience: Duration) -> String {
    format!("iceoryx2, given up after {} s", patience.as_secs())
}
