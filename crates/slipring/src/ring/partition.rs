//! Shard ids. For each event and each sharded stage, the shard id is the index of the shard that
//! owns the event.
//!
//! Invariants
//! - I1: each slot has one shard-id word per sharded stage, stored beside the slots. The word is
//!   stored before the shards can see the slot's event, and does not change until the slot is
//!   written again (shard::I1).

use std::hash::{Hash, Hasher};

use crate::base::atomic_bytes::{AtomicBytes, PlainBytes};
use crate::base::maybe_mapped::MaybeMapped;
use crate::base::panics::Contained;
use crate::base::sync::{AtomicU32, Relaxed, array};

/// Shard id of an event that no shard owns.
const NO_SHARD: u32 = u32::MAX;

/// Computes the shard id of an event.
pub(crate) enum Partitioner<E> {
    /// A function of the event.
    Of(Box<dyn Fn(&E) -> u32 + Send + Sync>),
    /// Partitions by the bytes of a key. In a ring of blocks, `E` has size zero and stands for the
    /// beginning of a block. So the partitioner finds the key by the event's address, and not by a
    /// reference to an `E`.
    Bytes {
        /// Number of shards.
        shards: usize,
        key: KeyBytes,
    },
}

/// The bytes of an event that are its key.
#[derive(Clone, Copy)]
pub(crate) struct KeyBytes {
    /// Distance from the event's address to the key, in bytes.
    pub(crate) offset: usize,
    /// Length of the key, in bytes.
    pub(crate) length: usize,
}

impl<E> Partitioner<E> {
    /// Makes a partitioner for `shards` shards, whose keys are the bytes `key` of each event.
    pub(crate) fn of_bytes(shards: usize, key: KeyBytes) -> Partitioner<E> {
        Partitioner::Bytes { shards, key }
    }

    /// Returns the shard id of the event at this address.
    ///
    /// # Safety
    /// The address is that of an event, or of a block, to which no party writes during the call.
    /// The bytes of the partitioner's key lie in the event or block, and none of them is padding.
    unsafe fn shard_id(&self, event: *const E) -> u32 {
        match self {
            // SAFETY: the caller's promise.
            Partitioner::Of(shard_id) => shard_id(unsafe { &*event }),
            &Partitioner::Bytes { shards, key: KeyBytes { offset, length } } => {
                // SAFETY: the caller's promise.
                let key =
                    unsafe { std::slice::from_raw_parts(event.cast::<u8>().add(offset), length) };
                shard_of_bytes(key, shards)
            }
        }
    }
}

pub mod key {
    /// A key by which a sharded stage divides the events: any value with a hash.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be the key of a shard, because it has no hash",
        label = "the third argument must return a key that implements `Hash`",
        note = "give first a closure that returns the key of an event, such as `|event| event.account`, and then the closure that makes a handler for each shard: `|_shard| |event, _| ...`"
    )]
    pub trait ShardKey: std::hash::Hash {}
    #[diagnostic::do_not_recommend]
    impl<K: std::hash::Hash> ShardKey for K {}
}

/// Makes a partitioner for `shards` shards from the user's key function.
pub(crate) fn partitioner<E, K: Hash>(
    shards: usize,
    key: impl Fn(&E) -> K + Send + Sync + 'static,
) -> Partitioner<E> {
    Partitioner::Of(Box::new(move |event| {
        let mut mixer = Mixer(0);
        key(event).hash(&mut mixer);
        shard_of_hash(mixer.finish(), shards)
    }))
}

/// Returns the shard that a hash selects: `(hash * shards) >> 64`, computed in 128 bits. Shard ids
/// are spread as evenly as the high bits of the hashes.
fn shard_of_hash(hash: u64, shards: usize) -> u32 {
    ((u128::from(hash) * shards as u128) >> 64) as u32
}

/// Returns the shard that the bytes of a key select. All processes of a segment must agree on it,
/// so the function belongs to the version of the segment format.
pub fn shard_of_bytes(key: &[u8], shards: usize) -> u32 {
    let mut mixer = Mixer(0);
    mixer.write(key);
    shard_of_hash(mixer.finish(), shards)
}

/// Like [`Partitioner::of_bytes`], for events that other processes may write at any time. The key
/// is copied, eight bytes at a time.
pub(crate) fn copying_partitioner<E: PlainBytes>(
    shards: usize,
    KeyBytes { offset, length }: KeyBytes,
) -> Partitioner<AtomicBytes<E>> {
    Partitioner::Of(Box::new(move |event: &AtomicBytes<E>| {
        let mut mixer = Mixer(0);
        for done in (0..length).step_by(8) {
            let (mut word, len) = ([0; 8], (length - done).min(8));
            event.load_part(offset + done, &mut word[..len]);
            mixer.write(&word[..len]);
        }
        shard_of_hash(mixer.finish(), shards)
    }))
}

/// A hasher of a few instructions for small keys. It spreads keys evenly, but does not resist keys
/// that were chosen to collide.
struct Mixer(u64);

/// The first 64 binary digits of the golden ratio's fraction: an odd number whose bits have no
/// pattern.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl Mixer {
    fn mix(&mut self, word: u64) {
        // The new state is the exclusive or of the high and low halves of a 128-bit product, as in
        // wyhash (Wang Yi, 2019).
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
        // The state is mixed once more, so that the last hashed word affects the high bits.
        let product = u128::from(self.0 ^ GOLDEN) * u128::from(GOLDEN.rotate_left(32) | 1);
        product as u64 ^ (product >> 64) as u64
    }
}

/// The shard ids of a stage, one per slot, and the partitioner that computes these ids.
pub(crate) struct ShardIds<E> {
    partitioner: Contained<Partitioner<E>>,
    ids: MaybeMapped<[AtomicU32]>,
}

