//! The oracle, which knows what the engine promises.
//!
//! Invariants
//! - I1: no event is lost. A sink releases only positions whose events are stored, and a source
//!   leaves out only positions without events.
//! - I2: no event is stored twice, and under one number of the journal a position has one event.
//! - I3: order is kept. Each message follows the stream's last one, and behind a begin message only
//!   its sink stores events, until another sink begins.
//! - I4: an end has a reason: an error is one that the steps of the run can cause.

use std::collections::{BTreeMap, BTreeSet};

use super::ring::lock;
use crate::errors::Error;
use crate::frame::{Header, Id};

/// The history of a run.
#[derive(Default)]
pub struct Oracle {
    published: BTreeMap<(Id, u64), u64>,
    /// Events that were ever stored, with the rings that they come from, by journal and position.
    stored: BTreeMap<(Id, u64), (Id, u64)>,
    /// Positions of each ring that were ever stored.
    kept: BTreeSet<(Id, u64)>,
    /// Whether messages were removed at the stream's end.
    pub removed: bool,
    /// Whether a message was removed in front of the last one.
    pub holed: bool,
    /// The first broken promise.
    pub broken: Option<String>,
}

/// A sink or a source that has ended.
pub struct End<'a> {
    pub error: Option<&'a Error>,
    /// Whether a sink of another ring may have taken the stream over.
    pub is_followed: bool,
    /// Whether the sink took the place of another one at a ring.
    pub survives: bool,
}

impl Oracle {
    pub fn breaks(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    /// Records an event of a ring, and returns it.
    pub fn published(&mut self, epoch: Id, seq: u64) -> u64 {
        let event = fastrand::Rng::with_seed(
            u64::from_le_bytes(epoch.0[..8].try_into().unwrap_or_default()) ^ seq,
        )
        .u64(..);
        self.published.insert((epoch, seq), event);
        event
    }

    /// Records a message of the stream. `before` is the stream's last message until now, if it
    /// still has it.
    pub fn stored(&mut self, header: &Header, events: &[u64], before: Option<&Header>) {
        for (seq, event) in (header.first..).zip(events) {
            match self.published.get(&(header.epoch, seq)) {
                Some(published) if published == event => {}
                Some(_) => self.breaks(format!("position {seq} has another event than its ring")),
                None => self.breaks(format!("position {seq} has an event that no ring had")),
            }
            let event = (header.epoch, *event);
            match self.stored.insert((header.ring, seq), event) {
                None => {}
                Some(earlier) if earlier == event && self.removed => {}
                Some(earlier) if earlier == event => {
                    self.breaks(format!("position {seq} is stored twice"));
                }
                Some(_) => self.breaks(format!("position {seq} has two events in one journal")),
            }
            self.kept.insert((header.epoch, seq));
        }
        let Some(before) = before else { return };
        if header.after != before.end() {
            let (end, after) = (before.end(), header.after);
            self.breaks(format!("a message that follows position {after} is stored behind {end}"));
        }
        let same = header.writer == before.writer && header.incarnation == before.incarnation;
        if header.count > 0 && !same {
            self.breaks(format!("position {} is stored behind another sink's begin", header.first));
        }
        if header.writer != before.writer && header.incarnation <= before.incarnation {
            self.breaks(format!("two sinks have the incarnation {}", header.incarnation));
        }
    }

    /// A sink has released the positions from `from` to `end`.
    pub fn released(&mut self, epoch: Id, from: u64, end: u64) {
        let published = self.published.range((epoch, from)..(epoch, end.max(from)));
        let lost = published.map(|(place, _)| *place).find(|place| !self.kept.contains(place));
        if let Some((_, seq)) = lost {
            self.breaks(format!("position {seq} was released, and is not stored"));
        }
    }

    /// A source has filled a position.
    pub fn filled(&mut self, seq: u64, event: u64) {
        let is_stored =
            self.stored.iter().any(|((_, at), (_, stored))| *at == seq && *stored == event);
        if !is_stored {
            self.breaks(format!(
                "the source's position {seq} has an event that the stream had not"
            ));
        }
    }

    /// A source has left out positions.
    pub fn skipped(&mut self, first: u64, len: u64) {
        let lost = |seq: &u64| self.stored.keys().any(|(_, at)| at == seq);
        if let Some(seq) = (first..first + len).find(lost)
            && !self.removed
        {
            self.breaks(format!("the source left out position {seq}, which has an event"));
        }
    }

    /// The sink of the ring `epoch` has ended.
    pub fn sink_ended(&mut self, epoch: Id, end: &End<'_>) {
        let is_right = match end.error {
            None => {
                let published = self.published.range((epoch, 0)..=(epoch, u64::MAX));
                let mut lost = published.filter(|(place, _)| !self.kept.contains(place));
                if let Some(((_, seq), _)) = lost.next() {
                    let seq = *seq;
                    self.breaks(format!("a sink ended well, and position {seq} is not stored"));
                }
                true
            }
            Some(Error::Fenced { ours, theirs }) => end.is_followed && theirs >= ours,
            Some(Error::WrongEpoch { .. }) => self.removed || (end.survives && end.is_followed),
            Some(Error::LostAcknowledged { .. } | Error::Emptied { .. }) => self.removed,
            // A sink that does not notice the loss may have stored its next message behind it.
            Some(Error::Gap { .. }) => self.holed || self.removed,
            // Each event fits into the smallest message that the stream allows.
            Some(_) => false,
        };
        if let Some(error) = end.error.filter(|_| !is_right) {
            self.breaks(format!("a sink ended without a reason: {error}"));
        }
    }

    /// A source has ended with an error.
    pub fn source_failed(&mut self, error: &Error) {
        let is_right = match error {
            Error::Gap { .. } | Error::Trimmed { .. } if self.holed => true,
            Error::OtherJournal { .. }
            | Error::LostAcknowledged { .. }
            | Error::Emptied { .. }
            | Error::Trimmed { .. }
            | Error::Gap { .. } => self.removed,
            _ => false,
        };
        if !is_right {
            self.breaks(format!("a source ended without a reason: {error}"));
        }
    }
}

/// Returns the first broken promise.
pub fn broken(oracle: &std::sync::Mutex<Oracle>) -> Option<String> {
    lock(oracle).broken.clone()
}
