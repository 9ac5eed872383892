//! The calls of a producer of any kind.
//!
//! - I1: An event's fate is noted after the call that decides it, and before the producer's next
//!   call. Until then it is open: a stage may see it or not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use slipring::segment::{Apart, SegmentProducer};
use slipring::{
    Awaited, Conflator, Producer,
    errors::{AwaitError, ClaimError, ConflateError, WaitError},
    handles::{Inline, Sent},
    markers::{Interleaved, Layout, Many, Single},
    stages::PRODUCER,
    tasks::Selector,
};
use slipring_coherence::sync;

use super::answers::await_answer;
use super::consumers::{Planned, panic_as_planned};
use super::handles::poll_some;
use crate::event::{Event, Kept, Parts};
use crate::oracle::deaths::{Told, pause_after};
use crate::oracle::{Disruption, Log};
use crate::plan::{Answer, Fate, Room, Verb};
use crate::watch::{await_none, await_none_at_end};

/// The calls of a producer, of any kind.
pub trait Acts {
    fn act(&mut self, verb: Verb, log: &Log) -> Result<(), ClaimError>;
    /// Publishes one event. Returns its identity and its position.
    fn put(&mut self, log: &Log) -> Result<(u64, u64), WaitError>;
    /// Closes the ring for all producers, if it is one of several that can.
    fn close_all(self: Box<Self>) {}
}

/// Does what the verb says, except for those that need the producer itself. Returns whether the
/// stream goes on.
pub fn act(producer: &mut dyn Acts, verb: Verb, log: &Log) -> bool {
    loop {
        match producer.act(verb, log) {
            Ok(()) => return true,
            Err(error) if !log.claim_error(&error) => return false,
            Err(ClaimError::Wait(error)) => pause_after(&error),
            // Full for now, or too late.
            Err(_) => sync::spin_loop(),
        }
    }
}

/// Notes the fates of events that a call has published at once, from a position on, or not.
pub fn settle_all<X>(log: &Log, ids: &[u64], result: &Result<u64, X>) {
    for (offset, id) in ids.iter().enumerate() {
        settle(log, *id, false, result, |first| first.wrapping_add(offset as u64));
    }
}

/// Notes the fate of one event that a call has filled, or not.
pub fn settle<T, X>(
    log: &Log,
    id: u64,
    filled: bool,
    result: &Result<T, X>,
    seq: impl Fn(&T) -> u64,
) {
    match result {
        Ok(value) => log.published(id, Some(seq(value))),
        Err(_) if filled => log.violation(format!("event {id:x} was filled by a call that failed")),
        Err(_) => log.unfilled(id),
    }
}

/// Notes the fate of a request, and awaits its answer. Returns whether it was published: the call
/// may have come too late.
fn asked(
    log: &Log,
    (id, filled): (u64, bool),
    done: Result<Awaited<u64>, WaitError>,
    how: Answer,
    goes_on: impl Fn(&Result<u64, AwaitError>) -> bool,
) -> Result<bool, WaitError> {
    match done {
        Ok(awaited) => {
            log.published(id, None);
            await_answer(awaited, how, goes_on);
            Ok(true)
        }
        Err(error) => {
            settle(log, id, filled, &Err::<u64, _>(()), |seq| *seq);
            if matches!(error, WaitError::TimedOut(_)) { Ok(false) } else { Err(error) }
        }
    }
}

/// Calls `publish_all`, with so many events.
macro_rules! publish_all {
    ($producer:ident, $events:ident, $log:ident) => {{
        let ids = (0..$events).map(|_| $log.begin());
        let mut filled = Vec::new();
        let done = $producer.publish_all(ids, |event, id| {
            event.fill(id);
            filled.push(id);
        });
        // Each is visible before the next one is taken.
        filled.into_iter().for_each(|id| $log.published(id, None));
        done?;
    }};
}

/// Waits until all stages have handled what was published, and all readers of taps have left that
/// were asked to, or the graph is disrupted.
pub fn drain(log: &Log) {
    if let Some((stage, id)) = await_none(log, || log.behind()) {
        log.violation(format!("stage s{stage} has not handled event {id:x}, and sleeps on"));
    }
    if let Some(number) = await_none(log, || log.lingers()) {
        log.violation(format!("reader {number} was asked to leave, and sleeps on"));
    }
}

