//! Sinks: stages that publish to a stream.

mod open;
mod run;
mod running;
mod settings;
mod stage;
mod units;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use self::open::Opened;
use self::run::SinkRun;
pub use self::running::{RunningSink, Watch};
use self::running::{SINK_THREAD, Stop};
use self::settings::SinkSettings;
pub use self::settings::{Durability, Outage};
pub use self::stage::Stage;
#[cfg(test)]
pub(crate) use self::stage::StageSealed;
use crate::counters::{Counters, LiveCounters, State};
use crate::encoding::Encoding;
use crate::errors::Error;
use crate::frame::{Id, USUAL_FRAME};
use crate::nats::Server;
use crate::nats::stream::StreamSettings;
use crate::resume::Start;
use crate::runtime::{Background, RunThread, panic_text};

/// A stage that publishes each event of a ring to a JetStream stream, exactly once by position.
///
/// A stream belongs to one ring, or to a series of rings. Each ring of a series begins at the
/// position behind the last event of its predecessor. The sink releases events only after the
/// server has acknowledged them.
///
/// # A ring of threads
///
/// The ring ends with its process, and events that were not acknowledged are lost with it. The next
/// ring begins where the stream ends, and the program feeds the events from that position again.
///
/// ```
/// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
/// # let nats = slipring_nats_server::Server::start(Default::default())?;
/// # let url = nats.url();
/// use slipring_nats::{Encoding, Server, Sink, StreamSettings};
///
/// let sink = Sink::to(Server::at(url), "ORDERS")
///     .create(StreamSettings::new("orders"))
///     .open(Encoding::<u64>::plain("order", 1))?;
/// let next = sink.next_seq(); // where the stream ends
/// let graph = slipring::Graph::new(1024, || 0u64).first_seq(next);
/// let key = graph.reader("journal");
/// let ring = graph.build()?;
/// let (mut tx, journal) = (ring.producer(), ring.reader(key));
/// let sink = sink.start(journal)?;
/// for i in next..next + 1000 {
///     tx.publish(|slot| *slot = i)?;
/// }
/// tx.close();
/// let counters = sink.join()?;
/// assert_eq!(counters.acknowledged, next + 1000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # A ring of processes
///
/// The ring outlives its sink. After a sink was killed, a new sink continues where the killed one
/// stopped ([`Sink::attach`]), and no event has to be published again.
#[derive(Clone)]
pub struct Sink {
    settings: SinkSettings,
}

impl Sink {
    /// Describes a sink to the stream `stream` of `server`. The stream must exist unless
    /// [`create`](Sink::create) is called.
    ///
    /// Example: [`Sink`].
    pub fn to(server: Server, stream: impl Into<String>) -> Sink {
        Sink {
            settings: SinkSettings {
                server,
                stream: stream.into(),
                subject: None,
                create: None,
                outage: Outage::Wait,
                durability: Durability::Memory,
                confirmed: false,
                system: None,
                window: 8,
                max_frame: USUAL_FRAME,
                linger: Duration::from_millis(1),
                ack_timeout: Duration::from_secs(5),
                resume_at: None,
                journal: None,
                accept_loss: false,
                wait: Duration::ZERO,
            },
        }
    }

    /// Creates the stream if it does not exist, and publishes to its subject. An existing stream is
    /// not changed: [`StreamSettings`] says which differences are refused.
    ///
    /// Example: [`Sink`].
    pub fn create(mut self, settings: StreamSettings) -> Sink {
        self.settings.create = Some(settings);
        self
    }

    /// Sets the subject of frames and begin messages. Default: the stream's only subject.
    ///
    /// Example: [`Sink`].
    pub fn subject(mut self, subject: impl Into<String>) -> Sink {
        self.settings.subject = Some(subject.into());
        self
    }

    /// Sets what the sink does during an outage of the engine. Default: [`Outage::Wait`].
    ///
    /// Example: [`Sink`].
    pub fn outage(mut self, outage: Outage) -> Sink {
        self.settings.outage = outage;
        self
    }

