//! The declaration of a graph: its stages, their access to the events, and for each stage the
//! stages that it follows.

use crate::base::panics::Contained;
use crate::base::sync::twin;
use crate::errors::BuildError;
use crate::ring::policy::Policy;
use crate::wait::Wait;

/// Whether a stage may change events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The rule by which a stage's events are delivered to its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// A single handle sees all events.
    Each,
    /// Each event goes to exactly one worker of the pool. A pool starts with `workers` workers, and
    /// never has more than `room` workers at once.
    Pool { workers: usize, room: usize },
    /// Each event goes to the shard that its key selects. The field is the number of shards.
    Shards(usize),
    /// Readers join and leave while the graph runs. The field is the number of readers that the tap
    /// has room for. A tap without a member holds no events back.
    Tap(usize),
}

impl Delivery {
    /// Returns a pool of `workers` workers that has no room for further workers.
    pub(crate) fn pool(workers: usize) -> Delivery {
        Delivery::Pool { workers, room: workers }
    }
    /// Returns the stage's number of handles when the ring is built.
    pub(crate) fn len(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { workers, .. } => workers,
            Delivery::Shards(shards) => shards,
            Delivery::Tap(_) => 0,
        }
    }
    /// Returns the number of handles that the stage has room for.
    pub(crate) fn room(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { room, .. } | Delivery::Tap(room) => room,
            Delivery::Shards(shards) => shards,
        }
    }
    /// Returns whether the stage's handles release by storing bounds. A bound is a position times
    /// two: the lowest bit of a bound shows whether the handle is idle.
    pub(crate) fn has_bounds(self) -> bool {
        matches!(self, Delivery::Pool { .. } | Delivery::Tap(_))
    }
    /// Returns the number of shared cache lines that a stage needs. The table at `Stage::line`
    /// lists the words on them.
    pub(crate) fn lines(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { room, .. } => 1 + room + 1,
            Delivery::Shards(shards) => shards,
            Delivery::Tap(room) => 1 + room + room,
        }
    }
    /// Returns whether the word of a tap's members has a bit for each seat. If not, the word counts
    /// the members.
    #[inline(always)]
    pub(crate) fn has_member_bits(self) -> bool {
        twin!("members-counted": self.room() <= MAX_MEMBER_BITS => false)
    }
}

/// Largest number of members with which a tap's word still has one bit for each seat.
pub(crate) const MAX_MEMBER_BITS: usize = u64::BITS as usize;

/// Largest number of positions that a pool's tickets may be ahead of its events, if its workers can
/// sleep. Further workers that find no event draw no ticket, and fall asleep, so that they use no
/// cores. With 3 to 8, an event costs about the same (simulated); with 2, the third of three
/// workers sleeps and wakes up too often.
pub(crate) const TICKETS_AHEAD: u64 = 4;
/// Number of seats that a pool has for the tickets that sleeping workers have left, and largest
/// number of these tickets.
pub(crate) const TICKETS_LEFT: usize = TICKETS_AHEAD as usize;

/// The threads on which a stage runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ThreadChoice {
    /// A thread of its own for each handle of the stage.
    #[default]
    Own,
    /// The thread with this label. Stages with the same label share the thread, and so a wait
    /// queue.
    Named(String),
    /// The graph's executor, which starts the given number of threads. All of its stages share one
    /// wait queue with the producers, because a producer that waits for room runs stages, too.
    Shared(usize),
}

impl ThreadChoice {
    /// Returns whether two stages with these choices share threads.
    pub(crate) fn shares(&self, other: &ThreadChoice) -> bool {
        *self != ThreadChoice::Own && self == other
    }

    /// Returns the label of the stage's thread, if it has one.
    pub(crate) fn label(&self) -> Option<&str> {
        match self {
            ThreadChoice::Named(label) => Some(label),
            ThreadChoice::Own | ThreadChoice::Shared(_) => None,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, ThreadChoice::Shared(_))
    }
}

