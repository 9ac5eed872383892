//! Early claims, of slots that are not free yet: when producers may make them, and what becomes of
//! them if the ring closes.
//!
//! A producer that shares its ring may claim positions before the gating stages have released their
//! slots, and then waits for the slots (`producer::many`). If the ring closes meanwhile, the
//! waiting call must return, so the stream has to end before the claimed positions. It cannot end
//! before positions that another producer publishes, so the waiting producers settle under a lock
//! where the stream ends.
//!
//! Invariants
//! - I1: once the end is set, no position is claimed any more. The end is set behind all claims,
//!   and then only moves back, over whole claims that their owners handed in.
//! - I2: a claim that was handed in is published only if its owner takes it back before the end
//!   moves over it. So a position before the end is published or given up by its owner, and no
//!   position behind the end is.
//! - I3: no stage has passed a claim that was handed in, because its positions are unpublished. So
//!   no stage can have found the old end when the end moves back.

use crate::base::sync::{Mutex, lock, twin};
use crate::ring::words::ahead;
use crate::wait::{Wait, WaitStrategy as _};

/// When a producer that waits without a deadline may claim slots that are not free yet
/// (`producer::many`). It then waits for the slots, and cannot end that wait early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlyClaiming {
    /// Never: the strategy has a timeout, or it is user code, which may panic.
    Never,
    /// While half of the ring is free: the strategy sleeps by timers, so a waiting producer may
    /// come long after its slots are free.
    InHalfRing,
    /// Whenever the producers' threads have cores.
    WhileCoresSuffice,
}

impl EarlyClaiming {
    /// Returns when producers may claim early that wait by `strategy`.
    pub(crate) fn with(strategy: &Wait) -> EarlyClaiming {
        match strategy {
            _ if strategy.is_custom() || strategy.timeout().is_some() => EarlyClaiming::Never,
            _ if strategy.stays_awake() || strategy.parks() => EarlyClaiming::WhileCoresSuffice,
            _ => EarlyClaiming::InHalfRing,
        }
    }
}

/// The early claims that their owners have handed in, and the end of the stream.
#[derive(Default)]
struct Settlement {
    /// The position after the last event; `None` while the ring is open.
    end: Option<u64>,
    /// Begin and length of each claim that lies before the end and was handed in.
    handed_in: Vec<(u64, u64)>,
}

/// Where the stream of a closed ring ends, as its waiting producers settle it.
pub(crate) struct EarlyClaims {
    settlement: Mutex<Settlement>,
}

/// The fate of a claim that was handed in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// The claim lies before the end. Its owner waits on for the slots.
    Stays,
    /// The stream ends before the claim.
    Refused,
}

impl EarlyClaims {
    pub(crate) fn new() -> EarlyClaims {
        EarlyClaims { settlement: Mutex::new(Settlement::default()) }
    }

    /// Sets the end, and calls `store` with it. Called once, after the claim word was closed to
    /// claims at `end`.
    pub(crate) fn close(&self, end: u64, store: impl FnOnce(u64)) {
        let settlement = &mut *lock(&self.settlement);
        settlement.end = Some(end);
        store(end);
    }

    /// Hands in the claim of the `len` positions from `seq` on. Called by the claim's owner while
    /// the slots are not free. Calls `store` with the end if the end moves. Does nothing while the
    /// ring is open.
    pub(crate) fn hand_in(&self, seq: u64, len: u64, store: impl FnOnce(u64)) -> Fate {
        let Settlement { end, handed_in } = &mut *lock(&self.settlement);
        let Some(end) = end else { return Fate::Stays };
        if ahead(seq, *end) >= 0 {
            return Fate::Refused;
        }
        if !handed_in.contains(&(seq, len)) {
            handed_in.push((seq, len));
        }
        let old = *end;
        // The end moves back over claims without a gap: a claim that is missing here may be
        // published.
        let touches = |end: u64| move |&(seq, len): &(u64, u64)| twin!("refused-over-a-gap": seq.wrapping_add(len) == end => ahead(end, seq) > 0);
        while let Some(last) = handed_in.iter().position(touches(*end)) {
            *end = handed_in.swap_remove(last).0;
        }
        if *end != old {
            store(*end); // under the lock, so that the last end is stored last
        }
        if ahead(seq, *end) >= 0 { Fate::Refused } else { Fate::Stays }
    }

    /// Takes back the claim that begins at `seq`, whose slots have become free. Returns `false` if
    /// the stream ends before the claim.
    pub(crate) fn take_back(&self, seq: u64) -> bool {
        let Settlement { end, handed_in } = &mut *lock(&self.settlement);
        handed_in.retain(|&(other, _)| other != seq);
        twin!("refused-claim-taken": end.is_none_or(|end| ahead(seq, end) < 0) => true)
    }
}
