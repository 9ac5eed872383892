//! Names of a segment's handles over events, for tests and models. Users use the names of
//! `slipring-shm`.

use super::ring::{SegmentConsumer, SegmentProducer};
use crate::consumer::markers::{Joined, Reading, Updating};
use crate::processes::markers::{Seated, SeatedShard, SeatedWorker};
use crate::processes::producer::Apart;
use crate::ring::slots::Interleaved;

pub(crate) type SegmentSharedProducer<E> = SegmentProducer<E, Interleaved, Apart>;
pub(crate) type SegmentReader<E> = SegmentConsumer<E, Reading, Seated>;
pub(crate) type SegmentWriter<E> = SegmentConsumer<E, Updating, Seated>;
pub(crate) type SegmentSubscription<E> = SegmentConsumer<E, Reading, Joined>;
pub(crate) type SegmentPoolWriter<E> = SegmentConsumer<E, Updating, SeatedWorker>;
pub(crate) type SegmentShardWriter<E> = SegmentConsumer<E, Updating, SeatedShard>;
