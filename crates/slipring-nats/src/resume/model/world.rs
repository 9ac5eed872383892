//! The state of the model, and its transitions.

mod check;
mod step;

use self::step::{Message, id, message, name};
pub(super) use self::step::{Step, Verdict};
use super::scenario::{A, B, Model, NO_BATCHES, Twin};
use crate::errors::Error;
use crate::frame::{Id, MAX_WINDOW};
use crate::resume::{Begun, Party, Point, Start, Tail, anew, begin, has_begun, resume};

/// Greatest number of events in a frame.
const FRAME: u8 = 2;
/// Replaces [`MAX_WINDOW`] in the models: the number of begin messages. No sink of a model has more
/// frames in flight.
const WIDEST: u32 = 3;
/// Phase of a sink.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// The sink was not started yet.
    Idle,
    /// The sink has sent a begin message, and waits for its acknowledgement.
    Beginning(Point),
    /// The sink has begun, and its ring exists.
    Running(Begun),
    /// The sink ended with [`Error::Fenced`].
    Fenced,
    /// The sink ended because another sink has its place in the ring.
    Gone,
    /// The sink ended because messages were removed.
    Lost,
}

/// One sink, the messages on its connection, and its replies.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ModelSink {
    phase: Phase,
    /// First position that the ring had not released when the sink started.
    released: u8,
    /// First position and end position of the events in the sink's ring.
    events: (u8, u8),
    /// Frames that were sent and are not acknowledged yet. They are never divided differently.
    window: Vec<Message>,
    /// Sequence that the next message expects.
    expected: u8,
    /// Point at which a running sink begins anew, until its begin messages are acknowledged.
    anew: Option<Point>,
    /// How many more times the sink may begin anew.
    anews: u8,
    /// Number of times that the sink may still time out.
    timeouts: u8,
    /// Messages of the current attempt that have not reached the server.
    current: Vec<Message>,
    /// Replies of the current attempt. Each is a sequence number or a refusal.
    replies: Vec<Option<u8>>,
}

/// The server, the network and the two sinks.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct World {
    /// All messages that were ever stored.
    log: Vec<Message>,
    /// Set of the log's messages that were removed, one bit each.
    gone: u32,
    /// Number of times that messages may still be removed.
    removals: u8,
    sinks: [ModelSink; 2],
    /// Messages of earlier attempts that may still be stored.
    held: Vec<Message>,
    /// Message ids that the server knows, one bit each. Only [`Twin::DuplicateWindow`] uses them.
    ids: u32,
    /// Number of times that the server may still forget all ids.
    passes: u8,
}

/// The states that may follow a state, each with the step that leads to it. If a step is wrong, it
/// has an `Err` with the reason in place of a state.
pub(super) type Next = Vec<(Step, Result<World, String>)>;

impl World {
    /// Returns the state in which sink A has sent its first begin message.
    pub(super) fn first(model: &Model) -> World {
        let sink = |timeouts, anews| ModelSink {
            phase: Phase::Idle,
            anew: None,
            anews,
            released: 0,
            events: (0, 0),
            window: Vec::new(),
            expected: 0,
            timeouts,
            current: Vec::new(),
            replies: Vec::new(),
        };
        let sinks = [A, B].map(|at| sink(model.timeouts[at], model.anews[at]));
        let (log, held) = (Vec::new(), Vec::new());
        let (gone, removals) = (0, model.removals);
        let idle = World { log, gone, removals, sinks, held, ids: 0, passes: model.passes };
        let mut next = Next::new();
        idle.ask(model, A, Step::Starts { sink: A }, &mut next);
        match next.pop() {
            Some((_, Ok(world))) if next.is_empty() => world,
            Some((_, Err(reason))) => panic!("{reason}"),
            _ => unreachable!("the first sink has one way to begin"),
        }
    }

