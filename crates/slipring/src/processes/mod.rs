//! Rings that processes share: which process has which place, which processes have died, and how
//! the others settle what the dead left.
//!
//! The modules that this one builds on serve rings of threads and rings of processes alike, and
//! call [`World`](crate::ring::world::World) where the two differ. This module implements `World`
//! for processes:
//!
//! | file | holds |
//! |---|---|
//! | `seat` | what a process leaves on its seat, and how others read it |
//! | `reactors` | the threads that sleep for the tasks of a process |
//! | `deaths` | the proof of deaths, and when a handle checks for them |
//! | `closing` | the end of a ring whose last producer may die |
//! | `watch` | which deaths hold a party up, and which ones its calls return |
//! | `claims` | claims of several producers, each a process of its own |
//! | `recovery` | how the living settle what the dead left; where a new producer continues |
//! | `layout` | layouts whose slots lie in a segment |
//! | `producer` | the handle of one of several producers |
//! | `successor`, `worker` | handles that continue where another process stopped |
//! | `markers` | the types of these handles |
//! | `suspects` | what a handle can find out about the previous process at its place |
//!
//! Each file uses only files in rows above its own.

pub(crate) mod claims;
pub(crate) mod closing;
pub(crate) mod deaths;
pub(crate) mod layout;
pub(crate) mod markers;
pub(crate) mod producer;
pub(crate) mod reactors;
pub(crate) mod recovery;
pub(crate) mod seat;
pub(crate) mod successor;
pub(crate) mod suspects;
pub(crate) mod watch;
pub(crate) mod worker;
