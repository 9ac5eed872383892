//! This module holds the strategies of waiting, the loop that follows a strategy, and the queue in
//! which waiters sleep.
//!
//! A wait has three parts. A strategy ([`strategy`], [`built_in`], [`adaptive`]) decides how to
//! spend the time until the next poll. The loop ([`wait_loop`]) polls, acts as the strategy
//! decides, and watches the deadline; while the strategy spins, it leaves the polls to its caller.
//! The wait queue ([`queue`]) puts threads and tasks to sleep, and wakes them.
//!
//! Invariants
//! - I1: a strategy only returns a decision. Polls are made only by the loop, by its caller, and by
//!   the place where the waiter sleeps (`SleepPlace`: a wait queue or a promise). Only that place
//!   makes the waiter sleep until a notification. So no strategy, not even a user's, can lose a
//!   wake-up.
//! - I2: a wait ends at progress, at the end of the graph and at its deadline, and its strategy
//!   cannot prevent that.

mod adaptive;
#[cfg(all(test, not(slipring_loom)))]
mod adaptive_tests;
mod alias;
mod budget;
mod built_in;
mod full_ring;
mod hardware;
mod moving_average;
pub(crate) mod queue;
#[cfg(all(test, not(slipring_loom)))]
mod queue_model;
pub(crate) mod queue_state;
#[cfg(all(test, not(slipring_loom)))]
mod queue_tests;
pub(crate) mod quiet_check;
pub(crate) mod reactor;
mod shared_queue;
#[cfg(all(test, not(slipring_loom)))]
mod shared_queue_tests;
mod strategy;
mod unpark;
mod wait_loop;
#[cfg(all(test, not(slipring_loom)))]
mod wait_loop_tests;
pub(crate) mod warning;

// `queue.rs` imports these from `super`, because `queue_model.rs` replaces `edge`, `sync` and
// `system`.
use crate::base::{edge, maybe_mapped, sync, system};
pub use built_in::Wait;
pub(crate) use full_ring::FullRing;
pub(crate) use hardware::{BackOff, first_polls, spacing};
pub use strategy::{WaitAction, WaitContext, WaitLearner, WaitStrategy};
pub(crate) use unpark::{Bystander, park_for, waker_of_this_thread};
pub(crate) use wait_loop::{
    Condition, HandleLearner, KeepWaiting, LeftWait, NotedThread, SleepPlace, UNNOTIFIED_SLEEP,
    Unmet, WaitOptions, WaitRun, spin, wait_until,
};
