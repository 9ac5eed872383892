//! Shared by the tests `oracle` and `shapes`: a graph as plain data, a check of it that is
//! independent of the library, and one type for handles of any kind.
#![allow(dead_code)] // each of the two tests uses its own part

use std::fmt;
use std::time::Instant;

use slipring::{
    BatchError, BuildError, Contiguous, Error, ErrorKind, Events, Graph, Interleaved, Layout, Many,
    PoolReader, PoolReaderKey, PoolWriter, PoolWriterKey, Reader, ReaderKey, Ring, ShardReader,
    ShardReaderKey, ShardWriter, ShardWriterKey, Single, WaitError, Writer, WriterKey,
};

/// The event: its identity, and the trail of its writers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ev {
    pub id: u64,
    pub trail: u64,
}

impl Ev {
    pub fn fill(&mut self, id: u64) {
        *self = Ev { id, trail: mix(id) };
    }
}

/// Does one step of splitmix64: every bit of the input affects every bit of the output.
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a trail after a write by stage number `stage`. A write that is missing, repeated or out
/// of order gives another trail.
pub fn after_write(trail: u64, stage: usize) -> u64 {
    mix(trail ^ ((stage as u64 + 1) << 56))
}

/// A seeded generator of random numbers.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(mix(seed))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0)
    }
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    /// Returns `true` once in `times` calls on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Reader,
    Writer,
    PoolReader,
    PoolWriter,
    /// Shards run in the tests on threads only.
    ShardReader,
    ShardWriter,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Reader, Kind::Writer, Kind::PoolReader, Kind::PoolWriter];
    pub fn writes(self) -> bool {
        matches!(self, Kind::Writer | Kind::PoolWriter | Kind::ShardWriter)
    }
    pub fn is_pool(self) -> bool {
        matches!(self, Kind::PoolReader | Kind::PoolWriter)
    }
    pub fn is_sharded(self) -> bool {
        matches!(self, Kind::ShardReader | Kind::ShardWriter)
    }
    /// Returns the number of handles of a stage with this number of workers.
    pub fn handles(self, workers: usize) -> usize {
        if self.is_pool() || self.is_sharded() { workers } else { 1 }
    }
}

#[derive(Clone)]
pub struct Stage {
    pub kind: Kind,
    /// Number of workers of a pool, or of shards.
    pub workers: usize,
    pub after: Vec<usize>,
}

/// A graph as plain data; stages in the order of their declaration.
#[derive(Clone)]
pub struct Shape(pub Vec<Stage>);

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, stage) in self.0.iter().enumerate() {
            write!(f, "{}s{i} {:?}", if i == 0 { "" } else { "; " }, stage.kind)?;
            if stage.kind.handles(2) == 2 {
                write!(f, " of {}", stage.workers)?;
            }
            if !stage.after.is_empty() {
                write!(f, " after {:?}", stage.after)?;
            }
        }
        f.write_str("]")
    }
}

/// The defects of a shape, found independently of the library.
#[derive(Debug)]
pub struct Defects {
    /// Stages that come after themselves.
    pub circular: Vec<usize>,
    /// Pairs of a writer and a stage side by side with it.
    pub beside: Vec<(usize, usize)>,
}

impl Shape {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn name(stage: usize) -> String {
        format!("s{stage}")
    }

    /// Returns the transitive closure (by Warshall's algorithm): `[a][b]` is whether a comes after
    /// b.
    pub fn follows(&self) -> Vec<Vec<bool>> {
        let n = self.len();
        let mut follows = vec![vec![false; n]; n];
        for (a, stage) in self.0.iter().enumerate() {
            for &b in &stage.after {
                follows[a][b] = true;
            }
        }
        for via in 0..n {
            let through = follows[via].clone();
            for row in follows.iter_mut().filter(|row| row[via]) {
                row.iter_mut().zip(&through).for_each(|(there, &through)| *there |= through);
            }
        }
        follows
    }

