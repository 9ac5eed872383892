//! Sources: producers that fill a ring from a stream.

mod feed;
mod run;
mod running;
mod settings;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

pub use self::feed::Feed;
#[cfg(test)]
pub(crate) use self::feed::FeedSealed;
use self::run::SourceRun;
pub use self::running::{Progress, RunningSource};
use self::running::{SOURCE_THREAD, SourceStatus};
use self::settings::SourceSettings;
use crate::counters::State;
use crate::encoding::Decoding;
use crate::errors::Error;
use crate::find::{self, Extent};
use crate::frame::Id;
use crate::nats::{Connection, Patience, Server};
use crate::runtime::{Background, RunThread, panic_text};

/// A producer that fills a ring from a JetStream stream which a [`Sink`](crate::Sink) writes.
///
/// The ring has the same positions as the sink's ring. The source continues at the ring's next
/// position, so each event comes once, whichever process was killed. A surviving ring
/// (`slipring_shm`) continues directly after its last event. A new ring begins at the position that
/// its user chooses.
///
/// ```
/// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
/// # let nats = slipring_nats_server::Server::start(Default::default())?;
/// # let url = nats.url();
/// # let sink = slipring_nats::Sink::to(Server::at(nats.url()), "ORDERS")
/// #     .create(slipring_nats::StreamSettings::new("orders"))
/// #     .open(slipring_nats::Encoding::<u64>::plain("order", 1))?;
/// # let (mut tx, orders) = slipring::unicast(8, || 0)?;
/// # let running = sink.start(orders)?;
/// # for i in 0..3 { tx.publish(|slot| *slot = i)?; }
/// # tx.close();
/// # running.join()?;
/// use slipring_nats::{Decoding, Server, Source};
///
/// let source = Source::of(Server::at(url), "ORDERS").until_end().open()?;
/// let first = source.oldest().unwrap_or(0);
/// let graph = slipring::Graph::new(1024, || 0u64).shared().first_seq(first);
/// let key = graph.reader("print");
/// let ring = graph.build()?;
/// let (tx, mut print) = (ring.producer(), ring.reader(key));
/// let source = source.start(Decoding::plain("order", 1), tx)?;
/// let read = print.for_each(|order, at| println!("{}: {order}", at.seq))?;
/// # assert_eq!(read, 3);
/// source.join()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Holes
///
/// Where the sink's ring had no events, the stream declares a hole. A ring that allows several
/// producers ([`Graph::shared`](slipring::Graph::shared)) leaves these positions out as well. A
/// ring with a single producer cannot, and its source ends with [`Error::Hole`]. A segment that a
/// source fills always has a single producer.
///
/// # A stream that lost events
///
/// If the ring has more positions than the stream, the source ends with [`Error::LostAcknowledged`]
/// after some seconds. If the server itself reports that the stream's last messages are gone, a
/// source that [ends](Source::until_end) with the stream also ends with that error. Any other
/// source waits for the next message, and reports the loss in [`Progress::last_doubt`].
///
/// A new ring that continues where the end was lost
/// ([`Sink::accept_loss`](crate::Sink::accept_loss)) begins another journal in the same stream,
/// because its events may take positions of lost ones. Where the journal's number changes, a source
/// puts all earlier events into its ring, and ends with [`Error::OtherJournal`]. Another source can
/// continue there, with the same ring or a new one.
///
/// If the ring already has positions behind the change of journals, their events may have been lost
/// from the stream and replaced. Only [`expect_journal`](Source::expect_journal) detects that.
/// Without it, a source that starts behind the change does not know from which journal the ring's
/// events came.
///
/// If the server's last sequence has gone back as well, nothing in the stream shows that events
/// were replaced. [`Durability`](crate::Durability) lists the losses that each level allows.
///
/// # The end
///
/// A source that ends with an error halts its ring, so that no stage mistakes a part of the stream
/// for the whole. A source that reaches the end or is stopped closes the ring.
#[derive(Clone)]
pub struct Source {
    settings: SourceSettings,
}

impl Source {
    /// Describes a source that reads the stream `stream` of `server`. The stream may be a mirror of
    /// the sink's stream. A mirror lags, so a ring that was filled from the original may have
    /// positions that the mirror does not have yet.
    ///
    /// Example: [`Source`].
    pub fn of(server: Server, stream: impl Into<String>) -> Source {
        let stream = stream.into();
        let (until_end, fail_after, journal, wait) = (false, None, None, Duration::ZERO);
        Source { settings: SourceSettings { server, stream, until_end, fail_after, journal, wait } }
    }

    /// Makes the source end behind the last event that the stream has when the source is opened. By
    /// default the source follows the stream until it is stopped. If the stream was already emptied
    /// when the source is opened, the stream's end is unknown ([`Error::Emptied`]).
    ///
    /// Example: [`Source`].
    pub fn until_end(mut self) -> Source {
        self.settings.until_end = true;
        self
    }

    /// Makes the source end with [`Error::Away`] when the server has not answered for this long. By
    /// default the source waits. The time starts when the source notices the outage: at once if the
    /// connection ends, and otherwise after 6 s of silence.
    ///
    /// Example: [`Source`].
    pub fn fail_after(mut self, time: Duration) -> Source {
        self.settings.fail_after = Some(time);
        self
    }

    /// Refuses messages of any journal but `number`. Messages of another journal show that the
    /// stream was recreated, or that it lost its end and was continued, with other events at the
    /// same positions. [`OpenSource::journal`], [`Progress::journal`] and
    /// [`OpenSink::journal`](crate::OpenSink::journal) return the number. A stream that never had a
    /// message is refused as well if the ring is already past position 0
    /// ([`Error::LostAcknowledged`]).
    ///
    /// Example: [`Source`].
    pub fn expect_journal(mut self, number: [u8; 16]) -> Source {
        self.settings.journal = Some(Id(number));
        self
    }

