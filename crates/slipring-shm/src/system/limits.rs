//! The limits of segments: sizes, counts and names.
//!
//! Invariants
//! - I1: the limits are part of the layout, so a change of a limit needs a new version of the
//!   layout.

use std::ops::RangeInclusive;

/// Length of the head, in bytes. It is the size of the largest page of 64-bit Linux, so the head
/// can be mapped read-only.
pub const HEAD: u64 = 65_536;
/// Offset of the stage table, in bytes.
pub const STAGES_AT: u64 = 4_096;
/// Offset of the schema, in bytes.
pub const SCHEMA_AT: u64 = 12_288;
/// Number of lines for the status, and for the record of the first failure behind it.
pub const STATUS_LINES: u64 = 4;
/// Size and alignment of a line, in bytes.
pub const LINE: u64 = 128;
/// Alignment of the slots, and the largest alignment that an event may have, in bytes.
pub const SLOTS_ALIGN: u64 = 4_096;
/// Largest length of a segment, in bytes. The lock bytes begin at this offset.
pub const MAX_LENGTH: u64 = 1 << 40;
/// Largest number of participants.
pub const MAX_PARTICIPANTS: u32 = 1_024;
/// Largest number of stages.
pub const MAX_STAGES: u32 = 64;
/// Largest number of seats of the producers, or of one stage.
pub const MAX_ROOM: u32 = 64;
/// Largest number of lines, and also of wait queues, and of seats.
pub const MAX_RECORDS: u32 = 1 << 16;
/// Longest schema, in bytes.
pub const MAX_SCHEMA: u32 = (HEAD - SCHEMA_AT) as u32;
/// Shortest and longest notice, in milliseconds.
pub const NOTICE_MS: RangeInclusive<u32> = 1..=1_000;
/// Longest name of an event's type, in bytes.
pub const TYPE_NAME: usize = 64;
/// Longest name of a stage, in bytes.
pub const STAGE_NAME: usize = 48;
/// Folder of the files of named segments.
pub const FOLDER: &str = "/dev/shm";
/// Suffix of a named segment's file name.
pub const SUFFIX: &str = ".slipring";
/// Longest name of a segment, in bytes.
pub const MAX_NAME: usize = 48;
