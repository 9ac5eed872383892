//! The runtime of a sink's or a source's thread.
//!
//! Invariants
//! - I1: no call blocks or ends a runtime on a thread that is itself in a runtime. So the library's
//!   calls work from tasks, too, which then block.

use tokio::runtime::Runtime;

use crate::errors::Error;

/// A runtime with one thread at a time. Its drop waits for no task.
pub struct Background(Option<Runtime>);

impl Background {
    pub fn new() -> Result<Background, Error> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        Ok(Background(Some(builder.enable_all().build().map_err(Error::System)?)))
    }

    /// Runs `future` to its end on a thread of its own, which this call waits for (I1).
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

    /// Runs `future` to its end on this thread, which is in no runtime.
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

/// Returns a panic's message.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
