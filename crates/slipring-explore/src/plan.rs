//! Rings as plain data: their stages, how handles are driven, and what producers do.
//!
//! - I1: Stages of a ring come after stages of smaller numbers only.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use slipring::{
    Mirror, Wait,
    waiting::{WaitAction, WaitContext, WaitStrategy},
};

/// A ring, and the threads of its stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RingPlan {
    /// Number of slots, a power of two.
    pub capacity: usize,
    /// First position.
    pub first: u64,
    /// Whether several producers share the ring.
    pub shared: bool,
    /// Whether the events lie side by side.
    pub contiguous: bool,
    /// How its threads wait.
    pub wait: Waits,
    /// Who runs the stages.
    pub front: Front,
    /// The call that runs the stages, if the library does.
    #[serde(default)]
    pub run: Run,
    /// Time from the build after which all waits end, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<u64>,
    /// Whether a single producer publishes its cursor, if the front is no chain, whose monitor
    /// makes it do so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cursor: bool,
    /// Whether the stages are declared from the last to the first, if not as a chain.
    #[serde(default)]
    pub reversed: bool,
    /// The stages, in the order of their declaration.
    pub stages: Vec<StagePlan>,
}

/// Who runs a ring's stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Front {
    /// The program's own threads, with a handle each.
    Handles,
    /// The library, on a thread for each stage, or on so many shared ones.
    Handlers(Option<usize>),
    /// The same, of stages that were declared as a chain.
    Chain(Option<usize>),
    /// The library, on one thread that takes the stages of a chain in turn.
    Thread,
}

impl Front {
    /// Whether the stages share threads.
    pub fn shares_threads(self) -> bool {
        matches!(self, Front::Handlers(Some(_)) | Front::Chain(Some(_)) | Front::Thread)
    }

    /// Whether the stages are declared as a chain.
    pub fn is_chain(self) -> bool {
        matches!(self, Front::Chain(_) | Front::Thread)
    }
}

/// The call that runs a ring's stages, and its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Run {
    /// `spawn`, and `join`.
    #[default]
    Join,
    /// `spawn`, and `join_within` of so many microseconds, again and again.
    Within(u64),
    /// `spawn`, `join_on_drop` of so many microseconds, and a drop.
    OnDrop(u64),
    /// `spawn`, a halt after so many microseconds, and `join`.
    Halt(u64),
    /// `spawn`, and a drop.
    Drop,
    /// `run` of one producer, whose closure publishes.
    Closure,
    /// `run` of several producers: its closure publishes, and so do threads that it starts.
    Shared,
    /// `feed`.
    Feed,
    /// `run_inline` of a chain.
    Inline,
}

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    BusySpin,
    Yielding,
    Sleeping,
    Blocking,
    Phased,
    YieldBlock,
    SpinBlock,
    YieldSleep,
    SpinSleep,
    Adaptive,
    Budget,
    /// Blocking, with a time after which a wait ends.
    Timeout,
    /// A strategy of the user's, which parks at once.
    Park,
}

/// Parks at each poll that finds nothing.
#[derive(Debug)]
struct Parks;

impl WaitStrategy for Parks {
    fn next_action(&self, _: &WaitContext) -> WaitAction {
        WaitAction::Park
    }
    fn parks(&self) -> bool {
        true
    }
    fn alias(&self) -> String {
        "parks".to_owned()
    }
}

impl Waits {
    /// All ways.
    pub const ALL: [Waits; 13] = [
        Waits::BusySpin,
        Waits::Yielding,
        Waits::Sleeping,
        Waits::Blocking,
        Waits::Phased,
        Waits::YieldBlock,
        Waits::SpinBlock,
        Waits::YieldSleep,
        Waits::SpinSleep,
        Waits::Adaptive,
        Waits::Budget,
        Waits::Timeout,
        Waits::Park,
    ];