    pub fn defects(&self) -> Defects {
        let follows = self.follows();
        let n = self.len();
        let circular = (0..n).filter(|&a| follows[a][a]).collect();
        let mut beside = Vec::new();
        for (a, after) in follows.iter().enumerate().filter(|&(a, _)| self.0[a].kind.writes()) {
            beside
                .extend((0..n).filter(|&b| a != b && !after[b] && !follows[b][a]).map(|b| (a, b)));
        }
        Defects { circular, beside }
    }

    pub fn is_legal(&self) -> bool {
        let defects = self.defects();
        defects.circular.is_empty() && defects.beside.is_empty()
    }

    /// Returns the stages that gate the producers.
    pub fn gating(&self) -> Vec<usize> {
        (0..self.len())
            .filter(|stage| self.0.iter().all(|other| !other.after.contains(stage)))
            .collect()
    }

    /// Returns the writers before a stage, first to last. Only for legal shapes, where any two
    /// writers are ordered.
    pub fn writers_before(&self, stage: usize) -> Vec<usize> {
        let follows = self.follows();
        let mut writers: Vec<usize> =
            (0..self.len()).filter(|&w| self.0[w].kind.writes() && follows[stage][w]).collect();
        writers.sort_by_key(|&w| writers_below(&follows, w));
        writers
    }

    /// Adds dependencies until no writer has a stage side by side with it. Only for shapes whose
    /// stages come after stages of smaller numbers.
    pub fn repaired(mut self) -> Shape {
        while let Some(&(a, b)) = self.defects().beside.first() {
            self.0[a.max(b)].after.push(a.min(b));
        }
        self
    }

    /// Returns the same shape in another order of declaration: stage `i` becomes stage `order[i]`.
    pub fn reordered(&self, order: &[usize]) -> Shape {
        let mut stages: Vec<Option<Stage>> = vec![None; self.len()];
        for (i, stage) in self.0.iter().enumerate() {
            let after = stage.after.iter().map(|&earlier| order[earlier]).collect();
            stages[order[i]] = Some(Stage { after, ..stage.clone() });
        }
        Shape(stages.into_iter().flatten().collect())
    }

    /// Returns a random legal shape.
    pub fn random(dice: &mut Dice, most: usize) -> Shape {
        let stages = 1 + dice.below(most as u64) as usize;
        let shape = (0..stages).map(|i| Stage {
            // Readers are more frequent than writers; otherwise most graphs would be chains.
            kind: Kind::ALL[[0, 0, 0, 1, 2, 2, 3][dice.below(7) as usize]],
            workers: 1 + dice.below(3) as usize,
            after: (0..i).filter(|_| dice.one_in(3)).collect(),
        });
        Shape(shape.collect()).repaired()
    }

    /// Turns some pools into shards.
    pub fn with_shards(mut self, dice: &mut Dice) -> Shape {
        for stage in self.0.iter_mut().filter(|_| dice.one_in(2)) {
            stage.kind = match stage.kind {
                Kind::PoolReader => Kind::ShardReader,
                Kind::PoolWriter => Kind::ShardWriter,
                other => other,
            };
        }
        self
    }

    /// Limits the workers of each pool to the capacity.
    pub fn fitting(mut self, capacity: usize) -> Shape {
        self.0.iter_mut().for_each(|stage| stage.workers = stage.workers.min(capacity));
        self
    }

