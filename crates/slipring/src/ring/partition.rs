//! Whose each event is: the partitioner of a stage that has shards, and its shard ids.
//!
//! Invariants
//! - I1: an event's shard id stands beside the slots from before the event is published to the
//!   shards until its slot is filled again: see shard::I1.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::panics::{Contained, panic_message};
use crate::base::sync::{AtomicU32, Relaxed};
use crate::errors::Cause;
use crate::ring::core::Core;
use crate::ring::slots::{Layout, Storage as _};

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

    pub(crate) fn owner(&self, seq: u64) -> &AtomicU32 {
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
