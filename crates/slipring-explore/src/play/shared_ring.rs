//! The ring of a segment as one process sees it, whatever its contents.
//!
//! - I1: A caller takes a seat before it makes the seat's handle, and there is one handle of a seat
//!   at a time.

use std::ops::Range;

use slipring::segment::{
    AtomicBytes, BlockConsumer, BlockProducer, BlockStart, CELL, CopyingConsumer, CopyingProducer,
    MessageConsumer, MessageProducer, Seat, SegmentRequest, SegmentRing, Strided,
};
use slipring::{errors::SubscribeError, handles::StartAt};

use super::acts::Acts;
use super::block_producers::BlockPuts;
use super::blocks::BlockHandle;
use super::copies::{Copied, Words};
use super::handles::{Handle, Held};
use super::messages::{Lengths, MessageHandle, MessagePuts};
use super::plain::Plain;
use crate::event::Parts;
use crate::plan::Kind;

/// The place of a handle: its stage and the stage's kind, its seat, and its number at the stage.
#[derive(Clone, Copy)]
pub struct Sits {
    pub stage: usize,
    pub kind: Kind,
    pub seat: usize,
    pub number: usize,
}

/// The ring of a segment.
pub trait SharedRing: Send + Sync {
    fn seat(&self, seat: usize) -> &Seat;
    fn seats(&self) -> usize;
    fn seats_of(&self, party: usize) -> Range<usize>;
    fn settle_seat(&self, seat: usize, dead: u32);
    fn producer_party(&self) -> usize;
    fn is_closing(&self) -> bool;
    fn is_over(&self) -> bool;
    fn position(&self, stage: usize) -> u64;
    /// Makes a report, and drops it.
    fn report(&self);
    fn request(&self, seq: u64) -> SegmentRequest;
    /// Makes the only producer.
    fn producer(&self) -> Box<dyn Acts>;
    /// Makes the producer of a seat.
    fn shared_producer(&self, seat: usize) -> Box<dyn Acts>;
    /// Makes the handle of a place that is not at a tap.
    fn handle(&self, at: Sits) -> Box<dyn Handle>;
    fn subscribe(&self, tap: usize, start: StartAt) -> Result<Box<dyn Handle>, SubscribeError>;
}

/// Events that handles lend.
pub struct Lent(pub SegmentRing<Parts>);

/// Events that handles copy.
pub struct Copying(pub SegmentRing<AtomicBytes<Words>>);

/// Blocks of so many bytes, and so many of them.
pub struct InBlocks(pub SegmentRing<BlockStart, Strided>, pub usize, pub usize);

/// Messages.
pub struct InCells(pub SegmentRing<BlockStart, Strided>, pub Lengths);

/// `$consumer` and `$producer` wrap what the ring's calls return. `$call` is the call for each
/// kind.
macro_rules! shared_ring {
    (
        $ring:ty, $own:ident;
        $tx:ident => $producer:expr;
        $rx:ident => $consumer:expr;
        $($kind:ident: $call:ident $(of $which:ident)?),*
    ) => {
        impl SharedRing for $ring {
            fn seat(&self, seat: usize) -> &Seat {
                self.0.seat(seat)
            }
            fn seats(&self) -> usize {
                self.0.seats()
            }
            fn seats_of(&self, party: usize) -> Range<usize> {
                self.0.seats_of(party)
            }
            fn settle_seat(&self, seat: usize, dead: u32) {
                self.0.settle_seat(seat, dead);
            }
            fn producer_party(&self) -> usize {
                self.0.producer_party()
            }
            fn is_closing(&self) -> bool {
                self.0.is_closing()
            }
            fn is_over(&self) -> bool {
                self.0.is_over()
            }
            fn position(&self, stage: usize) -> u64 {
                self.0.position(stage)
            }
            fn report(&self) {
                drop(self.0.report());
            }
            fn request(&self, seq: u64) -> SegmentRequest {
                self.0.request(seq)
            }
            fn producer(&self) -> Box<dyn Acts> {
                let $own = self;
                // SAFETY: I1.
                let $tx = unsafe { self.0.producer() };
                Box::new($producer)
            }
            fn shared_producer(&self, seat: usize) -> Box<dyn Acts> {
                let $own = self;
                // SAFETY: I1.
                let $tx = unsafe { self.0.shared_producer(seat) };
                Box::new($producer)
            }
            fn handle(&self, at: Sits) -> Box<dyn Handle> {
                let $own = self;
                match at.kind {
                    $(Kind::$kind => {
                        // SAFETY: I1, and the stage was declared with this kind.
                        let $rx = unsafe { self.0.$call(at.stage $(, at.$which)?) };
                        Box::new($consumer)
                    })*
                    kind => unreachable!("a ring of this content has no handle of a {kind:?}"),
                }
            }
            fn subscribe(
                &self,
                tap: usize,
                start: StartAt,
            ) -> Result<Box<dyn Handle>, SubscribeError> {
                let $own = self;
                let $rx = self.0.subscribe(tap, start)?;
                Ok(Box::new($consumer))
            }
        }
    };
}

shared_ring! {
    Lent, _own;
    producer => producer;
    consumer => Held::new(consumer);
    Reader: reader, Writer: updater,
    PoolReader: pool_reader of seat, PoolWriter: pool_updater of seat,
    ShardReader: shard_reader of number, ShardWriter: shard_updater of number
}

shared_ring! {
    Copying, _own;
    producer => Plain(CopyingProducer::over(producer));
    consumer => Copied(CopyingConsumer::over(consumer));
    Reader: reader, Writer: updater,
    PoolReader: pool_reader of seat, PoolWriter: pool_updater of seat,
    ShardReader: shard_reader of number, ShardWriter: shard_updater of number
}

shared_ring! {
    InBlocks, own;
    // SAFETY: the segment's blocks have this size, and its processes follow the protocol.
    producer => Plain(BlockPuts::new(unsafe { BlockProducer::over(producer, own.1) }, own.2));
    // SAFETY: as above.
    consumer => BlockHandle::new(unsafe { BlockConsumer::over(consumer, own.1) });
    Reader: reader, Writer: updater,
    PoolReader: pool_reader of seat, PoolWriter: pool_updater of seat,
    ShardReader: shard_reader of number, ShardWriter: shard_updater of number
}

shared_ring! {
    InCells, own;
    producer => Plain(MessagePuts {
        // SAFETY: the segment's blocks are cells, and its processes follow the protocol.
        producer: MessageProducer::over(unsafe { BlockProducer::over(producer, CELL) }),
        lengths: own.1.clone(),
    });
    consumer => MessageHandle {
        // SAFETY: as above.
        handle: MessageConsumer::over(unsafe { BlockConsumer::over(consumer, CELL) }),
        lengths: own.1.clone(),
    };
    Reader: reader
}
