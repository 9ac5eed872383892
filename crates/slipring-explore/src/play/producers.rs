//! The threads that publish.
//!
//! - I1: An event's fate is noted as `acts::I1` says.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use slipring::{
    Awaited, Producer, Report,
    errors::WaitError,
    markers::{Layout, Many, Single},
    stages::PRODUCER,
};
use slipring_coherence::sync;

use super::acts::{Acts, act};
use super::answers::await_answer;
use super::consumers::{Planned, panic_as_planned};
use crate::event::{Event, Kept};
use crate::oracle::{Disruption, Log};
use crate::plan::{Answer, Verb};
use crate::watch::await_none;

/// A producer, alone or one of many.
pub enum Tx<L: Layout> {
    One(Producer<Event, L, Single>),
    Many(Producer<Event, L, Many>),
}

macro_rules! with {
    ($tx:expr, $producer:ident => $with:expr) => {
        match $tx {
            Tx::One($producer) => $with,
            Tx::Many($producer) => $with,
        }
    };
}

impl<L: Layout> Tx<L> {
    /// Returns another producer of the ring, if it can have one.
    pub fn another(&self) -> Option<Tx<L>> {
        match self {
            Tx::One(_) => None,
            Tx::Many(producer) => Some(Tx::Many(producer.clone())),
        }
    }
}

/// Does what the verbs say. Stops at the stream's end.
pub fn produce<L: Layout>(
    mut tx: Tx<L>,
    verbs: &[Verb],
    log: &Log,
    report: &dyn Fn() -> Option<Report>,
) {
    for verb in verbs {
        if let Verb::CloseAll = verb {
            if let Tx::Many(producer) = tx {
                log.disrupt(Disruption::CloseAll);
                producer.close_all();
                return;
            }
            continue;
        }
        match *verb {
            Verb::AskLast(how) => {
                return match tx {
                    Tx::One(producer) => ask_last(producer, how, log),
                    Tx::Many(producer) => ask_last(producer, how, log),
                };
            }
            Verb::DropInPanic => {
                log.fail_in_drop();
                let drops = move || {
                    let _tx = tx;
                    panic_as_planned()
                };
                let Err(payload) = catch_unwind(AssertUnwindSafe(drops));
                if !payload.is::<Planned>() {
                    resume_unwind(payload);
                }
                return;
            }
            _ => {}
        }
        if let Verb::Raw(len) = *verb {
            let (back, goes_on) = match tx {
                Tx::One(producer) => raw(producer, len, log, Tx::One),
                Tx::Many(producer) => raw(producer, len, log, Tx::Many),
            };
            tx = back;
            if !goes_on {
                return;
            }
            continue;
        }
        if !with!(&mut tx, producer => step(producer, *verb, log, report)) {
            return;
        }
    }
}

/// Does what the verbs say, except for those that need the producer itself.
pub fn produce_within(
    producer: &mut dyn Acts,
    verbs: &[Verb],
    log: &Log,
    report: &dyn Fn() -> Option<Report>,
) -> Result<(), slipring::faults::Fault> {
    let needs_itself = |verb: &&Verb| {
        !matches!(verb, Verb::Raw(_) | Verb::CloseAll | Verb::AskLast(_) | Verb::DropInPanic)
    };
    for verb in verbs.iter().filter(needs_itself) {
        if let Verb::Fail { panics } = *verb {
            log.disrupt(Disruption::Failure(PRODUCER.to_owned()));
            if panics {
                panic_as_planned()
            }
            return Err(slipring::faults::Fault::msg("as planned"));
        }
        if !step(producer, *verb, log, report) {
            break;
        }
    }
    Ok(())
}

/// Does what the verb says. When all is handled, the report has to say so, too.
fn step(
    producer: &mut dyn Acts,
    verb: Verb,
    log: &Log,
    report: &dyn Fn() -> Option<Report>,
) -> bool {
    if !act(producer, verb, log) {
        return false;
    }
    // A report takes time, in which the end of a full ring could be missed (`OrDrop`).
    if let Verb::Try(_) | Verb::Insist(_) = verb {
        let least = log.least_batches();
        if let Some(wrong) = report().and_then(|report| log.lacks(least, &report)) {
            log.violation(wrong);
        }
    }
    // Without a wait, a stage's counts may be late.
    if verb == Verb::Drain && !log.plan().is_inline() {
        // Other producers may go on meanwhile.
        let differs = || log.differs(&report()?).filter(|_| log.behind().is_none());
        if let Some(wrong) = await_none(log, differs) {
            log.violation(wrong);
        }
    }
    true
}

macro_rules! owns {
    ($($sharing:ident)*) => { $(
        impl<L: Layout> Own<L> for Producer<Event, L, $sharing> {
            fn ask_in_vain(&mut self, id: u64, kept: &Kept) -> Result<Awaited<u64>, WaitError> {
                self.ask(|event, promise| event.request_in_vain(id, promise, kept))
            }
            fn publish_raw(self, len: usize, log: &Log) -> (Self, bool) {
                let mut raw = self.into_raw();
                let len = len.min(log.plan().capacity);
                let first = loop {
                    match raw.next_n(len) {
                        Ok(first) => break first,
                        Err(error) if !log.claim_error(&error) => return (raw.into_inner(), false),
                        Err(_) => sync::spin_loop(),
                    }
                };
                for seq in (0..len as u64).map(|offset| first.wrapping_add(offset)) {
                    let id = log.begin();
                    match raw.at_mut(seq) {
                        Some(event) => event.fill(id),
                        // Its positions after a close are fewer than asked for.
                        None => {
                            log.unfilled(id);
                            break;
                        }
                    }
                    match raw.done(seq) {
                        Ok(()) => log.published(id, Some(seq)),
                        Err(error) => log.violation(format!("`done({seq})`: {error}")),
                    }
                }
                (raw.into_inner(), true)
            }
        }
    )* };
}

/// The calls of a producer that another thread of the same process has made.
trait Own<L>: Sized {
    fn ask_in_vain(&mut self, id: u64, kept: &Kept) -> Result<Awaited<u64>, WaitError>;
    /// Publishes by positions. Returns whether the stream goes on.
    fn publish_raw(self, len: usize, log: &Log) -> (Self, bool);
}
owns! { Single Many }

/// Makes a request whose promise is kept until the graph has ended, and drops the producer. The
/// asker still learns of the end.
fn ask_last<L, P: Own<L>>(mut producer: P, how: Answer, log: &Log) {
    let (id, kept) = (log.begin(), Kept::default());
    match producer.ask_in_vain(id, &kept) {
        Ok(awaited) => {
            log.published(id, None);
            drop(producer);
            await_answer(awaited, how, |answer| log.answer_in_vain(answer));
        }
        Err(error) => {
            log.unfilled(id);
            log.claim_error(&error.into());
        }
    }
}

fn raw<L: Layout, P: Own<L>>(
    producer: P,
    len: usize,
    log: &Log,
    tx: fn(P) -> Tx<L>,
) -> (Tx<L>, bool) {
    let (producer, goes_on) = producer.publish_raw(len, log);
    (tx(producer), goes_on)
}
