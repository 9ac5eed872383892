//! The head of a segment: header, stage table and schema, as plain data.
//!
//! Invariants
//! - I1: a [`Head`] is a private copy, which no other process can change by writing to the file.
//! - I2: the header length is the number of bytes from the file's beginning to the end of the
//!   schema, rounded up to a multiple of 8. The checksum covers these bytes, except for the
//!   checksum itself and the magic.
//! - I3: [`Head::check`] trusts no field that it has not checked, and computes with checked
//!   arithmetic. So it returns a result for any bytes.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::records::{ParticipantRecord, Record, text};
use super::shape::{Area, Areas, Shape, Stamps, counter_lines};
use crate::errors::{FileProblem, HeaderProblem, Problem};
use crate::system::limits::{
    HEAD, LINE, MAX_LENGTH, MAX_PARTICIPANTS, MAX_RECORDS, MAX_ROOM, MAX_SCHEMA, MAX_STAGES,
    NOTICE_MS, SCHEMA_AT, SLOTS_ALIGN, STAGE_NAME, STAGES_AT, STATUS_LINES, TYPE_NAME,
};

/// First bytes of a segment, which its creator stores last.
pub const MAGIC: [u8; 8] = *b"SLIPRING";
/// Major version. A library reads only segments of its own major version.
pub const MAJOR: u32 = 1;
/// Minor version, which rises with additions that older readers may ignore.
pub const MINOR: u32 = 0;
/// Order mark, which a machine of another byte order reads as another number.
pub const ORDER: u64 = 0x0102_0304_0506_0708;
/// Kind of a segment whose slots hold events of one type.
pub const KIND_EVENTS: u32 = 0;
/// Kind of a segment whose slots hold messages of any length.
pub const KIND_MESSAGES: u32 = 1;
/// Kind of a segment whose slots hold blocks, whose size only the header states.
pub const KIND_BLOCKS: u32 = 2;
/// Largest number that `on_death` of a stage may have.
const MAX_ON_DEATH: u32 = 2;
/// Largest number that `producer_on_death` may have.
const MAX_PRODUCER_ON_DEATH: u32 = 3;
/// Features that this version knows.
const FEATURES: u32 = 0;

/// The header, at offset 0.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`MAJOR`].
    pub major: u32,
    /// [`MINOR`], or more.
    pub minor: u32,
    /// [`ORDER`].
    pub order: u64,
    /// Length of the file, in bytes.
    pub length: u64,
    /// CRC-32 (zlib) of the head's first `header_length` bytes without this field and the magic.
    pub checksum: u32,
    /// Number of bytes that the checksum covers, from the head's beginning on.
    pub header_length: u32,
    /// Random number of the segment.
    pub id: [u8; 16],
    /// Number of the boot in which the segment was made (0: unknown).
    pub boot: [u8; 16],
    /// Time at which the segment was made, in ns since 1970.
    pub created: u64,
    /// User that made the segment.
    pub uid: u32,
    /// Features that no reader may ignore.
    pub features: u32,
    /// [`KIND_EVENTS`], [`KIND_MESSAGES`] or [`KIND_BLOCKS`].
    pub kind: u32,
    /// Number of producers' seats (1: the ring has a single producer).
    pub producers: u32,
    /// Number of slots.
    pub capacity: u64,
    /// First position.
    pub first: u64,
    /// Size of an event, in bytes.
    pub event_size: u64,
    /// Alignment of an event, in bytes.
    pub event_align: u32,
    /// `Event::VERSION`.
    pub type_version: u32,
    /// `Event::NAME`, filled with zeros.
    pub type_name: [u8; TYPE_NAME],
    /// Offset of the first stamp (0: none).
    pub stamps_at: u64,
    /// Distance between stamps, in bytes (0: no stamps; 8: the stamps have their own area; other
    /// values: the stamps lie inside the slots).
    pub stamps_stride: u64,
    /// Offset of the first event.
    pub events_at: u64,
    /// Distance between events.
    pub events_stride: u64,
    /// Offset of the lines.
    pub lines_at: u64,
    /// Number of lines.
    pub lines: u32,
    /// Number of wait queues.
    pub wait_queues: u32,
    /// Offset of the wait queues.
    pub wait_queues_at: u64,
    /// Offset of the participants' records.
    pub participants_at: u64,
    /// Number of participants' places.
    pub participants: u32,
    /// Number of seats.
    pub seats: u32,
    /// Offset of the seats.
    pub seats_at: u64,
    /// Offset of the status.
    pub status_at: u64,
    /// Offset of the counters.
    pub counters_at: u64,
    /// Offset of the cells.
    pub cells_at: u64,
    /// Offset of the shard ids.
    pub shard_ids_at: u64,
    /// Number of pools with cells.
    pub cells: u32,
    /// Number of stages with shard ids.
    pub shard_ids: u32,
    /// Notice, in milliseconds.
    pub notice_ms: u32,
    /// Number of stages.
    pub stages: u32,
    /// Length of the schema, in bytes.
    pub schema_length: u32,
    /// Effect of the producers' death, numbered like [`StageRecord::on_death`]. In addition, 3
    /// closes the ring.
    pub producer_on_death: u32,
}

