//! The resume rule: where a sink goes on after any doubt.
//!
//! A sink is in doubt when it starts, and after a disconnect, a time-out, a missing or unordered
//! acknowledgement, or a refused condition. It then stops publishing, asks the engine for the end
//! of the stream, and goes on by one of the two functions here. Both are pure, so that the model
//! (`resume/model.rs`) searches over the very decisions that the sink makes.
//!
//! Invariants
//! - I1: each append is conditional on the engine's last sequence. The condition of a message that
//!   follows others in flight names the sequence that the sink predicts for the last of them.
//! - I2: a sink appends events only behind its own begin messages. It begins by as many of them, in
//!   one atomic batch, as the sink before may have messages in flight: so their last sequence is
//!   behind each one that the other sink has predicted, and makes each of its conditions false. A
//!   single begin message would not: it could itself take the sequence that a condition names.
//! - I3: where a sink goes on is the end of the stream's last message, and never a note of its own.
//!   Its notes only decide which error it ends with. One exception: an emptied stream, whose last
//!   sequence is still the one that was acknowledged last, ended where the sink knows.

use std::time::{Duration, Instant};

use crate::errors::Error;
use crate::frame::{Header, Id, MAX_WINDOW};

/// How often a loss is asked about again before it counts as one: a server that just started may
/// answer with less than it has.
const LOSSES: u32 = 8;
/// How long a loss is asked about in a cluster. A leader that has lost the others does not know it
/// at once, and answers with what it knew: nats-server 2.15.1 shows messages for 6 to 8 s.
/// Meanwhile the client goes to another server. It is less than a sink has to take over.
const LOSS: Duration = Duration::from_secs(12);
/// Answers after each other that say that the stream has lost what it had.
#[derive(Default)]
pub struct Losses {
    number: u32,
    since: Option<Instant>,
}

impl Losses {
    /// Notes the error that an answer leads to. Returns whether to ask again: a server that does
    /// not have all of the stream, or not yet, would give such an answer.
    pub fn excuse(&mut self, error: &Error, in_cluster: bool) -> bool {
        let tells_loss = match error {
            Error::LostAcknowledged { .. } | Error::Emptied { .. } | Error::NoStream { .. } => true,
            Error::WrongEpoch { ring, stream } => ring > stream,
            _ => false,
        };
        tells_loss && !self.are_sure(in_cluster)
    }

    /// Notes a loss. Returns whether it counts.
    fn are_sure(&mut self, in_cluster: bool) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.number += 1;
        self.number > LOSSES && (!in_cluster || since.elapsed() >= LOSS)
    }
}

/// The end of the stream, as the stream's leader tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tail {
    /// Sequence of the last message that the stream ever had (0: none).
    pub last_sequence: u64,
    /// The last message that the stream still has.
    pub last: Option<Header>,
}

/// A sink, as far as its decisions go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Party {
    /// Number of the ring.
    pub epoch: Id,
    /// Random number of the sink.
    pub writer: u64,
    /// Fingerprint of the events' type.
    pub fingerprint: u64,
}

/// What a sink knows of its ring when it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// The ring is not made yet: it begins at the position that the engine names. `at`: the
    /// position if the engine cannot name one.
    New {
        /// From [`Sink::resume_at`](crate::Sink::resume_at).
        at: Option<u64>,
    },
    /// The ring is there, and has released the positions before this one.
    Surviving {
        /// The first position that the ring has not released.
        released: u64,
        /// Whether the sink goes on, with a hole, if the stream has lost acknowledged positions.
        accepts_loss: bool,
    },
}

/// Where a sink goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// The sequence that the next message expects.
    pub expected: u64,
    /// The position behind the stream's last event.
    pub after: u64,
    /// The position of the next event.
    pub next: u64,
    /// Number of the journal.
    pub ring: Id,
    /// The incarnation of the sink.
    pub incarnation: u64,
    /// Number of begin messages (I2), for a sink that begins.
    pub messages: u32,
}

