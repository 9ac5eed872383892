//! Looking for a case for each twin: a program that fails with the planted defect.
//!
//! - I1: Each twin is planted in a process of its own, because some end the process: they free
//!   memory twice, or use it afterwards.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::shape::Shape;
use crate::twins::{self, Twin};

/// How much longer than its time a process may take: to make a case smaller, or because memory that
/// is used after it was freed holds it up.
const STUCK: Duration = Duration::from_secs(60);

/// The outcome of a hunt for one twin.
struct Hunted {
    twin: String,
    seconds: f64,
    /// How often its step was reached, as text.
    reached: String,
    /// The case as a line, or how the process ended without one.
    found: Result<String, String>,
}

/// Hunts for each twin whose name contains one of the filters, or without filters for each that is
/// no ordering, `time` long each, several at a time. Writes a table to `out`, and the cases to
/// `cases`. Returns whether all were found.
///
/// # Errors
///
/// If a process cannot be started.
pub fn hunt(
    filters: &[String],
    shape: Option<Shape>,
    time: Duration,
    threads: usize,
    out: &mut dyn Write,
    cases: &mut dyn Write,
) -> io::Result<bool> {
    let named = |twin: &Twin| match filters {
        [] => !twin.is_ordering,
        _ => filters.iter().any(|filter| twin.name.contains(filter.as_str())),
    };
    let names: Vec<&str> = twins::all().filter(named).map(|twin| twin.name).collect();
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let hunt_some = || -> io::Result<()> {
        while let Some(name) = names.get(next.fetch_add(1, Relaxed)) {
            let hunted = hunt_one(name, shape, time)?;
            let mut all = all.lock().expect("no thread panics with it");
            all.push(hunted);
            eprintln!("{} of {}", all.len(), names.len());
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let hunters: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(hunt_some)).collect();
        hunters.into_iter().try_for_each(|hunter| hunter.join().expect("it does not panic"))
    })?;
    let mut all = all.into_inner().expect("no thread panics with it");
    all.sort_by(|a, b| a.twin.cmp(&b.twin));
    let mut missed = 0;
    for Hunted { twin, seconds, reached, found } in &all {
        match found {
            Ok(case) => {
                let _ = writeln!(out, "found   {seconds:>6.1} s  {twin}");
                writeln!(cases, "{case}")?;
            }
            Err(how) => {
                missed += 1;
                let _ = writeln!(
                    out,
                    "{how:<7} {seconds:>6.1} s  {twin}, whose step was reached {reached} times"
                );
            }
        }
    }
    let _ = writeln!(out, "{} of {} twins were found", all.len() - missed, all.len());
    Ok(missed == 0)
}

fn hunt_one(twin: &str, shape: Option<Shape>, time: Duration) -> io::Result<Hunted> {
    let began = Instant::now();
    let mut child = Command::new(std::env::current_exe()?);
    child.args([&time.as_secs().to_string(), "--threads=1", "--from=1", "--twin", twin]);
    child.args(shape.map(|shape| format!("--shape={}", shape.name())));
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = child.spawn()?;
    // Its output is far smaller than a pipe, so it ends without a reader.
    while child.try_wait()?.is_none() {
        if began.elapsed() > time + STUCK {
            child.kill()?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // The seconds of making it smaller do not count.
    let seconds = text
        .split_once(" on, ")
        .and_then(|(_, rest)| rest.split_once(" s: ")?.0.parse().ok())
        .unwrap_or_else(|| began.elapsed().as_secs_f64());
    let reached = text.lines().find_map(|line| line.split_once(" was reached ")?.1.split_once(' '));
    let reached = reached.map_or("?", |(number, _)| number).to_owned();
    let case = text.lines().rfind(|line| line.starts_with("{\"twin\"")).map(str::to_owned);
    let found = match (output.status.code(), case) {
        (Some(0), Some(case)) => Ok(case),
        (Some(_), _) => Err("missed".to_owned()),
        (None, _) => Err("crashed".to_owned()),
    };
    Ok(Hunted { twin: twin.to_owned(), seconds, reached, found })
}
