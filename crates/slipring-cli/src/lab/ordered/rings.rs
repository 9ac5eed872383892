//! The two contenders with a ring: the shape of the article, and a pool on shared threads.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use anyhow::Result;
use slipring::{Wait, faults::Fault, placement::Threads};
use slipring_machine::Clock;

use super::readings::{Reading, Readings, Retriever};

/// Size of the article's ring, in slots.
pub const ARTICLE_CAPACITY: usize = 128;

/// A slot of the article's ring.
#[derive(Debug, Default)]
struct PartitionedSlot<'a> {
    line: &'a str,
    /// Number that determines the handler that builds the reading.
    partition: usize,
    /// Time of the claim.
    claimed: u64,
    built: SharedReading,
}

/// A reading that one of several reading stages writes into the slot that they share.
///
/// Stages side by side get shared access to a slot. One of them writes these words, and the
/// retriever, which follows all of them, reads the words. The graph orders the accesses, so
/// `Relaxed` suffices.
#[derive(Debug, Default)]
struct SharedReading {
    time: AtomicI64,
    machine: AtomicU32,
    dimension: AtomicU32,
    value: AtomicU64,
}

impl SharedReading {
    fn set(&self, reading: Reading) {
        self.time.store(reading.time, Relaxed);
        self.machine.store(reading.machine, Relaxed);
        self.dimension.store(reading.dimension, Relaxed);
        self.value.store(reading.value.to_bits(), Relaxed);
    }

    fn get(&self) -> Reading {
        Reading {
            time: self.time.load(Relaxed),
            machine: self.machine.load(Relaxed),
            dimension: self.dimension.load(Relaxed),
            value: f64::from_bits(self.value.load(Relaxed)),
        }
    }
}

/// Passes all readings through the article's shape: every handler sees every slot, and builds the
/// readings of its own partition; the retriever follows all handlers.
pub fn partitioned(
    input: &Readings,
    threads: usize,
    clock: Clock,
    retriever: &mut Retriever,
) -> Result<()> {
    slipring::ring(ARTICLE_CAPACITY, PartitionedSlot::default)
        .fan_out(|side| {
            (0..threads).fold(side, |side, own| {
                side.read(&format!("build-{own}"), move |slot, _| {
                    if slot.partition % threads == own {
                        slot.built.set(Reading::parse(slot.line).map_err(Fault::from_boxed)?);
                    }
                    Ok::<(), Fault>(())
                })
            })
        })
        .read("retrieve", |slot, _| {
            retriever.retrieve(&slot.built.get(), slot.claimed).map_err(Fault::from_boxed)
        })
        .run(|producer| {
            for (partition, line) in input.lines().enumerate() {
                let claimed = clock.ns();
                producer.publish(|slot| {
                    (slot.line, slot.partition, slot.claimed) = (line, partition, claimed);
                })?;
            }
            Ok(())
        })?;
    Ok(())
}

/// A slot of the pool's ring.
#[derive(Clone, Copy, Debug, Default)]
struct Slot<'a> {
    line: &'a str,
    /// Time of the claim.
    claimed: u64,
    reading: Reading,
}

/// Returns whether the pool's stages share threads. As the guide advises, they do so if, with a
/// thread for each, there would be more threads than the machine has cores.
fn is_shared(threads: usize, cores: usize) -> bool {
    cores < threads + 2
}

/// Returns how many threads the pool, its retriever and the producer have together.
pub fn pool_threads(threads: usize, cores: usize) -> usize {
    // On one core, the library starts one thread in addition to the producer's.
    if is_shared(threads, cores) { cores.clamp(2, threads + 1) } else { threads + 2 }
}

/// Passes all readings through a pool of workers and the retriever behind it.
pub fn pool(
    input: &Readings,
    threads: usize,
    cores: usize,
    capacity: usize,
    clock: Clock,
    retriever: &mut Retriever,
) -> Result<()> {
    let chain = slipring::ring(capacity, Slot::default);
    let chain = if is_shared(threads, cores) {
        // The threads yield, as the guide advises for busy threads that share cores.
        chain.threads(Threads::Auto).wait(Wait::YIELDING)
    } else {
        chain
    };
    chain
        .update_pool("build", threads, |_worker| {
            |slot, _| {
                slot.reading = Reading::parse(slot.line).map_err(Fault::from_boxed)?;
                Ok::<(), Fault>(())
            }
        })
        .read("retrieve", |slot, _| {
            retriever.retrieve(&slot.reading, slot.claimed).map_err(Fault::from_boxed)
        })
        .run(|producer| {
            for line in input.lines() {
                let claimed = clock.ns();
                producer.publish(|slot| (slot.line, slot.claimed) = (line, claimed))?;
            }
            Ok(())
        })?;
    Ok(())
}
