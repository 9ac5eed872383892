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
//!   Its notes only decide which error it ends with. One exception: a stream whose last sequence is
//!   still the one that was acknowledged last ended where the sink knows, whatever was removed.
//! - I4: a stream whose last message has a lower sequence than the stream's last one has lost its
//!   end. Nothing tells what was there: another sink may have written events, and may be alive. So
//!   a sink that begins there begins by as many messages as any sink may have in flight, and by an
//!   incarnation that is higher than each that those messages can have had.
//! - I5: a position has one event under one number of the journal. A ring that cannot say which
//!   positions had events begins under another number. It draws one for each attempt: an attempt
//!   whose answer is lost may have been stored, and others may have written under its number.

use std::time::{Duration, Instant};

use crate::errors::Error;
use crate::frame::{Header, Id, MAX_INCARNATION, MAX_WINDOW};

/// How often a loss is asked about again before it counts as one: a server that just started may
/// answer with less than it has.
const LOSSES: u32 = 8;
/// How long a loss is asked about in a cluster. A leader that has lost the others does not know it
/// at once, and answers with what it knew: nats-server 2.15.1 shows messages for 6 to 8 s.
/// Meanwhile the client goes to another server. It is less than a sink has to take over.
const LOSS: Duration = Duration::from_secs(12);
/// What a journal's number needs in a stream that says nothing.
const NO_POSITION: &str = "an unused stream does not say where the journal goes on: name the \
                           position, too (Sink::resume_at), or no journal";
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

    /// Returns whether the last answer said so.
    pub fn are_told(&self) -> bool {
        self.number > 0
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
    /// The last message that the stream still has, and its sequence.
    pub last: Option<(u64, Header)>,
}

