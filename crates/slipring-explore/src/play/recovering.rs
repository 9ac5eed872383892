//! The proof of deaths that a virtual process has, and the checks of each recovery: of what a dead
//! process leaves to the living ones.
//!
//! - I1: A check says nothing if another process may have changed the answer since the recovery.

use std::sync::Arc;

use slipring::segment::Proof;

use super::places::Places;
use super::shared_ring::SharedRing;
use crate::oracle::Log;
use crate::plan::Kind;

/// A process's proof of deaths.
pub struct Proofs {
    pub places: Arc<Places>,
    pub process: u32,
    pub log: Arc<Log>,
    /// A ring that has no handles, for a look at the words of the dead.
    pub looker: Option<Arc<dyn SharedRing>>,
}

impl Proof for Proofs {
    fn is_dead(&self, number: u32) -> bool {
        self.places.is_dead(number)
    }
    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool {
        let Some(dead) = self.places.begin_recovery(number, self.process) else { return false };
        self.log.recovers(true);
        let before = self.looker.as_deref().map(|ring| Before::look(ring, &self.log, number, dead));
        settle();
        if let (Some(before), Some(ring)) = (before, self.looker.as_deref()) {
            before.check(ring, &self.log);
        }
        self.places.leave(number);
        self.log.recovers(false);
        true
    }
    fn pid(&self, number: u32) -> u32 {
        1_000 + number
    }
}

/// Returns whether a dead producer, the participant `number`, had begun to leave.
pub fn is_leaving(ring: &dyn SharedRing, number: u32) -> bool {
    let mut seats = ring.seats_of(ring.producer_party()).map(|seat| ring.seat(seat));
    seats.any(|seat| seat.owner() == Some(number) && seat.is_leaving())
}

/// The facts of a dead process before it is recovered.
struct Before {
    /// If it is a producer that had begun to leave, and no other producer lives: the number of
    /// producers that there have been.
    last: Option<usize>,
    /// If it has read a tap: the tap, the number of readers that there have been, its seat, and the
    /// number of events that it has not read, at least.
    reader: Option<(usize, usize, usize, u64)>,
}

impl Before {
    fn look(ring: &dyn SharedRing, log: &Log, number: u32, dead: u32) -> Before {
        let leaves = is_leaving(ring, number);
        if leaves {
            log.dies_leaving(dead);
        }
        let party = ring.producer_party();
        let last = (leaves && !log.has_living(party)).then(|| log.tries_to_sit(party));
        let taps = log.plan().stages.iter().enumerate();
        let taps = taps.filter(|(_, stage)| stage.kind == Kind::Tap).map(|(tap, _)| tap);
        let mut seats = taps.flat_map(|tap| ring.seats_of(tap).map(move |seat| (tap, seat)));
        let own = seats.find(|(_, seat)| ring.seat(*seat).owner() == Some(number));
        // One that dies while it leaves may hold no event any more.
        let reader = own.filter(|(tap, _)| log.had_seat(dead, *tap)).and_then(|(tap, seat)| {
            let unread = log.unread_by(dead)?;
            (!log.has_joining(tap)).then(|| (tap, log.tries_to_sit(tap), seat, unread))
        });
        Before { last, reader }
    }

    fn check(self, ring: &dyn SharedRing, log: &Log) {
        let is_open = !ring.is_closing() && !ring.is_over();
        if self
            .last
            .is_some_and(|tries| is_open && log.tries_to_sit(ring.producer_party()) == tries)
        {
            log.violation("the last producer has left, and the ring stays open".to_owned());
        }
        if let Some((tap, tries, seat, least)) = self.reader {
            let (owner, unread) = (ring.seat(seat).owner(), ring.seat(seat).unread());
            if owner.is_none() && unread < least && log.tries_to_sit(tap) == tries {
                log.violation(format!(
                    "a dead reader of tap s{tap} has {unread} unread events, not {least} or more"
                ));
            }
        }
    }
}
