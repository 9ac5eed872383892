//! The graph of a segment, as its creator declares it: stages refer to each other by name.
//!
//! Invariants
//! - I1: for each stage, a declaration lists the stages that it follows, each once and in the order
//!   of declaration. The stage table holds them as a set of bits, so the table reads back as an
//!   equal declaration (I1 of `stages`).

use std::collections::BTreeSet;
use std::ops::Range;

use slipring::segment::{Declaration, OnDeath, StageDeclaration, StageDelivery};

use crate::errors::Problem;
use crate::layout::{MAX_ROOM, MAX_STAGES, STAGE_NAME};

/// A stage as the creator declares it.
#[derive(Debug, Clone)]
struct DeclaredStage {
    name: String,
    writes: bool,
    delivery: StageDelivery,
    after: Vec<String>,
    on_death: OnDeath,
    /// Whether the key of a sharded stage is a field of the event.
    has_key: bool,
    /// Range of the event's or block's bytes that hold the key of a sharded stage, as it was given.
    key: Option<Range<usize>>,
}

/// The stages and producers that were declared to a builder so far.
#[derive(Debug, Clone)]
pub(crate) struct DeclaredGraph {
    stages: Vec<DeclaredStage>,
    producers: u32,
    producer_on_death: OnDeath,
    /// The first call that was to change the stage declared last, although no stage had been
    /// declared yet.
    misplaced: Option<&'static str>,
}

/// Returns whether a stage record can hold the offset and the length of a key: each has 32 bits.
fn fits_record(key: &Range<usize>) -> bool {
    u32::try_from(key.start).is_ok() && u32::try_from(key.len()).is_ok()
}

impl Default for DeclaredGraph {
    fn default() -> DeclaredGraph {
        let producer_on_death = OnDeath::default();
        DeclaredGraph { stages: Vec::new(), producers: 1, producer_on_death, misplaced: None }
    }
}

impl DeclaredGraph {
    pub(crate) fn add(&mut self, name: String, writes: bool, delivery: StageDelivery) {
        let (after, on_death) = (Vec::new(), OnDeath::default());
        self.stages.push(DeclaredStage {
            name,
            writes,
            delivery,
            after,
            on_death,
            has_key: true,
            key: None,
        });
    }

    /// Adds a stage of `shards` shards, whose key is the range `key` of each event's bytes. `key`
    /// is `None` if the user gave a key that is not part of the event.
    pub(crate) fn add_shards(
        &mut self,
        name: String,
        writes: bool,
        shards: usize,
        key: Option<Range<usize>>,
    ) {
        let key = key.filter(fits_record);
        self.add_keyed(name, writes, shards, key.clone().unwrap_or(0..1));
        if let Some(stage) = self.stages.last_mut() {
            stage.has_key = key.is_some();
        }
    }

    /// Adds a stage of `shards` shards, whose key is the range `key` of each block's bytes.
    /// [`DeclaredGraph::wrong_key`] checks later that the range lies in a block.
    pub(crate) fn add_keyed(
        &mut self,
        name: String,
        writes: bool,
        shards: usize,
        key: Range<usize>,
    ) {
        let (key_offset, key_length) = (key.start, key.len());
        self.add(name, writes, StageDelivery::Shards { shards, key_offset, key_length });
        if let Some(stage) = self.stages.last_mut() {
            stage.key = Some(key);
        }
    }

    /// Returns the problem of the first key that is empty, does not lie in a block of `size` bytes,
    /// or has an offset or length that a stage record cannot hold.
    pub(crate) fn wrong_key(&self, size: u64) -> Option<Problem> {
        let is_wrong =
            |key: &Range<usize>| key.is_empty() || key.end as u64 > size || !fits_record(key);
        self.stages.iter().find_map(|stage| {
            let key = stage.key.clone().filter(is_wrong)?;
            Some(Problem::KeyRange { stage: stage.name.clone(), key, size })
        })
    }

    pub(crate) fn after(&mut self, names: Vec<String>) {
        match self.stages.last_mut() {
            Some(stage) => stage.after = names,
            None => _ = self.misplaced.get_or_insert("after"),
        }
    }

    pub(crate) fn on_death(&mut self, on_death: OnDeath) {
        match self.stages.last_mut() {
            Some(stage) => stage.on_death = on_death,
            None => _ = self.misplaced.get_or_insert("on_death"),
        }
    }

    pub(crate) fn producers(&mut self, producers: u32) {
        self.producers = producers;
    }

    pub(crate) fn producer_on_death(&mut self, on_death: OnDeath) {
        self.producer_on_death = on_death;
    }

    /// Checks the stages, resolves their names, and returns the declaration for a ring.
    pub(crate) fn declaration(&self, capacity: u64, start: u64) -> Result<Declaration, Problem> {
        if let Some(call) = self.misplaced {
            return Err(Problem::Misplaced { call });
        }
        if self.stages.len() > MAX_STAGES as usize {
            let (what, asked) = ("stages", self.stages.len() as u64);
            return Err(Problem::Declaration { what, asked, most: MAX_STAGES.into() });
        }
        if !(1..=MAX_ROOM).contains(&self.producers) {
            let (what, asked) = ("producers", self.producers.into());
            return Err(Problem::Declaration { what, asked, most: MAX_ROOM.into() });
        }
        let stages = self.stages.iter().enumerate().map(|(number, stage)| {
            let name = &stage.name;
            let several = match stage.delivery {
                StageDelivery::Pool(workers) => Some(("workers", workers)),
                StageDelivery::Shards { shards, .. } => Some(("shards", shards)),
                StageDelivery::Each | StageDelivery::Tap(_) => None,
            };
            if let Some((what, asked)) = several
                && !(1..=MAX_ROOM as usize).contains(&asked)
            {
                let asked = asked as u64;
                return Err(Problem::Declaration { what, asked, most: MAX_ROOM.into() });
            }
            if !stage.has_key {
                return Err(Problem::Key { stage: name.clone() });
            }
            if name.len() > STAGE_NAME || name.contains(char::is_control) {
                return Err(Problem::StageName { given: name.clone() });
            }
            if matches!(stage.delivery, StageDelivery::Tap(_)) && stage.on_death != OnDeath::Wait {
                return Err(Problem::TapDeath { tap: name.clone() });
            }
            if stage.on_death == OnDeath::Close {
                return Err(Problem::StageDeath { stage: name.clone() });
            }
            let index = |other: &String| {
                let known = self.stages[..number].iter().position(|known| known.name == *other);
                let unknown = || Problem::Follows { stage: name.clone(), unknown: other.clone() };
                known.ok_or_else(unknown)
            };
            // The names become a set of indices, sorted and without duplicates (I1).
            let after: Result<BTreeSet<usize>, _> = stage.after.iter().map(index).collect();
            Ok(StageDeclaration {
                name: name.clone(),
                writes: stage.writes,
                delivery: stage.delivery,
                after: after?.into_iter().collect(),
                on_death: stage.on_death,
            })
        });
        Ok(Declaration {
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            start,
            stages: stages.collect::<Result<_, Problem>>()?,
            producers: self.producers as usize,
            producer_on_death: self.producer_on_death,
        })
    }
}
