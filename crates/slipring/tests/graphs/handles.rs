//! Builds shapes, and gives handles of any kind one type.

use std::time::Instant;

use slipring::{
    Error, Graph, Reader, Ring, Updater,
    errors::{BatchError, WaitError},
    handles::{Events, PoolReader, PoolUpdater, ShardReader, ShardUpdater},
    markers::{Contiguous, Interleaved, Layout, Many, Single},
    stages::{
        PoolReaderKey, PoolUpdaterKey, ReaderKey, ShardReaderKey, ShardUpdaterKey, UpdaterKey,
    },
};

use crate::shape::{Ev, Shape, StageKind, after_write};

/// A key of any kind.
pub enum AnyKey {
    Reader(ReaderKey),
    Updater(UpdaterKey),
    PoolReader(PoolReaderKey),
    PoolUpdater(PoolUpdaterKey),
    ShardReader(ShardReaderKey),
    ShardUpdater(ShardUpdaterKey),
}

macro_rules! on_key {
    ($any:expr, $key:ident => $with:expr) => {
        match $any {
            AnyKey::Reader($key) => $with,
            AnyKey::Updater($key) => $with,
            AnyKey::PoolReader($key) => $with,
            AnyKey::PoolUpdater($key) => $with,
            AnyKey::ShardReader($key) => $with,
            AnyKey::ShardUpdater($key) => $with,
        }
    };
}

