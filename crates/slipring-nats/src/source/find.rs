//! Where in a stream a position is.

use crate::errors::Error;
use crate::frame::Id;
use crate::nats::{Connection, Fault};

/// Where a source begins to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The sequence of the first message to read.
    pub sequence: u64,
    /// The position behind the stream's last event. `None`: no message tells it.
    pub end: Option<u64>,
}

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

/// Finds the first message that has something behind position `wanted`, by the messages' own
/// positions: these grow with the sequence, so a binary search over the sequences finds it. Refuses a
/// message of another journal than `journal`.
pub async fn find(
    connection: &Connection,
    stream: &str,
    wanted: u64,
    journal: Option<Id>,
) -> Result<Result<Place, Error>, Fault> {
    let state = connection.info(stream).await?.state;
    let (mut low, mut high) = (state.first_seq.max(1), state.last_seq + 1);
    // Every message before `low` ends at `wanted` or before; those from `high` on end behind it.
    let (mut behind, mut end) = (None, None);
    while low < high {
        let middle = low + (high - low) / 2;
        let Some(message) = connection.next_from(stream, middle).await? else {
            high = middle;
            continue;
        };
        let header = match message.header() {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(expected) = journal
            && let Err(error) = check_journal(expected, header.ring)
        {
            return Ok(Err(error));
        }
        if header.end() > wanted {
            behind = Some((message.sequence, header));
            high = middle;
        } else {
            end = Some(header.end());
            low = message.sequence + 1;
        }
    }
    if let Some((sequence, header)) = behind {
        if header.after > wanted && end.is_none() {
            return Ok(Err(Error::Trimmed { wanted, oldest: header.first }));
        }
        return Ok(Ok(Place { sequence, end: Some(header.end()) }));
    }
    Ok(match end {
        Some(end) if end < wanted => {
            Err(Error::LostAcknowledged { acknowledged: wanted - 1, found: end })
        }
        end => Ok(Place { sequence: low.max(state.last_seq + 1), end }),
    })
}

/// Refuses another journal than the expected one.
pub fn check_journal(expected: Id, found: Id) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::OtherJournal { expected: expected.0, found: found.0 }),
    }
}
