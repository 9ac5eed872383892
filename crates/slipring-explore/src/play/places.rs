//! The places of a segment's participants, which the system keeps for a real segment.
//!
//! - I1: A participant's place is free, or has the number of a virtual process, which is alive or
//!   dead. As with a lock that the system holds for a process, the right to recover a dead one ends
//!   with the recoverer's own death.
//! - I2: The lock of the places is a real one: no other thread is chosen while it is held. A change
//!   of a place stands for a call of the system, which orders stores as a read-modify-write does.

use std::sync::{Mutex, MutexGuard, PoisonError};

use slipring_coherence::has_died;
use slipring_coherence::sync::AtomicU64;
use slipring_coherence::sync::Ordering::Relaxed;

use crate::event::point;

/// Number of participants that a segment has places for.
pub const PLACES: usize = 24;

/// A participant's place (I1).
#[derive(Clone, Copy, Default)]
struct Place {
    process: Option<u32>,
    recoverer: Option<u32>,
}

/// The places of all participants.
#[derive(Default)]
pub struct Places {
    all: Mutex<[Place; PLACES]>,
    /// Number of calls of the system that change a place.
    calls: AtomicU64,
}

impl Places {
    fn locked(&self) -> MutexGuard<'_, [Place; PLACES]> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, to change a place. The caller's stores are visible before (I2).
    fn changed(&self) -> MutexGuard<'_, [Place; PLACES]> {
        self.calls.fetch_add(1, Relaxed);
        self.locked()
    }

    /// Takes a free place for a process, and returns its number.
    pub fn take(&self, process: u32) -> Option<u32> {
        let mut places = self.changed();
        let free = places.iter().position(|place| place.process.is_none())?;
        places[free] = Place { process: Some(process), recoverer: None };
        Some(free as u32 + 1)
    }

    /// Frees the place of a participant that leaves.
    pub fn leave(&self, number: u32) {
        self.changed()[number as usize - 1] = Place::default();
    }

    /// Returns whether the participant is dead and not being recovered.
    pub fn is_dead(&self, number: u32) -> bool {
        point();
        let places = self.locked();
        places.get((number as usize).wrapping_sub(1)).is_some_and(|place| {
            place.process.is_some_and(has_died) && place.recoverer.is_none_or(has_died)
        })
    }

    /// Gives `process` the right to recover a dead participant, if no living process has it.
    /// Returns the participant's process.
    pub fn begin_recovery(&self, number: u32, process: u32) -> Option<u32> {
        let mut places = self.changed();
        let place = places.get_mut((number as usize).wrapping_sub(1))?;
        let dead = place.process.filter(|dead| has_died(*dead))?;
        place.recoverer.is_none_or(has_died).then(|| {
            place.recoverer = Some(process);
            dead
        })
    }

    /// Returns the place of a process, if it still has one.
    pub fn of(&self, process: u32) -> Option<u32> {
        point();
        let place = self.locked().iter().position(|place| place.process == Some(process))?;
        Some(place as u32 + 1)
    }
}