    /// Returns every state that follows.
    pub(super) fn next(&self, model: &Model) -> Next {
        let mut next = Next::new();
        let first = model.twin == Twin::NoTakeover && self.log.is_empty();
        if model.successor && self.sinks[B].phase == Phase::Idle && !first {
            let released = if model.one_ring { self.acknowledged(A) } else { 0 };
            for released in 0..=released {
                let mut world = self.clone();
                world.sinks[B].released = released;
                world.ask(model, B, Step::Starts { sink: B }, &mut next);
            }
        }
        for (at, sink) in self.sinks.iter().enumerate() {
            if !sink.current.is_empty() {
                let mut world = self.clone();
                let message = world.sinks[at].current.remove(0);
                let verdict = world.deliver(model, message);
                let reply = (verdict != Verdict::Refused).then_some(world.log.len() as u8);
                world.sinks[at].replies.push(reply);
                let step = Step::Delivered { message, held: false, verdict };
                world.settle(model, step, &mut next);
            }
            match sink.replies.first() {
                Some(&Some(sequence)) => self.acknowledge(model, at, sequence, &mut next),
                Some(None) => self.ask(model, at, Step::Refused { sink: at }, &mut next),
                None => {}
            }
            let alive = matches!(sink.phase, Phase::Beginning(_) | Phase::Running(_));
            if alive && sink.timeouts > 0 {
                let mut world = self.clone();
                world.sinks[at].timeouts -= 1;
                let recognized = matches!(sink.phase, Phase::Beginning(point)
                    if has_begun(&self.tail(model, self.log.len()), &model.party(at), &point));
                world.ask(model, at, Step::TimesOut { sink: at, recognized }, &mut next);
            }
        }
        for at in 0..self.held.len() {
            let mut world = self.clone();
            let message = world.held.remove(at);
            let verdict = world.deliver(model, message);
            // A refused message is only removed from the network.
            if verdict != Verdict::Refused {
                let step = Step::Delivered { message, held: true, verdict };
                world.settle(model, step, &mut next);
            }
        }
        if self.passes > 0 && self.ids != 0 {
            let mut world = self.clone();
            (world.passes, world.ids) = (self.passes - 1, 0);
            world.settle(model, Step::WindowPasses, &mut next);
        }
        if self.removals > 0 {
            for left in (0..self.log.len()).filter(|at| self.has(*at)) {
                let mut world = self.clone();
                world.removals -= 1;
                world.gone |= u32::MAX << left & !(u32::MAX << self.log.len());
                world.settle(model, Step::Removed { left: left as u8 }, &mut next);
            }
        }
        next
    }

    /// Returns whether the stream still has this message of the log.
    fn has(&self, at: usize) -> bool {
        self.gone >> at & 1 == 0
    }

    /// Returns the end of the stream after its first `stored` messages. The last sequence is always
    /// that of the whole stream.
    fn tail(&self, model: &Model, stored: usize) -> Tail {
        let last_sequence = self.log.len() as u64;
        let last = (0..stored).rev().find(|at| self.has(*at));
        let last = last.map(|last| {
            // A replica's answer does not show that messages are gone.
            let is_told = matches!(model.twin, Twin::DirectGet | Twin::TailIgnored);
            let sequence = if is_told { last_sequence } else { last as u64 + 1 };
            (sequence, self.log[last].header(model))
        });
        Tail { last_sequence, last }
    }

    /// Returns the facts and choices from which a sink starts.
    fn start(&self, model: &Model, sink: usize) -> Start {
        let (survives, accepts_loss) = (model.one_ring, model.accepts_loss);
        let released = model.one_ring.then(|| self.sinks[sink].released.into());
        // The user names the right position, and the number of the first journal.
        let says = sink == B && model.says;
        let end = || self.log.iter().map(Message::end).max().unwrap_or(0).into();
        let journal = says.then(|| self.log.last().map(|last| id(last.ring))).flatten();
        let at = released.or_else(|| says.then(end));
        // If two attempts follow the same message, at most one of them is stored, so the two may
        // draw the same number.
        let number = self.number(model, sink);
        Start { survives, at, accepts_loss, journal, number }
    }

    /// Returns the number for a journal that a sink begins.
    fn number(&self, model: &Model, sink: usize) -> Id {
        let is_drawn_once = model.twin == Twin::OneNumber;
        let attempt = if is_drawn_once { 0 } else { self.log.len() as u8 };
        id(64 * (sink as u8 + 1) + attempt)
    }

    /// Returns the position behind the events that were acknowledged to a sink.
    fn acknowledged(&self, sink: usize) -> u8 {
        match self.sinks[sink].phase {
            Phase::Running(begun) => begun.acknowledged as u8,
            _ => self.sinks[sink].events.0,
        }
    }

    /// Returns whether another sink has this sink's place in the ring.
    fn is_gone(&self, model: &Model, sink: usize) -> bool {
        model.one_ring && sink == A && self.sinks[B].phase != Phase::Idle
    }

    /// Returns the sequence that the condition of a begin message or a frame must name.
    fn last_sequence(&self, model: &Model, begins: bool) -> u8 {
        let counts = |stored: &Message| model.twin != Twin::BySubject || stored.begins() == begins;
        let last = self.log.iter().rposition(counts);
        last.map_or(0, |last| last as u8 + 1)
    }

