//! The things that the threads of a program share: its rings, whatever their layouts and their
//! producers.

use std::sync::{Arc, Mutex};

use slipring::{
    Report,
    errors::SubscribeError,
    handles::{MirrorHandle, StartAt},
};
use slipring_coherence::sync::{Builder, JoinHandle};

use super::handles::Handle;
use crate::plan::Verb;

/// The things that the threads of a program share.
#[derive(Default)]
pub struct Env {
    pub rings: Vec<Arc<dyn AnyRing>>,
    /// Calls that ask readers of taps to leave: the ring's number, the reader's, and the call.
    pub leavers: Mutex<Vec<(usize, usize, Leaves)>>,
    /// Handles whose stream has ended, if the program keeps them.
    pub kept: Option<Mutex<Vec<Box<dyn Handle>>>>,
}

/// A reader of a tap, and the call that asks it to leave.
pub type Subscribed = (Box<dyn Handle>, Leaves);

/// A call that asks a reader of a tap to leave, and returns whether it was still there.
pub type Leaves = Box<dyn Fn() -> bool + Send>;

/// The calls on a ring, whatever its layout and its producers.
pub trait AnyRing: Send + Sync {
    /// Halts the graph.
    fn halt(&self);
    /// Publishes one event by a producer of its own, if the ring can have another.
    fn publish_one(&self);
    /// Drops the producer that was kept for a handler.
    fn end_lending(&self);
    /// Makes a producer, if the ring can have another, and does what the verbs say. If it is the
    /// `last` one, drops the ring's handle before.
    fn produce(&self, verbs: &[Verb], last: bool);
    /// Returns the ring's counts.
    fn report(&self) -> Option<Report>;
    /// Joins a tap.
    fn subscribe(&self, stage: usize, start: StartAt) -> Result<Subscribed, SubscribeError>;
    /// The mirror of a stage.
    fn mirror(&self, stage: usize) -> Option<MirrorHandle<[u64; 3]>>;
    /// Joins a pool.
    fn join(&self, stage: usize) -> Result<Box<dyn Handle>, SubscribeError>;
}

/// Starts a thread of the program.
pub fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    Builder::new().name(name).spawn(body).expect("the machine has cores for all threads")
}