/// A stage, in the table at [`STAGES_AT`].
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StageRecord {
    /// Name, filled with zeros.
    pub name: [u8; STAGE_NAME],
    /// Access to events: 0 reads, 1 may write.
    pub access: u8,
    /// Delivery: 0 each event, 1 a pool, 2 shards, 3 a tap.
    pub delivery: u8,
    /// Effect of the stage's death: 0 wait, 1 tell, 2 fail.
    pub on_death: u8,
    /// Flags. None is defined yet.
    pub flags: u8,
    /// Number of handles that the stage has room for.
    pub room: u32,
    /// Bitmap of the stages that the stage follows (0: it follows the producers).
    pub after: u64,
    /// Index of the stage's first line.
    pub line: u32,
    /// Index of the wait queue at which the stage waits.
    pub wait_queue: u32,
    /// Index of the stage's first seat.
    pub first_seat: u32,
    /// Number of the stage's seats.
    pub seats: u32,
    /// 1 + index of the pool's cells (0: none).
    pub cells: u32,
    /// 1 + index of the stage's shard ids (0: none).
    pub shard_ids: u32,
    /// Offset of the shards' key in an event, in bytes.
    pub key_offset: u32,
    /// Length of the shards' key, in bytes (0: no key).
    pub key_length: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

impl StageRecord {
    /// Returns a stage that reads each event and follows the producers.
    pub fn named(name: &str) -> StageRecord {
        let mut stage = StageRecord::new_zeroed();
        let end = name.len().min(STAGE_NAME);
        stage.name[..end].copy_from_slice(&name.as_bytes()[..end]);
        stage.room = 1;
        stage
    }

    /// Returns the name as a text that can be printed.
    pub fn name(&self) -> String {
        text(&self.name)
    }
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Header, length) == 24 && offset_of!(Header, checksum) == 32);
    assert!(offset_of!(Header, id) == 40 && offset_of!(Header, boot) == 56);
    assert!(offset_of!(Header, created) == 72 && offset_of!(Header, features) == 84);
    assert!(offset_of!(Header, kind) == 88 && offset_of!(Header, capacity) == 96);
    assert!(offset_of!(Header, event_size) == 112 && offset_of!(Header, type_name) == 128);
    assert!(offset_of!(Header, stamps_at) == 192 && offset_of!(Header, events_at) == 208);
    assert!(offset_of!(Header, lines_at) == 224 && offset_of!(Header, wait_queues_at) == 240);
    assert!(offset_of!(Header, participants_at) == 248 && offset_of!(Header, seats_at) == 264);
    assert!(offset_of!(Header, status_at) == 272 && offset_of!(Header, counters_at) == 280);
    assert!(offset_of!(Header, cells_at) == 288 && offset_of!(Header, shard_ids_at) == 296);
    assert!(offset_of!(Header, notice_ms) == 312 && offset_of!(Header, schema_length) == 320);
    assert!(size_of::<Header>() == 328);
    assert!(size_of::<StageRecord>() == 128 && offset_of!(StageRecord, after) == 56);
    assert!(STAGES_AT + MAX_STAGES as u64 * 128 == SCHEMA_AT);
};