/// Returns where a sink begins: with a message without events, of the next incarnation.
pub fn begin(tail: &Tail, party: &Party, start: Start) -> Result<Point, Error> {
    let expected = tail.last_sequence;
    let Some(last) = tail.last else {
        // An earlier sink may be alive, and no message is left that tells its window.
        let messages = if expected == 0 { 1 } else { MAX_WINDOW };
        let at = match start {
            _ if expected == 0 => match start {
                Start::New { at } => at.unwrap_or(0),
                Start::Surviving { released, .. } => released,
            },
            Start::New { at: Some(at) } => at,
            Start::Surviving { released, accepts_loss: true } => released,
            _ => return Err(Error::Emptied { last_sequence: expected }),
        };
        return Ok(Point {
            expected,
            after: at,
            next: at,
            ring: party.epoch,
            incarnation: 1,
            messages,
        });
    };
    check_type(&last, party)?;
    let end = last.end();
    let point = Point {
        expected,
        after: end,
        next: end,
        ring: last.ring,
        incarnation: last.incarnation + 1,
        messages: last.window.max(1),
    };
    match start {
        Start::Surviving { released, accepts_loss } if released != end => {
            if last.epoch != party.epoch {
                Err(Error::WrongEpoch { ring: released, stream: end })
            } else if released < end {
                Ok(point)
            } else if accepts_loss {
                Ok(Point { next: released, ..point })
            } else {
                Err(Error::LostAcknowledged { acknowledged: released - 1, found: end })
            }
        }
        _ => Ok(point),
    }
}

/// What a sink that has begun knows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Begun {
    /// The journal that it writes.
    pub ring: Id,
    /// Its incarnation.
    pub incarnation: u64,
    /// The position behind the last event whose message was acknowledged.
    pub acknowledged: u64,
    /// The position behind the last event that was sent, acknowledged or not.
    pub sent: u64,
    /// The stream's last sequence when it ended at `acknowledged`.
    pub sequence: u64,
}

/// Returns where a sink goes on that has begun, and whose begin message was acknowledged.
pub fn resume(tail: &Tail, party: &Party, begun: &Begun) -> Result<Point, Error> {
    let going_on = |next| Point {
        expected: tail.last_sequence,
        after: next,
        next,
        ring: begun.ring,
        incarnation: begun.incarnation,
        messages: 0,
    };
    let Some(last) = tail.last else {
        // No message was appended since, so the removed ones end at the acknowledged position.
        return match tail.last_sequence == begun.sequence {
            true => Ok(going_on(begun.acknowledged)),
            false => Err(Error::Emptied { last_sequence: tail.last_sequence }),
        };
    };
    check_type(&last, party)?;
    let end = last.end();
    if last.ring != begun.ring {
        return Err(Error::WrongEpoch { ring: begun.acknowledged, stream: end });
    }
    let ours = last.writer == party.writer && last.epoch == party.epoch;
    if !ours && last.incarnation >= begun.incarnation {
        return Err(Error::Fenced { ours: begun.incarnation, theirs: last.incarnation });
    }
    if !ours || end < begun.acknowledged {
        let acknowledged = begun.acknowledged.saturating_sub(1);
        return Err(Error::LostAcknowledged { acknowledged, found: end });
    }
    if end > begun.sent {
        return Err(Error::WrongEpoch { ring: begun.sent, stream: end });
    }
    Ok(going_on(end))
}

/// Returns whether the sink's own begin message is the stream's last one. After a lost
/// acknowledgement of that message, the sink has begun if it is.
pub fn has_begun(tail: &Tail, party: &Party, point: &Point) -> bool {
    tail.last.is_some_and(|last| {
        last.writer == party.writer && last.incarnation == point.incarnation && last.count == 0
    })
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

fn check_type(last: &Header, party: &Party) -> Result<(), Error> {
    if last.fingerprint == party.fingerprint {
        Ok(())
    } else {
        Err(Error::WrongType { ours: party.fingerprint, theirs: last.fingerprint })
    }
}
