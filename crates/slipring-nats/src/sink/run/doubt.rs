//! A sink in doubt: it asks the engine where to continue.
//!
//! Invariants
//! - I1: nothing is sent between the doubt and the engine's answer.
//! - I2: the units of the window are sent again unchanged, or behind begin messages of the next
//!   incarnation (`resume`, `run/anew.rs`).
//! - I3: while the sink asks or waits, it keeps checking the ring, the deadline and the request to
//!   stop.

use std::ops::ControlFlow::Continue;
use std::task::Poll;
use std::time::Duration;

use slipring::errors::{BatchError, WaitError};
use tokio::time::Instant;

use super::{Doubt, POLL, SinkRun, Taken, in_time};
use crate::counters::State;
use crate::errors::Error;
use crate::nats::{Connection, Fault, LONGEST_PAUSE, Notice};
use crate::resume::{self, Losses};
use crate::sink::open::Opened;
use crate::sink::settings::Outage;
use crate::sink::stage::Stage;

/// Time in which the engine must return the stream's end and the messages behind the last
/// acknowledgement.
const ASKING: Duration = Duration::from_secs(10);

impl<S: Stage> SinkRun<S> {
    /// Asks the engine until its answer shows where to continue, and sends the rest of the window
    /// again (I2).
    pub(super) async fn resolve(&mut self, mut doubt: Doubt, why: String) -> Result<(), Error> {
        step!("sink-in-doubt");
        let state = if doubt == Doubt::Full { State::Full } else { State::Asking };
        self.shared.change(|counters| {
            counters.doubts += 1;
            counters.last_doubt.clone_from(&why);
            counters.state = state;
        });
        let mut since = self.outage.take().map_or_else(Instant::now, |(since, _)| since);
        self.outage = Some((since, why));
        let mut losses = Losses::default();
        loop {
            self.anew = None;
            self.opened.publisher.begin_attempt();
            self.rest(doubt).await?;
            // A full stream is not a reason to leave this server: the stream would be just as full
            // at another one.
            if doubt == Doubt::Lost && self.opened.connection.is_to_leave(since) {
                let requests = self.opened.connection.requests();
                self.watching(doubt, async move { requests.leave().await }).await?;
            }
            let ended = match self.ask(doubt).await? {
                Asked::Later(why) => {
                    doubt = Doubt::Lost; // the stream may have room by now
                    let denied = self.opened.connection.denied();
                    let why = denied.map_or(why, |denied| denied.to_string());
                    self.shared.change(|counters| counters.last_doubt.clone_from(&why));
                    self.outage = Some((since, why));
                    self.shared.change(|counters| counters.state = State::Away);
                    continue;
                }
                Asked::End(tail, max_message) => {
                    let point = resume::resume(&tail, &self.opened.party, &self.begun);
                    point.map(|point| (point, max_message))
                }
                Asked::Failed(error) => Err(error),
            };
            let anew = match ended {
                Ok((point, max_message)) => {
                    step!("sink-asked");
                    losses = Losses::default();
                    self.expected = twin!("end-remembered": point.expected => self.begun.sequence);
                    self.begun.sequence = point.expected;
                    if self.forget_stored(point.next)? {
                        (since, self.pause) = (Instant::now(), Duration::ZERO);
                    }
                    if point.incarnation != self.begun.incarnation {
                        self.began_anew(point.incarnation)?;
                    }
                    step!("sink-resolved");
                    self.fit(max_message)?.then_some(point)
                }
                Err(error) if losses.excuse(&error, self.opened.connection.is_in_cluster()) => {
                    self.outage = Some((since, error.to_string()));
                    continue;
                }
                Err(error) => return Err(error),
            };
            let sent = match anew {
                Some(point) => self.begin_anew(&point).await,
                None => self.send_again().await,
            };
            match sent {
                Ok(()) => {
                    // The outage ends with the next acknowledgement. If no unit is in flight, no
                    // acknowledgement will come, so the outage ends now.
                    let (outage, state) = match self.window.is_empty() {
                        true => (None, State::Publishing),
                        false => (self.outage.take().map(|(_, why)| (since, why)), state),
                    };
                    self.outage = outage;
                    self.shared.change(|counters| counters.state = state);
                    return Ok(());
                }
                Err(Fault::Away(why) | Fault::Refused { why, .. }) => {
                    self.outage = Some((since, why));
                }
            }
        }
    }

    /// Waits before the next attempt, longer each time.
    async fn rest(&mut self, doubt: Doubt) -> Result<(), Error> {
        let pause = self.pause.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.pause = (self.pause * 2).clamp(Duration::from_millis(5), LONGEST_PAUSE);
        self.watching(doubt, tokio::time::sleep(pause)).await
    }

