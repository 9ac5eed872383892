//! Shards: several handles of one stage, each of which sees the events of its own keys, in
//! sequence.
//!
//! Invariants
//! - I1: whose an event is stands in the stage's lane from before it is published to the stage
//!   until its slot is filled again: the last party before the shards that may change the event
//!   works it out when it is done with the event, and lets go of it only then
//!   (`SYNC[slot-published]`, `SYNC[cursor-moved]` or `SYNC[released]` carry it).
//! - I2: a shard touches only events that are its own. It passes over the others, and what it has
//!   passed is as good as handled: the stage's frontier is the least of what its shards have
//!   passed.
//! - I3: an event whose key could not be worked out is nobody's; then the graph has failed.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::panics::{Contained, panic_message};
use crate::base::sync::{Acquire, AtomicU32, Relaxed, twin};
use crate::consumer::position::{ConsumerPosition, ConsumerState, Role, SequentialPosition};
use crate::errors::error::Cause;
use crate::ring::control::{Control, ahead};
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::slots::{Layout, Storage as _};
use crate::wait::Learned;

/// Whose an event is that is nobody's.
const NO_SHARD: u32 = u32::MAX;

/// Says whose an event is.
pub(crate) type Partitioner<E> = Box<dyn Fn(&E) -> u32 + Send + Sync>;

/// A sorter for so many shards.
pub(crate) fn partitioner<E, K: Hash>(
    shards: usize,
    key: impl Fn(&E) -> K + Send + Sync + 'static,
) -> Partitioner<E> {
    Box::new(move |event| {
        let mut mixer = Mixer(0);
        key(event).hash(&mut mixer);
        // The high half of the product is below the number of shards, and as evenly spread as the
        // hash's high bits.
        ((u128::from(mixer.finish()) * shards as u128) >> 64) as u32
    })
}

/// A hash that takes a few instructions for small keys. It spreads them evenly, and is no defence
/// against keys chosen to collide.
struct Mixer(u64);

/// Odd, without a pattern: the golden ratio's digits.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Mixer {
    fn mix(&mut self, word: u64) {
        // Both halves of a full product, folded, as in wyhash (Wang Yi, 2019).
        let product = u128::from(self.0 ^ word ^ GOLDEN) * u128::from(GOLDEN);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word) ^ (chunk.len() as u64) << 56);
        }
    }
    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }
    fn write_u16(&mut self, word: u16) {
        self.mix(word.into());
    }
    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }
    fn write_u64(&mut self, word: u64) {
        self.mix(word);
    }
    fn write_usize(&mut self, word: usize) {
        self.mix(word as u64);
    }
    fn finish(&self) -> u64 {
        // Once more, so that the last word counts in the high bits too.
        let product = u128::from(self.0 ^ GOLDEN) * u128::from(GOLDEN.rotate_left(32) | 1);
        product as u64 ^ (product >> 64) as u64
    }
}

/// Beside the slots: whose each event is.
pub(crate) struct ShardIds<E> {
    partitioner: Contained<Partitioner<E>>,
    owners: Box<[AtomicU32]>,
}

impl<E> ShardIds<E> {
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<AtomicU32>();

    /// `None`: there is no memory for it.
    pub(crate) fn new(
        partitioner: Contained<Partitioner<E>>,
        capacity: usize,
    ) -> Option<ShardIds<E>> {
        let mut owners = Vec::new();
        owners.try_reserve_exact(capacity).ok()?;
        owners.extend((0..capacity).map(|_| AtomicU32::new(NO_SHARD)));
        Some(ShardIds { partitioner, owners: owners.into() })
    }

    fn owner(&self, seq: u64) -> &AtomicU32 {
        &self.owners[seq as usize & (self.owners.len() - 1)]
    }
}

impl<E, L: Layout> Core<E, L> {
    /// Works out whose these events are, for the shards of these stages. `party` has them to
    /// itself, and is done with them. A panic of a key ends the graph (I3).
    #[cold]
    #[inline(never)]
    pub(crate) fn partition(&self, stages: &[usize], party: usize, first: u64, len: u64) {
        for ids in stages.iter().filter_map(|&stage| self.shard_ids[stage].as_ref()) {
            let partitioner: &Partitioner<E> = &ids.partitioner;
            let at = Cell::new(0);
            let sorted = catch_unwind(AssertUnwindSafe(|| {
                while at.get() < len {
                    let seq = first.wrapping_add(at.get());
                    // SAFETY: the caller has these events to itself.
                    let owner = partitioner(unsafe { &*self.slots.event(seq) });
                    ids.owner(seq).store(owner, Relaxed); // I1
                    at.set(at.get() + 1);
                }
            }));
            if let Err(panic) = sorted {
                self.control.fail(
                    party,
                    Some(first.wrapping_add(at.get())),
                    Cause::Panic(panic_message(panic)),
                );
                (at.get()..len).for_each(|offset| {
                    ids.owner(first.wrapping_add(offset)).store(NO_SHARD, Relaxed)
                });
            }
        }
    }
}

/// The role of one shard of a stage: the graph cannot do without it.
pub(crate) struct ShardRole {
    shard: u32,
}

impl Role for ShardRole {
    /// A shard samples its own events only.
    const SAMPLES: bool = false;
    /// All shards pass the same tombstones; one counts them.
    fn counts_tombstones(&self) -> bool {
        self.shard == 0
    }
    fn goes<E, L: Layout>(&self, state: &ConsumerState<E, L>, released: u64) {
        state.left(released);
    }
}

