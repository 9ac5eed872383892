//! Messages of a stream: frames, and single events that the message's headers describe.
//!
//! If a message carries a single event, a program in another language can read the event without
//! decoding a frame. The header [`DESCRIPTION`] of such a message has these values, in this order
//! and separated by blanks:
//!
//! - the layout's version (1);
//! - the journal's number, the ring's number, the incarnation, the sink's number, and the type's
//!   fingerprint;
//! - the position behind the previous message, the event's position, and the number of events (1; 0
//!   for a begin message);
//! - a CRC-32 of the payload and of the text in front of the CRC-32, without the separating blank.
//!
//! The numbers of journal, ring and sink, the fingerprint and the CRC-32 are hexadecimal. The other
//! values are decimal.
//!
//! Invariants
//! - I1: [`read`] returns a header only if the message is whole. A checksum covers the payload, and
//!   the header or the description.

use std::fmt::Write as _;

use crate::frame::{Bad, Events, Header, Id, is_hex};

/// Name of the header that describes a single event.
pub const DESCRIPTION: &str = "Slipring";
/// Name of the header with the position of a single event, for programs that need only the
/// position.
pub const POSITION: &str = "Slipring-Position";

/// Returns the description of a message whose payload is the event `payload`.
pub fn describe(header: &Header, payload: &[u8]) -> String {
    let mut line = String::with_capacity(160);
    let _ = write!(
        line,
        "1 {} {} {} {:016x} {:016x} {} {} {}",
        header.ring,
        header.epoch,
        header.incarnation,
        header.writer,
        header.fingerprint,
        header.after,
        header.first,
        header.count
    );
    let checksum = checksum(&line, payload);
    let _ = write!(line, " {checksum:08x}");
    line
}

/// Finds the description in a block of headers.
pub fn description(headers: &str) -> Option<&str> {
    headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(DESCRIPTION).then(|| value.trim())
    })
}

/// Returns a message's header and its events. `description` is the value of its header
/// [`DESCRIPTION`], if it has one.
pub fn read<'p>(description: Option<&str>, payload: &'p [u8]) -> Result<(Header, Events<'p>), Bad> {
    let Some(line) = description else {
        let (header, payload) = Header::read(payload)?;
        return Ok((header, Events::of(&header, payload)));
    };
    let damaged = Bad::Damaged("its header cannot be read");
    let (text, sum) = line.rsplit_once(' ').ok_or(damaged.clone())?;
    if !is_hex(sum, 8) || u32::from_str_radix(sum, 16) != Ok(checksum(text, payload)) {
        return Err(Bad::Damaged("its checksum does not match"));
    }
    let header = parse(text).ok_or(damaged)?;
    header.check()?;
    if header.count > 1 || (header.count == 0 && !payload.is_empty()) {
        return Err(Bad::Damaged("its payload does not have the events that it names"));
    }
    Ok((header, Events::single(payload, header.count)))
}

fn parse(text: &str) -> Option<Header> {
    let mut words = text.split(' ');
    let mut word = || words.next();
    if word()? != "1" {
        return None;
    }
    let header = Header {
        ring: word()?.parse::<Id>().ok()?,
        epoch: word()?.parse::<Id>().ok()?,
        incarnation: word()?.parse().ok()?,
        writer: u64::from_str_radix(word()?, 16).ok()?,
        fingerprint: u64::from_str_radix(word()?, 16).ok()?,
        event_size: 0,
        after: word()?.parse().ok()?,
        first: word()?.parse().ok()?,
        count: word()?.parse().ok()?,
        window: 1, // batches of single events go one by one
    };
    words.next().is_none().then_some(header)
}

fn checksum(text: &str, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(text.as_bytes());
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests;
