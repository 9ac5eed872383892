//! A request that a process has published in the ring of a segment, as seen by the process that
//! waits for the answer.

use std::time::Duration;

use super::areas::SegmentLayout;
use super::ring::SegmentRing;
use crate::errors::WaitError;
use crate::processes::deaths::{DeathChecks, Processes};
use crate::processes::layout::InSegment;
use crate::ring::asked;
use crate::ring::control::Control;
use crate::ring::owner::Owner;

/// The request at one position of a segment's ring. Like a handle of the ring, it keeps this
/// process attached.
pub struct SegmentRequest {
    ring: Box<dyn RequestRing>,
    seq: u64,
    death_checks: DeathChecks,
}

/// A ring without its type parameters.
trait RequestRing: Send + Sync {
    fn control(&self) -> &Control;
    fn world(&self) -> &Processes;
    /// Checks for dead processes that hold up the event at `seq`, as a waiting producer does.
    fn watch(&self, seq: u64) -> Option<WaitError>;
}

impl<E: Send, L: SegmentLayout> RequestRing for Owner<E, InSegment<L>> {
    fn control(&self) -> &Control {
        &self.control
    }
    fn world(&self) -> &Processes {
        &self.world
    }
    fn watch(&self, seq: u64) -> Option<WaitError> {
        // A tap that is a first stage is behind the sentinel. It would hide a dead stage beside it.
        if self.control.plan.sentinel {
            self.advance_sentinel();
        }
        self.world.watch_for_request(self.watched(&|| false), seq)
    }
}

impl<E: Send + 'static, L: SegmentLayout> SegmentRing<E, L> {
    /// Returns a handle for the request that was published at `seq`.
    pub fn request(&self, seq: u64) -> SegmentRequest {
        let ring = Box::new(self.owner().clone());
        SegmentRequest { ring, seq, death_checks: DeathChecks::default() }
    }
}

impl SegmentRequest {
    /// Returns the reason why no stage of the ring will answer the request: the ring has failed or
    /// was halted, or it is closed and every stage has passed the request. Returns `None` while a
    /// stage may answer.
    pub fn ended(&self) -> Option<WaitError> {
        asked::ended(self.ring.control(), self.seq)
    }

    /// Like [`ended`](SegmentRequest::ended), but first checks for a dead process that holds up the
    /// request. Depending on the segment's declaration, the call then returns the death as an
    /// error, or fails the ring.
    pub fn check(&self) -> Option<WaitError> {
        let told = if self.ended().is_none() { self.ring.watch(self.seq) } else { None };
        self.ended().or(told)
    }

    /// Like [`check`](SegmentRequest::check) if a notice has passed since `poll` last checked, and
    /// otherwise like [`ended`](SegmentRequest::ended). `poll` is meant for loops that do not wait.
    pub fn poll(&mut self) -> Option<WaitError> {
        let due = self.death_checks.is_due(self.ring.world().notice);
        if due { self.check() } else { self.ended() }
    }

    /// Returns the notice: the longest time that a waiting thread should let pass between two calls
    /// of [`check`](SegmentRequest::check).
    pub fn notice(&self) -> Duration {
        self.ring.world().notice
    }
}
