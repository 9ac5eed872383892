//! A graph as it is declared: stages by number, what they may do, and which ones they follow.

use crate::base::panics::Contained;
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
    /// Returns whether its handles release by bounds, whose lowest bit says that the handle is idle.
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
