//! Describes graphs as plain data, and checks them independently of the library. Also defines the
//! event, whose trail shows which stages wrote to it.

use std::fmt;

use slipring::{
    Error,
    errors::{BuildError, ErrorKind},
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
pub enum StageKind {
    Reader,
    Updater,
    PoolReader,
    PoolUpdater,
    /// Only the tests on threads run shards.
    ShardReader,
    ShardUpdater,
}

impl StageKind {
    pub const ALL: [StageKind; 4] =
        [StageKind::Reader, StageKind::Updater, StageKind::PoolReader, StageKind::PoolUpdater];
    pub fn writes(self) -> bool {
        matches!(self, StageKind::Updater | StageKind::PoolUpdater | StageKind::ShardUpdater)
    }
    pub fn is_pool(self) -> bool {
        matches!(self, StageKind::PoolReader | StageKind::PoolUpdater)
    }
    pub fn is_sharded(self) -> bool {
        matches!(self, StageKind::ShardReader | StageKind::ShardUpdater)
    }
    /// Returns the number of handles of a stage with this number of workers.
    pub fn handles(self, workers: usize) -> usize {
        if self.is_pool() || self.is_sharded() { workers } else { 1 }
    }
}

#[derive(Clone)]
pub struct Stage {
    pub kind: StageKind,
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
    /// Pairs of a writer and another stage that runs side by side with it.
    pub beside: Vec<(usize, usize)>,
}

impl Shape {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn name(stage: usize) -> String {
        format!("s{stage}")
    }

    /// Returns the transitive closure (by Warshall's algorithm): `[a][b]` is `true` if `a` comes
    /// after `b`.
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

    /// Returns the writers before a stage, first to last. It applies only to legal shapes, where
    /// any two writers are ordered.
    pub fn writers_before(&self, stage: usize) -> Vec<usize> {
        let follows = self.follows();
        let mut writers: Vec<usize> =
            (0..self.len()).filter(|&w| self.0[w].kind.writes() && follows[stage][w]).collect();
        writers.sort_by_key(|&w| writers_below(&follows, w));
        writers
    }

    /// Adds dependencies until no stage stands side by side with a writer. Every stage of the shape
    /// may follow only stages with smaller numbers.
    pub fn repaired(mut self) -> Shape {
        while let Some(&(a, b)) = self.defects().beside.first() {
            self.0[a.max(b)].after.push(a.min(b));
        }
        self
    }

    /// Returns the same shape with its stages declared in another order: stage `i` becomes stage
    /// `order[i]`.
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
            kind: StageKind::ALL[[0, 0, 0, 1, 2, 2, 3][dice.below(7) as usize]],
            workers: 1 + dice.below(3) as usize,
            after: (0..i).filter(|_| dice.one_in(3)).collect(),
        });
        Shape(shape.collect()).repaired()
    }

    /// Turns some pools into shards.
    pub fn with_shards(mut self, dice: &mut Dice) -> Shape {
        for stage in self.0.iter_mut().filter(|_| dice.one_in(2)) {
            stage.kind = match stage.kind {
                StageKind::PoolReader => StageKind::ShardReader,
                StageKind::PoolUpdater => StageKind::ShardUpdater,
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
                ErrorKind::Build(BuildError::UnorderedUpdater { updater: writer, other }) => {
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
    // Any two writers are ordered, so the number of stages before a writer determines its place.
    follows[stage].iter().filter(|&&below| below).count()
}
