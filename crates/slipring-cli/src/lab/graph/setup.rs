//! A setup of a shot (its shape, contender and amount of work), and the account that a graph gives
//! of its work.

use std::fmt;
use std::time::Instant;

use super::slices::{Job, Journal, Reduction};

/// The shape of the graph between producer and reducer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every worker sees all slices, and computes those whose number modulo the number of workers
    /// is its own.
    Broadcast,
    /// Each slice goes to one worker.
    Pool,
    /// A pool beside a journal. The journal sees all slices, and the reducer comes after both.
    PoolInFanOut,
}

/// A way to build the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// A loop without hand-over.
    OneThread,
    /// A ring, with a thread for each stage and worker.
    Ring,
    /// A ring whose stages share as many threads as there are cores.
    SharedThreads,
    /// A bounded channel of the standard library for each edge.
    Channels,
    /// A queue with one lock and two conditions for each edge.
    BlockingQueues,
}

/// The setup of a shot.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub shape: Shape,
    pub contender: Contender,
    pub workers: usize,
    pub job: Job,
}

/// A graph's account of its work.
#[derive(Debug)]
pub struct Computed {
    /// Time at which the producer began.
    pub began: Instant,
    pub reduction: Reduction,
    /// Number of slices that the workers have computed.
    pub computed: u64,
    /// The journal's account, if there is a journal.
    pub journal: Option<Journal>,
}

impl Shape {
    pub const ALL: [Shape; 3] = [Shape::Broadcast, Shape::Pool, Shape::PoolInFanOut];

    pub fn name(self) -> &'static str {
        match self {
            Shape::Broadcast => "broadcast",
            Shape::Pool => "pool",
            Shape::PoolInFanOut => "pool in fan-out",
        }
    }

    pub fn has_journal(self) -> bool {
        self == Shape::PoolInFanOut
    }
}

impl Contender {
    pub const ALL: [Contender; 5] = [
        Contender::OneThread,
        Contender::Ring,
        Contender::SharedThreads,
        Contender::Channels,
        Contender::BlockingQueues,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Contender::OneThread => "one thread",
            Contender::Ring => "ring",
            Contender::SharedThreads => "ring on shared threads",
            Contender::Channels => "std channels",
            Contender::BlockingQueues => "blocking queues",
        }
    }
}

impl Setup {
    /// Returns the number of threads that work at the same time, on `cores` cores.
    pub fn threads(&self, cores: usize) -> usize {
        let all = self.workers + 2 + usize::from(self.shape.has_journal());
        match self.contender {
            Contender::OneThread => 1,
            Contender::SharedThreads => cores.min(all),
            _ => all,
        }
    }
}

/// The text names the shape and the work, but not the number of workers.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} terms", self.shape.name(), self.job.terms)
    }
}