    /// Delivers a message to the server.
    fn deliver(&mut self, model: &Model, message: Message) -> Verdict {
        if model.twin == Twin::DuplicateWindow {
            let begins = 16 + u32::from(message.writer);
            let id = 1 << if message.begins() { begins } else { message.first.into() };
            if self.ids & id != 0 {
                return Verdict::Duplicate;
            }
            self.ids |= id;
        } else if message.expected != self.last_sequence(model, message.begins()) {
            return Verdict::Refused;
        }
        let stored = Message { expected: 0, messages: 1, ..message };
        self.log.extend(std::iter::repeat_n(stored, message.messages.into()));
        Verdict::Stored
    }

    /// Lets a sink ask for the stream's end and continue as the answer decides.
    fn ask(&self, model: &Model, sink: usize, step: Step, next: &mut Next) {
        let stale = model.twin == Twin::DirectGet && !self.log.is_empty();
        for stored in if stale { 1 } else { self.log.len() }..=self.log.len() {
            let mut world = self.clone();
            world.disconnect(sink);
            world.go_on(model, sink, &self.tail(model, stored), step, next);
        }
    }

    /// Lets a sink continue as the stream's end `tail` decides.
    fn go_on(mut self, model: &Model, at: usize, tail: &Tail, step: Step, next: &mut Next) {
        let party = model.party(at);
        let point = match self.sinks[at].phase {
            Phase::Beginning(point) if has_begun(tail, &party, &point) => {
                let end = tail.last.map(|(_, last)| last.end());
                if end != Some(point.next) {
                    let reason = format!("{} begins at {} and not {end:?}", name(at), point.next);
                    return next.push((step, Err(reason)));
                }
                let place = Point { expected: tail.last_sequence, ..point };
                return self.run(model, at, &place, step, next);
            }
            // Without begin messages, the stream's last message may be the predecessor's.
            Phase::Running(begun)
                if model.twin == Twin::NoTakeover
                    && tail.last.is_some_and(|(_, last)| last.writer < party.writer) =>
            {
                let start = self.start(model, at);
                let at = Some(begun.acknowledged);
                begin(tail, &party, &Start { survives: true, at, ..start })
            }
            Phase::Running(begun) => resume(tail, &party, &begun),
            _ if model.twin != Twin::HandleUnchecked && self.is_gone(model, at) => {
                self.end(at, Phase::Gone);
                return self.settle(model, step, next);
            }
            _ => begin(tail, &party, &self.start(model, at)),
        };
        let mut point = match point {
            Ok(point) => point,
            Err(Error::Fenced { theirs, .. }) => {
                let other = |stored: &Message| {
                    usize::from(stored.writer) != at && u64::from(stored.incarnation) == theirs
                };
                if !self.log.iter().any(other) {
                    return next.push((step, Err(format!("{} is fenced by none", name(at)))));
                }
                self.end(at, Phase::Fenced);
                return self.settle(model, step, next);
            }
            Err(
                Error::LostAcknowledged { .. } | Error::Emptied { .. } | Error::WrongEpoch { .. },
            ) if self.gone != 0 => {
                self.end(at, Phase::Lost);
                return self.settle(model, step, next);
            }
            Err(error) => {
                return next.push((step, Err(format!("false alarm of {}: {error}", name(at)))));
            }
        };
        if point.expected != self.log.len() as u64 {
            let reason = format!("{} expects {}: not the last sequence", name(at), point.expected);
            return next.push((step, Err(reason)));
        }
        if model.twin == Twin::LocalMark {
            let note = match self.sinks[at].phase {
                Phase::Running(begun) => begun.acknowledged,
                _ => self.acknowledged(A).into(),
            };
            (point.after, point.next) = (note, note);
        }
        if matches!(self.sinks[at].phase, Phase::Running(_)) {
            return self.resend(model, at, &point, step, next);
        }
        if model.twin == Twin::NoTakeover && at == B {
            return self.run(model, at, &point, step, next);
        }
        if point.messages == MAX_WINDOW {
            point.messages = if model.windows == NO_BATCHES { 1 } else { WIDEST };
        }
        if model.twin == Twin::OneBegin {
            point.messages = 1;
        }
        if model.twin == Twin::KeptNumber {
            let last = tail.last.map_or(point.ring, |(_, last)| last.ring);
            point.ring = last;
        }
        if point.messages > 1 && model.windows == NO_BATCHES {
            return next.push((step, Err(format!("{} begins by a batch", name(at)))));
        }
        let expected = self.last_sequence(model, true);
        let begins = message(&party, &point, expected);
        self.sinks[at].phase = Phase::Beginning(point);
        self.sinks[at].current.push(begins);
        self.settle(model, step, next);
    }

