//! The resume rule: where a sink continues after any doubt.
//!
//! A sink is in doubt when it starts, and after a disconnect, a time-out, a missing or unordered
//! acknowledgement, or a refused condition. It then stops publishing, asks the engine for the end
//! of the stream, and continues as [`begin`] or [`resume`] decides. Both functions are pure, so
//! that the model (`resume/model.rs`) explores exactly the decisions that sinks make.
//!
//! Invariants
//! - I1: each append is conditional on the stream's last sequence. If other messages are still in
//!   flight, the condition names the sequence that the sink predicts for the last of them.
//! - I2: a sink appends events only behind its own begin messages. In one atomic batch, it sends as
//!   many of them as the previous sink may have messages in flight. Their last sequence is then
//!   behind every sequence that the previous sink has predicted, which makes all of its conditions
//!   false. A single begin message would not: it could itself take a sequence that a condition
//!   names.
//! - I3: a sink continues at the end of the stream's last message, and never at a position that it
//!   has recorded itself. Its own records only decide which error it ends with. There is one
//!   exception: if the stream's last sequence is still the one of the last acknowledgement, the
//!   sink knows where the stream ended, even if messages were removed since.
//! - I4: a stream has lost its end if its last message has a lower sequence than the stream's last
//!   one. No record shows which messages are lost: another sink may have written events, and may be
//!   alive. A sink that begins behind such a loss therefore sends as many begin messages as any
//!   sink may have in flight, and takes an incarnation that is higher than any of the lost messages
//!   can have had.
//! - I5: under one number of the journal, a position has one event. A ring that cannot tell which
//!   positions had events begins under another number. It draws a new number for each attempt: if
//!   the answer to an attempt was lost, its begin message may be stored, and others may have
//!   written under its number.

use std::time::Duration;

use tokio::time::Instant;

use crate::errors::Error;
use crate::frame::{Header, Id, MAX_INCARNATION, MAX_WINDOW};

/// Number of consecutive reports of a loss that do not count. They are excused because a server
/// that has just started may report fewer messages than it has.
const EXCUSED_LOSSES: u32 = 8;
/// Time for which reports of a loss do not count in a cluster. A leader that is cut off from the
/// other servers does not notice at once, and keeps answering from its old state: nats-server
/// 2.15.1 does so for 6 to 8 s. Meanwhile the client moves to another server. The time is shorter
/// than the limit of a takeover.
const EXCUSED_TIME: Duration = Duration::from_secs(12);
/// Text of the error if a journal's number is given without a position, and the stream is unused.
const NO_POSITION: &str = "an unused stream does not say where the journal goes on: name the \
                           position, too (Sink::resume_at), or no journal";

/// The consecutive answers that report a loss of the stream.
#[derive(Default)]
pub struct Losses {
    number: u32,
    since: Option<Instant>,
}

impl Losses {
    /// Records that the server's last answer caused `error`. Returns whether the caller should ask
    /// again: an error that reports a loss may be wrong, because the server may not have the whole
    /// stream yet.
    pub fn excuse(&mut self, error: &Error, in_cluster: bool) -> bool {
        let tells_loss = match error {
            Error::LostAcknowledged { .. } | Error::Emptied { .. } | Error::NoStream { .. } => true,
            Error::WrongEpoch { ring, stream } => ring > stream,
            _ => false,
        };
        tells_loss && !self.are_sure(in_cluster)
    }

    /// Returns whether the last answer reported a loss.
    pub fn are_told(&self) -> bool {
        self.number > 0
    }

    /// Records a loss. Returns whether it counts.
    fn are_sure(&mut self, in_cluster: bool) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        self.number += 1;
        self.number > EXCUSED_LOSSES && (!in_cluster || since.elapsed() >= EXCUSED_TIME)
    }
}

/// The end of the stream, according to its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tail {
    /// Sequence of the last message that the stream ever had; 0 if it had none.
    pub last_sequence: u64,
    /// Header and sequence of the last message that the stream still has.
    pub last: Option<(u64, Header)>,
}

impl Tail {
    /// Returns the first and the last sequence of the messages that are gone at the stream's end
    /// (I4). In an emptied stream, these are all sequences up to the last one.
    pub fn gone(&self) -> Option<(u64, u64)> {
        let first = self.last.map_or(0, |(sequence, _)| sequence) + 1;
        (first <= self.last_sequence).then_some((first, self.last_sequence))
    }
}

/// The identity of a sink, as far as its decisions depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Party {
    /// Number of the ring.
    pub epoch: Id,
    /// Random number of the sink.
    pub writer: u64,
    /// Fingerprint of the events' type.
    pub fingerprint: u64,
}

/// The facts about the ring, and the user's choices, with which a sink starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// Whether the ring exists already. If not, it is made afterwards, and begins at the position
    /// that the sink returns.
    pub survives: bool,
    /// First position that a surviving ring has not released, or the position of
    /// [`Sink::resume_at`](crate::Sink::resume_at).
    pub at: Option<u64>,
    /// Whether the sink continues if the stream has lost acknowledged positions
    /// ([`Sink::accept_loss`](crate::Sink::accept_loss)).
    pub accepts_loss: bool,
    /// Number of the journal that the user expects ([`Sink::journal`](crate::Sink::journal)).
    pub journal: Option<Id>,
    /// Number for a journal that begins here: a random one for each attempt (I5).
    pub number: Id,
}

