//! The bytes of a segment, version 1.
//!
//! Invariants
//! - I1: host byte order, offsets only. Areas begin at multiples of 128 behind the first 65,536
//!   bytes, slots at multiples of 4,096.
//! - I2: the first 65,536 bytes (the *head*: header, stage table, schema) never change once the
//!   magic is stored. Zero bytes follow what is defined, so later versions can add fields.
//! - I3: a head that was read from a file becomes a [`Shape`] and [`Areas`] only by [`Head::check`].
//!   So offsets of [`Areas`] lie in the file, are aligned, and no two areas overlap.
//! - I4: all other words change, and are read and written only as atomics ([`records`]). Zero is a
//!   value of each, and is right for a fresh segment.

mod head;
pub mod records;
mod shape;

pub use head::{
    Checked, Head, Header, KIND_EVENTS, KIND_MESSAGES, MAGIC, MAJOR, MINOR, ORDER, STAGE_NAME,
    STAGES_AT, StageRecord, TYPE_NAME,
};
pub use shape::{Area, Areas, Shape, Stamps};

/// Length of the head, in bytes: the largest page of 64-bit Linux.
pub const HEAD: u64 = 65_536;
/// Offset of the schema, in bytes.
pub const SCHEMA_AT: u64 = 12_288;
/// Size and alignment of a line, in bytes.
pub const LINE: u64 = 128;
/// Alignment of the slots, in bytes.
pub const SLOTS_ALIGN: u64 = 4_096;
/// Largest length of a segment, in bytes: the lock bytes begin there.
pub const MAX_LENGTH: u64 = 1 << 40;
/// Largest number of participants.
pub const MAX_PARTICIPANTS: u32 = 1_024;
/// Largest number of stages.
pub const MAX_STAGES: u32 = 64;
/// Largest number of seats of producers, and of one stage.
pub const MAX_ROOM: u32 = 64;
/// Largest number of lines, of wait queues, and of seats.
pub const MAX_RECORDS: u32 = 1 << 16;
/// Longest schema, in bytes.
pub const MAX_SCHEMA: u32 = (HEAD - SCHEMA_AT) as u32;
/// Longest and shortest notice, in milliseconds.
pub const NOTICE_MS: std::ops::RangeInclusive<u32> = 1..=1_000;
