//! The layout of a frame. A frame is a message of a stream, and carries a run of events.
//!
//! Invariants
//! - I1: [`Header::read`] returns the header of a whole frame only: the checksum covers the header
//!   and the payload.
//! - I2: `after <= first <= end`. The positions from `after` up to `first` are a hole, where the
//!   ring had no events.
//! - I3: a frame without events has no payload.

use std::fmt;
use std::str::FromStr;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[cfg(test)]
mod page;

/// First bytes of a frame.
pub const MAGIC: [u8; 8] = *b"SLIPFRAM";
/// Version of the layout.
pub const VERSION: u16 = 1;
/// Length of a frame's header, in bytes.
pub const HEADER: usize = size_of::<Layout>();
/// Greatest length of a frame with its header, in bytes. A sink never makes a longer frame, even if
/// the server would accept it.
pub const MAX_FRAME: usize = 512 * 1024;
/// Default greatest length of a frame, in bytes. A message is longer than its frame, because it
/// also has its subjects. With this length, two messages still fit into the read buffer of a
/// client, which grows to 1 MiB, and four into a source's request of 2 MiB.
pub const USUAL_FRAME: usize = 511 * 1024;
/// Length of the number in front of an event of varying size, in bytes.
pub const LENGTH: usize = 4;
/// Greatest number of messages that a sink has in flight.
pub const MAX_WINDOW: u32 = 256;
/// Greatest incarnation of a sink. A header with a greater one counts as damaged.
pub const MAX_INCARNATION: u64 = u64::MAX - 1;

/// The bytes of a frame's header in the message. All numbers are little-endian.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Layout {
    /// [`MAGIC`].
    magic: [u8; 8],
    /// [`VERSION`].
    version: U16,
    /// Length of this header, in bytes: [`HEADER`].
    header_length: U16,
    /// Size of each event, in bytes; 0 if each event has its length in front, as a `u32`.
    event_size: U32,
    /// Number of the journal, drawn at random when the journal begins.
    ring: [u8; 16],
    /// Number of the ring, drawn at random when the ring is made.
    epoch: [u8; 16],
    /// Number of the sink: higher than that of every earlier sink.
    incarnation: U64,
    /// Random number of the sink, which tells two sinks of one incarnation apart.
    writer: U64,
    /// Fingerprint of the events' type.
    fingerprint: U64,
    /// Position behind the previous frame.
    after: U64,
    /// Position of the first event.
    first: U64,
    /// Number of events.
    count: U32,
    /// Length of the payload, in bytes.
    payload_length: U32,
    /// CRC-32 (zlib) of the header without this field, and of the payload.
    checksum: U32,
    /// Greatest number of messages that the sink has in flight.
    window: U32,
}

/// Offset of the checksum in the header, in bytes.
const CHECKSUM: usize = std::mem::offset_of!(Layout, checksum);

/// A random number of 16 bytes that identifies a ring or a journal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub [u8; 16]);

impl Id {
    /// Draws a random number.
    pub fn random() -> Id {
        Id(fastrand::u128(..).to_le_bytes())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Returns whether `text` consists of `digits` hexadecimal digits. The parser of the standard
/// library would also take a sign.
pub fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|digit| digit.is_ascii_hexdigit())
}

impl FromStr for Id {
    type Err = ();
    fn from_str(text: &str) -> Result<Id, ()> {
        let number = is_hex(text, 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
        number.map(|number| Id(number.to_be_bytes())).ok_or(())
    }
}

/// The description of a frame, or of a message with a single event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    pub ring: Id,
    pub epoch: Id,
    pub incarnation: u64,
    pub writer: u64,
    pub fingerprint: u64,
    pub event_size: u32,
    /// Position behind the previous message.
    pub after: u64,
    /// Position of the first event.
    pub first: u64,
    pub count: u32,
    /// Greatest number of messages that the sink has in flight.
    pub window: u32,
}

/// The reason why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bad {
    /// No sink wrote the message.
    Foreign,
    /// A sink wrote the message, but its bytes contradict each other.
    Damaged(&'static str),
}

