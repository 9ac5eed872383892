//! A source at work, as other threads see it.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::counters::State;
use crate::errors::Error;
use crate::nats::Connection;
use crate::runtime::RunThread;

/// Time between two looks at the end of a stream.
const LOOK: Duration = Duration::from_secs(2);
/// Name of the source's thread.
pub const THREAD: &str = "slipring-source";

/// What the source's thread and its handle share.
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

    /// Takes note of the source's connection.
    pub fn connected(&self, connection: &Connection) {
        let requests = connection.requests();
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) = Some(requests);
    }

    /// Returns a handle of the source's connection.
    fn requests(&self) -> Option<Connection> {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.as_ref().map(Connection::requests)
    }

    /// Looks where the stream ends, now and then, while the source is behind. A source that waits
    /// for a message is at the end.
    pub async fn look_at_end(&self, stream: &str) {
        loop {
            tokio::time::sleep(LOOK).await;
            if !self.progress().is_behind {
                continue;
            }
            let Some(requests) = self.requests() else { continue };
            // What is wrong with the last message is told when it has its turn.
            if let Ok(Some(last)) = requests.last(stream).await
                && let Ok(header) = last.header()
            {
                self.change(|progress| progress.end = progress.end.max(header.end()));
            }
        }
    }
}

/// What a source has done so far.
///
/// Example: [`Source`](crate::Source).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What the source is doing.
    pub state: State,
    /// The position behind the last event that the source has published.
    pub next: u64,
    /// Number of positions from there to the end of the stream, as far as the source knows: a
    /// source that is behind asks for the end every two seconds. While the server is away, it does
    /// not grow.
    pub lag: u64,
    /// Events that it has published.
    pub events: u64,
    /// Messages that it has read.
    pub messages: u64,
    /// Bytes of these messages: payloads with frames' headers.
    pub bytes: u64,
    /// Messages that it has passed over, because the ring had their events.
    pub passed_over: u64,
    /// Positions without events.
    pub holes: u64,
    /// Times that the connection was lost, or left for another server, and there is one again.
    pub reconnects: u64,
    /// Times that it had to begin anew at the server.
    pub restarts: u64,
    /// Why it did so the last time, or what is gone at the stream's end. Empty if it never did, and
    /// the stream has its end.
    pub last_doubt: String,
    /// Number of the journal: that of the messages that it has read, or of all that the stream had
    /// when the source was opened. The first message of a journal is written by a sink that opens,
    /// in front of the first event.
    pub journal: Option<[u8; 16]>,
    /// The position behind the stream's last event, as far as it is known.
    pub(crate) end: u64,
    /// Whether there is a message that the source has not published.
    pub(crate) is_behind: bool,
}

/// A source that fills its ring.
///
/// Dropping it lets the source go on: it ends with its ring, or at the stream's end if it was asked
/// to.
///
/// Example: [`Source`](crate::Source).
pub struct RunningSource {
    pub(super) thread: RunThread,
    pub(super) shared: Arc<SourceStatus>,
}

impl RunningSource {
    /// Returns what the source has done so far.
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

    /// Ends the source between two events, and closes the ring.
    ///
    /// Example: [`Source`](crate::Source).
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Waits for the source's end.
    ///
    /// Example: [`Source`](crate::Source).
    ///
    /// # Errors
    /// What the source ended with.
    pub fn join(mut self) -> Result<Progress, Error> {
        self.ended().map(|()| self.progress())
    }

    /// Waits as [`RunningSource::join`] does, but at most until `deadline`. `None`: the source
    /// still runs.
    ///
    /// Example: [`Source`](crate::Source).
    ///
    /// # Errors
    /// What the source ended with. A later call returns no error.
    pub fn join_by(&mut self, deadline: Instant) -> Result<Option<Progress>, Error> {
        if !self.thread.is_finished_by(deadline) {
            return Ok(None);
        }
        self.ended().map(|()| Some(self.progress()))
    }

    /// Waits for the thread, if no call has done so.
    fn ended(&mut self) -> Result<(), Error> {
        self.thread.join(|| self.shared.progress().next)
    }
}

impl fmt::Debug for RunningSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningSource").field("progress", &self.progress()).finish()
    }
}