    /// Returns the library's strategy.
    pub fn strategy(self) -> Wait {
        let [_, _, _, _, phased, yield_block, spin_block, yield_sleep, spin_sleep, _] = Wait::all();
        match self {
            Waits::BusySpin => Wait::BusySpin,
            Waits::Yielding => Wait::Yielding { spins: 2 },
            Waits::Sleeping => {
                Wait::Sleeping { spins: 2, yields: 2, pause: Duration::from_micros(50) }
            }
            Waits::Blocking => Wait::Blocking,
            Waits::Phased => phased,
            Waits::YieldBlock => yield_block,
            Waits::SpinBlock => spin_block,
            Waits::YieldSleep => yield_sleep,
            Waits::SpinSleep => spin_sleep,
            Waits::Adaptive => Wait::ADAPTIVE,
            Waits::Budget => Wait::Adaptive { budget: Some(10) },
            Waits::Timeout => {
                Wait::Timeout { after: Duration::from_micros(300), wait: Arc::new(Wait::Blocking) }
            }
            Waits::Park => Wait::Custom(Arc::new(Parks)),
        }
    }
}

/// A stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StagePlan {
    /// Its kind.
    pub kind: Kind,
    /// Places of a pool for workers that join, or of a tap for readers.
    pub room: usize,
    /// Numbers of the stages that it follows.
    pub after: Vec<usize>,
    /// A way to wait of its own.
    pub wait: Option<Waits>,
    /// The policy for its handler's failures, if the library runs it.
    pub on_fault: Fault,
    /// Whether the events are marked that it skips, if the library runs it.
    #[serde(default)]
    pub marks: bool,
    /// Number of values in a mirror of its events, for a stage with one handle; 0: no mirror.
    #[serde(default)]
    pub mirror: usize,
    /// The number of the thread that it shares with other stages of the same number, if it has one
    /// handle and the library runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<usize>,
    /// Whether its handler, if it is one, is called between events, too: before the first one,
    /// after the last one, behind each batch, and after so many microseconds of a wait (0: once).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idles: Option<u64>,
    /// How each of its handles is driven: one for a reader or writer, several for a pool or shards,
    /// none for a tap.
    pub drives: Vec<Drive>,
}

/// The kind of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Reader,
    Writer,
    PoolReader,
    PoolWriter,
    ShardReader,
    ShardWriter,
    Tap,
}

impl Kind {
    /// Whether its handlers may change events.
    pub fn writes(self) -> bool {
        matches!(self, Kind::Writer | Kind::PoolWriter | Kind::ShardWriter)
    }

    /// Whether its handles share the events.
    pub fn is_pool(self) -> bool {
        matches!(self, Kind::PoolReader | Kind::PoolWriter)
    }
}

/// A policy for failures of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    Stop,
    Skip,
    Retry,
}

/// How a handle is driven.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// The call that it repeats.
    pub by: By,
    /// The most events of a call.
    pub max: usize,
    /// After so many events, something else.
    pub quirk: Option<(u64, Quirk)>,
}

/// The call that a handle's thread repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum By {
    /// `for_each`, once.
    ForEach,
    /// `poll`, with a spin hint when nothing came.
    Poll,
    /// `batch`.
    Batch,
    /// `try_batch`, with a spin hint when nothing came.
    Try,
    /// `batch_by`, with a deadline of so many microseconds.
    Deadline(u64),
    /// `batch_async`, whose future is dropped once in so many polls that found nothing (0: never).
    Task(u64),
    /// `RawConsumer::available` and `done`.
    Raw,
    /// `Selector::wait`, on one thread with all other handles that are driven so, and `poll`.
    Select,
}

/// Something that a handle does once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Quirk {
    /// The handler panics.
    Panic,
    /// The handler fails, if the library runs it.
    Fail,
    /// The handle is dropped; after 0 events, once a call has found none.
    Leave,
    /// The handler panics, and the handle is dropped, in the middle of its events.
    LeaveInside,
    /// A panic drops the handle between two calls.
    DropInPanic,
    /// A panic drops the handle after a call that has found nothing, although all producers had
    /// ended before it. The handle has nothing left to do, so the graph goes on.
    DropIdle,
    /// A batch is dropped unreleased.
    DropBatch,
    /// A batch is forgotten.
    ForgetBatch,
    /// The front of a batch is released first.
    ReleaseFront,
    /// The handler sleeps so many microseconds.
    Sleep(u64),
    /// The handler halts the graph.
    Halt,
    /// The handler publishes an event into the ring of this number, or makes a request there.
    Publish(usize),
    /// The handler waits until the stage of this number has handled the events that its own stage
    /// has handled before, or, if it is not behind its own, all that is published. A worker can
    /// wait for its own pool, too: for all but its own event. A handler that the library runs waits
    /// at each later event, too.
    Await(usize),
    /// The handler waits until all producers have ended.
    AwaitProducers,
    /// The handler waits until one of the producers has ended.
    AwaitProducer,
    /// The handler makes so many calls of another handle of its ring.
    Nested(u64),
    /// A writer's handle between processes passes over the suspects, before it lends an event.
    PassOver,
    /// A batch is held, with those of so many calls behind it.
    Hold(u64),
    /// The handler runs a chain of its own.
    Chain,
}

