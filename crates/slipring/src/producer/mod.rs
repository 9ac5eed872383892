//! The producers' side: claim slots, fill them, publish them.
//!
//! | file | holds |
//! |---|---|
//! | `handle` | the handle: its state, its open claim, its end |
//! | `reserve` | positions: taking them, waiting for them |
//! | `publish` | publishing a claim, and publishing in one call |
//! | `claim` | claims as leases: slots lent to be filled |
//! | `conflate` | keeping the newest value per key while the ring is full |
//!
//! Each file uses those above it.
//!
//! Invariants
//! - I1: One handle at a time claims `[seq, seq + len)`. A single producer's `next` is its own.
//!   Many producers move one claim word, only over slots that the gating stages have released.
//!   Without a stage they move it only over slots whose last publication is complete.
//! - I2: Claimed slots belong to their handle until it stamps them. No stage accesses the event of
//!   an unstamped position. No producer claims its slot again before every stage has passed it.
//! - I3: Every position that many producers claim gets a stamp: by the claim's publication, or a
//!   tombstone when the claim is dropped. A forgotten claim gets its tombstone at the handle's next
//!   use or drop. A single producer claims an unpublished position again.
//! - I4: The closing producer states the last position once. No later position is claimed.

pub(crate) mod claim;
pub(crate) mod conflate;
mod handle;
pub(crate) mod publish;
mod reserve;

pub(crate) use self::handle::{HELD_PANIC, sealed};
pub use self::handle::{Many, Producer, SharedProducer, Single};
