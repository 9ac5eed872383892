//! The search for a position in a stream.
//!
//! Invariants
//! - I1: a search returns the sequence of the first message that ends behind the wanted position,
//!   or of the next message to come.
//! - I2: a search fails if retention has removed the position, or if the message at which the
//!   search ends belongs to another journal than the expected one.

use crate::errors::Error;
use crate::frame::{Header, Id};
use crate::nats::api::StreamState;
use crate::nats::{Connection, Fault};

/// The positions, the end and the journals of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// Position of the oldest event, and the position behind the newest; `None` if the stream has
    /// no message.
    pub positions: Option<(u64, u64)>,
    /// Sequence of the last message.
    pub sequence: u64,
    /// Journal numbers of the first and the last message. They differ if a sink continued where the
    /// stream had lost its end.
    pub journals: Option<(Id, Id)>,
}

/// Returns the stream's extent.
pub async fn extent(connection: &Connection, stream: &str) -> Result<Result<Extent, Error>, Fault> {
    let state = connection.info(stream).await?.state;
    let first = match state.messages {
        0 => None,
        _ => connection.next_from(stream, state.first_seq).await?,
    };
    let Some(first) = first else { return Ok(Ok(Extent::default())) };
    let Some(last) = connection.last(stream).await? else { return Ok(Ok(Extent::default())) };
    let sequence = last.sequence;
    let (first, last) = match (first.header(), last.header()) {
        (Ok(first), Ok(last)) => (first, last),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    let (positions, journals) = (Some((first.first, last.end())), Some((first.ring, last.ring)));
    Ok(Ok(Extent { positions, sequence, journals }))
}

/// The positions that a source needs, and what the source knows about the stream.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Next position of the ring.
    pub next: u64,
    /// Position at which the source ends.
    pub until: Option<u64>,
    /// Number of the journal, if it is known.
    pub journal: Option<Id>,
    /// Greatest sequence of a message that was seen in the stream.
    pub seen: u64,
}

/// The place at which a source continues.
#[derive(Debug)]
pub struct Found {
    /// Sequence of the first message that ends behind the ring's position, or of the next message
    /// to come.
    pub sequence: u64,
    /// Error that says which messages are gone at the stream's end. In this case the source has
    /// nothing to read, and waits.
    pub doubt: Option<Error>,
}

/// Returns the place at which a source continues in the stream, whose state is `state`. Refuses a
/// message of another journal, and a stream that has fewer positions than the ring. If the source
/// was asked to stop at the stream's end, also refuses a stream that has lost its end.
pub async fn find(
    connection: &Connection,
    stream: &str,
    state: &StreamState,
    wanted: &Wanted,
) -> Result<Result<Found, Error>, Fault> {
    let is_shorter = state.last_stored() < wanted.seen;
    if wanted.until.is_some() || is_shorter {
        let last = connection.last(stream).await?;
        let last = last.map(|last| last.sequenced()).transpose();
        if let Err(error) = last.and_then(|last| wanted.check_end(state, last)) {
            return Ok(Err(error));
        }
    }
    // If a source was asked to stop at the stream's end, or knows its journal, it refuses a stream
    // that never had a message.
    let is_known = wanted.until.is_some() || wanted.journal.is_some();
    if state.last_stored() == 0 && wanted.next > 0 && is_known {
        return Ok(Err(lost(wanted.next, 0, None)));
    }
    let mut search = Search::new(wanted.next, state.first_seq.max(1), state.last_seq + 1);
    while let Some(from) = search.next() {
        let message = connection.next_from(stream, from).await?;
        match message.map(|message| message.sequenced()).transpose() {
            Ok(message) => search.found(from, message),
            Err(error) => return Ok(Err(error)),
        }
    }
    let found = search.check_journal(wanted.journal).and_then(|()| search.place());
    Ok(found.map(|found| match state.messages == 0 && state.last_stored() > 0 {
        true => Found { doubt: Some(Error::Emptied { last_sequence: state.last_seq }), ..found },
        false => found,
    }))
}

impl Wanted {
    /// Refuses a stream that has lost its end, judging by its state and its last message.
    fn check_end(&self, state: &StreamState, last: Option<(u64, Header)>) -> Result<(), Error> {
        if let (Some(expected), Some((_, last))) = (self.journal, last) {
            check_journal(expected, last.ring)?;
        }
        let needs = self.until.unwrap_or(0).max(self.next);
        let (sequence, end) = last.map_or((0, 0), |(sequence, last)| (sequence, last.end()));
        let stored = state.last_stored();
        if last.is_none() && stored > 0 && stored >= self.seen {
            // Retention may have emptied the stream after the ring got all of its events. But a
            // source that never saw the stream's end does not know whether the ring has all of
            // them.
            return match self.until.is_some_and(|until| until == 0 || until > self.next) {
                true => Err(Error::Emptied { last_sequence: stored }),
                false => Ok(()),
            };
        }
        let gone = (sequence + 1, stored.max(self.seen));
        let gone = (gone.0 <= gone.1).then_some(gone);
        match end < needs {
            true => Err(lost(needs, end, gone)),
            false if gone.is_some() => {
                Err(Error::LostAcknowledged { acknowledged: None, found: end, gone })
            }
            false => Ok(()),
        }
    }
}

