//! Handles of messages.

use std::cell::Cell;
use std::sync::Arc;

use slipring::segment::{
    CELL, Delivery, Message, MessageConsumer, MessageError, MessageProducer, Seated, Sharing,
};
use slipring::{
    errors::{BatchError, ClaimError, WaitError},
    markers::Joined,
};
use slipring_coherence::sync;

use super::acts::settle;
use super::handles::{Ask, Finish, Handle, See, positions};
use super::plain::{Patience, Puts};
use crate::bytes::{self, Text, fill};
use crate::oracle::Log;
use crate::plan::Fate;

/// Size of a message's header, in bytes.
const HEADER: usize = 8;

/// The lengths of a segment's messages.
#[derive(Clone)]
pub struct Lengths {
    lengths: Arc<[usize]>,
    /// Length of the longest message that the ring takes.
    most: usize,
    /// By how much a message is too long.
    excess: usize,
}

impl Lengths {
    pub fn new(lengths: &[usize], excess: usize, capacity: usize) -> Lengths {
        Lengths { lengths: lengths.into(), most: capacity * CELL - HEADER, excess }
    }

    /// The length of the message with an identity.
    fn of(&self, id: u64) -> usize {
        let number = (id as usize).checked_rem(self.lengths.len());
        number.map_or(0, |number| self.lengths[number].min(self.most))
    }

    /// Shows a message to the oracle.
    fn show(&self, message: &Message<'_>, see: See<'_>) {
        let len = self.of(message.kind.into());
        see(message.seq, &Text::new(message.kind, message.bytes, len));
    }
}

/// The call by which a handle tells of messages that come again.
pub trait Again: Delivery + Sized {
    fn again(_: &MessageConsumer<Self>) -> (u64, usize) {
        (0, 0)
    }
}

impl Again for Seated {
    fn again(handle: &MessageConsumer<Seated>) -> (u64, usize) {
        positions(handle.redelivered())
    }
}

impl Again for Joined {}

/// A consumer of messages.
pub struct MessageHandle<C: Delivery> {
    pub handle: MessageConsumer<C>,
    pub lengths: Lengths,
}

impl<C: Again> Handle for MessageHandle<C>
where
    MessageConsumer<C>: Send,
{
    fn redelivered(&self) -> (u64, usize) {
        C::again(&self.handle)
    }

    fn poll(&mut self, _max: usize, see: See<'_>) -> Result<usize, WaitError> {
        let lengths = &self.lengths;
        let handled = self.handle.poll(|message| lengths.show(&message, see));
        handled.map(|handled| handled as usize)
    }

    fn for_each(&mut self, see: See<'_>) -> Result<u64, WaitError> {
        let lengths = &self.lengths;
        self.handle.for_each(|message| lengths.show(&message, see))
    }

    #[allow(
        clippy::drop_non_drop,
        clippy::forget_non_drop,
        reason = "a batch's end is the subject"
    )]
    fn batch(
        &mut self,
        ask: Ask,
        _max: usize,
        finish: Finish,
        _: &Cell<(u64, usize)>,
        see: See<'_>,
    ) -> Result<usize, BatchError> {
        let batch = match ask {
            Ask::Wait | Ask::Task(_) => self.handle.batch()?,
            Ask::Try => self.handle.try_batch()?,
            Ask::For(time) => self.handle.batch_by(sync::now() + time)?,
        };
        let mut count = 0;
        for message in batch.iter() {
            self.lengths.show(&message, see);
            count += 1;
        }
        assert_ne!(count, 0, "a batch has a message");
        match finish {
            Finish::Drop => drop(batch),
            Finish::Forget => std::mem::forget(batch),
            Finish::All | Finish::FrontFirst | Finish::Hold => batch.release(),
        }
        Ok(count)
    }
}

/// A producer of messages.
pub struct MessagePuts<S: Sharing> {
    pub producer: MessageProducer<S>,
    pub lengths: Lengths,
}

/// Returns the error of a message that fits.
fn fits<T>(log: &Log, done: Result<T, MessageError>) -> Result<T, ClaimError> {
    done.map_err(|error| match error {
        MessageError::Claim(error) => error,
        other => {
            log.violation(format!("a message that fits: {other}"));
            ClaimError::Wait(WaitError::Closed)
        }
    })
}

impl<S: Sharing> Puts for MessagePuts<S> {
    fn capacity(&self) -> usize {
        (self.lengths.most + HEADER) / CELL
    }

    fn put_by(&mut self, log: &Log, id: u64, patience: Patience) -> Result<u64, ClaimError> {
        let (kind, bytes) = (id as u32, bytes::of(id, self.lengths.of(id)));
        let done = match patience {
            Patience::Wait => self.producer.publish(kind, &bytes),
            Patience::Try => self.producer.try_publish(kind, &bytes),
            Patience::Until(deadline) => self.producer.publish_by(deadline, kind, &bytes),
        };
        let done = fits(log, done);
        settle(log, id, false, &done, |seq| *seq);
        done
    }

    fn claim(&mut self, log: &Log, _len: usize, fate: Fate) -> Result<(), ClaimError> {
        let id = log.begin();
        let mut claim = match fits(log, self.producer.claim(self.lengths.of(id))) {
            Ok(claim) => claim,
            Err(error) => {
                log.unfilled(id);
                return Err(error);
            }
        };
        fill(&mut claim, id);
        if fate != Fate::Publish {
            log.given_up(id);
        }
        match fate {
            Fate::Publish => {
                let seq = claim.publish(id as u32);
                log.published(id, Some(seq));
            }
            Fate::Drop => drop(claim),
            Fate::Forget => std::mem::forget(claim),
        }
        Ok(())
    }

    fn be_refused(&mut self, log: &Log) {
        let Lengths { most, excess, .. } = self.lengths;
        if excess == 0 {
            return;
        }
        let told = self.producer.max_len();
        let refused = self.producer.claim(most + excess).map(drop);
        match refused {
            Err(MessageError::TooLong { bytes, most: limit })
                if bytes == most + excess && limit == most && told == most => {}
            other => log.violation(format!(
                "a message of {} bytes in a ring that takes {most} ({told}): {other:?}",
                most + excess
            )),
        }
    }
}