impl<E> ShardIds<E> {
    pub(crate) const BYTES_PER_SLOT: usize = size_of::<AtomicU32>();

    /// Makes the shard ids of a stage. Returns `None` if there is not enough memory for the ids.
    pub(crate) fn new(
        partitioner: Contained<Partitioner<E>>,
        capacity: usize,
    ) -> Option<ShardIds<E>> {
        let ids = array(capacity, |_| AtomicU32::new(NO_SHARD))?;
        Some(ShardIds::over(partitioner, MaybeMapped::from(ids)))
    }

    /// Makes the shard ids of a stage from `ids`, which has one word for each slot.
    pub(crate) fn over(
        partitioner: Contained<Partitioner<E>>,
        ids: MaybeMapped<[AtomicU32]>,
    ) -> ShardIds<E> {
        ShardIds { partitioner, ids }
    }

    /// Computes and stores the shard id of the event at the address `event`. May run the user's key
    /// function.
    ///
    /// # Safety
    /// `event` is the address of the position's event, or block, to which no party writes during
    /// the call. The bytes of the stage's key lie in it, and none of them is padding.
    pub(crate) unsafe fn assign(&self, seq: u64, event: *const E) {
        // SAFETY: the caller's promise.
        let shard = unsafe { self.partitioner.shard_id(event) };
        self.id(seq).store(shard, Relaxed); // I1
    }

    /// Stores [`NO_SHARD`] as the shard id of an event.
    pub(crate) fn assign_none(&self, seq: u64) {
        self.id(seq).store(NO_SHARD, Relaxed);
    }

    /// Returns the shard of an event.
    #[inline(always)]
    pub(crate) fn shard_of(&self, seq: u64) -> u32 {
        self.id(seq).load(Relaxed) // I1
    }

    fn id(&self, seq: u64) -> &AtomicU32 {
        &self.ids[seq as usize & (self.ids.len() - 1)]
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    /// Returns the shard id of an event.
    fn shard_id<E>(partitioner: &Partitioner<E>, event: &E) -> u32 {
        // SAFETY: the address is that of an event, and the keys of these tests lie in the event.
        unsafe { partitioner.shard_id(event) }
    }

    /// The expected values belong to the version of the segment format, because programs from
    /// different builds share a segment.
    #[test]
    fn the_shard_of_bytes_never_changes() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"MSFT", b"EURUSD\0\0", b"EURUSD\0\0\0", &[0xFF; 20]];
        let of_a_million = keys.map(|key| shard_of_bytes(key, 1_000_000));
        assert_eq!(of_a_million, [308_498, 247_006, 576_908, 824_920, 583_289, 123_487]);
        for shards in [1, 2, 3, 65_536] {
            assert!(
                (0u64..200)
                    .all(|key| { (shard_of_bytes(&key.to_ne_bytes(), shards) as usize) < shards })
            );
        }
    }

    /// Processes that copy events and processes that lend them agree on each event's shard.
    #[test]
    fn copied_keys_have_the_same_shards() {
        for (offset, length) in [(0, 1), (0, 23), (3, 8), (3, 9), (5, 17), (15, 1), (7, 16)] {
            let key = KeyBytes { offset, length };
            let lent = Partitioner::<[u8; 23]>::of_bytes(1_000_000, key);
            let copied = copying_partitioner::<[u8; 23]>(1_000_000, key);
            for seed in 0..20u8 {
                let event: [u8; 23] = std::array::from_fn(|i| seed.wrapping_mul(i as u8 | 3));
                let copy = shard_id(&copied, &AtomicBytes::new(event));
                assert_eq!(copy, shard_id(&lent, &event));
            }
        }
    }

    #[test]
    fn bytes_are_spread_evenly() {
        let (keys, shards) = (if cfg!(miri) { 500u32 } else { 10_000 }, 5);
        let sort = Partitioner::of_bytes(shards, KeyBytes { offset: 4, length: 7 });
        let mut counts = vec![0u32; shards];
        for key in 0..keys {
            let mut event = [0xAA; 12];
            event[5..9].copy_from_slice(&key.to_ne_bytes());
            counts[shard_id(&sort, &event) as usize] += 1;
        }
        let even = keys / shards as u32;
        assert!(counts.iter().all(|&count| count > even / 2 && count < even * 2), "{counts:?}");
    }

    #[test]
    fn small_keys_are_spread_evenly() {
        // Miri is slow, and fewer keys suffice for its checks.
        let (keys, all): (u64, &[usize]) =
            if cfg!(miri) { (1_000, &[1, 7]) } else { (10_000, &[1, 2, 3, 7, 64]) };
        for &shards in all {
            let sort = partitioner(shards, |key: &u64| *key);
            for step in [1, 8, 1 << 20, 1 << 40] {
                let mut counts = vec![0u32; shards];
                (0..keys).for_each(|key| counts[shard_id(&sort, &(key * step)) as usize] += 1);
                let even = keys as u32 / shards as u32;
                assert!(
                    counts.iter().all(|&count| count > even / 2 && count < even * 2),
                    "{shards} shards, step {step}: {counts:?}"
                );
            }
            let sort = partitioner(shards, |key: &(u8, String)| key.clone());
            let mut counts = vec![0u32; shards];
            for key in 0..keys {
                counts[shard_id(&sort, &(key as u8, format!("SYM{key}"))) as usize] += 1;
            }
            let even = keys as u32 / shards as u32;
            assert!(
                counts.iter().all(|&count| count > even / 2 && count < even * 2),
                "{shards} shards: {counts:?}"
            );
        }
    }
}
