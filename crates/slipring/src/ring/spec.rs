//! A graph as it is declared: stages by number, what they may do, and which ones they follow.

use crate::base::panics::Contained;
use crate::errors::BuildError;
use crate::ring::policy::Policy;
use crate::wait::Wait;

/// Whether a stage may change events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// How a stage's events are delivered to its handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// One handle sees every event.
    Each,
    /// Each event goes to one of `workers`. More workers may join, up to `room` at a time.
    Pool { workers: usize, room: usize },
    /// Each event goes to one of so many shards, by a key.
    Shards(usize),
    /// Readers join and leave while the graph runs, up to so many at a time. Without a member
    /// everything passes.
    Tap(usize),
}

impl Delivery {
    /// Returns a pool that no worker joins.
    pub(crate) fn pool(workers: usize) -> Delivery {
        Delivery::Pool { workers, room: workers }
    }
    /// Returns the number of handles at the start.
    pub(crate) fn len(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { workers, .. } => workers,
            Delivery::Shards(shards) => shards,
            Delivery::Tap(_) => 0,
        }
    }
    /// Returns the largest number of handles at a time.
    pub(crate) fn room(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { room, .. } | Delivery::Tap(room) => room,
            Delivery::Shards(shards) => shards,
        }
    }
    /// Returns whether its handles release by bounds, whose lowest bit says that the handle is
    /// idle.
    pub(crate) fn has_bounds(self) -> bool {
        matches!(self, Delivery::Pool { .. } | Delivery::Tap(_))
    }
    /// Returns the number of lines that it takes: see [`Stage::line`].
    pub(crate) fn lines(self) -> usize {
        match self {
            Delivery::Each => 1,
            Delivery::Pool { room, .. } => 1 + room + 1,
            Delivery::Shards(shards) => shards,
            Delivery::Tap(room) => 1 + room + room,
        }
    }
}

/// A stage as declared.
#[derive(Clone, Debug)]
pub(crate) struct StageSpec {
    pub(crate) name: String,
    pub(crate) access: Access,
    pub(crate) delivery: Delivery,
    /// Numbers of the stages that it follows.
    pub(crate) after: Vec<usize>,
    /// Label of its thread. Stages with the same label share a thread, and so a wait queue.
    pub(crate) thread: Option<String>,
    pub(crate) policy: Policy,
    /// Strategy of its own; `None`: the graph's.
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
            thread: None,
            policy: Policy::default(),
            wait: None,
        }
    }
}

/// The stages declared so far, and the first mistake among the declarations.
///
/// A stage is known by its number. Fronts note a mistake instead of panicking, so that the build
/// reports it.
#[derive(Default)]
pub(crate) struct StageList {
    specs: Vec<StageSpec>,
    problem: Option<BuildError>,
}

impl StageList {
    /// Adds a stage that depends on the stages in `after`; returns its number.
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

    /// Returns the stage with this number, to be changed.
    pub(crate) fn spec_mut(&mut self, stage: usize) -> &mut StageSpec {
        &mut self.specs[stage]
    }

    /// Returns the stage declared last, to be changed.
    pub(crate) fn last_mut(&mut self) -> Option<&mut StageSpec> {
        self.specs.last_mut()
    }

    /// Notes a mistake; the build reports the first one.
    pub(crate) fn note(&mut self, problem: BuildError) {
        self.problem.get_or_insert(problem);
    }

    /// Notes a declaration that has no meaning where it stands, or contradicts another one.
    pub(crate) fn reject(&mut self, problem: impl Into<String>) {
        self.note(BuildError::Declaration { problem: problem.into() });
    }

    /// Returns the first mistake.
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
