//! A backend of the `log` crate: any thread logs by `&self`, one thread writes the lines, and
//! `flush` returns once all earlier lines are in the file.
//!
//! ```text
//!   log::info!(..) on any thread ──ring──> write
//! ```
//!
//! It prints:
//!
//! ```text
//! 4000 lines after the flush, 4001 at the end
//! ```

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::sync::OnceLock;
use std::thread;

use anyhow::Result;
use log::{Level, LevelFilter, Metadata, Record, debug, info};
use slipring::faults::Fault;
use slipring::stages::ReadHandler;
use slipring::{At, Pipeline, Publisher};

struct Logger {
    lines: Publisher<String>,
    pipeline: Pipeline,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

impl log::Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }
    /// Waits for room, but drops a debug line where there is none. The ring counts dropped lines.
    fn log(&self, record: &Record) {
        let fill = |line: &mut String| {
            line.clear(); // the slot keeps its memory
            write!(line, "{} {}", record.level(), record.args()).expect("a string takes any text");
        };
        if record.level() < Level::Debug {
            self.lines.publish(fill).ok();
        } else {
            self.lines.publish_or_drop(fill).ok();
        }
    }
    fn flush(&self) {
        self.lines.flush().ok();
    }
}

impl Logger {
    fn start(file: File) -> Result<&'static Logger> {
        let (tx, pipeline) = slipring::ring(1024, String::new)
            .read_with("write", Lines(BufWriter::new(file)))
            .spawn_shared()?;
        let logger = LOGGER.get_or_init(|| Logger { lines: tx.into_publisher(), pipeline });
        log::set_logger(logger)?;
        log::set_max_level(LevelFilter::Trace);
        Ok(logger)
    }
    /// Writes all lines, and ends the thread. Returns the number of dropped lines.
    fn close(&self) -> Result<u64> {
        self.lines.close_all();
        Ok(self.pipeline.join()?.producer().dropped)
    }
}

struct Lines(BufWriter<File>);

impl ReadHandler<String> for Lines {
    fn event(&mut self, line: &String, _: At) -> Result<(), Fault> {
        Ok(writeln!(self.0, "{line}")?)
    }
    fn batch_end(&mut self, _: u64) -> Result<(), Fault> {
        Ok(self.0.flush()?)
    }
}

fn main() -> Result<()> {
    let mut file = tempfile::tempfile()?;
    let logger = Logger::start(file.try_clone()?)?;
    thread::scope(|scope| {
        for session in 0..4 {
            scope.spawn(move || (0..1000).for_each(|n| info!("session {session} line {n}")));
        }
    });
    log::logger().flush();
    file.rewind()?;
    let lines = BufReader::new(&file).lines().count();
    debug!("the last line");
    let dropped = logger.close()?;
    file.rewind()?;
    let all = BufReader::new(&file).lines().count() as u64 + dropped;
    println!("{lines} lines after the flush, {all} at the end");
    Ok(())
}
