//! Programs as plain data: rings, segments, the threads that use them, and what each thread does.
//!
//! - I1: A program says nothing of the schedule it runs under, and nothing in it is random. So it
//!   can be written to a file, made smaller, and run again.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::plan::{Drive, RingPlan, Verb, Waits};
use crate::segment::SegmentPlan;

/// A whole program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The rings.
    pub rings: Vec<RingPlan>,
    /// The threads beside those of the stages.
    pub actors: Vec<Actor>,
    /// Two handles of the first ring, each as its stage and its number there. They belong to one
    /// thread: the handler of the first handle calls the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nested: Option<[(usize, usize); 2]>,
    /// Whether the handles of stages stay until all threads have ended. So the drop of one wakes no
    /// other that has lost its wake-up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps: bool,
    /// The segments, with the processes that share them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub segments: Vec<SegmentPlan>,
}

/// A thread beside those of the stages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Actor {
    /// Publishes.
    Producer {
        /// The ring.
        ring: usize,
        /// Its actions, in this order.
        verbs: Vec<Verb>,
    },
    /// Makes a producer when others may have ended already, and publishes.
    Late {
        /// The ring, which several producers share.
        ring: usize,
        /// Whether it drops the ring's handle, by which other producers could come.
        #[serde(default)]
        last: bool,
        /// Its actions, in this order.
        verbs: Vec<Verb>,
    },
    /// Joins a tap, reads some events, and leaves.
    Subscriber {
        /// The ring.
        ring: usize,
        /// The tap.
        stage: usize,
        /// Whether it begins with the oldest event, or with the next.
        oldest: bool,
        /// The place of the event with which it begins, counted from the ring's first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
        /// How it is driven. It leaves by its quirk, or at the stream's end.
        drive: Drive,
        /// How often it joins again after it has left.
        #[serde(default)]
        again: usize,
    },
    /// Joins a pool, handles some events, and leaves.
    Joiner {
        /// The ring.
        ring: usize,
        /// The pool.
        stage: usize,
        /// How it is driven. It leaves by its quirk, or at the stream's end.
        drive: Drive,
        /// Whether it joins when the stream of another worker has ended.
        #[serde(default)]
        late: bool,
    },
    /// Asks the readers of taps to leave that have joined before.
    Evictor {
        /// The ring.
        ring: usize,
    },
    /// Looks at the mirror of a stage until it is closed.
    Observer {
        /// The ring.
        ring: usize,
        /// The stage.
        stage: usize,
        /// How it asks.
        #[serde(flatten)]
        how: Observes,
    },
    /// Reads the counts of a ring.
    Monitor {
        /// The ring.
        ring: usize,
        /// How many times.
        times: u64,
    },
}

/// How an observer begins, asks, and waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observes {
    pub look: Look,
    /// Whether it begins with the oldest value, or with the next.
    #[serde(default)]
    pub oldest: bool,
    /// A way to wait of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Waits>,
}

/// How an observer asks for values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// `try_next`, with a spin hint when there was none.
    Try,
    /// `try_latest`, with a spin hint when there was none.
    Latest,
    /// `latest`, which waits.
    Newest,
    /// `next_by`, with a deadline of so many microseconds.
    By(u64),
    /// The iterator.
    Iterate,
    /// `next_async`; the future is dropped after so many polls that found it pending (0: never).
    Task(u64),
}

impl fmt::Display for Program {
    /// Writes the program as a line of text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("plain data is written without an error"))
    }
}