impl AnyKey {
    pub fn after(self, earlier: &AnyKey) -> AnyKey {
        match self {
            AnyKey::Reader(key) => AnyKey::Reader(on_key!(earlier, earlier => key.after(earlier))),
            AnyKey::Updater(key) => {
                AnyKey::Updater(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::PoolReader(key) => {
                AnyKey::PoolReader(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::PoolUpdater(key) => {
                AnyKey::PoolUpdater(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::ShardReader(key) => {
                AnyKey::ShardReader(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::ShardUpdater(key) => {
                AnyKey::ShardUpdater(on_key!(earlier, earlier => key.after(earlier)))
            }
        }
    }
}

/// An event with a key for shards.
pub trait Keyed {
    fn key(&self) -> u64 {
        0
    }
}

impl Keyed for Ev {
    /// Computes the key from the trail. So if the library computes the key too early or too late,
    /// the result differs.
    fn key(&self) -> u64 {
        self.trail % KEYS
    }
}

impl Keyed for u8 {}

pub const KEYS: u64 = 16;

/// Declares a shape, and returns the keys in the order of its stages.
pub fn declare<E: Keyed + Send + Sync + 'static, L: Layout, S>(
    graph: &Graph<E, L, S>,
    shape: &Shape,
) -> Vec<AnyKey> {
    let mut keys: Vec<Option<AnyKey>> = Vec::new();
    for (i, stage) in shape.0.iter().enumerate() {
        let name = Shape::name(i);
        keys.push(Some(match stage.kind {
            StageKind::Reader => AnyKey::Reader(graph.reader(&name)),
            StageKind::Updater => AnyKey::Updater(graph.updater(&name)),
            StageKind::PoolReader => AnyKey::PoolReader(graph.pool_reader(&name, stage.workers)),
            StageKind::PoolUpdater => AnyKey::PoolUpdater(graph.pool_updater(&name, stage.workers)),
            StageKind::ShardReader => {
                AnyKey::ShardReader(graph.shard_reader(&name, stage.workers, E::key))
            }
            StageKind::ShardUpdater => {
                AnyKey::ShardUpdater(graph.shard_updater(&name, stage.workers, E::key))
            }
        }));
    }
    for (i, stage) in shape.0.iter().enumerate() {
        for &earlier in &stage.after {
            let key = keys[i].take().expect("no stage follows itself directly");
            let key = key.after(keys[earlier].as_ref().expect("the key of another stage"));
            keys[i] = Some(key);
        }
    }
    keys.into_iter().flatten().collect()
}

/// A handle of any kind: of a stage, a worker or a shard.
pub enum AnyHandle<L: Layout> {
    Reader(Reader<Ev, L>),
    Updater(Updater<Ev, L>),
    PoolReader(PoolReader<Ev, L>),
    PoolUpdater(PoolUpdater<Ev, L>),
    ShardReader(ShardReader<Ev, L>),
    ShardUpdater(ShardUpdater<Ev, L>),
}

/// Exchanges each stage's key for its handle, or for one handle per worker.
pub fn attach<L: Layout, S>(ring: &Ring<Ev, L, S>, keys: Vec<AnyKey>) -> Vec<Vec<AnyHandle<L>>> {
    let attach = |key| match key {
        AnyKey::Reader(key) => vec![AnyHandle::Reader(ring.reader(key))],
        AnyKey::Updater(key) => vec![AnyHandle::Updater(ring.updater(key))],
        AnyKey::PoolReader(key) => {
            ring.pool_readers(key).into_iter().map(AnyHandle::PoolReader).collect()
        }
        AnyKey::PoolUpdater(key) => {
            ring.pool_updaters(key).into_iter().map(AnyHandle::PoolUpdater).collect()
        }
        AnyKey::ShardReader(key) => {
            ring.shard_readers(key).into_iter().map(AnyHandle::ShardReader).collect()
        }
        AnyKey::ShardUpdater(key) => {
            ring.shard_updaters(key).into_iter().map(AnyHandle::ShardUpdater).collect()
        }
    };
    keys.into_iter().map(attach).collect()
}

/// A layout, with its builder and its checks.
pub trait TestLayout: Layout {
    const NAME: &'static str;
    fn ring_of<S>(graph: Graph<'_, Ev, Interleaved, S>) -> Graph<'_, Ev, Self, S>;
    /// Asserts that all views of a batch show the same events.
    fn check_view(events: &Events<'_, Ev, Self>);
}

fn check_view<L: Layout>(events: &Events<'_, Ev, L>) {
    assert_eq!(events.iter().len(), events.len());
    assert_eq!(events.is_empty(), events.iter().next().is_none());
    for (offset, event) in events.iter().enumerate() {
        assert!(std::ptr::eq(event, &events[offset]));
        assert!(std::ptr::eq(event, events.get(offset).unwrap()));
    }
    assert!(events.get(events.len()).is_none());
}

impl TestLayout for Interleaved {
    const NAME: &'static str = "interleaved";
    fn ring_of<S>(graph: Graph<'_, Ev, Interleaved, S>) -> Graph<'_, Ev, Interleaved, S> {
        graph
    }
    fn check_view(events: &Events<'_, Ev, Interleaved>) {
        check_view(events);
    }
}

impl TestLayout for Contiguous {
    const NAME: &'static str = "contiguous";
    fn ring_of<S>(graph: Graph<'_, Ev, Interleaved, S>) -> Graph<'_, Ev, Contiguous, S> {
        graph.contiguous()
    }
    fn check_view(events: &Events<'_, Ev, Contiguous>) {
        check_view(events);
        let (front, back) = events.as_slices();
        assert!(
            front
                .iter()
                .chain(back)
                .zip(events.iter())
                .all(|(slice, single)| std::ptr::eq(slice, single))
        );
        assert_eq!(front.len() + back.len(), events.len());
        assert!(!front.is_empty() || back.is_empty());
    }
}

/// The end of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Release,
    Drop,
    Forget,
}

/// The call that requests a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    Try,
    /// A call with a deadline that has passed.
    Late,
    /// A call that waits without a deadline.
    Wait,
}

macro_rules! ask {
    ($consumer:expr, $max:expr, $ask:expr) => {
        match $ask {
            Ask::Try => $consumer.try_batch($max),
            Ask::Late => $consumer.batch_by($max, Instant::now()),
            Ask::Wait => $consumer.batch($max).map_err(BatchError::from),
        }
    };
}

macro_rules! finish {
    ($batch:expr, $finish:expr) => {
        match $finish {
            Finish::Release => $batch.release(),
            Finish::Drop => drop($batch),
            Finish::Forget => std::mem::forget($batch),
        }
    };
}

impl<L: TestLayout> AnyHandle<L> {
    pub fn stage(&self) -> String {
        match self {
            AnyHandle::Reader(c) => c.stage().to_string(),
            AnyHandle::Updater(c) => c.stage().to_string(),
            AnyHandle::PoolReader(c) => c.stage().to_string(),
            AnyHandle::PoolUpdater(c) => c.stage().to_string(),
            AnyHandle::ShardReader(c) => c.stage().to_string(),
            AnyHandle::ShardUpdater(c) => c.stage().to_string(),
        }
    }

    pub fn next_seq(&self) -> u64 {
        match self {
            AnyHandle::Reader(c) => c.next_seq(),
            AnyHandle::Updater(c) => c.next_seq(),
            AnyHandle::PoolReader(c) => c.next_seq(),
            AnyHandle::PoolUpdater(c) => c.next_seq(),
            AnyHandle::ShardReader(c) => c.next_seq(),
            AnyHandle::ShardUpdater(c) => c.next_seq(),
        }
    }

    /// Takes a batch and passes its events to `see`. Writes to the events if the stage writes and
    /// the batch will be released, then finishes the batch. Returns its first position and its
    /// length.
    #[allow(clippy::drop_non_drop, clippy::forget_non_drop)] // the drop of a batch is the subject
    pub fn batch(
        &mut self,
        ask: Ask,
        max: usize,
        finish: Finish,
        stage: usize,
        see: &mut dyn FnMut(u64, &Ev),
    ) -> Result<(u64, usize), BatchError> {
        macro_rules! read {
            ($consumer:expr) => {{
                let batch = ask!($consumer, max, ask)?;
                let (first, len) = (batch.first_seq(), batch.len());
                L::check_view(&batch);
                for (offset, event) in batch.iter().enumerate() {
                    see(first.wrapping_add(offset as u64), event);
                }
                finish!(batch, finish);
                Ok((first, len))
            }};
        }
        macro_rules! write {
            ($consumer:expr) => {{
                let mut batch = ask!($consumer, max, ask)?;
                let (first, len) = (batch.first_seq(), batch.len());
                L::check_view(&batch);
                for (offset, event) in batch.iter().enumerate() {
                    see(first.wrapping_add(offset as u64), event);
                }
                if finish == Finish::Release {
                    for (offset, event) in batch.iter_mut().enumerate() {
                        if offset % 2 == 0 {
                            event.trail = after_write(event.trail, stage);
                        }
                    }
                    for offset in (1..len).step_by(2) {
                        batch[offset].trail = after_write(batch[offset].trail, stage);
                    }
                }
                assert!(batch.get_mut(len).is_none());
                finish!(batch, finish);
                Ok((first, len))
            }};
        }
        match self {
            AnyHandle::Reader(c) => read!(c),
            AnyHandle::PoolReader(c) => read!(c),
            AnyHandle::Updater(c) => write!(c),
            AnyHandle::PoolUpdater(c) => write!(c),
            AnyHandle::ShardReader(c) => read!(c),
            AnyHandle::ShardUpdater(c) => write!(c),
        }
    }

    /// Passes up to `max` events to `see`, and writes to them if the stage writes. If `see` panics,
    /// the panic leaves `poll` before the write.
    pub fn poll(
        &mut self,
        max: usize,
        stage: usize,
        see: &mut dyn FnMut(u64, &Ev),
    ) -> Result<usize, WaitError> {
        match self {
            AnyHandle::Reader(c) => c.poll(max, |event, at| see(at.seq, event)),
            AnyHandle::PoolReader(c) => c.poll(max, |event, at| see(at.seq, event)),
            AnyHandle::Updater(c) => c.poll(max, |event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::PoolUpdater(c) => c.poll(max, |event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::ShardReader(c) => c.poll(max, |event, at| see(at.seq, event)),
            AnyHandle::ShardUpdater(c) => c.poll(max, |event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
        }
    }

    /// Passes every event to `see` until the end, and writes to them if the stage writes.
    pub fn for_each(
        &mut self,
        stage: usize,
        see: &mut dyn FnMut(u64, &Ev),
    ) -> Result<u64, WaitError> {
        match self {
            AnyHandle::Reader(c) => c.for_each(|event, at| see(at.seq, event)),
            AnyHandle::PoolReader(c) => c.for_each(|event, at| see(at.seq, event)),
            AnyHandle::Updater(c) => c.for_each(|event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::PoolUpdater(c) => c.for_each(|event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::ShardReader(c) => c.for_each(|event, at| see(at.seq, event)),
            AnyHandle::ShardUpdater(c) => c.for_each(|event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
        }
    }
}

/// A producer's handle, single or shared.
pub enum Tx<L: Layout> {
    One(slipring::Producer<Ev, L, Single>),
    Many(slipring::Producer<Ev, L, Many>),
}

/// A built ring, single or shared.
pub enum AnyRing<L: Layout> {
    One(Ring<Ev, L, Single>),
    Many(Ring<Ev, L, Many>),
}

/// A ring, a producer, and the handles of each stage.
pub type Ends<L> = (AnyRing<L>, Tx<L>, Vec<Vec<AnyHandle<L>>>);

impl<L: TestLayout> AnyRing<L> {
    /// Builds a shape.
    pub fn build(shape: &Shape, many: bool, graph: Graph<Ev>) -> Result<Ends<L>, Error> {
        if many {
            let graph = L::ring_of(graph.shared());
            let keys = declare(&graph, shape);
            let ring = graph.build()?;
            let handles = attach(&ring, keys);
            let tx = Tx::Many(ring.producer());
            Ok((AnyRing::Many(ring), tx, handles))
        } else {
            let graph = L::ring_of(graph);
            let keys = declare(&graph, shape);
            let ring = graph.build()?;
            let handles = attach(&ring, keys);
            let tx = Tx::One(ring.producer());
            Ok((AnyRing::One(ring), tx, handles))
        }
    }
    pub fn report(&self) -> slipring::Report {
        match self {
            AnyRing::One(ring) => ring.report(),
            AnyRing::Many(ring) => ring.report(),
        }
    }
    pub fn halt(&self) {
        match self {
            AnyRing::One(ring) => ring.halt(),
            AnyRing::Many(ring) => ring.halt(),
        }
    }
}

/// Runs code with either kind of producer.
macro_rules! with_tx {
    ($tx:expr, $p:ident => $with:expr) => {
        match $tx {
            Tx::One($p) => $with,
            Tx::Many($p) => $with,
        }
    };
}
pub(crate) use with_tx;

impl<L: TestLayout> Tx<L> {
    /// Publishes one event if there is room.
    pub fn try_publish(&mut self, id: u64) -> Result<u64, slipring::errors::ClaimError> {
        with_tx!(self, p => p.try_publish(|event| event.fill(id)))
    }
}
