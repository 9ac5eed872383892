//! The counts that decide a segment's size, and the offsets of its areas.
//!
//! Invariants
//! - I1: all sums and products are checked. A shape whose length exceeds [`MAX_LENGTH`] has no
//!   areas.
//! - I2: areas stand in the order of [`Areas::list`] behind the head, and do not overlap. Each
//!   begins at a multiple of 128, and the area of events, with any stamps inside their slots, at a
//!   multiple of 4,096.

use super::records::{ParticipantRecord, Record};
use crate::errors::Problem;
use crate::system::limits::{
    HEAD, LINE, MAX_LENGTH, MAX_PARTICIPANTS, MAX_RECORDS, MAX_ROOM, MAX_SCHEMA, MAX_STAGES,
    SLOTS_ALIGN, STATUS_LINES,
};

/// Place of the stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamps {
    /// The segment has no stamps, and a cursor tells how far the producer has published.
    None,
    /// Each stamp lies in its slot, in front of the event.
    Inside,
    /// The stamps have their own area, 8 bytes for each.
    Beside,
}

/// The counts that decide a segment's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of slots: a power of two.
    pub capacity: u64,
    /// Size of an event, in bytes.
    pub event_size: u64,
    /// Alignment of an event, in bytes: a power of two.
    pub event_align: u64,
    /// Place of the stamps.
    pub stamps: Stamps,
    /// Number of producers' seats (1: the ring has a single producer).
    pub producers: u32,
    /// Number of lines with positions.
    pub lines: u32,
    /// Number of wait queues.
    pub wait_queues: u32,
    /// Number of places of participants.
    pub participants: u32,
    /// Number of seats.
    pub seats: u32,
    /// Number of pools. Each pool has one cell per slot.
    pub cells: u32,
    /// Number of sharded stages. Each has one shard id per slot.
    pub shard_ids: u32,
    /// Number of stages.
    pub stages: u32,
    /// Length of the schema, in bytes.
    pub schema_length: u32,
}

/// An area: its offset in the file, the number of its items, and the distance between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Offset of the area's first byte in the file, in bytes (0: the segment has no such area).
    pub at: u64,
    /// Distance between two items, in bytes.
    pub stride: u64,
    /// Number of items.
    pub count: u64,
}

impl Area {
    const NONE: Area = Area { at: 0, stride: 0, count: 0 };

    /// Returns the offset of item `index`, or `None` if there is no such item.
    pub fn item(&self, index: u64) -> Option<u64> {
        (index < self.count).then(|| self.at + index * self.stride)
    }

    /// Returns the length in bytes, or `None` if it overflows.
    pub fn length(&self) -> Option<u64> {
        self.stride.checked_mul(self.count)
    }
}

/// The areas of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Areas {
    /// The status, which takes one line, and behind it the record of the first failure.
    pub status: Area,
    /// Records of type [`ParticipantRecord`]. Participant *k* has the record with the index *k* -
    /// 1.
    pub participants: Area,
    /// Seats, 128 bytes each: first the seats of the stages, in the stages' order, and then those
    /// of the producers.
    pub seats: Area,
    /// Lines of positions, 128 bytes each.
    pub lines: Area,
    /// States of wait queues, 128 bytes each.
    pub wait_queues: Area,
    /// Lines of counters, 128 bytes each.
    pub counters: Area,
    /// Cells of the pools, 8 bytes each: one cell per slot for the first pool, then one per slot
    /// for the next, and so on.
    pub cells: Area,
    /// Shard ids of the sharded stages, 4 bytes each: one id per slot for the first of these
    /// stages, then one per slot for the next, and so on.
    pub shard_ids: Area,
    /// Stamps, 8 bytes each.
    pub stamps: Area,
    /// Events.
    pub events: Area,
    /// Length of the whole file, in bytes.
    pub length: u64,
}

