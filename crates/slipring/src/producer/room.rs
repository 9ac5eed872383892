//! How a producer's handle finds out which positions of the ring are free.

use crate::base::prefetch::FetchForStore;
use crate::errors::WaitError;
use crate::producer::handle::{Producer, Refusal, sealed};
use crate::ring::counters::FLUSH_EVERY;
use crate::ring::slots::{Layout, Storage as _, View};
use crate::ring::words::ahead;
use crate::ring::world::World;

/// Distance from a published slot to the later slot whose cache line the publication fetches, in
/// bytes. Distances from 256 to 2,048 bytes made no difference (records/2026-11-24-peers).
const FETCH_DISTANCE: u64 = 256;

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Returns whether `limit` leaves room for `len` positions from `next` on.
    ///
    /// The room, `limit - next`, is valid if it is at most the ring's capacity. If it is larger,
    /// other producers have claimed past this handle's outdated `limit`. `next` may be wrong if
    /// other producers have claimed 2^62 positions or more since this handle last learned the claim
    /// word.
    #[inline(always)]
    pub(crate) fn knows_room(&self, len: u64) -> bool {
        let (room, capacity) = (self.limit.wrapping_sub(self.next), self.slots.mask() + 1);
        room.wrapping_sub(len) <= capacity.wrapping_sub(len)
    }

    /// Loads the frontiers of the gating stages, and checks that they leave room for `len`
    /// positions.
    #[cold]
    pub(crate) fn find_room(&mut self, len: u64) -> Result<(), Refusal> {
        let capacity = self.core.capacity();
        let lower_bound = self.next.wrapping_sub(capacity);
        let (gate, slowest) = self.core.pass_gate(lower_bound);
        // `limit` is one lap after `gate`, and `next` is one lap after `lower_bound`. With a single
        // producer, `limit` is never before `next`, because `gate` is never before `lower_bound`.
        debug_assert!(
            S::MANY || ahead(gate, lower_bound) >= 0,
            "the gate is before the lower bound of this producer"
        );
        let limit = gate.wrapping_add(capacity);
        // No stage can release an event that the only producer has not published, but a damaged
        // word of a segment may claim that a stage has done so. If this handle believed such a word
        // once, its limit would stay too high for ever.
        let is_beyond = || ahead(limit, self.next.wrapping_add(capacity)) > 0;
        if !S::MANY && L::World::SHARED && is_beyond() {
            return Err(Refusal::Wait(WaitError::Damaged));
        }
        // The limit of a single producer never decreases, even if `gate` is lower than at an
        // earlier call. A joining member can lower `gate` for a moment, and so can a worker that
        // lost a race for a chunk. If `limit` fell to a position inside an open claim, `commit`
        // would move `next` past `limit`, to the claim's end.
        if S::MANY || ahead(limit, self.limit) > 0 {
            self.limit = limit;
        }
        // `may_refresh` checks the lap that ends at `limit`. That lap suffices: until the next call
        // of `find_room`, this handle claims no positions outside it, and its open claim starts
        // inside it, because no gating stage passes an open claim. The range from `next` to `limit`
        // may be longer than a lap, because other producers may have claimed positions after
        // `next`.
        self.find_fetch_end();
        self.refreshes = self.core.may_refresh(self.limit.wrapping_sub(capacity), self.limit);
        self.plan_ahead();
        if (self.limit.wrapping_sub(self.next) as i64) < len as i64 {
            Err(Refusal::Gated(slowest))
        } else {
            Ok(())
        }
    }

    /// Returns whether the publication of the positions `[seq, seq + len)`, this handle's next
    /// ones, is plain (producer::I5).
    #[inline(always)]
    pub(crate) fn is_plain(&self, seq: u64, len: u64) -> bool {
        let from = if S::MANY { self.counts.events } else { seq };
        self.plain_until.wrapping_sub(from) >= len
    }

    /// Decides which of the next publications are plain (producer::I5).
    pub(crate) fn plan_ahead(&mut self) {
        let from = if S::MANY { self.counts.events } else { self.next };
        let fetching = self.fetching(from);
        self.fetches = self.fetch.filter(|_| fetching > 0);
        if self.always_does_more || self.refreshes {
            self.plain_until = from;
            return;
        }
        // The counts are flushed after the last event before each multiple of `FLUSH_EVERY`.
        let mut plain = !from & (FLUSH_EVERY - 1);
        if !S::MANY {
            plain = plain.min(self.limit.wrapping_sub(from));
            if fetching > 0 {
                plain = plain.min(fetching as u64);
            }
            if !View::<E, L>::CURSOR {
                self.lap = self.slots.lap(from);
                plain = plain.min((!from & self.slots.mask()) + 1);
            }
        }
        self.plain_until = from.wrapping_add(plain);
    }

    /// Returns the distance from a published slot to the slot whose line the publication fetches,
    /// in slots.
    #[inline(always)]
    fn fetch_distance(&self) -> u64 {
        (FETCH_DISTANCE / self.slots.stride().max(1) as u64).max(1)
    }

    /// Decides up to which position the cache lines of later slots are fetched: by publications, or
    /// by claims while several producers take turns. If the slowest stage is several lines behind,
    /// they fetch up to the end of the room: that stage has read these slots a lap ago, so its core
    /// still has their lines, and does not need them until the slots are published. If the stage
    /// keeps up, they fetch nothing, because the stage would soon load the lines itself.
    fn find_fetch_end(&mut self) {
        let (room, distance) = (self.limit.wrapping_sub(self.next), self.fetch_distance());
        let lag = self.core.capacity().wrapping_sub(room);
        let fetches = room > distance && lag >= 2 * distance;
        self.fetch_until = if fetches { self.limit.wrapping_sub(distance) } else { self.next };
    }

    /// Returns how many publications from `from` on fetch the lines of later slots; zero or a
    /// negative number if the next one does not. With many producers, none does: another producer
    /// might be filling the later slot. Their claims fetch it, while no other producer claims.
    #[inline(always)]
    pub(crate) fn fetching(&self, from: u64) -> i64 {
        if S::MANY { 0 } else { ahead(self.fetch_until, from) }
    }

    /// Fetches the cache line of a slot that lies some distance after the slot at `seq`, which was
    /// just published. So the producer's later store to that slot hits the cache.
    ///
    /// Stores that miss the cache wait in the store buffer, in order. A thread that publishes at
    /// full speed fills the buffer, and then waits for each line in turn. Without the fetch, this
    /// wait took 3 of the 8 ns that each event took. A thread that does other work between two
    /// publications gains nothing by the fetch, and loses up to a nanosecond.
    #[inline(always)]
    pub(crate) fn fetch_ahead(&self, fetch: Option<FetchForStore>, seq: u64) {
        if let Some(fetch) = fetch {
            fetch.line_of(self.cell(seq.wrapping_add(self.fetch_distance())));
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// A slot with a `u64` and its stamp takes 16 bytes, so the distance is 16 slots.
    #[test]
    fn publications_fetch_only_free_slots_behind_a_stage_that_lags() {
        let (mut tx, mut rx) = crate::unicast(64, || 0u64).unwrap();
        let fill = |tx: &mut Producer<u64>| while tx.try_publish(|slot| *slot = 1).is_ok() {};
        let mut free = |slots| assert_eq!(rx.poll(slots, |_, _| ()).unwrap(), slots);
        assert_eq!(tx.fetch_distance(), 16);
        assert_eq!(tx.fetch_until, tx.next, "nothing is known yet");
        fill(&mut tx);
        free(16);
        tx.try_publish(|_| ()).unwrap();
        assert_eq!((tx.limit - 64, tx.fetch_until), (16, 64), "the slot in question is not free");
        fill(&mut tx);
        free(24);
        tx.try_publish(|_| ()).unwrap();
        assert_eq!((tx.limit - 80, tx.fetch_until), (24, tx.limit - 16));
        fill(&mut tx);
        free(40);
        tx.try_publish(|_| ()).unwrap();
        assert_eq!((tx.limit - 104, tx.fetch_until), (40, 104), "the stage keeps up");
    }

    /// The plain publications end where a flush of counts is due, where the ring or its free slots
    /// end, and where fetches begin or end.
    #[test]
    fn plain_publications_end_at_each_of_their_bounds() {
        let publish = |tx: &mut Producer<u64>, len| tx.try_claim_n(len).unwrap().publish();
        let plain = |tx: &Producer<u64>| tx.plain_until.wrapping_sub(tx.next);
        for start in [0, 5 << 11, 0u64.wrapping_sub(2048)] {
            let graph = crate::Graph::new(2048, || 0u64).first_seq(start);
            let key = graph.reader("reader");
            let ring = graph.build().unwrap();
            let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
            if tx.refreshes {
                assert_eq!((start, plain(&tx)), (0u64.wrapping_sub(2048), 0), "stamps are old");
                continue;
            }
            assert_eq!(plain(&tx), 1023, "a flush is due after 1,024 events");
            publish(&mut tx, 1023);
            assert_eq!(plain(&tx), 0);
            publish(&mut tx, 1);
            assert_eq!(plain(&tx), 1023);
            publish(&mut tx, 1000);
            assert_eq!(rx.poll(500, |_, _| ()).unwrap(), 500);
            publish(&mut tx, 100);
            assert_eq!((tx.fetches.is_some(), plain(&tx)), (tx.fetch.is_some(), 408));
            publish(&mut tx, 408);
            assert_eq!(plain(&tx), 0);
            publish(&mut tx, 1);
            assert!(tx.fetches.is_none() && plain(&tx) == 15, "the room ends");
            assert_eq!(rx.poll(4096, |_, _| ()).unwrap(), 2033);
        }
        let graph = crate::Graph::new(8, || 0u64);
        let key = graph.reader("reader");
        let ring = graph.build().unwrap();
        let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
        for (len, next, plain_until) in [(5, 5, 8), (1, 6, 8), (4, 10, 13), (4, 14, 16)] {
            publish(&mut tx, len);
            assert_eq!((tx.next, tx.plain_until), (next, plain_until), "the room or the lap ends");
            if len != 1 {
                assert!(rx.poll(8, |_, _| ()).unwrap() >= len);
            }
        }
    }
}
