//! The loop of a sink.
//!
//! Invariants
//! - I1: the sink releases events only after their unit was acknowledged, or after the engine's
//!   answer to a doubt has shown it as stored. Events that the sink drops on request are the
//!   exception.
//! - I2: a sink in doubt sends nothing until it has asked the engine (`run/doubt.rs`).
//! - I3: while units are in flight, the sink arms no waker at the ring, so a publication costs the
//!   producer no more than if the stage only polled. The loop polls the ring at each answer, and at
//!   least once per linger time. A sink without linger time arms the waker instead, because it
//!   would poll without a pause.

mod anew;
mod doubt;

use std::collections::VecDeque;
use std::ops::ControlFlow::{Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use slipring::errors::{BatchError, WaitError};
use tokio::time::Instant;

use super::open::{BEGIN, Opened};
use super::running::{Stop, Watch};
use super::settings::SinkSettings;
use super::stage::Stage;
use super::units::{Filling, MESSAGE_HEADERS, Unit, Window};
use crate::counters::{LiveCounters, State};
use crate::encoding::Encoding;
use crate::errors::Error;
use crate::frame::{HEADER, LENGTH};
use crate::nats::publish::{AppendAnswer, UNACKNOWLEDGED};
use crate::nats::{Fault, Notice, REQUEST};
use crate::resume::{Begun, Point};
use crate::runtime::panic_text;

/// Interval at which the ring is polled while the engine is away.
const POLL: Duration = Duration::from_millis(20);

/// A running sink, which owns its ring's stage.
pub struct SinkRun<S: Stage> {
    stage: S,
    opened: Opened<S::Event>,
    begun: Begun,
    /// Sequence that the next append expects.
    expected: u64,
    /// Point at which the sink is beginning anew (`run/anew.rs`). `None` again once its begin
    /// messages are acknowledged.
    anew: Option<Point>,
    filling: Filling,
    /// Full units for which the window has no room yet.
    ready: VecDeque<Unit>,
    window: Window,
    shared: LiveCounters,
    stop: Arc<Stop>,
    /// Whether events were dropped, so that the stream may need a hole at the end.
    hole: bool,
    /// Whether the ring has ended and all of its events were taken.
    ended: bool,
    /// Start of the current outage, and the reason why the last attempt failed.
    outage: Option<(Instant, String)>,
    /// Pause before the next attempt.
    pause: Duration,
    /// Earliest time of the ring's next poll, once a process of the ring has died.
    not_before: Option<Instant>,
    /// Time of the last count of the lag.
    counted: Instant,
    scratch: Vec<u8>,
    /// Length of the largest event of varying size so far, in bytes.
    largest: usize,
}

/// The reason why a wait ended.
enum Woken {
    /// There may be something to do.
    Poll,
    Answer(u64, AppendAnswer),
    Doubt(String),
}

/// The kind of a doubt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Lost,
    Full,
}

impl<S: Stage> SinkRun<S> {
    pub fn new(stage: S, opened: Opened<S::Event>, watch: Watch) -> SinkRun<S> {
        let Watch { shared, stop } = watch;
        let point = opened.point;
        let begun = Begun {
            ring: point.ring,
            incarnation: point.incarnation,
            acknowledged: point.next,
            sent: point.next,
            sequence: point.expected,
        };
        shared.change(|counters| {
            counters.incarnation = point.incarnation;
            counters.acknowledged = point.next;
        });
        SinkRun {
            stage,
            begun,
            expected: point.expected,
            anew: None,
            filling: Filling::new(opened.template(), point.next, opened.max_frame),
            ready: VecDeque::new(),
            window: Window::default(),
            shared,
            stop,
            hole: false,
            ended: false,
            outage: None,
            pause: Duration::ZERO,
            not_before: None,
            counted: Instant::now(),
            scratch: Vec::new(),
            largest: 0,
            opened,
        }
    }

    fn settings(&self) -> &SinkSettings {
        &self.opened.settings
    }