impl Areas {
    /// Returns the areas with their names. Stamps inside slots are part of the events' area.
    pub fn list(&self) -> [(&'static str, Area); 10] {
        [
            ("status", self.status),
            ("participants", self.participants),
            ("seats", self.seats),
            ("lines", self.lines),
            ("wait queues", self.wait_queues),
            ("counters", self.counters),
            ("cells", self.cells),
            ("shard ids", self.shard_ids),
            ("stamps", self.stamps),
            ("events", self.events),
        ]
    }
}

/// Returns the number of lines of counters. The parties are the stages and the producers. Each
/// party has one line of counts, and further lines that hold, for each party, the time that it has
/// waited for that party. Such a line has room for 16 parties.
pub(super) fn counter_lines(stages: u32) -> u64 {
    let parties = u64::from(stages) + 1;
    parties + parties * parties.div_ceil(LINE / 8)
}

impl Shape {
    /// Returns the offset of an event in its slot, and the distance between slots, in bytes.
    pub fn slot(&self) -> Option<(u64, u64)> {
        match self.stamps {
            Stamps::Inside => {
                let at = 8u64.checked_next_multiple_of(self.event_align)?;
                let end = at.checked_add(self.event_size)?;
                Some((at, end.checked_next_multiple_of(self.event_align.max(8))?))
            }
            Stamps::None | Stamps::Beside => Some((0, self.event_size)),
        }
    }

    /// Computes the areas (I1, I2).
    pub fn areas(&self) -> Result<Areas, Problem> {
        self.check()?;
        let (event_at, stride) = self
            .slot()
            .ok_or(Problem::TooLarge { capacity: self.capacity, slot: self.event_size })?;
        let too_large = || Problem::TooLarge { capacity: self.capacity, slot: stride };
        let per_slot = |stages: u32| self.capacity.checked_mul(stages.into());

        let mut end = HEAD;
        let mut place = |stride: u64, count: u64, align: u64| -> Option<Area> {
            if count == 0 {
                return Some(Area::NONE);
            }
            let at = end.checked_next_multiple_of(align)?;
            end = at.checked_add(stride.checked_mul(count)?)?;
            (end <= MAX_LENGTH).then_some(Area { at, stride, count })
        };
        let mut areas = || -> Option<Areas> {
            let mut areas = Areas {
                status: place(STATUS_LINES * LINE, 1, LINE)?,
                participants: place(ParticipantRecord::STRIDE, self.participants.into(), LINE)?,
                seats: place(LINE, self.seats.into(), LINE)?,
                lines: place(LINE, self.lines.into(), LINE)?,
                wait_queues: place(LINE, self.wait_queues.into(), LINE)?,
                counters: place(LINE, counter_lines(self.stages), LINE)?,
                cells: place(8, per_slot(self.cells)?, LINE)?,
                shard_ids: place(4, per_slot(self.shard_ids)?, LINE)?,
                stamps: match self.stamps {
                    Stamps::Beside => place(8, self.capacity, LINE)?,
                    Stamps::None | Stamps::Inside => Area::NONE,
                },
                events: place(stride, self.capacity, SLOTS_ALIGN)?,
                length: 0,
            };
            if self.stamps == Stamps::Inside {
                areas.stamps = areas.events;
                areas.events.at += event_at;
            }
            Some(areas)
        };
        let areas = areas().ok_or_else(too_large)?;
        let length = end.next_multiple_of(SLOTS_ALIGN);
        if length > MAX_LENGTH {
            return Err(too_large());
        }
        Ok(Areas { length, ..areas })
    }

    /// Checks each count by itself.
    fn check(&self) -> Result<(), Problem> {
        if !self.capacity.is_power_of_two() {
            return Err(Problem::Capacity { asked: self.capacity });
        }
        if !(1..=MAX_PARTICIPANTS).contains(&self.participants) {
            return Err(Problem::Participants { asked: self.participants });
        }
        let (size, align) = (self.event_size, self.event_align);
        let aligned = align.is_power_of_two() && align <= SLOTS_ALIGN;
        if !aligned || size == 0 || !size.is_multiple_of(align) {
            return Err(Problem::EventSize { size, align });
        }
        let counts: [(_, u64, u64); 8] = [
            ("producers", self.producers.into(), MAX_ROOM.into()),
            ("lines", self.lines.into(), MAX_RECORDS.into()),
            ("wait queues", self.wait_queues.into(), MAX_RECORDS.into()),
            ("seats", self.seats.into(), MAX_RECORDS.into()),
            ("stages", self.stages.into(), MAX_STAGES.into()),
            ("pools", self.cells.into(), MAX_STAGES.into()),
            ("sharded stages", self.shard_ids.into(), MAX_STAGES.into()),
            ("bytes of schema", self.schema_length.into(), MAX_SCHEMA.into()),
        ];
        for (what, asked, most) in counts {
            if asked > most {
                return Err(Problem::Declaration { what, asked, most });
            }
        }
        Ok(())
    }
}