/// The point at which a sink continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point {
    /// Sequence that the next message expects.
    pub expected: u64,
    /// Position behind the stream's last event.
    pub after: u64,
    /// Position of the next event.
    pub next: u64,
    /// Number of the journal.
    pub ring: Id,
    /// Incarnation of the sink.
    pub incarnation: u64,
    /// Number of begin messages that the sink must send first (I2).
    pub messages: u32,
}

/// Returns the point at which a new sink begins. The sink first appends messages without events, of
/// the next incarnation.
pub fn begin(tail: &Tail, party: &Party, start: &Start) -> Result<Point, Error> {
    let gone = tail.gone();
    let number = gone.map_or(0, |(first, last)| last - first + 1);
    let known = tail.last.map(|(_, header)| header);
    let messages = match (gone, known) {
        (Some(_), _) => MAX_WINDOW, // I4
        (None, Some(last)) => twin!("begin-alone": last.window.max(1) => 1),
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
            // An earlier stream of the same name may have had events under this journal number
            // (I5).
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
    // The user declares that the lost messages had no events.
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
    // A user who names the position and the number declares that no event had a later position. A
    // surviving ring cannot know that: another ring may have written the lost messages (I5).
    let says = start.journal.filter(|_| start.at.is_some_and(|at| at > end));
    let ring = if twin!("lost-journal-kept": loses => false) {
        says.unwrap_or(start.number)
    } else {
        last.ring
    };
    Ok(point(end, at.max(end), ring))
}

/// The facts that a sink keeps about itself once it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Begun {
    /// Number of the journal that the sink writes.
    pub ring: Id,
    /// Incarnation of the sink.
    pub incarnation: u64,
    /// Position behind the last acknowledged event.
    pub acknowledged: u64,
    /// Position behind the last event that was sent.
    pub sent: u64,
    /// Last sequence of the stream at the time when the stream ended at `acknowledged`.
    pub sequence: u64,
}

/// Returns the point at which a sink continues after its begin messages were acknowledged.
pub fn resume(tail: &Tail, party: &Party, begun: &Begun) -> Result<Point, Error> {
    let going_on = |next| Point {
        expected: tail.last_sequence,
        after: next,
        next,
        ring: begun.ring,
        incarnation: begun.incarnation,
        messages: 0,
    };
    // If nothing was appended since the last acknowledgement, the stream ended at the acknowledged
    // position, even if messages were removed (I3).
    let is_as_left = tail.last_sequence == begun.sequence;
    let Some((_, last)) = tail.last else {
        return if is_as_left {
            Ok(going_on(begun.acknowledged))
        } else if tail.last_sequence < begun.sequence {
            // The answer is about another stream of the same name, or about an earlier state of the
            // same stream.
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
    let fenced = twin!("fence-ignored": !ours => false) && last.incarnation >= begun.incarnation;
    if fenced {
        return Err(Error::Fenced { ours: begun.incarnation, theirs: last.incarnation });
    }
    // The lost messages may have been frames of this sink whose acknowledgements are lost as well.
    // A source may have read them. If this sink continued and its ring died, the next ring would
    // give their positions to other events.
    let is_whole = ours && last.incarnation >= begun.incarnation && gone.is_none();
    if twin!("loss-ignored": !is_whole => false) || end < begun.acknowledged {
        let acknowledged = (end < begun.acknowledged).then(|| begun.acknowledged - 1);
        return Err(Error::LostAcknowledged { acknowledged, found: end, gone });
    }
    if end > begun.sent {
        return Err(Error::WrongEpoch { ring: begun.sent, stream: end });
    }
    // The sink may have begun anew without knowing it yet.
    Ok(Point { incarnation: last.incarnation, ..going_on(end) })
}

/// Returns the point at which a sink begins anew instead of continuing at `point`. The sink has up
/// to `window` frames in flight. Once its begin messages are stored, no condition of these frames
/// holds (I2), so the sink may divide their events in another way.
pub fn anew(point: &Point, window: u32) -> Point {
    let incarnation = point.incarnation.saturating_add(1).min(MAX_INCARNATION);
    Point { incarnation, messages: window, ..*point }
}

/// Returns whether the stream's last message is the sink's own begin message. If so, a sink that
/// did not get the acknowledgement of that message has begun nevertheless.
/// An earlier attempt may have named another journal (I5): if its begin message came late and is
/// stored, the sink begins once more, in that journal.
pub fn has_begun(tail: &Tail, party: &Party, point: &Point) -> bool {
    tail.gone().is_none()
        && tail.last.is_some_and(|(_, last)| {
            let is_ours = last.writer == party.writer && last.ring == point.ring;
            is_ours && last.incarnation == point.incarnation && last.count == 0
        })
}

/// Refuses events of another type.
fn check_type(last: &Header, party: &Party) -> Result<(), Error> {
    if last.fingerprint == party.fingerprint {
        Ok(())
    } else {
        Err(Error::WrongType { ours: party.fingerprint, theirs: last.fingerprint })
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
