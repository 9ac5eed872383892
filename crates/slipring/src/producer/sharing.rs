//! How producers take positions and close the ring: for the only producer of a ring, and for one of
//! several.
//!
//! The module [`producer`](crate::producer) states the invariants: I1 for taking positions, and I4
//! for the ring's end.

use crate::base::sync::{Relaxed, planted, twin};
use crate::producer::handle::{Many, Producer, Refusal, Single, sealed};
use crate::producer::many::NO_EARLY_CLAIMS;
use crate::ring::core::Core;
use crate::ring::slots::Layout;
use crate::ring::words::ClaimWord;
use crate::ring::world::World as _;

#[allow(private_interfaces)]
impl sealed::Sharing for Single {
    const MANY: bool = false;

    fn at(_next: u64) -> Self {
        Single(())
    }

    #[inline(always)]
    fn reserve<E, L: Layout>(producer: &mut Producer<E, L>, len: u64) -> Result<u64, Refusal> {
        let is_plain = producer.is_plain(producer.next, len);
        if !planted!("frontier-per-claim": is_plain => false) {
            producer.check_room(len)?;
        }
        planted!("claim-by-rmw": () => { producer.core.control.positions.claim().fetch_add(0, Relaxed); });
        Ok(producer.next)
    }

    fn claimed<E, L: Layout>(_core: &Core<E, L>, next: u64) -> (u64, bool) {
        (next, false)
    }

    fn leave<E, L: Layout>(producer: &Producer<E, L>, last: bool, leaves: bool) {
        if last && !leaves {
            producer.core.control.close(producer.next);
        }
    }

    fn left<E, L: Layout>(core: &Core<E, L>) {
        core.world.producer_left(&core.control);
    }
}

impl<E, L: Layout> Producer<E, L> {
    /// Checks that `len` positions are free, for a claim that is not plain.
    #[cold]
    #[inline(never)]
    fn check_room(&mut self, len: u64) -> Result<(), Refusal> {
        let has_room = self.limit.wrapping_sub(self.next) >= len;
        if planted!("frontier-per-claim": has_room => false) { Ok(()) } else { self.find_room(len) }
    }
}

#[allow(private_interfaces)]
impl sealed::Sharing for Many {
    const MANY: bool = true;

    fn at(_next: u64) -> Self {
        // In models, producers add from the start.
        Many { margin: NO_EARLY_CLAIMS, is_undisturbed: !cfg!(slipring_loom) }
    }

    #[inline(always)]
    fn reserve<E, L: Layout>(
        producer: &mut Producer<E, L, Many>,
        len: u64,
    ) -> Result<u64, Refusal> {
        producer.reserve_shared(len, false)
    }

    #[inline(always)]
    fn reserve_patiently<E, L: Layout>(
        producer: &mut Producer<E, L, Many>,
        len: u64,
    ) -> Result<u64, Refusal> {
        producer.reserve_shared(len, true)
    }

    fn claimed<E, L: Layout>(core: &Core<E, L>, next: u64) -> (u64, bool) {
        core.control.claimed(next)
    }

    fn leave<E, L: Layout>(producer: &Producer<E, L, Many>, last: bool, leaves: bool) {
        if last && !leaves {
            producer.close_shared();
        }
    }
}

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Closes the ring at the claim word's current position (I4).
    pub(super) fn close_shared(&self) {
        let claim = self.core.control.positions.claim();
        let word = ClaimWord(
            twin!("close-by-load": claim.fetch_or(ClaimWord::CLOSED, Relaxed) => claim.load(Relaxed)),
        );
        if !word.is_closed() {
            self.core.control.close_claimed(
                twin!("closed-short": self.core.control.positions.claim_at(&self.core.control.plan, word, self.next) => self.next),
            );
        }
    }
}

impl<E, L: Layout> Producer<E, L, Many> {
    /// Closes the ring for all its producers. The stages drain all claims made before the close.
    /// Claims after the close, and calls that wait for a slot at the close, return
    /// [`WaitError::Closed`](crate::errors::WaitError::Closed).
    ///
    /// A claim that another producer made before the close can still be published or given up.
    ///
    /// ```
    /// use slipring::errors::WaitError;
    /// let graph = slipring::Graph::new(8, || 0u64).shared();
    /// let key = graph.reader("count");
    /// let ring = graph.build()?;
    /// let (mut one, mut other) = (ring.producer(), ring.producer());
    /// let mut reader = ring.reader(key);
    /// one.publish(|slot| *slot = 1)?;
    /// one.close_all();
    /// assert!(matches!(other.publish(|slot| *slot = 2), Err(WaitError::Closed)));
    /// assert_eq!(reader.for_each(|_, _| ())?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_all(mut self) {
        self.give_up_open_claim();
        self.close_shared();
        self.ignores_panic = true;
    }
}

impl sealed::Shared for Many {}

impl<E, L: Layout, S: sealed::Shared> Clone for Producer<E, L, S> {
    fn clone(&self) -> Self {
        let learned = self.core.control.learner(self.core.control.plan.producer_party());
        Producer::new(self.core.clone(), learned)
    }
}

impl<E, L: Layout, S: sealed::Sharing> Producer<E, L, S> {
    /// Like [`Clone::clone`]. Where a producer cannot be cloned, the compiler finds this function
    /// instead of no function, and so says what to do.
    #[doc(hidden)]
    #[allow(clippy::should_implement_trait)]
    pub fn clone(&self) -> Self
    where
        S: sealed::Shared,
    {
        Clone::clone(self)
    }
}