/// An action of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// `publish`, so many times.
    Publish(u64),
    /// `try_publish` until it has succeeded so many times.
    Try(u64),
    /// `publish_by`, with a deadline of so many microseconds, until it has succeeded once.
    By(u64),
    /// `publish_all` of so many events.
    All(u64),
    /// `publish_batches` of the first number of events at once, of the second in all.
    Batches(usize, u64),
    /// `claim_n` of so many events, with their fate.
    Claim(usize, Fate),
    /// `publish_or_drop`, so many times.
    OrDrop(u64),
    /// `publish_or_drop`, until it has published so many times.
    Insist(u64),
    /// `try_publish`, so many times, each after a wait for room of one's own.
    When(u64, Room),
    /// `publish_async`, so many times; the future is dropped once in so many polls that found the
    /// ring full (0: never).
    Task(u64, u64),
    /// `RawProducer::next_n` of so many, and `done`.
    Raw(usize),
    /// `claim_n_async` of so many, which are published; the future is dropped as that of `Task`.
    ClaimTask(usize, u64),
    /// `ask`, so many times, and what is done for the answer.
    Ask(u64, Answer),
    /// `ask_async`, so many times; the future is dropped as that of `Task`.
    AskTask(u64, u64),
    /// `ask`, so many times, whose first reader drops the promise.
    AskBroken(u64, Answer),
    /// `ask`, whose first reader keeps the promise: only the deadline ends the wait.
    AskInVain(Answer),
    /// Waits until a call has told that the deadline has passed.
    AwaitFailure,
    /// `publish`, so many times, at a distance of so many microseconds.
    Every(u64, u64),
    /// A `Conflator` with room for so many keys, and so many values of one key more.
    Conflate(usize, u64),
    /// `publish` with a closure that panics.
    Panic,
    /// Sleeps so many microseconds.
    Sleep(u64),
    /// Waits until all stages have handled what was published. While a producer keeps the ring
    /// open, no close wakes a stage whose wake-up was lost.
    Drain,
    /// `halt`.
    Halt,
    /// `close_all`, if producers are many; nothing follows it.
    CloseAll,
    /// `ask`, after which the producer is dropped, and the answer awaited; nothing follows it.
    AskLast(Answer),
    /// A panic drops the producer; nothing follows it.
    DropInPanic,
    /// The closure of a run returns an error, or panics; nothing follows it.
    Fail { panics: bool },
}

impl Verb {
    /// Whether a stage has to answer, or to end the wait.
    pub fn asks(&self) -> bool {
        match self {
            Verb::Ask(..) | Verb::AskLast(_) | Verb::AskTask(..) | Verb::AskBroken(..) => true,
            _ => self.needs_deadline(),
        }
    }

    /// Whether nothing but the deadline ends its wait.
    pub fn needs_deadline(&self) -> bool {
        matches!(self, Verb::AskInVain(_) | Verb::AwaitFailure)
    }
}

/// Lets a producer wait at its end until all is handled. A claim that it had forgotten would stay
/// open until then.
pub fn drain(verbs: &mut Vec<Verb>) {
    for verb in verbs.iter_mut() {
        if let Verb::Claim(_, fate @ Fate::Forget) = verb {
            *fate = Fate::Drop;
        }
    }
    verbs.push(Verb::Drain);
}

/// How the answer to a request is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// `wait`.
    Wait,
    /// `wait_for`, so many microseconds at a time.
    For(u64),
    /// The future is polled.
    Task,
    /// `try_take`, with a spin hint when there was none.
    Try,
    /// Nothing: it is dropped.
    Drop,
}

/// How a producer waits for room before it publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Room {
    /// `remaining`, with a spin hint while there is none.
    Remaining,
    /// A selector, with a deadline of so many microseconds (0: none), again and again.
    Select(u64),
}