macro_rules! acts {
    ($([$($layout:ident)?] $event:ty, $producer:ty $(=> $close:ident)?;)*) => { $(
        impl$(<$layout: Layout>)? Acts for $producer {
            $(fn close_all(self: Box<Self>) {
                <$producer>::$close(*self);
            })?

            fn put(&mut self, log: &Log) -> Result<(u64, u64), WaitError> {
                let (id, mut filled) = (log.begin(), false);
                let done = self.publish(|event| { filled = true; event.fill(id) });
                settle(log, id, filled, &done, |seq| *seq);
                done.iter().for_each(|_| log.batch());
                done.map(|seq| (id, seq))
            }

            fn act(&mut self, verb: Verb, log: &Log) -> Result<(), ClaimError> {
                let mut filled = false;
                match verb {
                    Verb::Publish(times) => {
                        for _ in 0..times {
                            match self.put(log) {
                                Err(WaitError::TimedOut(_)) => sync::spin_loop(),
                                other => {
                                    other?;
                                }
                            }
                        }
                    }
                    Verb::Try(times) | Verb::When(times, _) => {
                        let mut selector = Selector::new();
                        for _ in 0..times {
                            let mut told = Told::default();
                            loop {
                                match verb {
                                    Verb::When(_, Room::Remaining) => {
                                        // A death that ends the graph is told by the next call.
                                        while self.remaining() == 0 && !log.is_disrupted() {
                                            sync::spin_loop();
                                        }
                                    }
                                    Verb::When(_, Room::Select(micros)) => {
                                        let time = Duration::from_micros(micros);
                                        let until = (micros != 0).then(|| sync::now() + time);
                                        if selector.wait(&mut [&mut *self], until).is_none() {
                                            if until.is_none_or(|until| sync::now() < until) {
                                                log.violation(
                                                    "a selector's wait ended early".to_owned(),
                                                );
                                            }
                                            continue;
                                        }
                                    }
                                    _ => {}
                                }
                                let id = log.begin();
                                let done = self.try_publish(|event| { filled = true; event.fill(id) });
                                settle(log, id, filled, &done, |seq| *seq);
                                filled = false;
                                let selected = matches!(verb, Verb::When(_, Room::Select(_)));
                                match done {
                                    Ok(_) => break log.batch(),
                                    Err(ClaimError::Wait(error)) => return Err(error.into()),
                                    Err(error) if selected && log.is_steady() => log.violation(
                                        format!("a selector found room that is not there: {error}"),
                                    ),
                                    Err(ClaimError::Gated { .. }) => {
                                        log.found_full();
                                        told.refused(log, log.plan().stages.len());
                                    }
                                    Err(_) => {}
                                }
                                sync::spin_loop();
                            }
                        }
                    }
                    Verb::By(micros) => {
                        let deadline = sync::now() + Duration::from_micros(micros);
                        let id = log.begin();
                        let call = log.begin_timed();
                        let done = self.publish_by(deadline, |event| {
                            filled = true;
                            event.fill(id);
                        });
                        settle(log, id, filled, &done, |seq| *seq);
                        log.check_timed(&call, micros, &done);
                        done?;
                    }
                    Verb::All(events) => publish_all!(self, events, log),
                    Verb::Batches(len, events) => {
                        let len = len.min(self.capacity());
                        let ids = (0..events).map(|_| log.begin());
                        let mut filled = Vec::new();
                        let done = self.publish_batches(len, ids, |event, id| {
                            event.fill(id);
                            filled.push(id);
                        });
                        if let Ok(count) = done {
                            if count != events {
                                log.violation(format!("published {count} of {events} events"));
                            }
                            filled.into_iter().for_each(|id| log.published(id, None));
                        }
                        done?;
                    }
                    Verb::Claim(len, fate) => {
                        let len = len.min(self.capacity());
                        let mut slots = self.claim_n(len)?;
                        let first = slots.first_seq();
                        let ids: Vec<u64> = slots.iter_mut().map(|event| {
                            let id = log.begin();
                            event.fill(id);
                            if fate != Fate::Publish {
                                log.given_up(id);
                            }
                            id
                        }).collect();
                        match fate {
                            Fate::Publish => {
                                log.whole(first, ids.len() as u64);
                                slots.publish();
                                for (offset, id) in ids.into_iter().enumerate() {
                                    log.published(id, Some(first.wrapping_add(offset as u64)));
                                }
                            }
                            Fate::Drop => drop(slots),
                            Fate::Forget => std::mem::forget(slots),
                        }
                    }
                    Verb::OrDrop(times) | Verb::Insist(times) => {
                        let (mut left, mut told) = (times, Told::default());
                        while left != 0 {
                            let id = log.begin();
                            let done = self.publish_or_drop(|event| event.fill(id));
                            match done {
                                Ok(Some(seq)) => {
                                    log.published(id, Some(seq));
                                    log.batch();
                                }
                                Ok(None) => {
                                    log.unfilled(id);
                                    log.dropped();
                                    log.found_full();
                                }
                                Err(_) => log.unfilled(id),
                            }
                            let is_dropped = done?.is_none();
                            match verb {
                                Verb::Insist(_) if is_dropped => {
                                    told.refused(log, log.plan().stages.len());
                                }
                                _ => {
                                    told.found();
                                    left -= 1;
                                }
                            }
                        }
                    }
                    Verb::Task(times, polls) => {
                        for _ in 0..times {
                            let mut waits = false;
                            loop {
                                let id = log.begin();
                                let mut filled = false;
                                let future =
                                    self.publish_async(|event| { filled = true; event.fill(id) });
                                let mut pended = false;
                                let done = poll_some(future, polls, &mut pended);
                                waits |= log.polled(pended);
                                let Some(done) = done else {
                                    log.unfilled(id);
                                    if filled {
                                        log.violation("a dropped future has published".to_owned());
                                    }
                                    continue;
                                };
                                settle(log, id, filled, &done, |seq| *seq);
                                match done {
                                    Err(WaitError::TimedOut(_)) => {}
                                    other => {
                                        other?;
                                        break;
                                    }
                                }
                            }
                            if waits {
                                log.task_waits();
                            }
                        }
                    }
                    Verb::ClaimTask(len, polls) => {
                        let len = len.min(self.capacity());
                        loop {
                            let mut pended = false;
                            let done = poll_some(self.claim_n_async(len), polls, &mut pended);
                            log.polled(pended);
                            let Some(done) = done else { continue };
                            let mut slots = done?;
                            let first = slots.first_seq();
                            let mut ids = Vec::new();
                            for event in slots.iter_mut() {
                                ids.push(log.begin());
                                event.fill(ids[ids.len() - 1]);
                            }
                            slots.publish();
                            for (offset, id) in ids.into_iter().enumerate() {
                                log.published(id, Some(first.wrapping_add(offset as u64)));
                            }
                            break;
                        }
                    }
                    Verb::Ask(times, how) => {
                        for _ in 0..times {
                            let (id, mut filled) = (log.begin(), false);
                            let done = self.ask(|event, request| {
                                filled = true;
                                event.request(id, request);
                            });
                            asked(log, (id, filled), done, how, |answer| log.answer(id, answer))?;
                        }
                    }
                    Verb::AskTask(times, polls) => {
                        for _ in 0..times {
                            let mut waits = false;
                            loop {
                                let id = log.begin();
                                let mut filled = false;
                                let future = self.ask_async(|event, request| {
                                    filled = true;
                                    event.request(id, request);
                                });
                                let mut pended = false;
                                let done = poll_some(future, polls, &mut pended);
                                waits |= log.polled(pended);
                                let Some(done) = done else {
                                    log.unfilled(id);
                                    if filled {
                                        log.violation("a dropped future has asked".to_owned());
                                    }
                                    continue;
                                };
                                let goes_on = |answer: &_| log.answer(id, answer);
                                if asked(log, (id, filled), done, Answer::Task, goes_on)? {
                                    break;
                                }
                            }
                            if waits {
                                log.task_waits();
                            }
                        }
                    }
                    Verb::AskBroken(times, how) => {
                        for _ in 0..times {
                            let (id, mut filled) = (log.begin(), false);
                            let done = self.ask(|event, request| {
                                filled = true;
                                event.request_broken(id, request);
                            });
                            let goes_on = |answer: &_| log.answer_broken(id, answer);
                            asked(log, (id, filled), done, how, goes_on)?;
                        }
                    }
                    Verb::AskInVain(how) => {
                        let (id, kept, mut filled) = (log.begin(), Kept::default(), false);
                        let done = self.ask(|event, request| {
                            filled = true;
                            event.request_in_vain(id, request, &kept);
                        });
                        asked(log, (id, filled), done, how, |answer| log.answer_in_vain(answer))?;
                    }
                    Verb::AwaitFailure => {
                        if await_none_at_end(|| log.is_untold().then_some(())).is_some() {
                            log.violation("no call tells that the deadline has passed".to_owned());
                        }
                    }
                    Verb::Every(times, micros) => {
                        for _ in 0..times {
                            self.act(Verb::Publish(1), log)?;
                            sync::sleep(Duration::from_micros(micros));
                        }
                    }
                    Verb::Conflate(room, values) => {
                        let filled = RefCell::new(Vec::new());
                        let fill = |event: &mut $event, _: &u64, id: u64| {
                            event.fill(id);
                            filled.borrow_mut().push(id);
                        };
                        let conflator = Conflator::new(&mut *self, room, fill);
                        let mut conflator = conflator.expect("memory for some keys");
                        let mut kept = Vec::new();
                        let mut ended = Ok(());
                        // The newest value of each key, if the conflator has it for certain.
                        let mut newest = BTreeMap::new();
                        for value in 0..values {
                            let id = log.begin();
                            kept.push(id);
                            let (key, had_room) =
                                (value % (room as u64 + 1), conflator.kept() < room);
                            newest.insert(key, id);
                            match conflator.send(key, id) {
                                Ok(Sent::Published(_) | Sent::Kept) => {}
                                Ok(Sent::Replaced(old)) => {
                                    log.unfilled(old);
                                    log.dropped();
                                    kept.retain(|id| *id != old);
                                }
                                Err(ConflateError::Full { value, .. }) => {
                                    log.unfilled(value);
                                    kept.retain(|id| *id != value);
                                    newest.remove(&key);
                                    sync::spin_loop();
                                }
                                Err(ConflateError::Wait(error @ WaitError::PeerDead(_))) => {
                                    log.wait_error(PRODUCER, &error);
                                    if !had_room {
                                        newest.remove(&key);
                                    }
                                }
                                Err(ConflateError::Wait(error)) => ended = Err(error),
                                Err(other) => log.violation(format!("a conflator: {other}")),
                            }
                            if ended.is_err() {
                                break;
                            }
                        }
                        // A death ends no more than a call.
                        while ended.is_ok() && conflator.kept() != 0 {
                            match conflator.flush_by(None) {
                                Err(ClaimError::Wait(error @ WaitError::PeerDead(_))) => {
                                    log.wait_error(PRODUCER, &error);
                                    sync::spin_loop();
                                }
                                _ => break,
                            }
                        }
                        let ended = ended.and_then(|()| conflator.finish());
                        let lost = |id: &&u64| !filled.borrow().contains(*id);
                        if let (Ok(()), Some(id)) = (&ended, newest.values().find(lost)) {
                            log.violation(format!("a conflator has lost value {id:x}"));
                        }
                        let filled = filled.into_inner();
                        for id in kept {
                            match filled.contains(&id) {
                                true => log.published(id, None),
                                false => {
                                    log.unfilled(id);
                                    log.dropped();
                                }
                            }
                        }
                        ended?;
                    }
                    Verb::Panic => {
                        log.disrupt(Disruption::Failure(PRODUCER.to_owned()));
                        let fills = || self.publish(|_| panic_as_planned());
                        match catch_unwind(AssertUnwindSafe(fills)) {
                            Ok(done) => {
                                done?;
                            }
                            Err(payload) if payload.is::<Planned>() => {}
                            Err(payload) => resume_unwind(payload),
                        }
                    }
                    Verb::Drain => drain(log),
                    Verb::Sleep(micros) => sync::sleep(Duration::from_micros(micros)),
                    Verb::Halt => {
                        log.disrupt(Disruption::Halt);
                        self.halt();
                    }
                    Verb::Fail { .. } => {}
                    Verb::Raw(_) | Verb::CloseAll | Verb::AskLast(_) | Verb::DropInPanic => {
                        unreachable!("they need the producer itself")
                    }
                }
                Ok(())
            }
        }
    )* };
}
acts! {
    [L] Event, Producer<Event, L, Single>;
    [L] Event, Producer<Event, L, Many>;
    [] Parts, SegmentProducer<Parts>;
    [] Parts, SegmentProducer<Parts, Interleaved, Apart> => close_all;
}

