//! A sink at work, as other threads see it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use tokio::sync::Notify;

use super::settings::Durability;
use crate::counters::{Counters, LiveCounters};
use crate::errors::Error;
use crate::runtime::RunThread;

/// Name of the sink's thread.
pub const THREAD: &str = "slipring-sink";

/// How other threads end a sink.
///
/// The flag carries no data, so both of its accesses are relaxed. The notification that follows the
/// store wakes the sink's wait, and tokio orders the two: a sink that the notification wakes reads
/// the flag as set.
#[derive(Default)]
pub struct Stop {
    asked: AtomicBool,
    notify: Notify,
}

impl Stop {
    /// Asks the sink to end. [`Stop::is_asked`] reads what this stores.
    pub fn ask(&self) {
        self.asked.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Returns whether [`Stop::ask`] was called.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Waits for the next call of [`Stop::ask`], or takes note of one that no wait has seen.
    pub async fn notified(&self) {
        self.notify.notified().await;
    }
}

/// Looks at a sink, and can end it, from any thread. [`OpenSink::watch`](crate::OpenSink::watch)
/// returns it.
///
/// Example: [`OpenSink::run`](crate::OpenSink::run).
#[derive(Clone)]
pub struct Watch {
    pub(super) shared: LiveCounters,
    pub(super) stop: Arc<Stop>,
}

impl Watch {
    /// Returns the sink's counts at this moment. Costs a lock that the sink holds for a few stores.
    ///
    /// Example: [`OpenSink::run`](crate::OpenSink::run).
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Asks the sink to end now, without waiting for acknowledgements. It ends with
    /// [`Error::Stopped`], which fails a ring of threads; another sink takes the place in a ring of
    /// processes.
    ///
    /// Example: [`OpenSink::run`](crate::OpenSink::run).
    pub fn stop(&self) {
        self.stop.ask();
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("counters", &self.counters()).finish()
    }
}

/// A sink that publishes.
///
/// Dropping it lets the sink go on: it ends with its ring.
///
/// Example: [`Sink`](crate::Sink).
pub struct RunningSink {
    pub(super) watch: Watch,
    pub(super) thread: RunThread,
    pub(super) durability: Durability,
    pub(super) remarks: Vec<String>,
    pub(super) journal: [u8; 16],
}

impl RunningSink {
    /// Returns the sink's counts at this moment. Costs a lock that the sink holds for a few stores.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn counters(&self) -> Counters {
        self.watch.counters()
    }

    /// Returns what acknowledged events survive, as far as the sink could find out.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns in what an existing stream differs from the settings of
    /// [`Sink::create`](crate::Sink::create), as [`OpenSink::remarks`](crate::OpenSink::remarks)
    /// does.
    ///
    /// Example: [`Sink::wait_for_server`](crate::Sink::wait_for_server).
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the number of the journal, which all rings that follow each other on a stream share.
    ///
    /// Example: [`Sink::journal`](crate::Sink::journal).
    pub fn journal(&self) -> [u8; 16] {
        self.journal
    }

    /// Returns whether the sink has ended.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Asks the sink to end now, without waiting for acknowledgements. It ends with
    /// [`Error::Stopped`], which fails a ring of threads; another sink takes the place in a ring of
    /// processes.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn stop(&self) {
        self.watch.stop();
    }

    /// Waits for the sink's end, which is that of its ring, and returns its last counts.
    ///
    /// While the engine is away and the ring is closed, this waits until the engine is back, unless
    /// [`Sink::outage`](crate::Sink::outage) says otherwise. [`RunningSink::join_by`] has a
    /// deadline.
    ///
    /// Example: [`Sink`](crate::Sink).
    ///
    /// # Errors
    /// What the sink ended with.
    pub fn join(mut self) -> Result<Counters, Error> {
        self.ended().map(|()| self.watch.counters())
    }

    /// Waits as [`RunningSink::join`] does, but at most until `deadline`. `None`: the sink still
    /// runs, and can be stopped or waited for again.
    ///
    /// Example: [`Sink`](crate::Sink).
    ///
    /// # Errors
    /// What the sink ended with. A later call returns no error.
    pub fn join_by(&mut self, deadline: Instant) -> Result<Option<Counters>, Error> {
        if !self.thread.is_finished_by(deadline) {
            return Ok(None);
        }
        self.ended().map(|()| Some(self.watch.counters()))
    }

    /// Waits for the thread, if no call has done so.
    fn ended(&mut self) -> Result<(), Error> {
        self.thread.join(|| self.watch.counters().acknowledged)
    }
}

impl fmt::Debug for RunningSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSink").field("counters", &self.counters()).finish()
    }
}
