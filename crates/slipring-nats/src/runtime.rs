//! The runtime and the thread of a sink or a source.
//!
//! Invariants
//! - I1: no call waits for a runtime, or ends one, on a thread that itself runs tasks of a runtime.
//!   So the library's calls also work within a task, though they block its thread.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::errors::Error;

/// A runtime that is used by one thread at a time. The drop does not wait for tasks.
pub struct Background(Option<Runtime>);

impl Background {
    pub fn new() -> Result<Background, Error> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        Ok(Background(Some(builder.enable_all().build().map_err(Error::System)?)))
    }

    /// Runs `future` to its end on a new thread, and waits for that thread (I1).
    pub fn run<T: Send>(
        &self,
        future: impl Future<Output = Result<T, Error>> + Send,
    ) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("slipring-open".into());
            let thread = builder.spawn_scoped(scope, || self.run_here(future));
            let thread = thread.map_err(Error::System)?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `future` to its end on this thread, which must not be running tasks of a runtime.
    pub fn run_here<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.as_ref().expect("only the drop takes the runtime").block_on(future)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background(); // I1
        }
    }
}

/// The thread of a sink or a source, and its result.
pub struct RunThread {
    name: &'static str,
    /// `None` after a call has waited for the thread.
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl RunThread {
    /// Starts a thread of this name that runs `body`.
    pub fn spawn(
        name: &'static str,
        body: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<RunThread, Error> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(body);
        Ok(RunThread { name, thread: Some(thread.map_err(Error::System)?) })
    }

    /// Returns whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for the thread's end until `deadline`. Returns whether it has ended.
    pub fn is_finished_by(&self, deadline: Instant) -> bool {
        while !self.is_finished() {
            let now = Instant::now();
            if now >= deadline {
                return false;
            }
            std::thread::sleep((deadline - now).min(Duration::from_millis(5)));
        }
        true
    }

    /// Waits for the thread, unless an earlier call has done so, and returns its result. A panic of
    /// the thread becomes an error at the position that `position` returns.
    pub fn join(&mut self, position: impl FnOnce() -> u64) -> Result<(), Error> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|panic| {
            let (stage, seq) = (self.name.into(), position());
            Err(Error::Function { stage, seq, why: panic_text(&*panic) })
        })
    }
}

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
