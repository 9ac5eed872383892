//! The calls for segments of blocks and of messages, on systems without segments.

use std::ops::Range;

use slipring::StartAt;

use super::{Attached, Builder};
use crate::contents::{Blocks, Messages};
use crate::errors::SegmentError;
use crate::{
    BlockPoolReader, BlockPoolWriter, BlockProducer, BlockReader, BlockShardReader,
    BlockShardWriter, BlockSubscription, BlockWriter, MessageProducer, MessageReader,
    MessageSubscription, SharedBlockProducer, SharedMessageProducer,
};

impl Builder<Blocks> {
    /// Sets the size of a block and its alignment, in bytes.
    pub fn block(self, _size: usize, _align: usize) -> Builder<Blocks> {
        self
    }

    /// Adds shards that read, by a range of a block's bytes.
    pub fn shard_reader(
        self,
        _name: impl Into<String>,
        _shards: usize,
        _key: Range<usize>,
    ) -> Builder<Blocks> {
        self
    }

    /// Adds shards that may write, by a range of a block's bytes.
    pub fn shard_writer(
        self,
        _name: impl Into<String>,
        _shards: usize,
        _key: Range<usize>,
    ) -> Builder<Blocks> {
        self
    }

    /// Puts the stamp of each block in front of it.
    pub fn stamps_inside(self) -> Builder<Blocks> {
        self
    }

    /// Sets the name and the version of what the blocks hold.
    pub fn type_name(self, _name: impl Into<String>, _version: u32) -> Builder<Blocks> {
        self
    }
}

impl Builder<Messages> {
    /// Sets the name and the version of what the messages hold.
    pub fn type_name(self, _name: impl Into<String>, _version: u32) -> Builder<Messages> {
        self
    }
}

impl Attached<Blocks> {
    /// Never called: there is no segment.
    pub fn block_producer(&self) -> Result<BlockProducer, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shared_block_producer(&self) -> Result<SharedBlockProducer, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_reader(&self, _stage: &str) -> Result<BlockReader, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_writer(&self, _stage: &str) -> Result<BlockWriter, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_subscription(
        &self,
        _tap: &str,
        _start: StartAt,
    ) -> Result<BlockSubscription, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_pool_reader(&self, _pool: &str) -> Result<BlockPoolReader, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_pool_writer(&self, _pool: &str) -> Result<BlockPoolWriter, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_shard_reader(&self, _: &str, _: usize) -> Result<BlockShardReader, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn block_shard_writer(&self, _: &str, _: usize) -> Result<BlockShardWriter, SegmentError> {
        match self.0 {}
    }
}

impl Attached<Messages> {
    /// Never called: there is no segment.
    pub fn message_producer(&self) -> Result<MessageProducer, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn shared_message_producer(&self) -> Result<SharedMessageProducer, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn message_reader(&self, _stage: &str) -> Result<MessageReader, SegmentError> {
        match self.0 {}
    }

    /// Never called: there is no segment.
    pub fn message_subscription(&self, _tap: &str) -> Result<MessageSubscription, SegmentError> {
        match self.0 {}
    }
}
