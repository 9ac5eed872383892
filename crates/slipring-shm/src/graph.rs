//! The graph of a segment, as its creator declares it by names, and as its stage table tells it.
//!
//! Invariants
//! - I1: the table that [`records`] makes of a declaration is the one that [`declaration`] reads
//!   back as an equal declaration. So all processes make equal plans.

use std::collections::BTreeSet;
use std::ops::Range;

use slipring::BuildError;
use slipring::segment::{Declaration, Needs, OnDeath, StageDeclaration, StageDelivery};

use crate::contents::Kind;
use crate::errors::{HeaderProblem, Problem};
use crate::layout::{Checked, MAX_ROOM, MAX_STAGES, STAGE_NAME, StageRecord};

/// A stage as the creator declares it.
#[derive(Debug, Clone)]
struct Stage {
    name: String,
    writes: bool,
    delivery: StageDelivery,
    after: Vec<String>,
    on_death: OnDeath,
    /// Whether the key of a sharded stage is a field of the event.
    has_key: bool,
    /// The range of a block's bytes that hold the key of a sharded stage, as it was given. `None`:
    /// the stage is not one of blocks, or not sharded.
    key: Option<Range<usize>>,
}

/// The stages that a builder has heard of so far.
#[derive(Debug, Clone)]
pub(crate) struct Graph {
    stages: Vec<Stage>,
    producers: u32,
    producer_on_death: OnDeath,
    /// The first call that had no stage to apply to.
    misplaced: Option<&'static str>,
}

/// Returns whether a stage record can hold the place of a key, whose words have 32 bits.
fn fits_record(key: &Range<usize>) -> bool {
    u32::try_from(key.start).is_ok() && u32::try_from(key.len()).is_ok()
}

impl Default for Graph {
    fn default() -> Graph {
        let producer_on_death = OnDeath::default();
        Graph { stages: Vec::new(), producers: 1, producer_on_death, misplaced: None }
    }
}

impl Graph {
    pub(crate) fn add(&mut self, name: String, writes: bool, delivery: StageDelivery) {
        let (after, on_death) = (Vec::new(), OnDeath::default());
        self.stages.push(Stage {
            name,
            writes,
            delivery,
            after,
            on_death,
            has_key: true,
            key: None,
        });
    }

    /// Adds a stage of `shards` shards, whose keys are the bytes from `key.start` up to `key.end`
    /// of each event. `None`: the key that was given is no part of the event.
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

    /// Adds a stage of `shards` shards, whose keys are the bytes of the range `key` of each block.
    /// [`Graph::wrong_key`] tells later whether the range lies in a block.
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

    /// Returns what is wrong with the first key that is empty, or does not lie in a block of `size`
    /// bytes, or whose place a stage record cannot hold.
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