/// A private copy of a segment's first 65,536 bytes.
#[derive(Clone)]
pub struct Head(Box<[u8]>);

/// Contents of a head that [`Head::check`] has accepted.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The header.
    pub header: Header,
    /// The stages.
    pub stages: Vec<StageRecord>,
    /// The schema, for other languages.
    pub schema: Vec<u8>,
    /// The counts.
    pub shape: Shape,
    /// The areas, which lie in the file and do not overlap.
    pub areas: Areas,
}

impl Checked {
    /// Returns the name of the events' type.
    pub fn type_name(&self) -> String {
        text(&self.header.type_name)
    }
}

impl Head {
    /// Makes the head of a new segment, with checksum and magic. The call fills in the fields that
    /// `shape` decides, and takes the others from `header`.
    pub fn new(
        mut header: Header,
        shape: &Shape,
        stages: &[StageRecord],
        schema: &[u8],
    ) -> Result<Head, Problem> {
        let areas = shape.areas()?;
        header.magic = MAGIC;
        (header.major, header.minor, header.order) = (MAJOR, MINOR, ORDER);
        header.length = areas.length;
        header.header_length = header_length(shape.schema_length);
        header.features = FEATURES;
        header.capacity = shape.capacity;
        (header.event_size, header.event_align) = (shape.event_size, shape.event_align as u32);
        header.producers = shape.producers;
        (header.stamps_at, header.stamps_stride) = (areas.stamps.at, areas.stamps.stride);
        (header.events_at, header.events_stride) = (areas.events.at, areas.events.stride);
        (header.lines_at, header.lines) = (areas.lines.at, shape.lines);
        (header.wait_queues_at, header.wait_queues) = (areas.wait_queues.at, shape.wait_queues);
        (header.participants_at, header.participants) = (areas.participants.at, shape.participants);
        (header.seats_at, header.seats) = (areas.seats.at, shape.seats);
        (header.status_at, header.counters_at) = (areas.status.at, areas.counters.at);
        (header.cells_at, header.cells) = (areas.cells.at, shape.cells);
        (header.shard_ids_at, header.shard_ids) = (areas.shard_ids.at, shape.shard_ids);
        (header.stages, header.schema_length) = (shape.stages, shape.schema_length);

        let mut head = Head(vec![0; HEAD as usize].into());
        let (table, schema_at) = (STAGES_AT as usize, SCHEMA_AT as usize);
        debug_assert_eq!(
            (stages.len(), schema.len() as u64),
            (shape.stages as usize, shape.schema_length.into())
        );
        head.0[table..table + size_of_val(stages)].copy_from_slice(stages.as_bytes());
        head.0[schema_at..schema_at + schema.len()].copy_from_slice(schema);
        head.store(&header);
        head.seal();
        // The creator makes the same checks as a process that opens the segment, so it makes no
        // segment that such a process would refuse.
        head.check(areas.length, |_| Ok(()))?;
        Ok(head)
    }

    /// Makes a head from bytes that were read from a file. Returns `None` unless there are 65,536
    /// of them.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Head> {
        (bytes.len() as u64 == HEAD).then(|| Head(bytes.into()))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a copy of the header, unchecked.
    pub fn header(&self) -> Header {
        let bytes = &self.0[..size_of::<Header>()];
        Header::read_from_bytes(bytes).unwrap_or_else(|_| Header::new_zeroed())
    }

    /// Replaces the header.
    pub fn store(&mut self, header: &Header) {
        self.0[..size_of::<Header>()].copy_from_slice(header.as_bytes());
    }

