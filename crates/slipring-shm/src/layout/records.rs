//! The records that change while a segment is in use: words that all participants may access.
//!
//! This file defines only the records that participants write about themselves. Seats, the status,
//! wait queues, lines and counters are defined in `slipring`, because their protocol is there.
//!
//! Invariants
//! - I1: a record is `repr(C)` and made of atomics only. So any bytes are a value, other processes
//!   may write at any time, and a reference to a record is sound wherever the record is mapped and
//!   aligned.
//! - I2: a record fits the stride of its area, and is aligned to 8 bytes at most.
//! - I3: a participant stores `state` (release) after the other words of its record. Only this file
//!   accesses `state`, so no other file depends on a record to order memory.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use slipring::segment::Seat;

use crate::system::limits::LINE;

/// A record that fulfils I1.
///
/// # Safety
/// The type is `repr(C)`, made of `AtomicU32` and `AtomicU64` only, and has no padding that is
/// read.
pub unsafe trait Record: Sync + 'static {
    /// Distance between two records, in bytes: a multiple of a line.
    const STRIDE: u64;
}

/// A text that is stored in atomic words. A crash of its writer may leave it half-written.
#[derive(Debug)]
#[repr(C)]
pub struct Text<const WORDS: usize>([AtomicU64; WORDS]);

impl<const WORDS: usize> Text<WORDS> {
    /// Stores `text`, padded with zeros. A text that is too long is cut at the end of a character.
    pub fn store(&self, text: &str) {
        let fits = (0..=text.len().min(WORDS * 8)).rev().find(|&end| text.is_char_boundary(end));
        let bytes = &text.as_bytes()[..fits.unwrap_or(0)];
        for (word, at) in self.0.iter().zip((0..).step_by(8)) {
            let mut part = [0; 8];
            let rest = bytes.get(at..).unwrap_or(&[]);
            part[..rest.len().min(8)].copy_from_slice(&rest[..rest.len().min(8)]);
            word.store(u64::from_ne_bytes(part), Relaxed);
        }
    }

    /// Loads the text up to its first zero byte. Bytes that are not valid UTF-8 become replacement
    /// characters.
    pub fn load(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().flat_map(|w| w.load(Relaxed).to_ne_bytes()).collect();
        text(&bytes)
    }
}

/// Returns the text up to the first zero byte. Control characters, and bytes that are not valid
/// UTF-8, become replacement characters.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let clean = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
    String::from_utf8_lossy(&bytes[..end]).chars().map(clean).collect()
}

/// Record of a participant, for reports. Only the byte lock proves that the participant is alive.
#[derive(Debug)]
#[repr(C)]
pub struct ParticipantRecord {
    /// Generation in bits 63 to 32, state in bits 31 to 0: [`ParticipantRecord::FREE`] or
    /// [`ParticipantRecord::ATTACHED`]. The generation counts how often the place was taken.
    pub state: AtomicU64,
    /// Pid of the process in its own pid namespace, for reports and for eviction.
    pub pid: AtomicU32,
    /// Effective user id of the process.
    pub uid: AtomicU32,
    /// Start time of the process, in clock ticks since the boot (0: unknown).
    pub start_time: AtomicU64,
    /// Inode of the process's pid namespace (0: unknown).
    pub pid_namespace: AtomicU64,
    /// Time of attaching, in ns since 1970.
    pub joined: AtomicU64,
    /// Flags: [`ParticipantRecord::MEMBARRIER`].
    pub flags: AtomicU64,
    /// Name that the participant gave itself, which reports show.
    pub name: Text<8>,
}

impl ParticipantRecord {
    /// State of a place without a participant.
    pub const FREE: u32 = 0;
    /// State of a place whose participant is attached, or has died and is not recovered yet.
    pub const ATTACHED: u32 = 1;
    /// Flag of a participant that is registered for membarriers.
    pub const MEMBARRIER: u64 = 1;

    /// Packs the word `state`.
    pub const fn pack(generation: u32, state: u32) -> u64 {
        (generation as u64) << 32 | state as u64
    }

    /// Loads the word `state` (acquire). So words of the record that are loaded afterwards are at
    /// least as new as the state.
    pub(crate) fn load_state(&self) -> u64 {
        self.state.load(Acquire)
    }

    /// Returns whether the place has a participant, or had one that died.
    pub(crate) fn is_attached(&self) -> bool {
        ParticipantRecord::unpack(self.load_state()).1 != ParticipantRecord::FREE
    }

    /// Marks the place as taken, and raises the generation. The caller holds the participant's
    /// byte, and has stored all other words (I3).
    pub(crate) fn attach(&self) {
        let (generation, _) = ParticipantRecord::unpack(self.state.load(Relaxed));
        let state =
            ParticipantRecord::pack(generation.wrapping_add(1), ParticipantRecord::ATTACHED);
        self.state.store(state, Release);
    }

    /// Marks the place as free. The caller holds the participant's byte.
    pub(crate) fn free(&self) {
        let (generation, _) = ParticipantRecord::unpack(self.state.load(Relaxed));
        self.state.store(ParticipantRecord::pack(generation, ParticipantRecord::FREE), Release);
    }

    /// Unpacks the word `state` into generation and state.
    pub const fn unpack(word: u64) -> (u32, u32) {
        ((word >> 32) as u32, word as u32)
    }
}

// SAFETY: the type is `repr(C)`, and made of atomics and of `Text`, which is an array of atomics.
unsafe impl Record for ParticipantRecord {
    const STRIDE: u64 = LINE;
}

// SAFETY: the type is `repr(C)`, and made of atomics.
unsafe impl Record for Seat {
    const STRIDE: u64 = LINE;
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<ParticipantRecord>() == 112 && size_of::<ParticipantRecord>() as u64 <= LINE);
    assert!(
        offset_of!(ParticipantRecord, start_time) == 16
            && offset_of!(ParticipantRecord, name) == 48
    );
    assert!(size_of::<Seat>() == 88 && size_of::<Seat>() as u64 <= LINE);
};