/// Returns the error for the loss of positions before `needs` in a stream that ends at `found`.
fn lost(needs: u64, found: u64, gone: Option<(u64, u64)>) -> Error {
    Error::LostAcknowledged { acknowledged: needs.checked_sub(1), found, gone }
}

/// A search for the message with a position. The positions in messages grow with the messages'
/// sequences. Each probe fetches a whole message, which takes milliseconds, so there should be few.
/// The first two probes are the first and the last message, because most sources begin there. Then
/// the search alternates between two guesses: the sequence that the position would have if all
/// messages had equally many positions, and the middle of the range.
struct Search {
    /// Position that is searched for.
    wanted: u64,
    /// Every message before this sequence ends at `wanted` or before it.
    low: u64,
    /// Every message from this sequence on ends behind `wanted`.
    high: u64,
    /// Header of the last probed message that does not end behind `wanted`.
    before: Option<Header>,
    /// Sequence and header of the last probed message that ends behind `wanted`.
    behind: Option<(u64, Header)>,
    /// Number of probes.
    probes: u32,
    /// Sequence of the next message to come.
    to_come: u64,
}

impl Search {
    fn new(wanted: u64, low: u64, to_come: u64) -> Search {
        Search { wanted, low, high: to_come, before: None, behind: None, probes: 0, to_come }
    }

    /// Returns the sequence of the next probe, or `None` if the search has ended. The probe takes
    /// the first message from that sequence on.
    fn next(&mut self) -> Option<u64> {
        if self.low >= self.high {
            return None;
        }
        self.probes += 1;
        Some(match (self.probes, self.guess()) {
            (1, _) => self.low,
            (2, _) => self.high - 1,
            (probes, Some(guess)) if probes % 2 == 1 => guess,
            _ => self.low + (self.high - self.low) / 2,
        })
    }

    /// Estimates the sequence of the message with the wanted position, as if all messages between
    /// the known ones had equally many positions.
    fn guess(&self) -> Option<u64> {
        let (from, (sequence, behind)) = (self.before?.end(), self.behind?);
        let share = |whole: u64| {
            let part = u128::from(whole) * u128::from(self.wanted.checked_sub(from)?);
            u64::try_from(part.checked_div(u128::from(behind.after.checked_sub(from)?))?).ok()
        };
        Some((self.low + share(sequence - self.low)?).min(self.high - 1))
    }

    /// Records the answer to a probe: the first message from sequence `from` on.
    fn found(&mut self, from: u64, message: Option<(u64, Header)>) {
        match message {
            Some((sequence, header)) if header.end() <= self.wanted => {
                self.before = Some(header);
                self.low = sequence + 1;
            }
            Some((sequence, header)) => {
                self.behind = Some((sequence, header));
                // The previous message ends where this one begins.
                self.high = if header.after <= self.wanted { self.low } else { from };
            }
            None => self.high = from,
        }
    }

    /// Checks the journal of the found message, or of the last message if none was found.
    fn check_journal(&self, expected: Option<Id>) -> Result<(), Error> {
        let found = self.behind.map(|(_, header)| header).or(self.before);
        match (expected, found) {
            (Some(expected), Some(found)) => check_journal(expected, found.ring),
            _ => Ok(()),
        }
    }

    /// Returns the result of the search.
    fn place(self) -> Result<Found, Error> {
        let sequence = self.low.max(self.to_come);
        match (self.behind, self.before.map(|header| header.end())) {
            (Some((_, header)), None) if header.after > self.wanted => {
                Err(Error::Trimmed { wanted: self.wanted, oldest: header.first })
            }
            (Some((sequence, _)), _) => Ok(Found { sequence, doubt: None }),
            (None, Some(found)) => {
                let gone = (self.low < self.to_come).then_some((self.low, self.to_come - 1));
                if found < self.wanted {
                    return Err(lost(self.wanted, found, gone));
                }
                let lost = |gone| Error::LostAcknowledged { acknowledged: None, found, gone };
                Ok(Found { sequence, doubt: gone.map(|gone| lost(Some(gone))) })
            }
            (None, None) => Ok(Found { sequence, doubt: None }),
        }
    }
}

/// Refuses another journal than the expected one.
pub fn check_journal(expected: Id, found: Id) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::OtherJournal { expected: expected.0, found: found.0 }),
    }
}

#[cfg(test)]
mod tests;