impl Header {
    /// Returns the position behind the last event.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Writes the header into the first [`HEADER`] bytes of `frame`, in front of the payload.
    ///
    /// # Panics
    /// Panics if `frame` has no room for the header.
    pub fn write(&self, frame: &mut [u8]) {
        let (head, payload) = frame.split_at_mut(HEADER);
        let layout = Layout {
            magic: MAGIC,
            version: VERSION.into(),
            header_length: (HEADER as u16).into(),
            event_size: self.event_size.into(),
            ring: self.ring.0,
            epoch: self.epoch.0,
            incarnation: self.incarnation.into(),
            writer: self.writer.into(),
            fingerprint: self.fingerprint.into(),
            after: self.after.into(),
            first: self.first.into(),
            count: self.count.into(),
            payload_length: (payload.len() as u32).into(),
            checksum: 0.into(),
            window: self.window.into(),
        };
        head.copy_from_slice(layout.as_bytes());
        let checksum = checksum(head, payload);
        head[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
    }

    /// Returns the header of a frame, and its payload.
    pub fn read(frame: &[u8]) -> Result<(Header, &[u8]), Bad> {
        let Ok((layout, payload)) = Layout::ref_from_prefix(frame) else {
            return Err(Bad::Foreign);
        };
        if layout.magic != MAGIC {
            return Err(Bad::Foreign);
        }
        if layout.version.get() != VERSION || usize::from(layout.header_length.get()) != HEADER {
            return Err(Bad::Damaged("it has a version that this program cannot read"));
        }
        if payload.len() != layout.payload_length.get() as usize {
            return Err(Bad::Damaged("its length is not the one that it names"));
        }
        if checksum(&frame[..HEADER], payload) != layout.checksum.get() {
            return Err(Bad::Damaged("its checksum does not match"));
        }
        let header = Header {
            ring: Id(layout.ring),
            epoch: Id(layout.epoch),
            incarnation: layout.incarnation.get(),
            writer: layout.writer.get(),
            fingerprint: layout.fingerprint.get(),
            event_size: layout.event_size.get(),
            after: layout.after.get(),
            first: layout.first.get(),
            count: layout.count.get(),
            window: layout.window.get(),
        };
        header.check()?;
        let (length, count) = (payload.len() as u64, u64::from(header.count));
        let fits = match u64::from(header.event_size) {
            _ if count == 0 => length == 0, // I3
            0 => length >= count * LENGTH as u64,
            size => length == size * count,
        };
        if !fits {
            return Err(Bad::Damaged("its payload does not have the events that it names"));
        }
        Ok((header, payload))
    }

    /// Checks the rules that hold for every header (I2).
    pub fn check(&self) -> Result<(), Bad> {
        let ordered =
            self.after <= self.first && self.first.checked_add(u64::from(self.count)).is_some();
        if !ordered {
            return Err(Bad::Damaged("its positions are out of order"));
        }
        // The next sink takes the next incarnation, and begins with `window` messages.
        if self.incarnation > MAX_INCARNATION || self.window > MAX_WINDOW {
            return Err(Bad::Damaged("no sink has its incarnation and window"));
        }
        Ok(())
    }
}

/// Returns the checksum of a frame. It covers the payload, and the header without the checksum.
fn checksum(head: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head[..CHECKSUM]);
    hasher.update(&head[CHECKSUM + 4..]);
    hasher.update(payload);
    hasher.finalize()
}

/// Iterator over the events of a payload, one slice each.
pub struct Events<'p> {
    payload: &'p [u8],
    size: Size,
    left: u32,
}

/// Length of an event.
enum Size {
    /// The same for all events, in bytes.
    Same(usize),
    /// Each event has its own size, which the number in front of it gives.
    InFront,
    /// The whole payload.
    Whole,
}

impl<'p> Events<'p> {
    /// Iterates over the payload that [`Header::read`] returned with `header`.
    pub fn of(header: &Header, payload: &'p [u8]) -> Events<'p> {
        let size = match header.event_size {
            0 => Size::InFront,
            size => Size::Same(size as usize),
        };
        Events { payload, size, left: header.count }
    }

    /// Iterates over the payload of a message with one event or none.
    pub fn single(payload: &'p [u8], count: u32) -> Events<'p> {
        Events { payload, size: Size::Whole, left: count }
    }
}

impl<'p> Iterator for Events<'p> {
    type Item = Result<&'p [u8], Bad>;

    #[inline] // called for each event, from the crate that makes the ring
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let length = match self.size {
            Size::Same(size) => size,
            Size::Whole => self.payload.len(),
            Size::InFront => match self.payload.split_first_chunk::<LENGTH>() {
                Some((length, rest)) => {
                    self.payload = rest;
                    u32::from_le_bytes(*length) as usize
                }
                None => usize::MAX,
            },
        };
        let Some((event, rest)) = self.payload.split_at_checked(length) else {
            self.left = 0;
            return Some(Err(Bad::Damaged("an event is longer than the rest of its payload")));
        };
        self.payload = rest;
        if self.left == 0 && !rest.is_empty() {
            return Some(Err(Bad::Damaged("its payload goes on behind the last event")));
        }
        Some(Ok(event))
    }
}

/// Returns the fingerprint of a type: FNV-1a (64 bits) of its name, a zero byte, its version, and
/// its size in bytes. Version and size are little-endian `u32`. The size of events of varying size
/// is 0.
///
/// Source of the hash: G. Fowler, L. C. Noll, K.-P. Vo, D. Eastlake, "The FNV Non-Cryptographic
/// Hash Algorithm", RFC 9923.
pub fn fingerprint(name: &str, version: u32, event_size: u32) -> u64 {
    let bytes =
        name.bytes().chain([0]).chain(version.to_le_bytes()).chain(event_size.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests;