    /// Lets a sink run after its begin messages were stored up to the sequence that `point`
    /// expects.
    fn run(mut self, model: &Model, at: usize, point: &Point, step: Step, next: &mut Next) {
        let expected = self.expects(model, point.expected as u8);
        let sink = &mut self.sinks[at];
        let first = point.next as u8;
        sink.events =
            if model.one_ring { (0, model.events) } else { (first, first + model.events) };
        sink.expected = expected;
        sink.phase = Phase::Running(Begun {
            ring: point.ring,
            incarnation: point.incarnation,
            acknowledged: point.next,
            sent: point.next,
            sequence: point.expected,
        });
        self.fill(model, at, step, next);
    }

    /// Returns the sequence that a sink's first frame states as the last one, if the sink knows the
    /// message of `sequence` as the last one.
    fn expects(&self, model: &Model, sequence: u8) -> u8 {
        if model.twin == Twin::BySubject { self.last_sequence(model, false) } else { sequence }
    }

    /// Lets a running sink drop the frames that the stream already has, and send the others again.
    fn resend(mut self, model: &Model, at: usize, point: &Point, step: Step, next: &mut Next) {
        let expected = self.expects(model, point.expected as u8);
        let sink = &mut self.sinks[at];
        let Phase::Running(begun) = &mut sink.phase else { unreachable!("the sink has begun") };
        let end = point.next as u8;
        let begun_anew = point.incarnation != begun.incarnation;
        (begun.acknowledged, begun.sequence) = (point.next, point.expected);
        sink.window.retain(|frame| frame.end() > end);
        sink.expected = expected;
        if model.twin == Twin::Reframed || begun_anew {
            sink.window.clear();
            (begun.sent, begun.incarnation) = (point.next, point.incarnation);
        }
        if sink.window.first().map_or(begun.sent, |frame| frame.first.into()) != point.next {
            let reason = format!("the stream ends within a frame of {}", name(at));
            return next.push((step, Err(reason)));
        }
        if sink.anews > 0 && !sink.window.is_empty() {
            self.clone().begin_anew(model, at, point, next);
        }
        let sink = &mut self.sinks[at];
        for frame in &mut sink.window {
            frame.expected = sink.expected;
            sink.expected += 1;
        }
        sink.current.clone_from(&sink.window);
        self.fill(model, at, step, next);
    }

    /// Lets a running sink with frames in flight begin anew.
    fn begin_anew(mut self, model: &Model, at: usize, point: &Point, next: &mut Next) {
        let mut point = anew(point, model.windows[at]);
        if model.twin == Twin::OneBegin {
            point.messages = 1;
        }
        let step = Step::BeginsAnew { sink: at };
        let sink = &mut self.sinks[at];
        sink.anews -= 1;
        sink.current.push(message(&model.party(at), &point, sink.expected));
        if model.twin == Twin::Unacknowledged {
            sink.expected += point.messages as u8;
            self.began_anew(model, at, point.incarnation, step, next);
        } else {
            sink.anew = Some(point);
            self.settle(model, step, next);
        }
    }

    /// Lets a sink divide its events into frames anew. The sink believes that its new begin
    /// messages are stored.
    fn began_anew(
        mut self,
        model: &Model,
        at: usize,
        incarnation: u64,
        step: Step,
        next: &mut Next,
    ) {
        let sink = &mut self.sinks[at];
        let Phase::Running(begun) = &mut sink.phase else { unreachable!("the sink has begun") };
        (begun.incarnation, begun.sent) = (incarnation, begun.acknowledged);
        (sink.anew, sink.window) = (None, Vec::new());
        self.fill(model, at, step, next);
    }