    /// Publishes until the ring ends.
    pub async fn run(&mut self) -> Result<(), Error> {
        self.pass_over_stored()?;
        loop {
            if self.stop.is_asked() {
                return Err(Error::Stopped);
            }
            let mut sent = Ok(());
            if !self.ready.is_empty() && self.window.len() < self.opened.window as usize {
                sent = self.send().await;
                tokio::task::yield_now().await; // lets the client write it
            }
            if sent.is_ok() {
                self.fill()?;
                sent = self.send().await;
            }
            if let Err(Fault::Away(why) | Fault::Refused { why, .. }) = sent {
                self.resolve(Doubt::Lost, why).await?;
                continue;
            }
            if self.ended
                && self.filling.is_empty()
                && self.ready.is_empty()
                && self.window.is_empty()
            {
                let end = self.stage.next();
                if !self.hole || end == self.filling.end() {
                    step!("sink-ended");
                    return Ok(());
                }
                let opened = &self.opened;
                let told = self.filling.seal_hole(end, |header| opened.without_events(header));
                self.ready.push_back(told);
                continue;
            }
            match self.wait().await {
                Woken::Poll => {}
                Woken::Answer(number, outcome) => self.answer(number, outcome).await?,
                Woken::Doubt(why) => self.resolve(Doubt::Lost, why).await?,
            }
        }
    }

    /// Releases the events of a surviving ring that the engine already has.
    fn pass_over_stored(&mut self) -> Result<(), Error> {
        let next = self.opened.point.next;
        while self.stage.next() < next {
            let ahead = usize::try_from(next - self.stage.next()).unwrap_or(usize::MAX);
            // Where the ring has no event, the lent events may go on behind the stream's end.
            let mut last = 0;
            let held = self.stage.hold(ahead, |_, seq| {
                last = seq;
                if seq + 1 < next { Continue(()) } else { Break(()) }
            });
            match held {
                // The stream has a hole where the ring's next event is.
                Ok(_) if last >= next => {
                    return Err(Error::WrongEpoch { ring: last, stream: next });
                }
                Ok(_) => {
                    step!("sink-passing-over");
                    self.stage.release(next);
                    step!("sink-passed-over");
                }
                // The stream has positions that the ring never published.
                Err(BatchError::Unavailable | BatchError::Wait(WaitError::Closed)) => {
                    return Err(Error::WrongEpoch { ring: self.stage.next(), stream: next });
                }
                Err(error) => return Err(ring_error(error)),
            }
        }
        Ok(())
    }