/// The fate of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// It is published.
    Publish,
    /// It is dropped, and so given up.
    Drop,
    /// It is forgotten: the handle gives it up later.
    Forget,
}

impl StagePlan {
    /// Returns a reader that waits for no other stage.
    pub fn reader(drive: Drive) -> StagePlan {
        StagePlan {
            kind: Kind::Reader,
            room: 0,
            after: Vec::new(),
            wait: None,
            on_fault: Fault::Stop,
            marks: false,
            mirror: 0,
            on: None,
            idles: None,
            drives: vec![drive],
        }
    }

    /// Whether the stage's handler may fail at an event that goes on all the same, and is marked.
    pub fn has_marks(&self) -> bool {
        self.marks && self.on_fault == Fault::Skip && self.kind != Kind::Tap
    }

    /// Returns the stage's mirror, if it has one: a handle that gets its events in order.
    pub fn own_mirror(&self) -> Option<Mirror<[u64; 3]>> {
        let in_order = self.drives.len() == 1 && !self.kind.is_pool();
        let wanted = self.mirror != 0 && in_order;
        wanted.then(|| Mirror::new(self.mirror).expect("a power of two"))
    }
}

impl RingPlan {
    /// Whether the thread that runs the stages publishes, too.
    pub fn is_run(&self) -> bool {
        let one = !self.shared && self.front != Front::Handles;
        match self.run {
            Run::Closure | Run::Feed => one,
            Run::Inline => one && matches!(self.front, Front::Chain(_)),
            Run::Shared => self.shared && self.front != Front::Handles,
            _ => false,
        }
    }

    /// Whether a report counts the free slots exactly when all is handled.
    pub fn counts_room(&self) -> bool {
        let publishes_cursor = self.cursor || self.front.is_chain();
        publishes_cursor && !self.shared && self.stages.iter().all(|stage| stage.kind != Kind::Tap)
    }

    /// Whether room that the producer has found stays there.
    pub fn is_steady(&self) -> bool {
        // A reader that joins a tap holds the oldest event, whose slot was free.
        let moves = |stage: &StagePlan| stage.kind.is_pool() || stage.kind == Kind::Tap;
        !self.shared && !self.stages.iter().any(moves)
    }

    /// Whether a call tells of a failure while a producer waits.
    pub fn tells(&self) -> bool {
        self.front == Front::Handles
            || !self.is_run() && matches!(self.run, Run::Join | Run::Within(_))
    }

    /// Whether one thread runs all stages, and publishes.
    pub fn is_inline(&self) -> bool {
        self.is_run() && self.run == Run::Inline
    }

    /// Whether a handler publishes into the ring with this number.
    pub fn publishes_into(&self, ring: usize) -> bool {
        let mut drives = self.stages.iter().flat_map(|stage| &stage.drives);
        drives.any(|drive| matches!(drive.quirk, Some((_, Quirk::Publish(into))) if into == ring))
    }

    /// The numbers of the stages before `stage`, over any number of steps.
    pub fn before(&self, stage: usize) -> Vec<usize> {
        let mut found = vec![false; self.stages.len()];
        // I1: going down, each stage is complete when it is looked at.
        for number in (0..=stage).rev() {
            if number == stage || found[number] {
                self.stages[number].after.iter().for_each(|&earlier| found[earlier] = true);
            }
        }
        (0..found.len()).filter(|&number| found[number]).collect()
    }

    /// The numbers of the writers before `stage`, first to last: writers of a sound graph are
    /// ordered.
    pub fn writers_before(&self, stage: usize) -> Vec<usize> {
        let before = self.before(stage).into_iter();
        let mut writers: Vec<usize> = before.filter(|&w| self.stages[w].kind.writes()).collect();
        writers.sort_by_key(|&writer| self.before(writer).len());
        writers
    }

    /// Adds dependencies until no stage stands beside a writer.
    pub fn repair(&mut self) {
        for later in 0..self.stages.len() {
            for earlier in 0..later {
                let writes = |stage: usize| self.stages[stage].kind.writes();
                if (writes(later) || writes(earlier)) && !self.before(later).contains(&earlier) {
                    self.stages[later].after.push(earlier);
                }
            }
        }
    }
}