    /// Computes the checksum of the header, and stores it.
    pub fn seal(&mut self) {
        let mut header = self.header();
        header.checksum = self.checksum(header.header_length);
        self.store(&header);
    }

    /// Computes the checksum of the first `length` bytes (I2).
    fn checksum(&self, length: u32) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0[8..32]);
        hasher.update(&self.0[36..length as usize]);
        hasher.finalize()
    }

    /// Checks every field. `length` is the length of the file, in bytes. The function `boot` gets
    /// the number of the boot in which the segment was made, and checks it.
    pub fn check(
        &self,
        length: u64,
        boot: impl FnOnce([u8; 16]) -> Result<(), Problem>,
    ) -> Result<Checked, Problem> {
        let header = self.header();
        if header.magic != MAGIC {
            return Err(HeaderProblem::Magic { found: header.magic }.into());
        }
        if header.order != ORDER {
            return Err(HeaderProblem::ByteOrder { found: header.order }.into());
        }
        if header.major != MAJOR {
            return Err(HeaderProblem::Major { found: header.major, ours: MAJOR }.into());
        }
        let least = header_length(0);
        let rule = "is not from 12,288 to 65,536, or no multiple of 8";
        let right = (least..=HEAD as u32).contains(&header.header_length)
            && header.header_length.is_multiple_of(8);
        field("its header length", header.header_length.into(), rule, right)?;
        let computed = self.checksum(header.header_length);
        if computed != header.checksum {
            let stated = header.checksum;
            return Err(HeaderProblem::Checksum { stated, computed }.into());
        }
        let unknown = header.features & !FEATURES;
        if unknown != 0 {
            return Err(HeaderProblem::Features { unknown }.into());
        }
        boot(header.boot)?;
        let expected = header.length;
        if length < expected {
            return Err(FileProblem::TooShort { bytes: length, expected }.into());
        }
        if length > expected {
            return Err(FileProblem::TooLong { bytes: length, expected }.into());
        }
        self.check_counts(&header)?;
        let (shape, areas) = areas(&header)?;
        let stages = self.check_stages(&header)?;
        let schema = SCHEMA_AT as usize..SCHEMA_AT as usize + header.schema_length as usize;
        Ok(Checked { header, stages, schema: self.0[schema].to_vec(), shape, areas })
    }

    fn check_counts(&self, header: &Header) -> Result<(), Problem> {
        let h = header;
        let most = |name: &'static str, found: u32, most: u32| {
            field(name, found.into(), "is out of its range", found <= most)
        };
        let right = (HEAD..=MAX_LENGTH).contains(&h.length);
        field("its length", h.length, "is out of its range", right)?;
        most("its kind", h.kind, KIND_BLOCKS)?;
        most("its number of producers", h.producers, MAX_ROOM)?;
        let right = h.capacity.is_power_of_two() && h.capacity < MAX_LENGTH;
        field("its capacity", h.capacity, "is no power of two, or too large", right)?;
        let right = h.event_align.is_power_of_two() && u64::from(h.event_align) <= SLOTS_ALIGN;
        field("the alignment of its events", h.event_align.into(), "is no such alignment", right)?;
        let right = (1..MAX_LENGTH).contains(&h.event_size)
            && h.event_size.is_multiple_of(h.event_align.into());
        field("the size of its events", h.event_size, "is no such size", right)?;
        let participants = (1..=MAX_PARTICIPANTS).contains(&h.participants);
        let rule = "is out of its range";
        field("its number of participants", h.participants.into(), rule, participants)?;
        most("its number of lines", h.lines, MAX_RECORDS)?;
        most("its number of wait queues", h.wait_queues, MAX_RECORDS)?;
        most("its number of seats", h.seats, MAX_RECORDS)?;
        most("its number of stages", h.stages, MAX_STAGES)?;
        most("its number of cells", h.cells, MAX_STAGES)?;
        most("its number of shard ids", h.shard_ids, MAX_STAGES)?;
        most("the length of its schema", h.schema_length, MAX_SCHEMA)?;
        most("what its producer's death does", h.producer_on_death, MAX_PRODUCER_ON_DEATH)?;
        let right = header_length(h.schema_length) <= h.header_length;
        let rule = "is more than its header length covers";
        field("the length of its schema", h.schema_length.into(), rule, right)?;
        let right = NOTICE_MS.contains(&h.notice_ms);
        field("its notice", h.notice_ms.into(), "is out of its range", right)?;
        let right = clean_text(&h.type_name);
        field("the name of its events' type", h.type_name[0].into(), "begins no such name", right)
    }

    fn check_stages(&self, header: &Header) -> Result<Vec<StageRecord>, Problem> {
        let mut stages: Vec<StageRecord> = Vec::with_capacity(header.stages as usize);
        for stage in 0..header.stages {
            let at = STAGES_AT as usize + stage as usize * size_of::<StageRecord>();
            let bytes = &self.0[at..at + size_of::<StageRecord>()];
            let record =
                StageRecord::read_from_bytes(bytes).unwrap_or_else(|_| StageRecord::new_zeroed());
            let r = &record;
            // One bit for each stage that precedes this one in the table. A stage may follow only
            // those, so no stage follows itself.
            let before = (1u64 << stage) - 1;
            let seats_end = r.first_seat.checked_add(r.seats);
            let key_end = u64::from(r.key_offset) + u64::from(r.key_length);
            let fields = [
                ("the name", r.name[0].into(), clean_text(&r.name)),
                ("the access", r.access.into(), r.access <= 1),
                ("the delivery", r.delivery.into(), r.delivery <= 3),
                ("what a death does", r.on_death.into(), u32::from(r.on_death) <= MAX_ON_DEATH),
                ("the flags", r.flags.into(), r.flags == 0),
                ("the room", r.room.into(), (1..=MAX_ROOM).contains(&r.room)),
                ("the followed stages", r.after, r.after & !before == 0),
                ("the line", r.line.into(), r.line < header.lines),
                ("the wait queue", r.wait_queue.into(), r.wait_queue < header.wait_queues),
                (
                    "the first seat",
                    r.first_seat.into(),
                    seats_end.is_some_and(|e| e <= header.seats),
                ),
                ("the cells", r.cells.into(), r.cells <= header.cells),
                ("the shard ids", r.shard_ids.into(), r.shard_ids <= header.shard_ids),
                ("the key", r.key_offset.into(), key_end <= header.event_size),
                (
                    "the length of its key",
                    r.key_length.into(),
                    r.delivery != 2 || r.key_length != 0,
                ),
            ];
            if let Some(&(field, found, _)) = fields.iter().find(|(_, _, right)| !right) {
                return Err(HeaderProblem::Stage { stage, field, found }.into());
            }
            if stages.iter().any(|other| other.name == r.name) {
                let field = "the name, which another stage has,";
                return Err(HeaderProblem::Stage { stage, field, found: r.name[0].into() }.into());
            }
            stages.push(record);
        }
        Ok(stages)
    }
}

