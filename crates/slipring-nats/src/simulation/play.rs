//! A run of a case: sinks, a source and the server on one thread, under a clock that only moves
//! while all of them wait.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use tokio::task::{JoinHandle, LocalSet, spawn_local};

use super::case::{Case, Form, Step};
use super::network::Network;
use super::oracle::{End, Oracle, broken};
use super::ring::{SinkRing, SinkStage, SourceFeed, SourceRing, lock};
use super::server::Server as Simulated;
use crate::encoding::{Decoding, Encoding};
use crate::errors::Error;
use crate::frame::{HEADER, Id};
use crate::nats::Server;
use crate::nats::stream::StreamSettings;
use crate::resume::Start;
use crate::sink::parts::{Opened, SinkRun, SinkSettings, watch};
use crate::sink::{Durability, Outage};
use crate::source::parts::{SourceRun, SourceSettings, SourceStatus, connect, fill};

/// Time in which all sinks and the source must end after the last fault.
const LIMIT: Duration = Duration::from_secs(120);
/// Number of polls of all tasks at one time after which a run counts as one without end.
const SPIN: u64 = 20_000;
/// Pause before a sink or a source is started again that found no server.
const AGAIN: Duration = Duration::from_millis(50);
/// Owner of the source's connections. The sinks have the numbers below.
const SOURCE: usize = 1_000_000;
/// Bytes that a stream's size limit has room for in addition to a frame.
const OVERHEAD: usize = 257;

/// The result of a run.
pub struct Played {
    /// The first broken promise.
    pub broken: Option<String>,
    /// Number of messages on the network.
    pub messages: u64,
    /// The messages and steps of the run, if they were wanted.
    pub trace: Vec<String>,
    /// Names of the errors with which sinks and sources have ended.
    pub ends: Vec<String>,
}

/// Runs a case.
pub fn play(case: &Case, traced: bool) -> Played {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
    fastrand::seed(case.seed);
    let local = LocalSet::new();
    let played = local.block_on(&runtime, async {
        let oracle = Arc::new(Mutex::new(Oracle::default()));
        let server = Simulated::new(oracle.clone());
        let latency = Duration::from_millis(case.latency_ms);
        let network = Network::new(server, case.lies.clone(), latency, traced);
        let _running = super::enter(case.twin.clone(), network.clone());
        spawn_local(network.clone().run());
        let mut run = Run::new(case, network.clone(), oracle.clone());
        if !passes(run.steps()).await {
            let why = "tasks spin: they wake themselves, so that no time passes";
            lock(&oracle).breaks(why.into());
        }
        let (messages, trace) = (network.messages(), network.traced());
        Played { broken: broken(&oracle), messages, trace, ends: run.ends }
    });
    drop(local);
    played
}

