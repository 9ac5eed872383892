//! The messages of the sinks, and the steps between two states of the model.

use std::fmt;

use super::super::scenario::Model;
use crate::frame::{Header, Id};
use crate::resume::{Party, Point};

/// A message: a begin message if `count` is 0, a frame otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in super::super) struct Message {
    /// Sequence that the message's condition names.
    pub(super) expected: u8,
    /// Number of messages that this message stands for in the stream: [`Point::messages`] for a
    /// begin message.
    pub(super) messages: u8,
    pub(super) ring: u8,
    pub(super) epoch: u8,
    pub(super) incarnation: u8,
    pub(super) writer: u8,
    pub(super) after: u8,
    pub(super) first: u8,
    pub(super) count: u8,
}

impl Message {
    /// Returns the position behind the last event.
    pub(super) fn end(&self) -> u8 {
        self.first + self.count
    }

    pub(super) fn begins(&self) -> bool {
        self.count == 0
    }

    pub(super) fn header(&self, model: &Model) -> Header {
        Header {
            ring: id(self.ring),
            epoch: id(self.epoch),
            incarnation: self.incarnation.into(),
            writer: self.writer.into(),
            fingerprint: 0,
            event_size: 8,
            after: self.after.into(),
            first: self.first.into(),
            count: self.count.into(),
            window: model.windows[usize::from(self.writer)],
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name(self.writer.into());
        match self.count {
            0 => write!(f, "{name}'s begin message at {}", self.after),
            _ => write!(f, "{name}'s frame {}..{}", self.first, self.end()),
        }
    }
}

/// Returns a begin message, or a frame that has no events yet.
pub(super) fn message(party: &Party, point: &Point, expected: u8) -> Message {
    Message {
        expected,
        messages: point.messages as u8,
        ring: point.ring.0[0],
        epoch: party.epoch.0[0],
        incarnation: point.incarnation as u8,
        writer: party.writer as u8,
        after: point.after as u8,
        first: point.next as u8,
        count: 0,
    }
}

/// A step from one state to the next.
#[derive(Clone, Copy)]
pub(in super::super) enum Step {
    Starts {
        sink: usize,
    },
    Delivered {
        message: Message,
        held: bool,
        verdict: Verdict,
    },
    Acknowledged {
        sink: usize,
    },
    Refused {
        sink: usize,
    },
    TimesOut {
        sink: usize,
        recognized: bool,
    },
    WindowPasses,
    /// The stream's messages behind the first `left` are removed.
    Removed {
        left: u8,
    },
    /// A sink that has asked for the stream's end begins anew, in order to divide its frames.
    BeginsAnew {
        sink: usize,
    },
}

/// The server's decision about a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Verdict {
    Stored,
    Refused,
    /// The server knows the message's id, and reports it as stored.
    Duplicate,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Step::Starts { sink } => write!(f, "{} starts", name(sink)),
            Step::Delivered { message, held, verdict } => {
                let verb = match verdict {
                    Verdict::Stored => "stored",
                    Verdict::Refused => "refused",
                    Verdict::Duplicate => "taken for a duplicate",
                };
                write!(f, "{}{message} is {verb}", if held { "held-back " } else { "" })
            }
            Step::Acknowledged { sink } => write!(f, "{} gets an ack", name(sink)),
            Step::Refused { sink } => write!(f, "{} gets a refusal and asks", name(sink)),
            Step::TimesOut { sink, .. } => write!(f, "{} times out and asks", name(sink)),
            Step::WindowPasses => f.write_str("the duplicate window passes"),
            Step::BeginsAnew { sink } => write!(f, "{} asks and begins anew", name(sink)),
            Step::Removed { left: 0 } => f.write_str("all messages are removed"),
            Step::Removed { left } => write!(f, "the messages behind sequence {left} are removed"),
        }
    }
}

pub(super) fn id(number: u8) -> Id {
    Id([number; 16])
}

pub(super) fn name(sink: usize) -> &'static str {
    ["A", "B"][sink]
}