/// Number of bytes that the checksum covers, from the head's beginning on.
fn header_length(schema: u32) -> u32 {
    (SCHEMA_AT as u32).saturating_add(schema.min(MAX_SCHEMA)).next_multiple_of(8)
}

fn field(field: &'static str, found: u64, rule: &'static str, right: bool) -> Result<(), Problem> {
    if right { Ok(()) } else { Err(HeaderProblem::Field { field, found, rule }.into()) }
}

/// Returns whether `bytes` hold a text of at least one character, without control characters,
/// followed only by zeros.
fn clean_text(bytes: &[u8]) -> bool {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let (text, rest) = bytes.split_at(end);
    end > 0
        && rest.iter().all(|&b| b == 0)
        && std::str::from_utf8(text).is_ok_and(|text| !text.contains(char::is_control))
}

/// Derives the shape and the areas from a header whose counts were checked before.
fn areas(h: &Header) -> Result<(Shape, Areas), Problem> {
    let stamps = match h.stamps_stride {
        0 => Stamps::None,
        8 => Stamps::Beside,
        _ => Stamps::Inside,
    };
    let shape = Shape {
        capacity: h.capacity,
        event_size: h.event_size,
        event_align: h.event_align.into(),
        stamps,
        producers: h.producers,
        lines: h.lines,
        wait_queues: h.wait_queues,
        participants: h.participants,
        seats: h.seats,
        cells: h.cells,
        shard_ids: h.shard_ids,
        stages: h.stages,
        schema_length: h.schema_length,
    };
    let (event_at, stride) = shape.slot().unwrap_or((0, 0));
    let rule = "does not fit the size of its events";
    field("the distance of its events", h.events_stride, rule, h.events_stride == stride)?;
    if stamps == Stamps::Inside {
        let rule = "is not that of the slots";
        field("the distance of its stamps", h.stamps_stride, rule, h.stamps_stride == stride)?;
        let right = h.stamps_at.checked_add(event_at) == Some(h.events_at);
        field("the offset of its stamps", h.stamps_at, "is not in front of its events", right)?;
    }
    if stamps == Stamps::None {
        field("the offset of its stamps", h.stamps_at, "should be 0", h.stamps_at == 0)?;
    }
    let area = |at: u64, stride: u64, count: u64| match count {
        0 => Area { at, stride: 0, count: 0 },
        _ => Area { at, stride, count },
    };
    // The capacity and the counts were checked, so these products are below 2^63.
    let per_slot = |stages: u32| h.capacity * u64::from(stages);
    let areas = Areas {
        status: area(h.status_at, STATUS_LINES * LINE, 1),
        participants: area(h.participants_at, ParticipantRecord::STRIDE, h.participants.into()),
        seats: area(h.seats_at, LINE, h.seats.into()),
        lines: area(h.lines_at, LINE, h.lines.into()),
        wait_queues: area(h.wait_queues_at, LINE, h.wait_queues.into()),
        counters: area(h.counters_at, LINE, counter_lines(h.stages)),
        cells: area(h.cells_at, 8, per_slot(h.cells)),
        shard_ids: area(h.shard_ids_at, 4, per_slot(h.shard_ids)),
        stamps: area(
            h.stamps_at,
            h.stamps_stride,
            if stamps == Stamps::None { 0 } else { h.capacity },
        ),
        events: area(h.events_at, stride, h.capacity),
        length: h.length,
    };
    check_areas(&areas, stamps, event_at)?;
    Ok((shape, areas))
}