    /// Makes [`open`](Source::open) wait while no server answers, or no answering server has
    /// JetStream yet, but no longer than `time`. By default it fails at once with the error. With
    /// `Duration::MAX`, it waits as long as it takes.
    ///
    /// [`Source::fail_after`] applies to a source that has begun.
    ///
    /// Example: [`Sink::wait_for_server`](crate::Sink::wait_for_server).
    pub fn wait_for_server(mut self, time: Duration) -> Source {
        self.settings.wait = time;
        self
    }

    /// Connects, and reads which positions the stream has. While the servers of a cluster elect a
    /// leader, the call waits for up to 15 s.
    ///
    /// Example: [`Source`].
    ///
    /// # Errors
    /// Every [`Error`] about the server, the stream, or its messages.
    pub fn open(self) -> Result<OpenSource, Error> {
        let runtime = Background::new()?;
        let opened = runtime.run(async {
            let mut patience = Patience::new(self.settings.wait);
            loop {
                match connect(&self.settings).await {
                    Err(error) if patience.lasts(&error).await => {}
                    connected => break connected,
                }
            }
        })?;
        let (connection, extent) = opened;
        if let (Some((_, found)), Some(expected)) = (extent.journals, self.settings.journal) {
            find::check_journal(expected, found)?;
        }
        Ok(OpenSource { runtime, connection, settings: self.settings, extent })
    }
}

/// Fills the ring of `run` until it ends or is asked to stop.
pub async fn fill<P: Feed>(
    run: &mut SourceRun<P>,
    shared: &SourceStatus,
    stream: &str,
) -> Result<(), Error> {
    tokio::select! {
        biased;
        () = shared.is_to_stop() => Ok(()),
        ended = run.run() => ended,
        () = shared.follow_end(stream) => Ok(()),
    }
}

/// Connects, and reads the stream's extent.
pub async fn connect(settings: &SourceSettings) -> Result<(Connection, Extent), Error> {
    let mut connection = Connection::open(&settings.server).await?;
    let asking = Instant::now();
    loop {
        let found = extent(&connection, &settings.stream).await;
        if !connection.waits_for_leader(found.as_ref().err(), asking).await {
            return found.map(|extent| (connection, extent));
        }
    }
}

/// Checks the stream, and returns its extent.
async fn extent(connection: &Connection, stream: &str) -> Result<Extent, Error> {
    connection.stream(stream, None, None).await?;
    let extent = find::extent(connection, stream).await;
    extent.map_err(|fault| connection.failed(stream, fault))?
}

/// A source that is connected and waits for its ring.
///
/// Example: [`Source`].
pub struct OpenSource {
    runtime: Background,
    connection: Connection,
    settings: SourceSettings,
    extent: Extent,
}

impl OpenSource {
    /// Returns the stream's oldest position, which retention may remove at any time, or `None` if
    /// the stream had no message.
    ///
    /// Example: [`Source`].
    pub fn oldest(&self) -> Option<u64> {
        self.extent.positions.map(|(first, _)| first)
    }

    /// Returns the position behind the stream's last event at the time when the source was opened,
    /// or `None` if the stream had no message.
    ///
    /// Example: [`Source`].
    pub fn end(&self) -> Option<u64> {
        self.extent.positions.map(|(_, end)| end)
    }

    /// Returns the journal's number, which all rings of a stream's series share. The number is
    /// taken from the stream's last message. Returns `None` if the stream had no message; the
    /// source then learns the number while it runs ([`Progress::journal`]).
    ///
    /// Example: [`Source`].
    pub fn journal(&self) -> Option<[u8; 16]> {
        self.extent.journals.map(|(_, last)| last.0)
    }

    /// Fills the ring of `producer` from its next position on, on a thread of its own
    /// (`slipring-source`).
    ///
    /// Example: [`Source`].
    ///
    /// # Errors
    /// [`Error::System`]: the system refuses the thread. Only the thread reads the stream, so
    /// errors of the stream come from [`RunningSource::join`].
    pub fn start<P: Feed>(
        self,
        decoding: Decoding<P::Event>,
        producer: P,
    ) -> Result<RunningSource, Error> {
        let OpenSource { runtime, connection, settings, extent } = self;
        let shared = Arc::new(SourceStatus::default());
        let stream = settings.stream.clone();
        shared.change(|progress| progress.end = extent.positions.map_or(0, |(_, end)| end));
        let for_thread = shared.clone();
        // `SourceRun::new` sets the progress, so it is up to date when this call returns.
        let mut run =
            SourceRun::new(producer, decoding, connection, settings, &extent, shared.clone());
        let body = move || {
            let shared = for_thread;
            let ended = catch_unwind(AssertUnwindSafe(|| {
                runtime.run_here(fill(&mut run, &shared, &stream))
            }));
            let ended = ended.unwrap_or_else(|panic| {
                let (stage, seq) = (SOURCE_THREAD.into(), run.next());
                Err(Error::Function { stage, seq, why: panic_text(&*panic) })
            });
            run.end(ended.is_err());
            shared.change(|progress| progress.state = State::Ended);
            runtime.run_here(run.forget());
            drop(runtime);
            ended
        };
        Ok(RunningSource { thread: RunThread::spawn(SOURCE_THREAD, body)?, shared })
    }
}

impl fmt::Debug for OpenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSource").field("positions", &self.extent.positions).finish()
    }
}

/// The parts of a source, which the simulation runs on a runtime of its own.
#[cfg(test)]
pub(crate) mod parts {
    pub use super::run::SourceRun;
    pub use super::running::SourceStatus;
    pub use super::settings::SourceSettings;
    pub use super::{connect, fill};
}