    /// Waits for `asking`, and checks the ring and the deadline meanwhile (I3).
    async fn watching<T>(
        &mut self,
        doubt: Doubt,
        asking: impl Future<Output = T>,
    ) -> Result<T, Error> {
        let mut asking = std::pin::pin!(asking);
        loop {
            self.check_ring()?;
            self.count_lag();
            let drops = self.check_outage(doubt)?;
            // A sink that drops events takes new ones at once, so that producers do not wait.
            let armed = drops && !self.ended && self.not_before.is_none();
            let stage = &mut self.stage;
            let ring = std::future::poll_fn(|context| {
                if stage.arm(context.waker()) { Poll::Ready(()) } else { Poll::Pending }
            });
            let answer = tokio::select! {
                biased;
                answer = &mut asking => Some(answer),
                () = self.stop.notified() => None,
                () = ring, if armed => None,
                () = tokio::time::sleep(POLL) => None,
            };
            if armed {
                self.stage.disarm();
            }
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// Ends the sink, or lets it drop events, once an outage lasts longer than the user allows.
    /// Returns whether the sink drops events.
    fn check_outage(&mut self, doubt: Doubt) -> Result<bool, Error> {
        let Some((since, why)) = &self.outage else { return Ok(false) };
        let waited = since.elapsed();
        match self.settings().outage {
            Outage::FailAfter(limit) if waited >= limit => Err(match doubt {
                Doubt::Full => Error::Full { why: why.clone() },
                Doubt::Lost => Error::Away { waited, why: why.clone() },
            }),
            Outage::DropAfter(limit) if waited >= limit => self.drop_events().map(|()| true),
            _ => Ok(false),
        }
    }

    /// Drops the ring's events, so that its producers do not wait.
    fn drop_events(&mut self) -> Result<(), Error> {
        let mut dropped = 0;
        let end = loop {
            match self.stage.hold(usize::MAX, |_, _| Continue(())) {
                Ok(0) => break Ok(()),
                Ok(taken) => dropped += taken as u64,
                Err(error) => break self.ring_ended(Taken::Ring(error)),
            }
        };
        let next = self.stage.next();
        self.stage.release(next);
        self.hole |= dropped > 0;
        self.shared.change(|counters| counters.dropped += dropped);
        end
    }

    /// Fails if the user has asked the sink to stop. Also fails if the ring has ended, unless its
    /// producers closed it.
    fn check_ring(&mut self) -> Result<(), Error> {
        if self.stop.is_asked() {
            return Err(Error::Stopped);
        }
        match self.stage.known() {
            Err(BatchError::Wait(WaitError::Closed)) | Ok(_) => Ok(()),
            Err(error) => self.ring_ended(Taken::Ring(error)),
        }
    }

    /// Asks the engine for the stream's end.
    async fn ask(&mut self, doubt: Doubt) -> Result<Asked, Error> {
        let mut closed = false;
        while let Ok(notice) = self.opened.connection.notices.try_recv() {
            closed |= notice == Notice::Closed;
            if notice == Notice::Disconnected {
                self.shared.change(|counters| counters.reconnects += 1);
            }
        }
        if closed || self.opened.connection.notices.is_closed() {
            let server = self.settings().server.clone();
            let opened = self.watching(doubt, Connection::open(&server)).await?;
            if let Some(why) = self.opened.reconnect(opened).await? {
                return Ok(Asked::Later(why));
            }
        }
        let name = self.opened.stream.name.clone();
        let requests = self.opened.connection.requests();
        let (party, begun) = (self.opened.party, self.begun);
        let asking = tokio::time::timeout(ASKING, async {
            let max_message = requests.info(&name).await?.max_message();
            let tail = match requests.tail(&name).await? {
                Ok(tail) => tail,
                Err(error) => return Ok(Err(error)),
            };
            let ours = tail.last.is_some_and(|(_, last)| last.writer == party.writer);
            if !ours || tail.last_sequence == begun.sequence {
                return Ok(Ok((tail, max_message)));
            }
            let behind = begun.sequence + 1..=tail.last_sequence;
            let checked = requests.check_chain(&name, behind, Some(begun.acknowledged)).await?;
            Ok::<_, Fault>(checked.map(|()| (tail, max_message)))
        });
        match self.watching(doubt, asking).await? {
            Ok(Ok(Ok((tail, max_message)))) => Ok(Asked::End(tail, max_message)),
            Ok(Ok(Err(error))) => Ok(Asked::Failed(error)),
            Ok(Err(Fault::Away(why))) => Ok(Asked::Later(why)),
            Ok(Err(fault @ Fault::Refused { .. })) => {
                match self.opened.connection.failed(&name, fault) {
                    error @ Error::NoStream { .. } => Ok(Asked::Failed(error)),
                    error => Ok(Asked::Later(error.to_string())),
                }
            }
            Err(_) => Ok(Asked::Later("no answer in time".into())),
        }
    }

    /// Releases the events of the units that the stream has stored up to its end `end`. Returns
    /// whether there were any.
    fn forget_stored(&mut self, end: u64) -> Result<bool, Error> {
        let before = self.begun.acknowledged;
        while self
            .window
            .oldest()
            .is_some_and(|unit| unit.end <= twin!("stored-sent-again": end => 0))
        {
            if let Some(unit) = self.window.pop() {
                self.acknowledge(unit, false);
            }
        }
        if self.begun.acknowledged == end {
            Ok(before != end)
        } else {
            // The stream ends in the middle of a unit. No append of this sink can have caused that.
            let error = Error::WrongEpoch { ring: self.begun.acknowledged, stream: end };
            twin!("stored-sent-again": Err(error) => Ok(false))
        }
    }

    async fn send_again(&mut self) -> Result<(), Fault> {
        let Opened { publisher, connection, .. } = &self.opened;
        let mut expected = self.expected;
        for unit in self.window.iter_mut() {
            unit.sent = Instant::now();
            in_time(publisher.send(connection, unit.number, &unit.body, expected)).await?;
            expected += unit.body.messages();
            self.shared.change(|counters| counters.resent += 1);
            step!("sink-sent-again");
        }
        self.expected = expected;
        Ok(())
    }
}

/// The engine's answer to a doubt, or the reason why there is none.
enum Asked {
    /// The stream's end, and its size limit for messages, in bytes, which is 0 if only the server's
    /// limit applies.
    End(resume::Tail, u64),
    Failed(Error),
    Later(String),
}
