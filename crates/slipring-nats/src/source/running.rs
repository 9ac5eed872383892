//! The handle through which other threads observe and end a running source.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::counters::State;
use crate::errors::Error;
use crate::nats::Connection;
use crate::runtime::RunThread;

/// Interval at which a source that is behind asks for the stream's end.
const END_INTERVAL: Duration = Duration::from_secs(2);
/// Name of the source's thread.
pub const SOURCE_THREAD: &str = "slipring-source";

/// The state that the source's thread and its handle share.
#[derive(Default)]
pub struct SourceStatus {
    stop: Notify,
    progress: Mutex<Progress>,
    /// A handle of the source's connection.
    requests: Mutex<Option<Connection>>,
}

impl SourceStatus {
    pub fn change(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Asks the source's thread to end.
    fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until the source is asked to end.
    pub async fn is_to_stop(&self) {
        self.stop.notified().await;
    }

    fn progress(&self) -> Progress {
        let progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Progress { lag: progress.end.saturating_sub(progress.next), ..progress }
    }

    /// Stores a handle of the source's connection.
    pub fn connected(&self, connection: &Connection) {
        let requests = connection.requests();
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = Some(requests);
    }

    /// Returns a handle of the source's connection.
    fn requests(&self) -> Option<Connection> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.as_ref().map(Connection::requests)
    }

    /// Asks for the stream's end at intervals while the source is behind. There is no need to ask
    /// while it waits for a message, because it is then at the end.
    pub async fn follow_end(&self, stream: &str) {
        loop {
            tokio::time::sleep(END_INTERVAL).await;
            if !self.progress().is_behind {
                continue;
            }
            let Some(requests) = self.requests() else { continue };
            // A fault of the last message is reported when the source reads it.
            if let Ok(Some(last)) = requests.last(stream).await
                && let Ok(header) = last.header()
            {
                self.change(|progress| progress.end = progress.end.max(header.end()));
            }
        }
    }
}

/// A snapshot of a source's progress.
///
/// Example: [`Source`](crate::Source).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Current activity of the source.
    pub state: State,
    /// Position behind the last event that the source has published.
    pub next: u64,
    /// Number of positions from `next` to the end of the stream, as far as the source knows it. A
    /// source that is behind asks for the end every two seconds. While the server is away, the lag
    /// does not grow.
    pub lag: u64,
    /// Number of published events.
    pub events: u64,
    /// Number of messages that were read.
    pub messages: u64,
    /// Bytes that were read: the payloads of messages. The payload of a frame includes the frame's
    /// header.
    pub bytes: u64,
    /// Number of messages that were skipped because the ring had their events.
    pub passed_over: u64,
    /// Number of positions without events.
    pub holes: u64,
    /// Number of times that the source has reconnected after it had lost or left a server.
    pub reconnects: u64,
    /// Number of times that the source had to start over at the server.
    pub restarts: u64,
    /// Reason for the last restart, or the loss at the stream's end; empty if there was neither.
    pub last_doubt: String,
    /// Number of the journal that the source reads. Before the first message, it is the number from
    /// [`Source::expect_journal`](crate::Source::expect_journal). If no number was given there, it
    /// is the number of the stream's journal, provided that the stream had exactly one journal when
    /// the source was opened. (A sink stores its journal's first message when it opens, before the
    /// first event.)
    pub journal: Option<[u8; 16]>,
    /// Known position behind the stream's last event.
    pub(crate) end: u64,
    /// Whether the stream has a message that the source has not published.
    pub(crate) is_behind: bool,
}

/// A running source.
///
/// Dropping the handle does not stop the source. It ends with its ring, or at the stream's end if
/// it was asked to.
///
/// Example: [`Source`](crate::Source).
pub struct RunningSource {
    pub(super) thread: RunThread,
    pub(super) shared: Arc<SourceStatus>,
}

impl RunningSource {
    /// Returns the source's current progress.
    ///
    /// Example: [`Source`](crate::Source).
    pub fn progress(&self) -> Progress {
        self.shared.progress()
    }

    /// Returns whether the source has ended.
    ///
    /// Example: [`Source`](crate::Source).
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Asks the source to end between two events and to close the ring.
    ///
    /// Example: [`Source`](crate::Source).
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits until the source ends, and returns its last progress.
    ///
    /// Example: [`Source`](crate::Source).
    ///
    /// # Errors
    /// The error that the source ended with.
    pub fn join(mut self) -> Result<Progress, Error> {
        self.ended().map(|()| self.progress())
    }

    /// Waits like [`RunningSource::join`], but at most until `deadline`. Returns `None` if the
    /// source is still running.
    ///
    /// Example: [`Source`](crate::Source).
    ///
    /// # Errors
    /// The error that the source ended with. A later call returns no error.
    pub fn join_by(&mut self, deadline: Instant) -> Result<Option<Progress>, Error> {
        if !self.thread.is_finished_by(deadline) {
            return Ok(None);
        }
        self.ended().map(|()| Some(self.progress()))
    }

    /// Waits for the thread, unless an earlier call has done so.
    fn ended(&mut self) -> Result<(), Error> {
        self.thread.join(|| self.shared.progress().next)
    }
}

impl fmt::Debug for RunningSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSource").field("progress", &self.progress()).finish()
    }
}
