//! Describes how one process takes part in the ring of a segment.

use std::time::Duration;

use crate::base::sync::Arc;
use crate::base::system;
use crate::processes::deaths::Proof;
use crate::wait::Wait;

/// How one process takes part in a ring.
#[derive(Clone)]
pub struct Participant {
    /// The number of this process in the segment, counted from 1.
    pub number: u32,
    /// Tells which other participants are dead.
    pub proof: Arc<dyn Proof>,
    /// Longest time between two checks for dead processes.
    pub notice: Duration,
    /// Whether each notification executes a fence, because the system refused to register this
    /// process for the barriers of other processes.
    pub always_fences: bool,
    /// How the stages of this process wait for events.
    pub wait: Wait,
    /// How the producer of this process waits for room.
    pub producer_wait: Wait,
}

/// Registers this process for the barriers with which sleepers in other processes replace the
/// fences of notifiers. Returns `false` if the system refuses; [`Participant::always_fences`] must
/// then be `true`. Each attachment registers anew, because exec(2) drops a registration. Takes up
/// to a few milliseconds in a process with several threads.
pub fn register_for_barriers() -> bool {
    system::register_for_barriers_of_processes()
}
