//! A backend of the `log` crate on crossbeam's channel: the incumbent beside `log_library.rs`.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::thread::{self, JoinHandle};

use anyhow::Result;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use log::{LevelFilter, Metadata, Record, debug, info};

enum Message {
    Line(String),
    Flush(Sender<()>),
    Close,
}

struct Logger {
    tx: Sender<Message>,
    dropped: AtomicU64,
    thread: Mutex<Option<JoinHandle<std::io::Result<()>>>>,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

impl log::Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }
    /// Waits for room, but drops a debug line where there is none.
    fn log(&self, record: &Record) {
        let line = Message::Line(format!("{} {}", record.level(), record.args()));
        if record.level() < log::Level::Debug {
            self.tx.send(line).ok();
        } else if let Err(TrySendError::Full(_)) = self.tx.try_send(line) {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
    fn flush(&self) {
        let (done, flushed) = bounded(0);
        if self.tx.send(Message::Flush(done)).is_ok() {
            flushed.recv().ok();
        }
    }
}

impl Logger {
    fn start(file: File) -> Result<&'static Logger> {
        let (tx, rx) = bounded(1024);
        let thread = thread::Builder::new().name("log".into()).spawn(move || write(file, rx))?;
        let thread = Mutex::new(Some(thread));
        let logger = LOGGER.get_or_init(|| Logger { tx, dropped: AtomicU64::new(0), thread });
        log::set_logger(logger)?;
        log::set_max_level(LevelFilter::Trace);
        Ok(logger)
    }
    /// Writes all lines, and ends the thread.
    fn close(&self) -> Result<()> {
        self.tx.send(Message::Close).ok();
        let thread = self.thread.lock().unwrap().take();
        Ok(thread.map_or(Ok(()), |thread| thread.join().expect("the log thread panicked"))?)
    }
}

fn write(file: File, rx: Receiver<Message>) -> std::io::Result<()> {
    let mut file = BufWriter::new(file);
    for message in &rx {
        match message {
            Message::Line(line) => writeln!(file, "{line}")?,
            Message::Flush(done) => {
                file.flush()?;
                done.send(()).ok();
            }
            Message::Close => break,
        }
        if rx.is_empty() {
            file.flush()?;
        }
    }
    file.flush()
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
    logger.close()?;
    file.rewind()?;
    let all = BufReader::new(&file).lines().count() as u64 + logger.dropped.load(Relaxed);
    println!("{lines} lines after the flush, {all} at the end");
    Ok(())
}