    /// Asserts that the build succeeded exactly if the shape has no defects, and returns whether it
    /// succeeded.
    pub fn check_build<T>(&self, built: &Result<T, Error>) -> bool {
        let defects = self.defects();
        match built {
            Ok(_) => {
                assert!(
                    defects.circular.is_empty() && defects.beside.is_empty(),
                    "built although {defects:?}"
                );
                return true;
            }
            Err(error) => match error.kind() {
                ErrorKind::Build(BuildError::Cycle { stage }) => {
                    assert!(
                        defects.circular.iter().any(|&a| Shape::name(a) == *stage),
                        "{stage} is on no cycle: {defects:?}"
                    );
                }
                ErrorKind::Build(BuildError::SideBySide { writer, other }) => {
                    assert!(defects.circular.is_empty(), "a cycle is reported first: {defects:?}");
                    let named = |&(a, b): &(usize, usize)| {
                        Shape::name(a) == *writer && Shape::name(b) == *other
                    };
                    assert!(
                        defects.beside.iter().any(named),
                        "{writer} and {other} are not side by side: {defects:?}"
                    );
                }
                other => panic!("refused without a defect of the shape: {other:?}"),
            },
        }
        false
    }
}

fn writers_below(follows: &[Vec<bool>], stage: usize) -> usize {
    // Writers are totally ordered, so the number of stages below gives a writer's place.
    follows[stage].iter().filter(|&&below| below).count()
}

/// A key of any kind.
pub enum AnyKey {
    Reader(ReaderKey),
    Writer(WriterKey),
    PoolReader(PoolReaderKey),
    PoolWriter(PoolWriterKey),
    ShardReader(ShardReaderKey),
    ShardWriter(ShardWriterKey),
}

macro_rules! on_key {
    ($any:expr, $key:ident => $with:expr) => {
        match $any {
            AnyKey::Reader($key) => $with,
            AnyKey::Writer($key) => $with,
            AnyKey::PoolReader($key) => $with,
            AnyKey::PoolWriter($key) => $with,
            AnyKey::ShardReader($key) => $with,
            AnyKey::ShardWriter($key) => $with,
        }
    };
}

