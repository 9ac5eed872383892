//! The contents of segments as plain data, and the calls that they have.

use serde::{Deserialize, Serialize};
use slipring::segment::CELL;
use slipring_coherence::Dice;

use crate::bytes::Block;
use crate::plan::{By, Drive, Kind, Quirk, Verb};

/// Kind of the events in a segment's slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Content {
    /// Events of one type, which handles lend.
    #[default]
    Events,
    /// The same events, which handles copy in and out.
    Copies {
        /// Whether every other process lends them all the same.
        mixed: bool,
    },
    /// Blocks of some bytes, which begin with the parts of an event.
    Blocks {
        /// Size of a block, in bytes.
        size: usize,
        /// Whether each block lies behind its stamp.
        inside: bool,
    },
    /// Messages.
    Messages {
        /// Their lengths in bytes, in turn. The longest that the ring takes stands for all longer
        /// ones.
        lengths: Vec<usize>,
        /// By how many bytes a message is too long that each producer tries before each action; 0:
        /// none tries.
        excess: usize,
    },
}

impl Content {
    /// Returns a random content, which is not plain events.
    pub fn random(dice: &mut Dice) -> Content {
        match dice.below(8) {
            0..2 => Content::Copies { mixed: dice.one_in(2) },
            2..4 => {
                let size = Block::PARTS + 8 * dice.below(5) as usize;
                Content::Blocks { size, inside: dice.one_in(2) }
            }
            _ => {
                let count = 1 + dice.below(4);
                let excess = if dice.one_in(4) { dice.pick(&[1, 64]) } else { 0 };
                let lengths = (0..count).map(|_| length(dice)).collect();
                Content::Messages { lengths, excess }
            }
        }
    }

    /// Whether each event takes some slots, whose number depends on its length.
    pub fn has_lengths(&self) -> bool {
        matches!(self, Content::Messages { .. })
    }

    /// Returns the kinds of stages that are possible.
    pub fn kinds(&self) -> &'static [Kind] {
        match self {
            Content::Messages { .. } => &[Kind::Reader, Kind::Reader, Kind::Tap],
            _ => &[
                Kind::Reader,
                Kind::Reader,
                Kind::Writer,
                Kind::PoolReader,
                Kind::PoolWriter,
                Kind::ShardReader,
                Kind::ShardWriter,
                Kind::Tap,
            ],
        }
    }

    /// Returns contents that show the same in a simpler way, if any does.
    pub fn smaller(&self) -> Vec<Content> {
        match self {
            Content::Events => Vec::new(),
            Content::Copies { .. } => vec![Content::Events, Content::Copies { mixed: false }],
            Content::Blocks { size, .. } => {
                let blocks =
                    |least: usize| Content::Blocks { size: least.min(*size), inside: false };
                vec![Content::Events, blocks(Block::PARTS), blocks(Block::PARTS + 8)]
            }
            Content::Messages { lengths, excess } => {
                let messages = |lengths| Content::Messages { lengths, excess: *excess };
                let mut all = vec![Content::Messages { lengths: lengths.clone(), excess: 0 }];
                for (number, length) in lengths.iter().enumerate() {
                    let without = [&lengths[..number], &lengths[number + 1..]].concat();
                    all.extend((!without.is_empty()).then(|| messages(without)));
                    // The longest of all may matter as such.
                    for shorter in [0, CELL, length / 2] {
                        let mut lengths = lengths.clone();
                        lengths[number] = shorter.min(*length);
                        all.push(messages(lengths));
                    }
                }
                all
            }
        }
    }

    /// Gives a handle calls that it has.
    pub fn fit_drive(&self, drive: &mut Drive) {
        let quirk = drive.quirk.as_mut().map(|(_, quirk)| quirk);
        match self {
            Content::Events => return,
            Content::Copies { .. } => {
                // A copy is released by the next call at the latest.
                if let Some(quirk @ Quirk::DropBatch) = quirk {
                    *quirk = Quirk::ReleaseFront;
                }
            }
            Content::Blocks { .. } => {}
            Content::Messages { .. } => {
                if let Some(quirk @ Quirk::ReleaseFront) = quirk {
                    *quirk = Quirk::DropBatch;
                }
            }
        }
        drive.by = match drive.by {
            By::Raw if matches!(self, Content::Blocks { .. }) => By::Raw,
            By::Raw => By::Try,
            By::Select => By::Poll,
            By::Task(_) => By::Batch,
            by => by,
        };
    }

    /// Gives a producer calls that it has.
    pub fn fit_verbs(&self, verbs: &mut Vec<Verb>) {
        match self {
            Content::Events => {}
            Content::Copies { .. } => verbs.iter_mut().for_each(without_tasks),
            Content::Blocks { .. } => {
                verbs.retain(|verb| *verb != Verb::CloseAll);
                for verb in verbs {
                    match *verb {
                        Verb::Task(times, _) => *verb = Verb::Raw(times as usize),
                        _ => without_tasks(verb),
                    }
                }
            }
            Content::Messages { .. } => {
                verbs.retain(|verb| *verb != Verb::CloseAll);
                verbs.iter_mut().for_each(without_tasks);
            }
        }
    }
}

/// Puts a call in the place of one that only events have.
fn without_tasks(verb: &mut Verb) {
    *verb = match *verb {
        Verb::Task(times, _) | Verb::Conflate(_, times) => Verb::Try(times),
        verb => verb,
    };
}

/// Returns the length of a message: none, those around the ends of cells, all that fits, or any.
fn length(dice: &mut Dice) -> usize {
    let cells = 1 + dice.below(4) as usize;
    match dice.below(6) {
        0 => dice.pick(&[0, 0, 1]),
        1 => cells * CELL - 8,
        2 => cells * CELL - 7,
        3 => dice.pick(&[usize::MAX, 4 * CELL]),
        _ => dice.below(5 * CELL as u64) as usize,
    }
}