    /// Takes events from the ring while there is room for them.
    fn fill(&mut self) -> Result<(), Error> {
        if self.not_before.is_some_and(|moment| Instant::now() < moment) {
            return Ok(());
        }
        self.not_before = None;
        while !self.ended && self.has_room() {
            match self.take() {
                Ok(0) => break,
                Ok(_) => {
                    step!("sink-taken");
                }
                Err(error) => {
                    self.ring_ended(error)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns whether the sink takes events from its ring.
    fn has_room(&self) -> bool {
        self.window.len() + self.ready.len() <= self.opened.window as usize
    }

    /// Called when the ring lends no events. Fails if the ring has ended before it has lent all of
    /// its events.
    fn ring_ended(&mut self, error: Taken) -> Result<(), Error> {
        match error {
            Taken::Failed(error) => return Err(error),
            Taken::Ring(BatchError::Wait(WaitError::Closed)) => self.ended = true,
            Taken::Ring(BatchError::Wait(WaitError::PeerDead(_))) => {
                self.not_before = Some(Instant::now() + POLL);
            }
            Taken::Ring(BatchError::Wait(WaitError::WaitsForItself(_))) => {}
            Taken::Ring(error @ BatchError::Wait(_)) => return Err(ring_error(error)),
            Taken::Ring(_) => {}
        }
        Ok(())
    }

    /// Takes some of the available events, and seals full units.
    fn take(&mut self) -> Result<usize, Taken> {
        let SinkRun { stage, opened, filling, ready, scratch, largest, .. } = self;
        let (encoding, limit) = (&mut opened.encoding, opened.max_frame);
        let name = || opened.name.clone();
        let mut at = 0;
        let taken = match encoding.size() {
            Some(size) => {
                if filling.room(size as usize) == 0 {
                    ready.push_back(filling.seal());
                }
                let room = if filling.is_empty() {
                    (limit - HEADER) / size as usize
                } else {
                    filling.room(size as usize)
                };
                stage.hold(room, |event, seq| {
                    if filling.is_behind_hole(seq) {
                        ready.push_back(filling.seal());
                    }
                    encoding.append(event, filling.plain(seq));
                    Continue(())
                })
            }
            None => {
                let room = filling.room(*largest + LENGTH).clamp(1, 256);
                let (mut refused, sealed) = (None, ready.len());
                let mut encoder = Encoder { encoding, filling, ready, scratch, limit };
                let held = catch_unwind(AssertUnwindSafe(|| {
                    stage.hold(room, |event, seq| {
                        at = seq;
                        refused = encoder.encode(event, seq).err();
                        *largest = (*largest).max(encoder.scratch.len());
                        // One event may already fill a frame, and the window has no room for many
                        // frames. So the loop stops once a frame is full.
                        if refused.is_some() || encoder.ready.len() > sealed {
                            Break(())
                        } else {
                            Continue(())
                        }
                    })
                }));
                match refused {
                    Some(EncodeError::TooLarge(needs)) => {
                        return Err(Taken::Failed(Error::TooLarge { needs, limit: limit as u64 }));
                    }
                    Some(EncodeError::Subject(why)) => {
                        let error = Error::Function { stage: name(), seq: at, why };
                        return Err(Taken::Failed(error));
                    }
                    None => {}
                }
                held.map_err(|panic| {
                    let why = panic_text(&*panic);
                    Taken::Failed(Error::Function { stage: name(), seq: at, why })
                })?
            }
        };
        match taken {
            Err(BatchError::Unavailable) => Ok(0),
            taken => taken.map_err(Taken::Ring),
        }
    }

    /// Sends full units, and the unit that is being filled if it is due.
    async fn send(&mut self) -> Result<(), Fault> {
        if self.anew.is_some() {
            return Ok(());
        }
        let limit = self.opened.window as usize;
        while self.window.len() < limit
            && let Some(unit) = self.ready.pop_front()
        {
            self.send_unit(unit).await?;
        }
        let due = self.window.is_empty()
            || self.ended
            || self.filling.taken().elapsed() >= self.settings().linger;
        if self.window.len() < limit && !self.filling.is_empty() && due {
            let unit = self.filling.seal();
            self.send_unit(unit).await?;
        }
        Ok(())
    }

    /// Sends a unit for the first time. The unit is in the window afterwards, even if the call
    /// fails.
    async fn send_unit(&mut self, mut unit: Unit) -> Result<(), Fault> {
        unit.sent = Instant::now();
        self.begun.sent = unit.end;
        let (number, body) = (unit.number, unit.body.clone());
        self.window.push(unit);
        let expected = self.expected;
        self.expected += twin!("batch-counted-once": body.messages() => 1);
        let in_flight = self.window.len() as u64;
        self.shared.change(|counters| counters.in_flight = in_flight);
        let Opened { publisher, connection, .. } = &self.opened;
        in_time(publisher.send(connection, number, &body, expected)).await?;
        step!("sink-sent");
        if twin!("released-unstored": false => true) {
            self.stage.release(self.begun.sent);
        }
        Ok(())
    }

    /// Waits until there may be something to do.
    async fn wait(&mut self) -> Woken {
        let SinkSettings { linger, ack_timeout, .. } = *self.settings();
        let now = Instant::now();
        let oldest = twin!("patience-endless": self.window.oldest() => None);
        let oldest = oldest.map(|unit| unit.sent + ack_timeout);
        if oldest.is_some_and(|moment| now >= moment) {
            return Woken::Doubt(UNACKNOWLEDGED.into());
        }
        // A ring of which the sink takes nothing would wake it again and again.
        let full = !self.has_room();
        let idle = self.window.is_empty() && self.filling.is_empty() && !self.ended;
        let at_once = linger.is_zero() && !full && !self.ended;
        let poll = match self.not_before {
            Some(moment) => Some(moment),
            None if idle || full || self.ended || at_once => None,
            None => Some(now + linger), // I3
        };
        let until = poll.into_iter().chain(oldest).min();
        let armed = (idle || at_once) && self.not_before.is_none();
        if armed {
            self.count_lag();
        }
        let stage = &mut self.stage;
        let Opened { publisher, connection, .. } = &mut self.opened;
        let ring = std::future::poll_fn(|context| {
            if stage.arm(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
        });
        let pause = async {
            match until {
                Some(moment) => tokio::time::sleep_until(moment).await,
                None => std::future::pending().await,
            }
        };
        let woken = tokio::select! {
            biased;
            notice = connection.notices.recv() => match notice {
                Some(Notice::Connected) => Woken::Poll,
                Some(Notice::Disconnected) => {
                    self.shared.change(|counters| counters.reconnects += 1);
                    Woken::Doubt("the connection is lost".into())
                }
                Some(Notice::Closed) | None => Woken::Doubt("the connection is closed".into()),
            },
            answer = publisher.answer() => match answer {
                Some((number, outcome)) => Woken::Answer(number, outcome),
                None => Woken::Doubt("the connection is closed".into()),
            },
            () = self.stop.notified() => Woken::Poll,
            () = ring, if armed => Woken::Poll,
            () = pause => Woken::Poll,
        };
        if armed {
            self.stage.disarm();
        }
        woken
    }

    /// Counts the engine's lag behind the ring, at intervals: counting the published events takes
    /// cache lines from the producer.
    fn count_lag(&mut self) {
        if self.counted.elapsed() < POLL && !self.window.is_empty() {
            return;
        }
        self.counted = Instant::now();
        let known = self.stage.known().unwrap_or(0) as u64;
        let (next, acknowledged) = (self.stage.next(), self.begun.acknowledged);
        let lag = (next + known).saturating_sub(acknowledged);
        self.shared.change(|counters| counters.lag = lag);
    }

    async fn answer(&mut self, number: u64, outcome: AppendAnswer) -> Result<(), Error> {
        match outcome {
            AppendAnswer::Stored { sequence } if number == BEGIN => {
                let last = |point: &Point| point.expected + u64::from(point.messages);
                let Some(point) = self.anew.filter(|point| last(point) == sequence) else {
                    let why = "an acknowledgement came out of order";
                    return self.resolve(Doubt::Lost, why.into()).await;
                };
                (self.expected, self.begun.sequence) = (sequence, sequence);
                (self.outage, self.pause) = (None, Duration::ZERO);
                self.began_anew(point.incarnation)
            }
            AppendAnswer::Stored { sequence } => {
                let behind: u64 = self.window.iter_mut().map(|unit| unit.body.messages()).sum();
                let oldest = self.window.oldest().map(|unit| (unit.number, unit.body.messages()));
                let Some((oldest, messages)) = oldest else { return Ok(()) };
                if oldest != number || self.expected - behind + messages != sequence {
                    let why = "an acknowledgement is missing, or came out of order";
                    return self.resolve(Doubt::Lost, why.into()).await;
                }
                if let Some(unit) = self.window.pop() {
                    self.acknowledge(unit, true);
                }
                twin!("sequence-unrecorded": self.begun.sequence = sequence => ());
                self.outage = None;
                self.pause = Duration::ZERO;
                self.count_lag();
                Ok(())
            }
            // The server refused a later append, but has neither acknowledged nor refused the
            // oldest one. So the sink is in doubt about the oldest append.
            AppendAnswer::WrongLastSequence
                if self.window.oldest().is_some_and(|unit| unit.number != number) =>
            {
                self.resolve(Doubt::Lost, UNACKNOWLEDGED.into()).await
            }
            AppendAnswer::WrongLastSequence => {
                self.resolve(Doubt::Lost, "the stream's last sequence is another one".into()).await
            }
            AppendAnswer::Full(why) => self.resolve(Doubt::Full, why).await,
            AppendAnswer::Later(why) => self.resolve(Doubt::Lost, why).await,
            AppendAnswer::Never(why) => {
                let wrong = vec![why];
                Err(Error::WrongStream { stream: self.opened.stream.name.clone(), wrong })
            }
        }
    }

    /// Releases the events of a stored unit. `answered` says whether an acknowledgement, and not
    /// the answer to a doubt, showed that the unit was stored.
    fn acknowledge(&mut self, unit: Unit, answered: bool) {
        self.begun.acknowledged = unit.end;
        step!("sink-acknowledged");
        self.stage.release(unit.end); // I1
        step!("sink-released");
        if answered {
            self.shared.latency(unit.sent.elapsed());
        }
        let in_flight = self.window.len() as u64;
        self.shared.change(|counters| {
            counters.state = State::Publishing;
            counters.acknowledged = unit.end;
            counters.events += unit.events;
            counters.frames += 1;
            counters.bytes += unit.body.bytes();
            counters.in_flight = in_flight;
        });
        self.filling.recycle(unit.body);
    }
}

/// The reason why no event was taken.
enum Taken {
    Ring(BatchError),
    Failed(Error),
}

fn ring_error(error: BatchError) -> Error {
    match error {
        BatchError::Wait(error) => Error::Ring(error),
        other => Error::Server { why: format!("the ring lends nothing: {other}") },
    }
}

/// Limits the time of a send, which the client library delays while its buffer is full.
async fn in_time(sending: impl Future<Output = Result<(), Fault>>) -> Result<(), Fault> {
    match tokio::time::timeout(REQUEST, sending).await {
        Ok(sent) => sent,
        Err(_) => Err(Fault::Away("the connection takes no more".into())),
    }
}

/// The reason why an event was not encoded.
enum EncodeError {
    /// The event needs a message of this length, in bytes.
    TooLarge(u64),
    /// The stream does not take the event's subject.
    Subject(String),
}

/// Encodes events of varying size, and events that each get their own message.
struct Encoder<'a, E> {
    encoding: &'a mut Encoding<E>,
    filling: &'a mut Filling,
    /// The full units.
    ready: &'a mut VecDeque<Unit>,
    /// The bytes of the last event.
    scratch: &'a mut Vec<u8>,
    /// Largest size of a unit, in bytes.
    limit: usize,
}

impl<E> Encoder<'_, E> {
    /// Encodes the event at `seq`. If the unit that is being filled has no room for the event,
    /// first seals that unit.
    fn encode(&mut self, event: &E, seq: u64) -> Result<(), EncodeError> {
        let Encoder { encoding, filling, ready, scratch, limit } = self;
        scratch.clear();
        encoding.append(event, scratch);
        let overhead = if encoding.is_messages() { MESSAGE_HEADERS } else { HEADER + LENGTH };
        let needs = scratch.len() + overhead;
        if needs > *limit {
            return Err(EncodeError::TooLarge(needs as u64));
        }
        if encoding.is_messages() {
            let subject = encoding.subject(event).map_err(EncodeError::Subject)?;
            if filling.is_behind_hole(seq) || filling.is_full_for_single(needs) {
                ready.push_back(filling.seal());
            }
            filling.single(seq, subject, scratch);
        } else {
            if filling.is_behind_hole(seq) || filling.is_full_for(scratch.len()) {
                ready.push_back(filling.seal());
            }
            filling.varied(seq, scratch);
        }
        Ok(())
    }
}