    /// Sets the least durability that the stream must have. A stream whose acknowledged events
    /// survive fewer failures is refused. By default the sink accepts every stream, and reports its
    /// durability ([`OpenSink::durability`]).
    ///
    /// [`Durability::Power`] needs [`check_power`](Sink::check_power) or
    /// [`confirm_power`](Sink::confirm_power).
    ///
    /// Example: [`Sink`].
    pub fn require(mut self, durability: Durability) -> Sink {
        self.settings.durability = durability;
        self
    }

    /// Asks all servers whether they sync before they acknowledge (`sync_interval: always`).
    /// `system` logs in as a user of their system account.
    ///
    /// Example: [`Sink`].
    pub fn check_power(mut self, system: Server) -> Sink {
        self.settings.system = Some(system);
        self
    }

    /// Declares that all servers sync before they acknowledge. The sink relies on this, and does
    /// not check it.
    ///
    /// Example: [`Sink`].
    pub fn confirm_power(mut self) -> Sink {
        self.settings.confirmed = true;
        self
    }

    /// Sets the greatest number of frames in flight, 1 to 256. Default: 8. The sink keeps these
    /// frames in memory, and up to two more.
    ///
    /// The ring keeps the events of all frames in flight until they are acknowledged. A ring that
    /// has room for fewer than twice these frames slows the sink down.
    ///
    /// If the stream takes no atomic batches (`allow_atomic`), only one frame is in flight,
    /// whatever window was chosen: a later sink would need such a batch to fence several frames. A
    /// sink with [`Encoding::messages`] also has only one batch of events in flight.
    /// [`OpenSink::window`] returns the actual number.
    ///
    /// Example: [`Sink`].
    pub fn window(mut self, frames: usize) -> Sink {
        self.settings.window = frames;
        self
    }

    /// Sets the greatest length of a frame, in bytes. The default is 511 KiB, so that two such
    /// messages fit into a client's read buffer of 1 MiB. The greatest value is 512 KiB, or less if
    /// the server or the stream accepts only shorter messages. If the server or the stream lowers
    /// its limit while the sink runs, the sink begins anew, and divides the frames that it has in
    /// flight.
    ///
    /// Example: [`Sink`].
    pub fn max_frame(mut self, bytes: usize) -> Sink {
        self.settings.max_frame = bytes;
        self
    }

    /// Sets how long after a frame's first event the sink waits for further events before it sends
    /// the frame, if the frame is not full. Default: one millisecond. If no other frame is in
    /// flight, the sink does not wait.
    ///
    /// Example: [`Sink`].
    pub fn linger(mut self, time: Duration) -> Sink {
        self.settings.linger = time;
        self
    }

    /// Sets how long the sink waits for an acknowledgement before it asks the engine for the
    /// stream's end. Default: five seconds.
    ///
    /// Example: [`Sink`].
    pub fn ack_timeout(mut self, time: Duration) -> Sink {
        self.settings.ack_timeout = time;
        self
    }

    /// Sets the position at which a new ring begins if the stream cannot tell it, because it is
    /// unused or [emptied](Error::Emptied). Default: 0 for an unused stream, and no position for an
    /// emptied one.
    ///
    /// The position must be behind every event of earlier rings that you know of. So it is at least
    /// the acknowledged position ([`Counters::acknowledged`]). A stream that ends before the
    /// position has lost events, and is refused ([`Error::LostAcknowledged`]). So a program that
    /// records the position detects a loss that the server does not know of.
    ///
    /// If the stream's last messages are gone and the rest ends exactly at the position, your call
    /// declares that the lost messages had no events. That is right, for instance, if an
    /// administrator has removed a message of another program.
    ///
    /// Example: [`Sink::journal`].
    pub fn resume_at(mut self, seq: u64) -> Sink {
        self.settings.resume_at = Some(seq);
        self
    }

