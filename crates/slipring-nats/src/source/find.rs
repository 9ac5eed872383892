//! Where in a stream a position is.

use crate::errors::Error;
use crate::frame::{Header, Id};
use crate::nats::api::State;
use crate::nats::{Connection, Fault};

/// The positions that a stream has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The position of the oldest event, and that behind the newest. `None`: it has no message.
    pub positions: Option<(u64, u64)>,
}

/// Returns which positions the stream has.
pub async fn extent(connection: &Connection, stream: &str) -> Result<Result<Extent, Error>, Fault> {
    let state = connection.info(stream).await?.state;
    let first = match state.messages {
        0 => None,
        _ => connection.next_from(stream, state.first_seq).await?,
    };
    let Some(first) = first else { return Ok(Ok(Extent { positions: None })) };
    let Some(last) = connection.last(stream).await? else {
        return Ok(Ok(Extent { positions: None }));
    };
    let (first, last) = match (first.header(), last.header()) {
        (Ok(first), Ok(last)) => (first, last),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
    };
    Ok(Ok(Extent { positions: Some((first.first, last.end())) }))
}

/// Returns the sequence of the first message that has something behind position `wanted`, or of the
/// next message to come, of a stream in this state. Refuses a message of another journal than
/// `journal`, and a stream that has lost its end at `until` and is wanted up to there.
pub async fn find(
    connection: &Connection,
    (stream, state): (&str, &State),
    (wanted, until): (u64, Option<u64>),
    journal: Option<Id>,
) -> Result<Result<u64, Error>, Fault> {
    if let Some(until) = until.filter(|until| *until > wanted) {
        let end = match connection.last(stream).await?.map(|last| last.header()) {
            Some(Ok(last)) => last.end(),
            Some(Err(error)) => return Ok(Err(error)),
            None if !state.has_stored => 0,
            None => return Ok(Err(Error::Emptied { last_sequence: state.last_seq })),
        };
        if end < until {
            return Ok(Err(Error::LostAcknowledged { acknowledged: until - 1, found: end }));
        }
    }
    let mut search = Search::new(wanted, state.first_seq.max(1), state.last_seq + 1);
    while let Some(from) = search.next() {
        let message = connection.next_from(stream, from).await?;
        let header = match &message {
            Some(message) => match message.header() {
                Ok(header) => Some((message.sequence, header)),
                Err(error) => return Ok(Err(error)),
            },
            None => None,
        };
        if let (Some(expected), Some((_, header))) = (journal, header)
            && let Err(error) = check_journal(expected, header.ring)
        {
            return Ok(Err(error));
        }
        search.found(from, header);
    }
    Ok(search.place())
}

/// A search by the messages' own positions, which grow with their sequences. Each message is asked
/// for as a whole, which takes milliseconds. So the search looks at the first and the last message,
/// where most sources begin, then where equally long messages would have the position, and each
/// second time in the middle.
struct Search {
    wanted: u64,
    /// Every message before it ends at `wanted` or before.
    low: u64,
    /// The messages from it on end behind `wanted`.
    high: u64,
    /// The end of a message before `low`, the last that was looked at.
    ended: Option<u64>,
    /// The message that was looked at last from `high` on.
    behind: Option<(u64, Header)>,
    looked: u32,
    /// The sequence of the next message to come.
    to_come: u64,
}

impl Search {
    fn new(wanted: u64, low: u64, to_come: u64) -> Search {
        Search { wanted, low, high: to_come, ended: None, behind: None, looked: 0, to_come }
    }

    /// Returns the sequence from which on a message is to be looked at. `None`: the search has
    /// ended.
    fn next(&mut self) -> Option<u64> {
        if self.low >= self.high {
            return None;
        }
        self.looked += 1;
        Some(match (self.looked, self.guess()) {
            (1, _) => self.low,
            (2, _) => self.high - 1,
            (looked, Some(guess)) if looked % 2 == 1 => guess,
            _ => self.low + (self.high - self.low) / 2,
        })
    }

    /// Returns where the position is if all messages between the known ones are equally long.
    fn guess(&self) -> Option<u64> {
        let (from, (sequence, behind)) = (self.ended?, self.behind?);
        let share = |whole: u64| {
            let part = u128::from(whole) * u128::from(self.wanted.checked_sub(from)?);
            u64::try_from(part.checked_div(u128::from(behind.after.checked_sub(from)?))?).ok()
        };
        Some((self.low + share(sequence - self.low)?).min(self.high - 1))
    }

    /// Notes the first message from `from` on.
    fn found(&mut self, from: u64, message: Option<(u64, Header)>) {
        match message {
            Some((sequence, header)) if header.end() <= self.wanted => {
                self.ended = Some(header.end());
                self.low = sequence + 1;
            }
            Some((sequence, header)) => {
                self.behind = Some((sequence, header));
                // The message before ends where this one begins.
                self.high = if header.after <= self.wanted { self.low } else { from };
            }
            None => self.high = from,
        }
    }

    /// Returns what the search has found.
    fn place(self) -> Result<u64, Error> {
        match (self.behind, self.ended) {
            (Some((_, header)), None) if header.after > self.wanted => {
                Err(Error::Trimmed { wanted: self.wanted, oldest: header.first })
            }
            (Some((sequence, _)), _) => Ok(sequence),
            (None, Some(end)) if end < self.wanted => {
                Err(Error::LostAcknowledged { acknowledged: self.wanted - 1, found: end })
            }
            (None, _) => Ok(self.low.max(self.to_come)),
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