/// Checks that each area is aligned and within the file, and that no two overlap.
fn check_areas(areas: &Areas, stamps: Stamps, event_at: u64) -> Result<(), Problem> {
    let mut spans: Vec<(u64, u64, &'static str)> = Vec::with_capacity(10);
    for (name, area) in areas.list() {
        let (at, align) = match (name, stamps) {
            // A slot begins with its stamp, and has room for the stamp and the event.
            ("stamps", Stamps::Inside) => continue,
            ("events", Stamps::Inside) => (area.at.saturating_sub(event_at), SLOTS_ALIGN),
            ("events", _) => (area.at, SLOTS_ALIGN),
            _ => (area.at, LINE),
        };
        if area.count == 0 {
            field(name, at, "is the offset of an area without items, and should be 0", at == 0)?;
            continue;
        }
        let end = area.length().and_then(|length| at.checked_add(length));
        let right = at >= HEAD && at % align == 0 && end.is_some_and(|end| end <= areas.length);
        field(name, at, "is no offset of that area in this file", right)?;
        spans.push((at, end.unwrap_or(at), name));
    }
    spans.sort_unstable();
    for pair in spans.windows(2) {
        if pair[0].1 > pair[1].0 {
            return Err(HeaderProblem::Overlap { area: pair[0].2, other: pair[1].2 }.into());
        }
    }
    Ok(())
}