impl AnyKey {
    pub fn after(self, earlier: &AnyKey) -> AnyKey {
        match self {
            AnyKey::Reader(key) => AnyKey::Reader(on_key!(earlier, earlier => key.after(earlier))),
            AnyKey::Writer(key) => AnyKey::Writer(on_key!(earlier, earlier => key.after(earlier))),
            AnyKey::PoolReader(key) => {
                AnyKey::PoolReader(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::PoolWriter(key) => {
                AnyKey::PoolWriter(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::ShardReader(key) => {
                AnyKey::ShardReader(on_key!(earlier, earlier => key.after(earlier)))
            }
            AnyKey::ShardWriter(key) => {
                AnyKey::ShardWriter(on_key!(earlier, earlier => key.after(earlier)))
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
    /// Computes the key from the trail, so a key that is computed too early or too late differs.
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
            Kind::Reader => AnyKey::Reader(graph.reader(&name)),
            Kind::Writer => AnyKey::Writer(graph.writer(&name)),
            Kind::PoolReader => AnyKey::PoolReader(graph.pool_reader(&name, stage.workers)),
            Kind::PoolWriter => AnyKey::PoolWriter(graph.pool_writer(&name, stage.workers)),
            Kind::ShardReader => {
                AnyKey::ShardReader(graph.shard_reader(&name, stage.workers, E::key))
            }
            Kind::ShardWriter => {
                AnyKey::ShardWriter(graph.shard_writer(&name, stage.workers, E::key))
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
    Writer(Writer<Ev, L>),
    PoolReader(PoolReader<Ev, L>),
    PoolWriter(PoolWriter<Ev, L>),
    ShardReader(ShardReader<Ev, L>),
    ShardWriter(ShardWriter<Ev, L>),
}

/// Exchanges each stage's key for its handle, or for one handle per worker.
pub fn attach<L: Layout, S>(ring: &Ring<Ev, L, S>, keys: Vec<AnyKey>) -> Vec<Vec<AnyHandle<L>>> {
    let attach = |key| match key {
        AnyKey::Reader(key) => vec![AnyHandle::Reader(ring.reader(key))],
        AnyKey::Writer(key) => vec![AnyHandle::Writer(ring.writer(key))],
        AnyKey::PoolReader(key) => {
            ring.pool_readers(key).into_iter().map(AnyHandle::PoolReader).collect()
        }
        AnyKey::PoolWriter(key) => {
            ring.pool_writers(key).into_iter().map(AnyHandle::PoolWriter).collect()
        }
        AnyKey::ShardReader(key) => {
            ring.shard_readers(key).into_iter().map(AnyHandle::ShardReader).collect()
        }
        AnyKey::ShardWriter(key) => {
            ring.shard_writers(key).into_iter().map(AnyHandle::ShardWriter).collect()
        }
    };
    keys.into_iter().map(attach).collect()
}

/// A layout, with its builder and its checks.
pub trait TestLayout: Layout {
    const NAME: &'static str;
    fn ring_of<S>(graph: Graph<Ev, Interleaved, S>) -> Graph<Ev, Self, S>;
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
    fn ring_of<S>(graph: Graph<Ev, Interleaved, S>) -> Graph<Ev, Interleaved, S> {
        graph
    }
    fn check_view(events: &Events<'_, Ev, Interleaved>) {
        check_view(events);
    }
}

impl TestLayout for Contiguous {
    const NAME: &'static str = "contiguous";
    fn ring_of<S>(graph: Graph<Ev, Interleaved, S>) -> Graph<Ev, Contiguous, S> {
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
            AnyHandle::Writer(c) => c.stage().to_string(),
            AnyHandle::PoolReader(c) => c.stage().to_string(),
            AnyHandle::PoolWriter(c) => c.stage().to_string(),
            AnyHandle::ShardReader(c) => c.stage().to_string(),
            AnyHandle::ShardWriter(c) => c.stage().to_string(),
        }
    }

    pub fn next_seq(&self) -> u64 {
        match self {
            AnyHandle::Reader(c) => c.next_seq(),
            AnyHandle::Writer(c) => c.next_seq(),
            AnyHandle::PoolReader(c) => c.next_seq(),
            AnyHandle::PoolWriter(c) => c.next_seq(),
            AnyHandle::ShardReader(c) => c.next_seq(),
            AnyHandle::ShardWriter(c) => c.next_seq(),
        }
    }

    /// Takes a batch, passes its events to `see`, writes to them if the stage writes and the batch
    /// is to be released, and finishes the batch. Returns first position and length.
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
            AnyHandle::Writer(c) => write!(c),
            AnyHandle::PoolWriter(c) => write!(c),
            AnyHandle::ShardReader(c) => read!(c),
            AnyHandle::ShardWriter(c) => write!(c),
        }
    }

    /// Passes up to `max` events to `see`, and writes to them if the stage writes. Panics of `see`
    /// propagate before the write.
    pub fn poll(
        &mut self,
        max: usize,
        stage: usize,
        see: &mut dyn FnMut(u64, &Ev),
    ) -> Result<usize, WaitError> {
        match self {
            AnyHandle::Reader(c) => c.poll(max, |event, at| see(at.seq, event)),
            AnyHandle::PoolReader(c) => c.poll(max, |event, at| see(at.seq, event)),
            AnyHandle::Writer(c) => c.poll(max, |event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::PoolWriter(c) => c.poll(max, |event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::ShardReader(c) => c.poll(max, |event, at| see(at.seq, event)),
            AnyHandle::ShardWriter(c) => c.poll(max, |event, at| {
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
            AnyHandle::Writer(c) => c.for_each(|event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::PoolWriter(c) => c.for_each(|event, at| {
                see(at.seq, event);
                event.trail = after_write(event.trail, stage);
            }),
            AnyHandle::ShardReader(c) => c.for_each(|event, at| see(at.seq, event)),
            AnyHandle::ShardWriter(c) => c.for_each(|event, at| {
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
    pub fn try_publish(&mut self, id: u64) -> Result<u64, slipring::ClaimError> {
        with_tx!(self, p => p.try_publish(|event| event.fill(id)))
    }
}