impl Tail {
    /// Returns the first and the last sequence of the messages that are gone behind the last one
    /// that the stream still has (I4). All of an emptied stream's are.
    pub fn gone(&self) -> Option<(u64, u64)> {
        let first = self.last.map_or(0, |(sequence, _)| sequence) + 1;
        (first <= self.last_sequence).then_some((first, self.last_sequence))
    }
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

/// What a sink knows of its ring when it starts, and what its user says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// Whether the ring is there already. A ring that is made next begins where the sink says.
    pub survives: bool,
    /// The first position that a surviving ring has not released, or the position of
    /// [`Sink::resume_at`](crate::Sink::resume_at).
    pub at: Option<u64>,
    /// Whether the sink goes on if the stream has lost acknowledged positions
    /// ([`Sink::accept_loss`](crate::Sink::accept_loss)).
    pub accepts_loss: bool,
    /// The number of the journal that the user names ([`Sink::journal`](crate::Sink::journal)).
    pub journal: Option<Id>,
    /// The number of a journal that begins: a random one for each attempt (I5).
    pub number: Id,
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

/// Returns where a sink begins: with messages without events, of the next incarnation.
pub fn begin(tail: &Tail, party: &Party, start: &Start) -> Result<Point, Error> {
    let gone = tail.gone();
    let number = gone.map_or(0, |(first, last)| last - first + 1);
    let known = tail.last.map(|(_, header)| header);
    let messages = match (gone, known) {
        (Some(_), _) => MAX_WINDOW, // I4
        (None, Some(last)) => last.window.max(1),
        (None, None) => 1,
    };
    let incarnation = known.map_or(0, |last| last.incarnation).saturating_add(number + 1);
    let incarnation = incarnation.min(MAX_INCARNATION);
    let point = |after, next, ring| Point {
        expected: tail.last_sequence,
        after,
        next,
        ring,
        incarnation,
        messages,
    };
    let Some(last) = known else {
        return match (gone, start.at) {
            // Under the number, another stream of this name may have had events (I5).
            (None, None) if start.journal.is_some() => {
                Err(Error::Option { what: NO_POSITION.into() })
            }
            (None, at) => Ok(at.unwrap_or(0)),
            (Some(_), Some(at)) if !start.survives || start.accepts_loss => Ok(at),
            _ => Err(Error::Emptied { last_sequence: tail.last_sequence }),
        }
        .map(|at| point(at, at, start.journal.unwrap_or(start.number)));
    };
    check_type(&last, party)?;
    let end = last.end();
    // The user says that what is gone had no events.
    let says_end = !start.survives && start.at == Some(end);
    let is_sure = gone.is_none() || start.survives || says_end;
    if let Some(expected) = start.journal.filter(|number| is_sure && *number != last.ring) {
        return Err(Error::OtherJournal { expected: expected.0, found: last.ring.0 });
    }
    let at = start.at.unwrap_or(end);
    if start.survives && at != end && last.epoch != party.epoch {
        return Err(Error::WrongEpoch { ring: at, stream: end });
    }
    let loses = at > end || (gone.is_some() && !says_end);
    if loses && !start.accepts_loss {
        let acknowledged = (at > end).then(|| at - 1);
        return Err(Error::LostAcknowledged { acknowledged, found: end, gone });
    }
    // The user who names the position and the number says that no event had a later position. A
    // surviving ring cannot say so: another ring may have written what is gone (I5).
    let says = start.journal.filter(|_| start.at.is_some_and(|at| at > end));
    let ring = if loses { says.unwrap_or(start.number) } else { last.ring };
    Ok(point(end, at.max(end), ring))
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
    // If no message was appended since, the removed ones end at the acknowledged position (I3).
    let is_as_left = tail.last_sequence == begun.sequence;
    let Some((_, last)) = tail.last else {
        return if is_as_left {
            Ok(going_on(begun.acknowledged))
        } else if tail.last_sequence < begun.sequence {
            // It is another stream of the same name, or an earlier state of this one.
            let acknowledged = begun.acknowledged.checked_sub(1);
            Err(Error::LostAcknowledged { acknowledged, found: 0, gone: None })
        } else {
            Err(Error::Emptied { last_sequence: tail.last_sequence })
        };
    };
    check_type(&last, party)?;
    let (end, gone) = (last.end(), tail.gone());
    if last.ring != begun.ring {
        return Err(Error::WrongEpoch { ring: begun.acknowledged, stream: end });
    }
    if is_as_left && gone.is_some() && end == begun.acknowledged {
        return Ok(going_on(end));
    }
    let ours = last.writer == party.writer && last.epoch == party.epoch;
    if !ours && last.incarnation >= begun.incarnation {
        return Err(Error::Fenced { ours: begun.incarnation, theirs: last.incarnation });
    }
    // What is gone may have been frames of this sink whose acknowledgements are lost. A source may
    // have read them, and the next ring would use their positions if this one went on and died.
    let is_whole = ours && last.incarnation >= begun.incarnation && gone.is_none();
    if !is_whole || end < begun.acknowledged {
        let acknowledged = (end < begun.acknowledged).then(|| begun.acknowledged - 1);
        return Err(Error::LostAcknowledged { acknowledged, found: end, gone });
    }
    if end > begun.sent {
        return Err(Error::WrongEpoch { ring: begun.sent, stream: end });
    }
    // It may have begun anew, and not know it yet.
    Ok(Point { incarnation: last.incarnation, ..going_on(end) })
}

/// Returns where a sink begins anew that has up to `window` frames in flight, and would go on at
/// `point`. Once its begin messages are stored, no condition of these frames holds (I2), so it may
/// divide their events anew.
pub fn anew(point: &Point, window: u32) -> Point {
    let incarnation = point.incarnation.saturating_add(1).min(MAX_INCARNATION);
    Point { incarnation, messages: window, ..*point }
}

/// Returns whether the sink's own begin message is the stream's last one. After a lost
/// acknowledgement of that message, the sink has begun if it is.
pub fn has_begun(tail: &Tail, party: &Party, point: &Point) -> bool {
    tail.gone().is_none()
        && tail.last.is_some_and(|(_, last)| {
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