/// Polls a future to its end. Returns `false` if time stands still for `SPIN` polls.
async fn passes(future: impl Future<Output = ()>) -> bool {
    let mut future = pin!(future);
    let (mut time, mut polls) = (tokio::time::Instant::now(), 0);
    std::future::poll_fn(|context| {
        let now = tokio::time::Instant::now();
        polls = if now == time { polls + 1 } else { 0 };
        time = now;
        match future.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if polls > SPIN => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Returns the event that a message's bytes begin with.
pub fn value(bytes: &[u8]) -> u64 {
    let bytes = bytes.first_chunk().copied();
    bytes.map_or(0, u64::from_le_bytes)
}

/// Appends the bytes of an event, whose length depends on the event.
fn encode(event: &u64, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&event.to_le_bytes());
    bytes.resize(bytes.len() + (event % 20) as usize, 0);
}

/// Rings in the order in which they were made.
type Rings = Rc<RefCell<Vec<SinkRing>>>;

struct Run<'c> {
    case: &'c Case,
    network: Network,
    oracle: Arc<Mutex<Oracle>>,
    rings: Rings,
    sinks: Vec<SinkTask>,
    opens: Rc<RefCell<Opens>>,
    /// Whether new rings are closed at once.
    closing: Rc<Cell<bool>>,
    source_ring: SourceRing,
    source: Option<JoinHandle<Result<(), Error>>>,
    ends: Vec<String>,
}

struct SinkTask {
    number: usize,
    /// Number of its ring; `None` until the ring is made.
    ring: Rc<Cell<Option<usize>>>,
    survives: bool,
    /// The sink's end, and whether a sink of another ring may have taken the stream over.
    task: JoinHandle<(Result<(), Error>, bool)>,
}

/// When each sink may have taken the stream over. The times are numbers of starts and ends.
#[derive(Default)]
struct Opens {
    now: u64,
    sinks: Vec<Open>,
}

struct Open {
    /// Time at which the first sink of the ring was started.
    since: u64,
    /// Time at which the sink had taken the stream over or was killed.
    until: u64,
}

impl Opens {
    /// Records the start of a sink, at the ring of the sink `before` or at a new one.
    fn start(&mut self, before: Option<usize>) -> usize {
        self.now += 1;
        let since = before.map_or(self.now, |before| self.sinks[before].since);
        self.sinks.push(Open { since, until: u64::MAX });
        self.sinks.len() - 1
    }

    fn end(&mut self, sink: usize) {
        self.now += 1;
        let until = &mut self.sinks[sink].until;
        *until = self.now.min(*until);
    }

    /// Returns whether a sink of another ring may have taken the stream over from this one.
    fn is_followed(&self, sink: usize) -> bool {
        let since = self.sinks[sink].since;
        self.sinks.iter().any(|other| other.since != since && other.until > since)
    }
}

impl<'c> Run<'c> {
    fn new(case: &'c Case, network: Network, oracle: Arc<Mutex<Oracle>>) -> Run<'c> {
        let source_ring = SourceRing::new(case.source_slots, oracle.clone());
        Run {
            case,
            network,
            oracle,
            rings: Rings::default(),
            sinks: Vec::new(),
            opens: Rc::default(),
            closing: Rc::default(),
            source_ring,
            source: None,
            ends: Vec::new(),
        }
    }

    /// Returns whether a promise is broken.
    fn is_broken(&self) -> bool {
        broken(&self.oracle).is_some()
    }

    async fn steps(&mut self) {
        let pause = Duration::from_millis(self.case.read_ms);
        spawn_local(self.source_ring.clone().read(pause));
        self.start_sink(false);
        self.start_source(false);
        for (pause, step) in &self.case.steps {
            tokio::time::sleep(Duration::from_millis(*pause)).await;
            if self.is_broken() {
                return;
            }
            self.network.trace(|| format!("{step:?}"));
            self.step(step).await;
        }
        self.network.be_honest();
        self.end().await;
    }

    async fn step(&mut self, step: &Step) {
        let ms = |ms: &u64| Duration::from_millis(*ms);
        match step {
            Step::Publish { ring, events } => {
                let rings = self.rings.borrow();
                if let Some(ring) = rings.iter().nth_back(*ring) {
                    ring.publish(*events);
                }
            }
            Step::LeaveOut { positions } => {
                if let Some(ring) = self.rings.borrow().last() {
                    ring.leave_out(*positions);
                }
            }
            Step::Replace => {
                self.kill_sink();
                let has_ring = self.sinks.last().is_some_and(|sink| sink.ring.get().is_some());
                self.start_sink(has_ring);
            }
            Step::TakeOver { kills } => {
                if *kills {
                    self.kill_sink();
                }
                self.start_sink(false);
            }
            Step::ReplaceSource => {
                self.kill_source();
                self.start_source(false);
            }
            Step::Cut { source, lost } => self.network.cut(self.owner(*source), *lost),
            Step::GiveUp { source } => self.network.give_up(self.owner(*source)),
            Step::Restart { down_ms } => self.network.restart(ms(down_ms)),
            Step::Silence { ms: time } => self.network.silence(ms(time)),
            Step::Full { ms: time } => {
                let until = tokio::time::Instant::now() + ms(time);
                self.network.server(|server| server.full_until = Some(until));
            }
            Step::Stall => self.network.server(Simulated::stall),
            Step::Forget => self.network.server(Simulated::forget),
            Step::Limit { events } => {
                let bytes = OVERHEAD + max_frame(self.case.form, *events);
                self.network.server(|server| server.limit(bytes));
            }
            Step::Retain => {
                let position = self.source_ring.next();
                self.network.server(|server| server.retain(position));
            }
            Step::RemoveOne { behind } => {
                self.network.server(|server| server.remove_one(*behind));
            }
            Step::RemoveLast { messages } => {
                self.network.server(|server| server.remove_last(*messages));
            }
        }
    }

    /// Waits for all ends, and judges them.
    async fn end(&mut self) {
        self.closing.set(true);
        self.rings.borrow().iter().for_each(SinkRing::close);
        for sink in std::mem::take(&mut self.sinks) {
            self.judge(sink).await;
            if self.is_broken() {
                return;
            }
        }
        if lock(&self.oracle).removed {
            // A user who accepts the loss goes on.
            self.start_sink(false);
            if let Some(sink) = self.sinks.pop() {
                self.judge(sink).await;
            }
        }
        if self.source.is_some() && !self.follows().await {
            return lock(&self.oracle).breaks("the source never comes to the stream's end".into());
        }
        self.kill_source();
        self.start_source(true);
        let Some(source) = self.source.take() else { return };
        let ended = tokio::time::timeout(LIMIT, source).await;
        let mut oracle = lock(&self.oracle);
        match ended {
            Ok(Ok(Ok(()))) => {
                let (ring, stream) =
                    (self.source_ring.next(), self.network.server(|server| server.end()));
                if stream.is_some_and(|end| end != ring) {
                    oracle
                        .breaks(format!("a source ended at {ring}, and its stream at {stream:?}"));
                }
            }
            Ok(Ok(Err(error))) => {
                self.ends.push(format!("source {}", name(&error)));
                oracle.source_failed(&error);
            }
            Ok(Err(error)) => oracle.breaks(format!("a source panicked: {error}")),
            Err(_) => oracle.breaks("a source never ends".into()),
        }
    }

    /// Waits until the running source has come to the stream's end, or has ended with an error.
    async fn follows(&self) -> bool {
        let begun = tokio::time::Instant::now();
        while begun.elapsed() < LIMIT {
            let end = self.network.server(|server| server.end());
            let is_over = self.source.as_ref().is_none_or(|source| source.is_finished());
            if is_over || end.is_none_or(|end| self.source_ring.next() >= end) {
                return true;
            }
            tokio::time::sleep(AGAIN).await;
        }
        // A source waits for the next message if it sees that the stream has lost its end.
        let oracle = lock(&self.oracle);
        oracle.removed || oracle.holed
    }

    /// Waits for the end of a sink, and judges it.
    async fn judge(&mut self, sink: SinkTask) {
        let ended = tokio::time::timeout(LIMIT, sink.task).await;
        let mut oracle = lock(&self.oracle);
        let (ended, is_followed) = match ended {
            Ok(Ok(ended)) => ended,
            Ok(Err(error)) if error.is_cancelled() => return, // it was killed
            Ok(Err(error)) => return oracle.breaks(format!("a sink panicked: {error}")),
            Err(_) => return oracle.breaks(format!("sink {} never ends", sink.number)),
        };
        let survives = sink.survives;
        let error = ended.as_ref().err();
        self.ends.extend(error.map(|error| format!("sink {}", name(error))));
        let ring = sink.ring.get().map(|ring| self.rings.borrow()[ring].epoch());
        let epoch = ring.unwrap_or(Id([0; 16]));
        oracle.sink_ended(epoch, &End { error, is_followed, survives });
    }

    /// Returns the owner of the connections of the source or of the newest sink.
    fn owner(&self, source: bool) -> usize {
        if source { SOURCE } else { self.opens.borrow().sinks.len() - 1 }
    }

    fn kill_sink(&mut self) {
        if let Some(sink) = self.sinks.last() {
            self.network.kill(sink.number);
            self.opens.borrow_mut().end(sink.number);
            sink.task.abort();
        }
    }

    fn kill_source(&mut self) {
        if let Some(source) = self.source.take() {
            self.network.kill(SOURCE);
            source.abort();
        }
    }

    /// Starts a sink at the newest sink's ring, or for a new ring.
    fn start_sink(&mut self, survives: bool) {
        let before = self.sinks.last().filter(|_| survives);
        let number = self.opens.borrow_mut().start(before.map(|before| before.number));
        let ring = before.map_or_else(Rc::default, |before| before.ring.clone());
        let start = SinkStart {
            number,
            settings: self.settings(number),
            opens: self.opens.clone(),
            form: self.case.form,
            slots: self.case.slots,
            rings: self.rings.clone(),
            ring: ring.clone(),
            closing: self.closing.clone(),
            oracle: self.oracle.clone(),
        };
        let (opens, network) = (self.opens.clone(), self.network.clone());
        let task = spawn_local(async move {
            let ended = start.run().await;
            network.trace(|| format!("sink {number} ends: {ended:?}"));
            (ended, opens.borrow().is_followed(number))
        });
        self.sinks.push(SinkTask { number, ring, survives, task });
    }

    fn settings(&self, number: usize) -> SinkSettings {
        let case = self.case;
        let subject = if case.form == Form::Single { "s.>" } else { "s" };
        let window = case.windows[number % case.windows.len()];
        let max_frame = max_frame(case.form, case.frame_events);
        let removed = lock(&self.oracle).removed;
        SinkSettings {
            linger: Duration::from_millis(case.linger_ms),
            ack_timeout: Duration::from_millis(case.ack_ms),
            accept_loss: self.closing.get() || (removed && number.is_multiple_of(2)),
            ..sink_settings(number, subject, window, max_frame)
        }
    }

    fn start_source(&mut self, until_end: bool) {
        let settings = SourceSettings {
            server: Server::at(format!("simulated:{SOURCE}")),
            stream: "S".into(),
            until_end,
            fail_after: None,
            journal: None,
            wait: Duration::ZERO,
        };
        let decoding = match self.case.form {
            Form::Plain => Decoding::plain("event", 1),
            _ => Decoding::by("event", 1, |bytes, slot| {
                *slot = value(bytes);
                Ok(())
            }),
        };
        let (ring, network) = (self.source_ring.clone(), self.network.clone());
        let oracle = self.oracle.clone();
        self.source = Some(spawn_local(async move {
            let ended = run_source(settings, decoding, ring).await;
            network.trace(|| format!("a source ends: {ended:?}"));
            if let Err(error) = &ended {
                lock(&oracle).source_failed(error);
            }
            ended
        }));
    }
}

/// Returns the options of a sink that writes to the simulated server.
pub fn sink_settings(
    number: usize,
    subject: &str,
    window: usize,
    max_frame: usize,
) -> SinkSettings {
    SinkSettings {
        server: Server::at(format!("simulated:{number}")),
        stream: "S".into(),
        subject: None,
        create: Some(StreamSettings::new(subject)),
        outage: Outage::Wait,
        durability: Durability::Process,
        confirmed: false,
        system: None,
        window,
        max_frame,
        linger: Duration::from_millis(1),
        ack_timeout: Duration::from_secs(1),
        resume_at: None,
        journal: None,
        accept_loss: false,
        wait: Duration::ZERO,
    }
}

/// Everything that a sink needs.
struct SinkStart {
    number: usize,
    opens: Rc<RefCell<Opens>>,
    settings: SinkSettings,
    form: Form,
    slots: u64,
    rings: Rings,
    ring: Rc<Cell<Option<usize>>>,
    closing: Rc<Cell<bool>>,
    oracle: Arc<Mutex<Oracle>>,
}

impl SinkStart {
    async fn run(self) -> Result<(), Error> {
        let SinkStart { number: sink, opens, settings, form, slots, rings, ring, closing, oracle } =
            self;
        let attached = ring.get().map(|ring| rings.borrow()[ring].clone());
        let epoch = attached.as_ref().map_or_else(Id::random, SinkRing::epoch);
        let at = attached.as_ref().map(SinkRing::attach);
        let accepts_loss = settings.accept_loss;
        let opened = loop {
            let encoding = match form {
                Form::Plain => Encoding::plain("event", 1),
                Form::Varied => Encoding::by("event", 1, encode),
                Form::Single => Encoding::messages("event", 1, |_| "s.event".into(), encode),
            };
            let (survives, number) = (at.is_some(), Id::random());
            let start = Start { survives, at, accepts_loss, journal: None, number };
            match Opened::new(settings.clone(), encoding, epoch, start).await {
                Err(error) if may_pass(&error) => tokio::time::sleep(AGAIN).await,
                opened => break opened?,
            }
        };
        opens.borrow_mut().end(sink);
        let handle = attached.unwrap_or_else(|| {
            let made = SinkRing::new(epoch, opened.point.next, slots, oracle);
            if closing.get() {
                made.close();
            }
            let mut rings = rings.borrow_mut();
            ring.set(Some(rings.len()));
            rings.push(made.clone());
            made
        });
        SinkRun::new(SinkStage(handle), opened, watch()).run().await
    }
}

async fn run_source(
    settings: SourceSettings,
    decoding: Decoding<u64>,
    ring: SourceRing,
) -> Result<(), Error> {
    let (connection, extent) = loop {
        match connect(&settings).await {
            Err(error) if may_pass(&error) => tokio::time::sleep(AGAIN).await,
            Err(Error::NoStream { .. }) => tokio::time::sleep(AGAIN).await,
            connected => break connected?,
        }
    };
    let shared = Arc::new(SourceStatus::default());
    let (feed, stream) = (SourceFeed(ring), settings.stream.clone());
    let mut run = SourceRun::new(feed, decoding, connection, settings, &extent, shared.clone());
    let ended = fill(&mut run, &shared, &stream).await;
    run.end(ended.is_err());
    run.forget().await;
    ended
}

/// Returns whether a program that finds no server starts its sink or source again.
fn may_pass(error: &Error) -> bool {
    matches!(
        error,
        Error::Unreachable { .. }
            | Error::Away { .. }
            | Error::Full { .. }
            | Error::NoJetStream { .. }
            | Error::Server { .. }
    )
}

/// Returns the length of a frame with room for `events` events.
fn max_frame(form: Form, events: usize) -> usize {
    match form {
        Form::Plain => HEADER + 8 * events,
        Form::Varied => HEADER + 31 * events,
        Form::Single => 600 * events,
    }
}

/// Returns the name of an error.
fn name(error: &Error) -> String {
    let text = format!("{error:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}
