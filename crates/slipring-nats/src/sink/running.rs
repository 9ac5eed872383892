//! The handles through which other threads observe and end a running sink.

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
pub const SINK_THREAD: &str = "slipring-sink";

/// The request by which other threads end a sink.
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
    /// Asks the sink to end. [`Stop::is_asked`] reads the flag that this call sets.
    pub fn ask(&self) {
        self.asked.store(true, Relaxed);
        self.notify.notify_one();
    }

    /// Returns whether [`Stop::ask`] was called.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Waits for the next call of [`Stop::ask`]. If no earlier wait has noticed the last call,
    /// returns at once.
    pub async fn notified(&self) {
        self.notify.notified().await;
    }
}

/// Observes a sink from any thread, and can end it. [`OpenSink::watch`](crate::OpenSink::watch)
/// returns it.
///
/// Example: [`OpenSink::run`](crate::OpenSink::run).
#[derive(Clone)]
pub struct Watch {
    pub(super) shared: LiveCounters,
    pub(super) stop: Arc<Stop>,
}

impl Watch {
    /// Returns the sink's current counts. Takes a lock that the sink holds for a few stores at a
    /// time.
    ///
    /// Example: [`OpenSink::run`](crate::OpenSink::run).
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// Asks the sink to end now, without waiting for acknowledgements. It ends with
    /// [`Error::Stopped`], which fails a ring of threads. In a ring of processes, another sink can
    /// take its place.
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

/// A running sink.
///
/// Dropping the handle does not stop the sink, which ends with its ring.
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
    /// Returns the sink's current counts. Takes a lock that the sink holds for a few stores at a
    /// time.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn counters(&self) -> Counters {
        self.watch.counters()
    }

    /// Returns which failures an acknowledged event survives, as far as the sink could find out.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Returns the differences between an existing stream and the settings of
    /// [`Sink::create`](crate::Sink::create), like [`OpenSink::remarks`](crate::OpenSink::remarks).
    ///
    /// Example: [`Sink::wait_for_server`](crate::Sink::wait_for_server).
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the number of the journal, which all rings of a stream's series share.
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
    /// [`Error::Stopped`], which fails a ring of threads. In a ring of processes, another sink can
    /// take its place.
    ///
    /// Example: [`Sink`](crate::Sink).
    pub fn stop(&self) {
        self.watch.stop();
    }

    /// Waits until the sink ends with its ring, and returns its last counts.
    ///
    /// If the ring is closed during an outage of the engine, the call waits until the engine is
    /// back, unless the sink fails or drops events earlier ([`Sink::outage`](crate::Sink::outage)).
    /// [`RunningSink::join_by`] has a deadline.
    ///
    /// Example: [`Sink`](crate::Sink).
    ///
    /// # Errors
    /// The error that the sink ended with.
    pub fn join(mut self) -> Result<Counters, Error> {
        self.ended().map(|()| self.watch.counters())
    }

    /// Waits like [`RunningSink::join`], but at most until `deadline`. Returns `None` if the sink
    /// is still running. It can then be stopped or waited for again.
    ///
    /// Example: [`Sink`](crate::Sink).
    ///
    /// # Errors
    /// The error that the sink ended with. A later call returns no error.
    pub fn join_by(&mut self, deadline: Instant) -> Result<Option<Counters>, Error> {
        if !self.thread.is_finished_by(deadline) {
            return Ok(None);
        }
        self.ended().map(|()| Some(self.watch.counters()))
    }

    /// Waits for the thread, unless an earlier call has done so.
    fn ended(&mut self) -> Result<(), Error> {
        self.thread.join(|| self.watch.counters().acknowledged)
    }
}

impl fmt::Debug for RunningSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSink").field("counters", &self.counters()).finish()
    }
}