    /// Sets the number of the journal, as [`OpenSink::journal`] or a source's
    /// [`Progress::journal`](crate::Progress::journal) returns it. A stream with another number is
    /// refused ([`Error::OtherJournal`]). An unused or [emptied](Error::Emptied) stream gets this
    /// number. By default the stream gets a new number, which ends a source that has read the
    /// earlier journal.
    ///
    /// Under one number, a position never has two events. So a stream without messages gets the
    /// number only if [`resume_at`](Sink::resume_at) names the right position as well. That
    /// position is behind all events that were ever stored, because a source may have read them. A
    /// killed sink may have stored more events than it counted.
    ///
    /// ```
    /// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
    /// # let nats = slipring_nats_server::Server::start(Default::default())?;
    /// # let url = nats.url();
    /// use slipring_nats::{Encoding, Server, Sink, StreamSettings};
    /// let sink = || Sink::to(Server::at(&url), "ORDERS").create(StreamSettings::new("orders"));
    /// let orders = || Encoding::<u64>::plain("order", 1);
    ///
    /// let open = sink().open(orders())?;
    /// let number = open.journal(); // the program records it
    /// let (mut tx, orders_in) = slipring::unicast(8, || 0)?;
    /// let running = open.start(orders_in)?;
    /// tx.publish(|slot| *slot = 7)?;
    /// tx.close();
    /// let next = running.join()?.acknowledged; // this as well
    /// # let mut client = slipring_nats_server::Client::connect(nats.port(), None)?;
    /// # client.purge("ORDERS", slipring_nats_server::Purge::All)?;
    ///
    /// // Retention has removed all messages.
    /// let open = sink().resume_at(next).journal(number).open(orders())?;
    /// assert_eq!((open.next_seq(), open.journal()), (1, number));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn journal(mut self, number: [u8; 16]) -> Sink {
        self.settings.journal = Some(Id(number));
        self
    }

    /// Makes the sink continue even if the stream has lost acknowledged positions, or may have lost
    /// some ([`Error::LostAcknowledged`]), or has lost all of its messages ([`Error::Emptied`]). A
    /// stream that never had a message has lost none. A ring that has released positions can
    /// continue in such a stream even without this call.
    ///
    /// An existing ring continues at the first position that it has not released, and the stream
    /// declares a hole. A new ring continues at [`resume_at`](Sink::resume_at), or behind the last
    /// event that the stream still has. Either ring continues under a new number of the journal,
    /// because its events may take positions of lost events, which may even be those of another
    /// ring. The number stays the same only if [`journal`](Sink::journal) names it and the position
    /// is behind the stream's end.
    ///
    /// The call has an effect only when the sink begins. A running sink that finds a loss ends with
    /// the error.
    ///
    /// Example: [`Sink::attach`].
    pub fn accept_loss(mut self) -> Sink {
        self.settings.accept_loss = true;
        self
    }

    /// Makes [`open`](Sink::open) and [`attach`](Sink::attach) wait, for at most `time`, while no
    /// server answers, or while none that answers has JetStream yet. By default they fail at once
    /// with the error. With `Duration::MAX`, they wait as long as it takes.
    ///
    /// [`Sink::outage`] applies to a sink that has begun.
    ///
    /// ```
    /// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
    /// # let nats = slipring_nats_server::Server::start(Default::default())?;
    /// # let url = nats.url();
    /// use std::time::Duration;
    /// use slipring_nats::{Encoding, Server, Sink, StreamSettings};
    /// let sink = Sink::to(Server::at(url), "ORDERS") // the server may start after this program
    ///     .create(StreamSettings::new("orders"))
    ///     .wait_for_server(Duration::from_secs(60))
    ///     .open(Encoding::<u64>::plain("order", 1))?;
    /// assert!(sink.remarks().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for_server(mut self, time: Duration) -> Sink {
        self.settings.wait = time;
        self
    }

    /// Connects, checks the stream, and takes it over for a ring that is made afterwards. An
    /// earlier sink of the stream ends with [`Error::Fenced`]. While the servers of a cluster elect
    /// a leader, the call waits for up to 15 s.
    ///
    /// Example: [`Sink`].
    ///
    /// # Errors
    /// Every [`Error`] about the server, the stream, its last message, the options, or an event
    /// that is too large.
    pub fn open<E: Send + 'static>(self, encoding: Encoding<E>) -> Result<OpenSink<E>, Error> {
        let start = self.start(false, self.settings.resume_at);
        self.open_at(encoding, Id::random(), start)
    }

    /// Takes the stream over for an existing ring, and continues behind the last of the ring's
    /// events that the stream has. The sink releases events that the stream already has, and does
    /// not send them again.
    ///
    /// `epoch` is the ring's own number, which stays the same for the ring's lifetime:
    /// `slipring_shm::Attached::id`.
    ///
    /// ```
    /// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
    /// # let nats = slipring_nats_server::Server::start(Default::default())?;
    /// # let url = nats.url();
    /// # #[cfg(all(target_os = "linux", target_pointer_width = "64"))] {
    /// use slipring_nats::{Encoding, Server, Sink, StreamSettings};
    /// use slipring_shm::Segment;
    /// # let name = format!("orders-{}", std::process::id());
    /// # let made = Segment::<u64>::create(&name).capacity(8).reader("journal").build()?;
    /// # // SAFETY: only this example opens the segment.
    /// # let mut tx = unsafe { made.attach()? }.producer()?;
    /// # tx.publish(|slot| *slot = 7)?;
    /// # tx.close();
    /// // SAFETY: only our programs open the segment.
    /// let orders = unsafe { Segment::<u64>::open(&name)?.attach()? };
    /// let sink = Sink::to(Server::at(url), "ORDERS")
    ///     .create(StreamSettings::new("orders"))
    ///     .attach(Encoding::plain("order", 1), orders.reader("journal")?, orders.id())?;
    /// assert_eq!(sink.join()?.events, 1);
    /// # drop(orders);
    /// # slipring_shm::remove(&name)?;
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Sink::open`], and [`Error::WrongEpoch`] and [`Error::LostAcknowledged`].
    pub fn attach<S: Stage + 'static>(
        self,
        encoding: Encoding<S::Event>,
        stage: S,
        epoch: [u8; 16],
    ) -> Result<RunningSink, Error> {
        let start = self.start(true, Some(stage.next()));
        self.open_at(encoding, Id(epoch), start)?.spawn(stage)
    }

    fn start(&self, survives: bool, at: Option<u64>) -> Start {
        let SinkSettings { accept_loss: accepts_loss, journal, .. } = self.settings;
        Start { survives, at, accepts_loss, journal, number: Id::random() }
    }

    fn open_at<E: Send + 'static>(
        self,
        encoding: Encoding<E>,
        epoch: Id,
        start: Start,
    ) -> Result<OpenSink<E>, Error> {
        self.settings.check()?;
        let runtime = Background::new()?;
        let opened = runtime.run(Opened::new(self.settings, encoding, epoch, start))?;
        let (shared, stop) = (LiveCounters::default(), Arc::new(Stop::default()));
        Ok(OpenSink { runtime, opened, watch: Watch { shared, stop } })
    }
}

/// A sink that has taken over its stream and waits for its ring.
///
/// Example: [`Sink`].
pub struct OpenSink<E> {
    runtime: Background,
    opened: Opened<E>,
    watch: Watch,
}

impl<E: Send + 'static> OpenSink<E> {
    /// Returns the position at which the ring must begin, which is behind the stream's last event.
    ///
    /// Example: [`Sink`].
    pub fn next_seq(&self) -> u64 {
        self.opened.point.next
    }

    /// Returns the number of the journal, which all rings of a stream's series share.
    ///
    /// Example: [`Sink::journal`].
    pub fn journal(&self) -> [u8; 16] {
        self.opened.point.ring.0
    }

    /// Returns which failures an acknowledged event survives, as far as the sink could find out.
    ///
    /// Example: [`Sink`].
    pub fn durability(&self) -> Durability {
        self.opened.durability
    }

    /// Returns the differences between an existing stream and the settings of [`Sink::create`], one
    /// text for each setting. A stream that has less than was asked for is refused earlier
    /// ([`StreamSettings`]), and has no remarks.
    ///
    /// Example: [`Sink::wait_for_server`].
    pub fn remarks(&self) -> &[String] {
        &self.opened.stream.remarks
    }

    /// Returns a handle that observes the sink while it runs.
    ///
    /// Example: [`OpenSink::run`].
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// Returns the greatest number of frames in flight.
    ///
    /// Example: [`Sink`].
    pub fn window(&self) -> usize {
        self.opened.window as usize
    }

    /// Starts the sink on a thread of its own, named `slipring-sink`.
    ///
    /// Example: [`Sink`].
    ///
    /// # Errors
    /// [`Error::WrongEpoch`]: the ring does not begin at [`next_seq`](OpenSink::next_seq).
    /// [`Error::System`]: the system refuses the thread.
    pub fn start(self, stage: impl Stage<Event = E> + 'static) -> Result<RunningSink, Error> {
        self.check_start(&stage)?;
        self.spawn(stage)
    }

    /// Runs the sink on this thread until the ring ends, for example in a stage of a chain.
    ///
    /// ```
    /// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
    /// # let nats = slipring_nats_server::Server::start(Default::default())?;
    /// # let url = nats.url();
    /// use slipring_nats::{Encoding, Server, Sink};
    /// # use slipring_nats::StreamSettings;
    /// let sink = Sink::to(Server::at(url), "ORDERS")
    ///     .create(StreamSettings::new("orders"))
    ///     .open(Encoding::<u64>::plain("order", 1))?;
    /// let (next, watch) = (sink.next_seq(), sink.watch());
    /// slipring::ring(1024, || 0u64)
    ///     .first_seq(next)
    ///     .update("double", |order, _| *order *= 2)
    ///     .read_by("journal", |orders| sink.run(orders).map(drop))
    ///     .feed(0..1000, |slot, order| *slot = order)?;
    /// assert_eq!(watch.counters().events, 1000);
    /// watch.stop(); // without effect: the sink has ended
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error that the sink ended with, and [`Error::WrongEpoch`] as for
    /// [`start`](OpenSink::start).
    ///
    /// # Panics
    /// Panics on a thread that runs tasks of a tokio runtime, because that thread must not block.
    pub fn run(mut self, mut stage: impl Stage<Event = E>) -> Result<Counters, Error> {
        self.check_start(&stage)?;
        self.opened.name = stage.name();
        let OpenSink { runtime, opened, watch } = self;
        let ended = runtime.run_here(SinkRun::new(&mut stage, opened, watch.clone()).run());
        watch.shared.change(|counters| counters.state = State::Ended);
        ended.map(|()| watch.counters())
    }

    fn check_start(&self, stage: &impl Stage) -> Result<(), Error> {
        let (ring, stream) = (stage.next(), self.next_seq());
        if ring == stream { Ok(()) } else { Err(Error::WrongEpoch { ring, stream }) }
    }

    fn spawn(mut self, stage: impl Stage<Event = E> + 'static) -> Result<RunningSink, Error> {
        self.opened.name = stage.name();
        let OpenSink { runtime, opened, watch } = self;
        let (name, durability) = (opened.name.clone(), opened.durability);
        let remarks = opened.stream.remarks.clone();
        let journal = opened.point.ring.0;
        let mut run = SinkRun::new(stage, opened, watch.clone());
        let shared = watch.shared.clone();
        let body = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| runtime.run_here(run.run())));
            shared.change(|counters| counters.state = State::Ended);
            // The stage's handle is dropped first, so that its waiters learn of the end at once.
            drop(run);
            drop(runtime);
            ended.unwrap_or_else(|panic| {
                let (stage, why) = (name, panic_text(&*panic));
                Err(Error::Function { stage, seq: shared.counters().acknowledged, why })
            })
        };
        let thread = RunThread::spawn(SINK_THREAD, body)?;
        Ok(RunningSink { watch, thread, durability, remarks, journal })
    }
}

impl<E> fmt::Debug for OpenSink<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSink").field("next_seq", &self.opened.point.next).finish()
    }
}

/// The parts of a sink, which the simulation runs on a runtime of its own.
#[cfg(test)]
pub(crate) mod parts {
    pub use super::open::Opened;
    pub use super::run::SinkRun;
    pub use super::settings::SinkSettings;
    use super::*;

    pub fn watch() -> Watch {
        let (shared, stop) = (LiveCounters::default(), Arc::new(Stop::default()));
        Watch { shared, stop }
    }
}
