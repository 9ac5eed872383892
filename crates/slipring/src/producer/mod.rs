//! Producers claim slots, fill the slots, and publish the events.
//!
//! | file | holds |
//! |---|---|
//! | `handle` | the handle: its state, its open claim, its counts, its drop |
//! | `room` | which positions are free |
//! | `many` | how one of several producers of a process takes positions |
//! | `reserve` | positions: taking them, waiting for them |
//! | `sharing` | how the producers of a ring, one or several, take positions and close the ring |
//! | `publish` | publishing a claim, and publishing in one call |
//! | `ask` | publishing a request, whose asker hears of the graph's end |
//! | `flush` | waiting until stages have passed what was published |
//! | `claim` | claims as leases: slots lent to be filled |
//! | `conflate` | keeping the newest value per key while the ring is full |
//! | `publisher` | publishing from any thread through a shared reference |
//!
//! Each file uses only the files in the rows above its own.
//!
//! Invariants
//! - I1: No two handles claim the same position. A single producer claims from its private `next`.
//!   Many producers share one claim word, and touch a claimed slot only after the gating stages
//!   have released it or, in a ring without stages, after its last publication is complete. Only an
//!   early claim (`many`) moves the claim word over slots that are not free yet.
//! - I2: Claimed slots belong to their handle until it publishes them or gives them up. No stage
//!   accesses the event of an unpublished position, and no producer claims a slot again before
//!   every stage has passed its event.
//! - I3: In a ring with several producers, every claimed position becomes part of a run or of a
//!   tombstone. A producer stamps runs when it publishes a claim, and a tombstone when it drops an
//!   unpublished one. A forgotten claim gets its tombstone at the next use, or at the drop, of its
//!   handle. A single producer stamps no tombstone: after it drops an unpublished claim, it claims
//!   the same positions again.
//! - I4: The ring's end position is set by the producer that closes the ring or, where several
//!   processes produce, by the stages that find it (`closing`). No producer publishes that position
//!   or a later one. The end moves only back, and only over early claims that are not published
//!   (`early_claims`).
//! - I5: a publication is *plain* if it ends before its handle's `plain_until`, or at it. It only
//!   stores progress and notifies: it refreshes no stamp, and no counts are due to be flushed after
//!   it. If its handle is the only producer, its slots are free, its stamp is of the handle's
//!   `lap`, and the handle's `fetches` holds for it. The next publication never begins after
//!   `plain_until`, so the distance from there is the number of events that may be published
//!   plainly. After each publication that is not plain, and when one of the bounds changes,
//!   `plan_ahead` sets `plain_until`, before code of a user can run.

// rustdoc shows methods in the order of these lines: a page begins with those that most users call.
pub(crate) mod publish;

pub(crate) mod publisher;

pub(crate) mod claim;

mod handle;

mod reserve;

mod sharing;

mod ask;
pub(crate) mod conflate;
mod flush;
mod many;
mod room;

pub(crate) use self::handle::{HELD_PANIC, Refusal, sealed};
pub use self::handle::{Many, Producer, SharedProducer, Single};
