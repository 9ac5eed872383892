//! Rings over memory that several processes map. This module is the part of `slipring-shm` that
//! knows the protocol.
//!
//! The module is not meant for users. It changes without notice, and `slipring-shm` depends on
//! exactly this version of the crate. Users read the documentation of `slipring-shm`.
//!
//! A *declaration* says what a ring looks like. The creator of a segment asks for its [`Needs`],
//! lays out areas of these sizes, and calls [`begin`], which stores the first words. Each process
//! then makes a [`SegmentRing`] over the areas, and takes handles from it.
//!
//! Invariants
//! - I1: all processes of a segment make their rings from equal declarations, so that lines, queues
//!   and seats mean the same to all of them.
//! - I2: a process makes the handle of a stage or producer only while it owns that party's seat.
//! - I3: every area stays mapped at the same address while its
//!   [`Mapping`](crate::base::maybe_mapped::Mapping) lives. Each ring and each handle keeps the
//!   mapping.

#![doc(hidden)]

mod areas;
mod block_batch;
#[cfg(all(test, not(slipring_loom)))]
mod block_shards_tests;
mod blocks;
#[cfg(all(test, not(slipring_loom)))]
mod blocks_tests;
#[cfg(all(test, not(slipring_loom)))]
mod combined_tests;
pub mod copied;
#[cfg(all(test, not(slipring_loom)))]
mod copies_tests;
mod copying;
mod copying_producer;
mod declaration;
#[cfg(all(test, not(slipring_loom)))]
mod for_tests;
#[cfg(test)]
pub(crate) mod handles_for_tests;
#[cfg(all(test, slipring_loom))]
pub(crate) mod heap;
#[cfg(all(test, not(slipring_loom)))]
mod last_out_tests;
#[cfg(all(test, not(slipring_loom)))]
mod lent_tests;
mod message_batch;
mod messages;
mod participant;
mod passes;
#[cfg(all(test, not(slipring_loom)))]
mod polls_tests;
#[cfg(all(test, not(slipring_loom)))]
mod pools_tests;
#[cfg(all(test, not(slipring_loom)))]
mod producers_tests;
mod raw_blocks;
mod request;
mod ring;
#[cfg(all(test, not(slipring_loom)))]
mod shards_tests;
#[cfg(all(test, not(slipring_loom)))]
mod taps_tests;
#[cfg(all(test, not(slipring_loom)))]
mod tasks_tests;
#[cfg(all(test, not(slipring_loom)))]
mod tests;
#[cfg(any(all(test, not(slipring_loom)), slipring_coherence))]
mod zeroed;

pub use areas::{Areas, SegmentLayout, begin};
pub use block_batch::BlockBatch;
pub use blocks::{BlockClaim, BlockConsumer, BlockProducer};
pub use copying::CopyingConsumer;
pub use copying_producer::CopyingProducer;
pub use declaration::{Declaration, Needs, StageDeclaration, StageDelivery, StagePlace};
pub use message_batch::{CELL, MAX_MESSAGE, Message, MessageBatch};
pub use messages::{MessageClaim, MessageConsumer, MessageError, MessageProducer};
pub use participant::{Participant, register_for_barriers};
pub use raw_blocks::{BlockStart, RawBlockConsumer, RawBlockProducer, Stretch};
pub use request::SegmentRequest;
pub use ring::{SegmentConsumer, SegmentProducer, SegmentRing};
#[cfg(slipring_coherence)]
pub use zeroed::{blocks_on_heap, on_heap};

pub use crate::base::atomic_bytes::{AtomicBytes, PlainBytes};
pub use crate::base::available_memory::{Bytes, check as check_memory};
pub use crate::base::maybe_mapped::Mapping;
pub use crate::consumer::markers::sealed::{Access, Delivery};
pub use crate::processes::deaths::{OnDeath, Proof};
pub use crate::processes::layout::InSegment;
pub use crate::processes::markers::{Seated, SeatedShard, SeatedWorker};
pub use crate::processes::producer::Apart;
pub use crate::producer::sealed::Sharing;
pub use crate::ring::partition::shard_of_bytes;
pub use crate::ring::seat::Seat;
pub use crate::ring::slots::Strided;
pub use crate::ring::status::Ending;
pub use crate::wait::warning::warn_of_segment;