/// The seat of one shard.
pub struct ShardPosition<E, L: Layout> {
    walk: SequentialPosition<E, L, ShardRole>,
    /// So many events from the next one on are known to be its own.
    own: u64,
    /// Whether something was handled since the last release. If not, others are passed for good.
    handled: bool,
}

impl<E, L: Layout> ShardPosition<E, L> {
    pub(crate) fn new(core: Owner<E, L>, stage: usize, shard: usize, learned: Learned) -> Self {
        let (start, line) = (core.control.start, core.control.plan.stages[stage].line + shard);
        let sharer = ShardRole { shard: shard as u32 };
        ShardPosition {
            walk: SequentialPosition::begin(core, stage, sharer, (line, 0), start, learned),
            own: 0,
            handled: false,
        }
    }

    /// How many events in a row are this shard's, or are not, from `seq` on and among `len`.
    fn count(&self, seq: u64, len: u64, own: bool) -> u64 {
        let state = self.walk.state();
        let Some(ids) = &state.core.shard_ids[state.stage] else { return 0 };
        let is = |offset: &u64| {
            let owner = ids.owner(seq.wrapping_add(*offset)).load(Relaxed); // I1
            (owner == self.walk.role().shard) == own
        };
        (0..len).take_while(is).count() as u64
    }
}

impl<E, L: Layout> ConsumerPosition<E, L> for ShardPosition<E, L> {
    /// The end of what is its own in a row is not the end of what there is.
    const GATHERS_ALL: bool = false;
    fn walks_runs(&self) -> bool {
        false
    }
    fn poll(&mut self, max: u64) -> u64 {
        while self.own == 0 {
            let found = self.walk.poll(u64::MAX);
            let others = self.count(self.walk.next(), found, false);
            self.walk.pass_over(others);
            self.own = self.count(self.walk.next(), found - others, true);
            let share = (self.walk.state().core.capacity() / 8).max(1);
            if !self.handled
                && (found == 0 || self.walk.next().wrapping_sub(self.walk.released()) >= share)
            {
                twin!("others-held": self.release() => ());
            }
            if found == 0 {
                return 0;
            }
        }
        self.own.min(max)
    }
    fn gather(&mut self, _least: u64, max: u64) -> u64 {
        self.poll(max)
    }
    #[inline(always)]
    fn line(&self) -> usize {
        self.walk.line()
    }
    #[inline(always)]
    fn next(&self) -> u64 {
        self.walk.next()
    }
    fn handled(&self) -> u64 {
        self.walk.handled()
    }
    fn advance(&mut self, len: u64, _found: u64) {
        self.own -= len;
        self.handled |= len != 0;
        self.walk.advance(len, len);
    }
    fn release(&mut self) {
        let state = self.walk.state();
        if let Some(samples) = &state.control().counters.samples {
            let from = self.walk.released();
            samples.releasing(state.stage, from, self.walk.next().wrapping_sub(from), |seq| {
                self.count(seq, 1, true) == 1
            });
        }
        self.handled = false;
        self.walk.release();
    }
    fn rewind(&mut self) {
        (self.own, self.handled) = (0, false);
        self.walk.rewind();
    }
    fn released(&self) -> u64 {
        self.walk.released()
    }
    fn holds(&self) -> bool {
        self.handled
    }
    fn has_available(&self) -> bool {
        self.walk.has_available()
    }
    fn waits_for(&self) -> usize {
        self.walk.waits_for()
    }
    fn state(&self) -> &ConsumerState<E, L> {
        self.walk.state()
    }
    fn state_mut(&mut self) -> &mut ConsumerState<E, L> {
        self.walk.state_mut()
    }
}

impl Control {
    /// The least that the shards of a stage have passed, if that is known to be no less than
    /// `lower_bound`.
    pub(crate) fn least_passed(&self, line: usize, shards: usize, lower_bound: u64) -> u64 {
        let shards = twin!("one-shard-gates": shards => 1);
        let passed = |shard| {
            let line = self.line(line + shard);
            ahead(line.load(twin!("shard-relaxed": Acquire => Relaxed)), lower_bound) // SYNC[released]: behind shards
        };
        lower_bound.wrapping_add((0..shards).map(passed).min().unwrap_or(0).max(0) as u64)
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn small_keys_are_spread_evenly() {
        // An interpreter sees all there is to see in fewer.
        let (keys, all): (u64, &[usize]) =
            if cfg!(miri) { (1_000, &[1, 7]) } else { (10_000, &[1, 2, 3, 7, 64]) };
        for &shards in all {
            let sort = partitioner(shards, |key: &u64| *key);
            for step in [1, 8, 1 << 20, 1 << 40] {
                let mut counts = vec![0u32; shards];
                (0..keys).for_each(|key| counts[sort(&(key * step)) as usize] += 1);
                let even = keys as u32 / shards as u32;
                assert!(
                    counts.iter().all(|&count| count > even / 2 && count < even * 2),
                    "{shards} shards, step {step}: {counts:?}"
                );
            }
            let sort = partitioner(shards, |key: &(u8, String)| key.clone());
            let mut counts = vec![0u32; shards];
            (0..keys).for_each(|key| counts[sort(&(key as u8, format!("SYM{key}"))) as usize] += 1);
            let even = keys as u32 / shards as u32;
            assert!(
                counts.iter().all(|&count| count > even / 2 && count < even * 2),
                "{shards} shards: {counts:?}"
            );
        }
    }
}
