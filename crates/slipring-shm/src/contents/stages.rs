//! The stage table of a segment: it is written from a ring's declaration, and reading it back gives
//! an equal declaration.
//!
//! Invariants
//! - I1: [`records`] makes a table of a declaration, and [`declaration`] reads the table back as an
//!   equal declaration. So all processes make equal plans.

use slipring::errors::BuildError;
use slipring::segment::{Declaration, Needs, OnDeath, StageDeclaration, StageDelivery};

use super::Contents;
use crate::errors::{HeaderProblem, Problem};
use crate::layout::{Checked, StageRecord};

/// Returns the number by which the stage table states the effect of a death.
pub(crate) fn number(on_death: OnDeath) -> u8 {
    match on_death {
        OnDeath::Wait => 0,
        OnDeath::Tell => 1,
        OnDeath::Fail => 2,
        OnDeath::Close => 3,
    }
}

/// Returns the effect of a death that the stage table records as `number`.
pub(crate) fn on_death(number: u8) -> Option<OnDeath> {
    let all = [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail, OnDeath::Close];
    all.get(usize::from(number)).copied()
}

/// Names of the kinds of delivery, indexed by their numbers in the stage table.
pub(crate) const DELIVERIES: [&str; 4] = ["each", "pool", "shards", "tap"];

/// Returns the number that stands for a kind of delivery in the stage table.
pub(crate) fn delivery_number(delivery: StageDelivery) -> u8 {
    match delivery {
        StageDelivery::Each => 0,
        StageDelivery::Pool(_) => 1,
        StageDelivery::Shards { .. } => 2,
        StageDelivery::Tap(_) => 3,
    }
}

/// Returns the delivery of a record, or `None` if no delivery has its number.
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

/// Makes the records of the stage table from a declaration.
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
        // The pools' arrays of cells are numbered from 1, in the order of the pools. So are the
        // sharded stages' arrays of ids.
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

/// Reads the declaration back from a checked head, and checks that the head fits a ring with the
/// contents `C`. Returns `None` if the segment has no ring.
pub(crate) fn declaration<C: Contents>(
    checked: &Checked,
) -> Result<Option<(Declaration, Needs)>, Problem> {
    if !checked.stages.is_empty() && checked.header.kind != C::KIND {
        let (field, rule) = ("its kind", "is not the one that was asked for");
        let found = checked.header.kind.into();
        return Err(HeaderProblem::Field { field, found, rule }.into());
    }
    compared(checked, C::needs)
}

/// Reads the declaration back as [`declaration`] does, for a ring whose events are never accessed.
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
    // For blocks, `needs.slot` is 0. Only the head states their size, so there is no second value
    // with which to compare the distance between them.
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