impl<L: Layout> Acts for Inline<'static, Event, L> {
    fn put(&mut self, log: &Log) -> Result<(u64, u64), WaitError> {
        let (id, mut filled) = (log.begin(), false);
        let done = self.publish(|event| {
            filled = true;
            event.fill(id);
        });
        settle(log, id, filled, &done, |seq| *seq);
        done.map(|seq| (id, seq))
    }

    fn act(&mut self, verb: Verb, log: &Log) -> Result<(), ClaimError> {
        match verb {
            Verb::Publish(times) => {
                for _ in 0..times {
                    self.put(log)?;
                }
            }
            Verb::All(events) => publish_all!(self, events, log),
            Verb::Ask(times, how) => {
                for _ in 0..times {
                    let (id, mut filled) = (log.begin(), false);
                    let done = self.ask(|event, request| {
                        filled = true;
                        event.request(id, request);
                    });
                    asked(log, (id, filled), done, how, |answer| log.answer(id, answer))?;
                }
            }
            Verb::AskInVain(how) => {
                let (id, kept, mut filled) = (log.begin(), Kept::default(), false);
                let done = self.ask(|event, request| {
                    filled = true;
                    event.request_in_vain(id, request, &kept);
                });
                asked(log, (id, filled), done, how, |answer| log.answer_in_vain(answer))?;
            }
            Verb::Drain => {
                while self.work() != 0 {}
                // No other thread holds the stages up.
                let is_alone = log.plan().stages.iter().all(|stage| stage.room == 0);
                if let Some((stage, id)) = log.behind().filter(|_| is_alone && !log.is_disrupted())
                {
                    log.violation(format!("s{stage} has no work left, and not handled {id:x}"));
                }
            }
            Verb::Halt => {
                log.disrupt(Disruption::Halt);
                self.halt();
            }
            Verb::Sleep(micros) => sync::sleep(Duration::from_micros(micros)),
            _ => {}
        }
        Ok(())
    }
}