    /// Resolves the names, and returns the declaration for a ring.
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
            // The table has them as a set (I1).
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

/// Number of what a death does, in the table.
pub(crate) fn number(on_death: OnDeath) -> u8 {
    match on_death {
        OnDeath::Wait => 0,
        OnDeath::Tell => 1,
        OnDeath::Fail => 2,
        OnDeath::Close => 3,
    }
}

/// What a death does, by its number in the table.
pub(crate) fn on_death(number: u8) -> Option<OnDeath> {
    let all = [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail, OnDeath::Close];
    all.get(usize::from(number)).copied()
}

/// Names of the deliveries, by their numbers in the table.
pub(crate) const DELIVERIES: [&str; 4] = ["each", "pool", "shards", "tap"];

/// Number of a delivery in the table.
pub(crate) fn delivery_number(delivery: StageDelivery) -> u8 {
    match delivery {
        StageDelivery::Each => 0,
        StageDelivery::Pool(_) => 1,
        StageDelivery::Shards { .. } => 2,
        StageDelivery::Tap(_) => 3,
    }
}

/// The delivery that a record tells; `None`: there is no such delivery.
fn delivery(record: &StageRecord) -> Option<StageDelivery> {
    let room = record.room as usize;
    match record.delivery {
        0 => Some(StageDelivery::Each),
        1 => Some(StageDelivery::Pool(room)),
        2 => Some(StageDelivery::Shards {
            shards: room,
            key_offset: record.key_offset as usize,
            key_length: record.key_length as usize,
        }),
        3 => Some(StageDelivery::Tap(room)),
        _ => None,
    }
}

/// Makes the stage table of a declaration.
pub(crate) fn records(declaration: &Declaration, needs: &Needs) -> Vec<StageRecord> {
    let record = |(number, stage): (usize, &StageDeclaration)| {
        let mut record = StageRecord::named(&stage.name);
        record.access = u8::from(stage.writes);
        record.on_death = self::number(stage.on_death);
        record.after = stage.after.iter().fold(0, |bits, &other| bits | 1 << other);
        record.line = needs.stages[number].line as u32;
        record.wait_queue = needs.stages[number].queue as u32;
        record.first_seat = needs.stages[number].first_seat as u32;
        record.seats = needs.stages[number].seats as u32;
        record.delivery = delivery_number(stage.delivery);
        record.room = record.seats;
        if let StageDelivery::Shards { key_offset, key_length, .. } = stage.delivery {
            (record.key_offset, record.key_length) = (key_offset as u32, key_length as u32);
        }
        // The arrays of pools and of sharded stages are counted from 1.
        let before = |delivery| {
            let stages = &declaration.stages[..=number];
            stages.iter().filter(|stage| delivery_number(stage.delivery) == delivery).count()
        };
        match stage.delivery {
            StageDelivery::Pool(_) => record.cells = before(1) as u32,
            StageDelivery::Shards { .. } => record.shard_ids = before(2) as u32,
            StageDelivery::Each | StageDelivery::Tap(_) => {}
        }
        record
    };
    declaration.stages.iter().enumerate().map(record).collect()
}

/// Reads the declaration back from a checked head, and compares what a ring with the contents `C`
/// needs with what the head says. `None`: the segment has no ring.
pub(crate) fn declaration<C: Kind>(
    checked: &Checked,
) -> Result<Option<(Declaration, Needs)>, Problem> {
    if !checked.stages.is_empty() && checked.header.kind != C::KIND {
        let (field, rule) = ("its kind", "is not the one that was asked for");
        let found = checked.header.kind.into();
        return Err(HeaderProblem::Field { field, found, rule }.into());
    }
    compared(checked, C::needs)
}

/// Works as [`declaration`], for a ring of which no event is touched.
pub(crate) fn untyped_declaration(
    checked: &Checked,
) -> Result<Option<(Declaration, Needs)>, Problem> {
    compared(checked, |declaration, size| {
        declaration.needs_for(usize::try_from(size).unwrap_or(usize::MAX))
    })
}

fn compared(
    checked: &Checked,
    needs: impl FnOnce(&Declaration, u64) -> Result<Needs, BuildError>,
) -> Result<Option<(Declaration, Needs)>, Problem> {
    if checked.stages.is_empty() {
        return Ok(None);
    }
    let field = |stage: usize, field: &'static str, found: u64| {
        Problem::from(HeaderProblem::Stage { stage: stage as u32, field, found })
    };
    let stage = |(number, record): (usize, &StageRecord)| {
        let death = on_death(record.on_death).filter(|&death| death != OnDeath::Close);
        let delivery = delivery(record)
            .ok_or_else(|| field(number, "the delivery", record.delivery.into()))?;
        Ok(StageDeclaration {
            name: record.name(),
            writes: record.access != 0,
            delivery,
            after: (0..64).filter(|bit| record.after >> bit & 1 != 0).collect(),
            on_death: death
                .ok_or_else(|| field(number, "what a death does", record.on_death.into()))?,
        })
    };
    let stages: Result<Vec<_>, Problem> = checked.stages.iter().enumerate().map(stage).collect();
    let producer = checked.header.producer_on_death;
    let declaration = Declaration {
        capacity: usize::try_from(checked.shape.capacity).unwrap_or(0),
        start: checked.header.first,
        stages: stages?,
        producers: checked.header.producers.max(1) as usize,
        producer_on_death: u8::try_from(producer).ok().and_then(on_death).ok_or_else(|| {
            let (name, rule) = ("what its producer's death does", "is out of its range");
            Problem::from(HeaderProblem::Field { field: name, found: producer.into(), rule })
        })?,
    };
    let needs = needs(&declaration, checked.header.event_size).map_err(Problem::Graph)?;
    let shape = &checked.shape;
    // The head alone says the size of blocks.
    let slots = checked.areas.stamps.stride;
    let counts = [
        ("its number of lines", u64::from(shape.lines), needs.lines),
        ("its number of wait queues", shape.wait_queues.into(), needs.queues),
        ("its number of seats", shape.seats.into(), needs.seats),
        ("its number of cells", shape.cells.into(), needs.cells),
        ("its number of shard ids", shape.shard_ids.into(), needs.shard_ids),
        (
            "the distance of its slots",
            slots,
            if needs.slot == 0 { slots as usize } else { needs.slot },
        ),
    ];
    for (name, found, needed) in counts {
        if found != needed as u64 {
            let rule = "is not what its stages need";
            return Err(HeaderProblem::Field { field: name, found, rule }.into());
        }
    }
    let places = |record: &StageRecord| {
        let StageRecord { line, wait_queue, first_seat, seats, room, cells, shard_ids, .. } =
            record;
        [line, wait_queue, first_seat, seats, room, cells, shard_ids].map(|it| *it)
    };
    let needed = records(&declaration, &needs);
    let mut both = needed.iter().zip(&checked.stages).enumerate();
    match both.find(|(_, (needed, found))| places(needed) != places(found)) {
        Some((number, (_, record))) => Err(field(number, "the places", record.line.into())),
        None => Ok(Some((declaration, needs))),
    }
}