    /// Lets a sink take the reply to its oldest message.
    fn acknowledge(&self, model: &Model, at: usize, sequence: u8, next: &mut Next) {
        let step = Step::Acknowledged { sink: at };
        let mut world = self.clone();
        let sink = &mut world.sinks[at];
        sink.replies.remove(0);
        match &mut sink.phase {
            Phase::Beginning(point) => {
                let last = point.expected + u64::from(point.messages);
                if model.twin.names_the_stream() && u64::from(sequence) != last {
                    return next.push((step, Err("an acknowledgement out of order".to_owned())));
                }
                let place = Point { expected: sequence.into(), ..*point };
                world.run(model, at, &place, step, next);
            }
            // Replies to earlier messages belong to an earlier attempt.
            Phase::Running(begun) if let Some(point) = sink.anew => {
                let last = point.expected + u64::from(point.messages);
                if u64::from(sequence) != last {
                    return next.push((step, Err("an acknowledgement out of order".to_owned())));
                }
                begun.sequence = last;
                sink.expected = sequence;
                world.began_anew(model, at, point.incarnation, step, next);
            }
            Phase::Running(begun) => {
                if model.twin == Twin::Unacknowledged && sequence != sink.window[0].expected + 1 {
                    // This reply acknowledges the sink's begin messages, but no frame.
                    return world.settle(model, step, next);
                }
                let frame = sink.window.remove(0);
                if model.twin.names_the_stream() && sequence != frame.expected + 1 {
                    return next.push((step, Err("an acknowledgement out of order".to_owned())));
                }
                begun.acknowledged = frame.end().into();
                begun.sequence = sequence.into();
                if world.is_gone(model, at) {
                    world.end(at, Phase::Gone);
                }
                world.fill(model, at, step, next);
            }
            _ => unreachable!("an ended sink has no replies"),
        }
    }

    /// Lets a sink send frames until its window is full. There is a next state for each way of
    /// dividing the events.
    fn fill(self, model: &Model, at: usize, step: Step, next: &mut Next) {
        let sink = &self.sinks[at];
        let Phase::Running(begun) = sink.phase else { return self.settle(model, step, next) };
        if sink.anew.is_some() {
            return self.settle(model, step, next);
        }
        let left = sink.events.1.saturating_sub(begun.sent as u8);
        if sink.window.len() == model.windows[at] as usize || left == 0 || self.is_gone(model, at) {
            return self.settle(model, step, next);
        }
        for count in 1..=left.min(FRAME) {
            let mut world = self.clone();
            let sink = &mut world.sinks[at];
            let point = Point {
                expected: 0,
                after: begun.sent,
                next: begun.sent,
                ring: begun.ring,
                incarnation: begun.incarnation,
                messages: 1,
            };
            let frame = Message { count, ..message(&model.party(at), &point, sink.expected) };
            sink.expected += 1;
            sink.window.push(frame);
            sink.current.push(frame);
            sink.phase = Phase::Running(Begun { sent: frame.end().into(), ..begun });
            world.fill(model, at, step, next);
        }
    }

    /// Leaves the messages of the current attempt to the network, and drops its replies.
    fn disconnect(&mut self, sink: usize) {
        let sink = &mut self.sinks[sink];
        self.held.append(&mut sink.current);
        sink.replies.clear();
        sink.anew = None;
    }

    /// Ends a sink. Its messages stay in the network.
    fn end(&mut self, sink: usize, phase: Phase) {
        self.disconnect(sink);
        let sink = &mut self.sinks[sink];
        sink.window.clear();
        sink.phase = phase;
        (sink.expected, sink.timeouts) = (0, 0);
    }

    /// Removes parts of the state that can no longer make a difference, and adds the state to
    /// `next`.
    ///
    /// A held message whose expected sequence has passed will be refused whenever it arrives, so it
    /// is removed (but not in the twin without conditions). Of equal held messages, only one is
    /// kept.
    fn settle(mut self, model: &Model, step: Step, next: &mut Next) {
        if model.twin != Twin::DuplicateWindow {
            let last = [false, true].map(|begins| self.last_sequence(model, begins));
            self.held.retain(|held| held.expected >= last[usize::from(held.begins())]);
        }
        self.held.sort_unstable();
        self.held.dedup();
        next.push((step, Ok(self)));
    }
}

impl Model {
    fn epoch(&self, sink: usize) -> u8 {
        if self.one_ring { 1 } else { sink as u8 + 1 }
    }

    fn party(&self, sink: usize) -> Party {
        Party { epoch: id(self.epoch(sink)), writer: sink as u64, fingerprint: 0 }
    }

    /// Returns the greatest number of messages in the log: events, and begin messages.
    fn longest(&self) -> usize {
        let anews = self.anews[A] + self.anews[B];
        let begins = 2 + usize::from(self.timeouts[A] + self.timeouts[B] + self.removals + anews);
        2 * usize::from(self.events) + begins * WIDEST as usize
    }
}
