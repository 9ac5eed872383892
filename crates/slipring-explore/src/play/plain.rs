//! Producers that have no more calls than those that all contents of segments have.

use std::time::{Duration, Instant};

use slipring::errors::{ClaimError, WaitError};
use slipring_coherence::sync;

use super::acts::{Acts, drain};
use crate::oracle::Log;
use crate::oracle::deaths::Told;
use crate::plan::{Fate, Verb};

/// How long a call waits.
#[derive(Clone, Copy)]
pub enum Patience {
    Wait,
    Try,
    Until(Instant),
}

impl Patience {
    /// Does a call for some slots by all ways to wait, one behind the other, until one of them ends
    /// otherwise than without room.
    pub fn all_ways<T>(
        mut call: impl FnMut(Patience) -> Result<T, ClaimError>,
    ) -> Result<T, ClaimError> {
        let is_late = |error: &ClaimError| !matches!(error, ClaimError::Wait(_));
        let soon = || Patience::Until(sync::now() + Duration::from_micros(20));
        match call(Patience::Try) {
            Err(error) if is_late(&error) => match call(soon()) {
                Err(error) if is_late(&error) => call(Patience::Wait),
                done => done,
            },
            done => done,
        }
    }
}

/// The calls of such a producer. Each notes the fates of its events.
pub trait Puts {
    /// Number of slots.
    fn capacity(&self) -> usize;
    /// Publishes an event. Returns its position.
    fn put_by(&mut self, log: &Log, id: u64, patience: Patience) -> Result<u64, ClaimError>;
    /// Publishes so many events, at once if it can.
    fn put_all(&mut self, log: &Log, events: usize) -> Result<(), ClaimError> {
        for _ in 0..events {
            self.put_by(log, log.begin(), Patience::Wait)?;
        }
        Ok(())
    }
    /// Claims some slots, and does with them what their fate says.
    fn claim(&mut self, log: &Log, len: usize, fate: Fate) -> Result<(), ClaimError>;
    /// Claims and publishes by positions, if it can.
    fn raw(&mut self, _: &Log, _len: usize) -> Result<(), ClaimError> {
        Ok(())
    }
    /// Number of slots that are free, if it tells.
    fn remaining(&mut self) -> Option<usize> {
        None
    }
    /// Calls that have to be refused, before each action.
    fn be_refused(&mut self, _: &Log) {}
    /// Closes the ring for all producers, if it can.
    fn close_all(self: Box<Self>) {}
}

/// Such a producer.
pub struct Plain<P>(pub P);

impl<P: Puts> Plain<P> {
    /// Publishes an event as soon as there is room, and tries again meanwhile.
    fn insist(&mut self, log: &Log, waits: bool) -> Result<(), ClaimError> {
        let mut told = Told::default();
        loop {
            // A death that ends the graph is told by the next call.
            while waits && self.0.remaining() == Some(0) && !log.is_disrupted() {
                sync::spin_loop();
            }
            match self.0.put_by(log, log.begin(), Patience::Try) {
                Ok(_) => return Ok(()),
                Err(ClaimError::Wait(error)) => return Err(error.into()),
                Err(ClaimError::Gated { .. }) => told.refused(log, log.plan().stages.len()),
                Err(_) => {}
            }
            sync::spin_loop();
        }
    }
}

impl<P: Puts> Acts for Plain<P> {
    fn put(&mut self, log: &Log) -> Result<(u64, u64), WaitError> {
        let id = log.begin();
        match self.0.put_by(log, id, Patience::Wait) {
            Ok(seq) => Ok((id, seq)),
            Err(ClaimError::Wait(error)) => Err(error),
            Err(error) => {
                log.violation(format!("a call that waits for room: {error}"));
                Err(WaitError::Closed)
            }
        }
    }

    fn act(&mut self, verb: Verb, log: &Log) -> Result<(), ClaimError> {
        self.0.be_refused(log);
        match verb {
            Verb::Publish(times) => {
                for _ in 0..times {
                    self.put(log)?;
                }
            }
            Verb::Try(times) | Verb::Insist(times) => {
                for _ in 0..times {
                    self.insist(log, false)?;
                }
            }
            Verb::When(times, _) => {
                for _ in 0..times {
                    self.insist(log, true)?;
                }
            }
            Verb::OrDrop(times) => {
                for _ in 0..times {
                    match self.0.put_by(log, log.begin(), Patience::Try) {
                        Ok(_) | Err(ClaimError::Gated { .. } | ClaimError::Contended) => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Verb::By(micros) => {
                let deadline = sync::now() + Duration::from_micros(micros);
                self.0.put_by(log, log.begin(), Patience::Until(deadline))?;
            }
            Verb::All(events) => self.0.put_all(log, events as usize)?,
            Verb::Batches(len, events) => {
                for first in (0..events as usize).step_by(len) {
                    self.0.put_all(log, len.min(events as usize - first))?;
                }
            }
            Verb::Claim(len, fate) => self.0.claim(log, len.min(self.0.capacity()), fate)?,
            Verb::Raw(len) => self.0.raw(log, len.clamp(1, self.0.capacity()))?,
            Verb::Drain => drain(log),
            verb => unreachable!("a producer of this content has no call for {verb:?}"),
        }
        Ok(())
    }

    fn close_all(self: Box<Self>) {
        Box::new(self.0).close_all();
    }
}