/// If the stage is not on shared threads, returns the name of the thread that runs one of its
/// workers, its shards, or its handler.
pub(crate) fn thread_name(
    thread: &ThreadChoice,
    delivery: Delivery,
    stage: &str,
    worker: usize,
) -> String {
    match (thread.label(), delivery) {
        (Some(thread), _) => thread.to_owned(),
        (None, Delivery::Each) => stage.to_owned(),
        (None, _) => format!("{stage}-{worker}"),
    }
}

/// A stage as the user declared it.
#[derive(Clone, Debug)]
pub(crate) struct StageSpec {
    pub(crate) name: String,
    pub(crate) access: Access,
    pub(crate) delivery: Delivery,
    /// Indices of the stages that this stage follows.
    pub(crate) after: Vec<usize>,
    pub(crate) thread: ThreadChoice,
    pub(crate) policy: Policy,
    /// Waiting strategy of the stage; `None` if the stage uses the graph's strategy.
    pub(crate) wait: Option<Contained<Wait>>,
}

impl StageSpec {
    pub(crate) fn new(
        name: &str,
        access: Access,
        delivery: Delivery,
        after: &[usize],
    ) -> StageSpec {
        StageSpec {
            name: name.to_owned(),
            access,
            delivery,
            after: after.to_vec(),
            thread: ThreadChoice::Own,
            policy: Policy::default(),
            wait: None,
        }
    }
}

/// The stages declared so far, and the first mistake among the declarations.
///
/// A stage's index in the list identifies the stage. Chains and graphs record a mistake in a
/// declaration instead of panicking, and the build reports the first mistake.
#[derive(Default)]
pub(crate) struct StageList {
    specs: Vec<StageSpec>,
    problem: Option<BuildError>,
}

impl StageList {
    /// Adds a stage that depends on the stages in `after`; returns its index.
    pub(crate) fn add(
        &mut self,
        name: &str,
        access: Access,
        delivery: Delivery,
        after: &[usize],
    ) -> usize {
        self.specs.push(StageSpec::new(name, access, delivery, after));
        self.specs.len() - 1
    }

    /// Returns the stages in the order of their declaration.
    pub(crate) fn specs(&self) -> &[StageSpec] {
        &self.specs
    }

    /// Returns a mutable reference to the stage with the index `stage`.
    pub(crate) fn spec_mut(&mut self, stage: usize) -> &mut StageSpec {
        &mut self.specs[stage]
    }

    /// Returns a mutable reference to the stage declared last.
    pub(crate) fn last_mut(&mut self) -> Option<&mut StageSpec> {
        self.specs.last_mut()
    }

    /// Records a mistake; the build reports the first one.
    pub(crate) fn note(&mut self, problem: BuildError) {
        self.problem.get_or_insert(problem);
    }

    /// Records a mistake: a declaration that has no meaning in its place, or that contradicts
    /// another declaration.
    pub(crate) fn reject(&mut self, problem: impl Into<String>) {
        self.note(BuildError::Declaration { problem: problem.into() });
    }

    /// Returns the first recorded mistake, if there is one.
    pub(crate) fn problem(&self) -> Option<&BuildError> {
        self.problem.as_ref()
    }

    /// Returns the stages for the build, or the first mistake.
    pub(crate) fn checked(&self) -> Result<Vec<StageSpec>, BuildError> {
        match &self.problem {
            Some(problem) => Err(problem.clone()),
            None => Ok(self.specs.clone()),
        }
    }
}

/// Returns the likely number of the stages' threads. Stages with the same thread label share one
/// thread, and the stages of the executor share its threads. Every other stage has one thread per
/// handle.
pub(crate) fn count_threads(specs: &[StageSpec]) -> usize {
    let first_of_thread =
        |i: usize| specs[..i].iter().all(|before| before.thread != specs[i].thread);
    let threads = specs.iter().enumerate().map(|(i, spec)| match spec.thread {
        ThreadChoice::Own => spec.delivery.len(),
        ThreadChoice::Named(_) => usize::from(first_of_thread(i)),
        ThreadChoice::Shared(threads) => threads * usize::from(first_of_thread(i)),
    });
    threads.sum()
}
