//! The loop of a source.
//!
//! Invariants
//! - I1: the source continues at the ring's next position, and keeps no other record.
//! - I2: an event is published at its own position, or not at all.
//! - I3: positions are left out only where a message declares a hole.

use std::sync::Arc;
use std::time::Duration;

use slipring::errors::ClaimError;
use tokio::time::Instant;

use super::feed::Feed;
use super::running::{SOURCE_THREAD, SourceStatus};
use super::settings::SourceSettings;
use crate::counters::State;
use crate::encoding::Decoding;
use crate::errors::Error;
use crate::find::{self, Extent, Wanted};
use crate::frame::{Bad, Events, Header, Id};
use crate::message;
use crate::nats::fetch::{Fetch, FetchStart, Fetched};
use crate::nats::{Connection, Fault, LONGEST_PAUSE};
use crate::resume::Losses;

/// Time limit for removing a consumer. If the request fails, the server removes the consumer by
/// itself later.
const FORGET: Duration = Duration::from_millis(500);

/// A running source, which owns its ring's producer.
pub struct SourceRun<P: Feed> {
    /// `None` once the source has ended.
    producer: Option<P>,
    decoding: Decoding<P::Event>,
    connection: Connection,
    settings: SourceSettings,
    /// Position at which the source ends.
    until: Option<u64>,
    /// Number of the journal, once it is known.
    journal: Option<Id>,
    /// Greatest sequence of a message that was seen in the stream.
    seen: u64,
    shared: Arc<SourceStatus>,
    /// Greatest number of slots that are claimed at once.
    chunk: usize,
    /// Name of the consumer at the server.
    consumer: Option<String>,
    /// Whether the server allows the user to remove a consumer.
    may_delete: bool,
}

/// Effect of a message on the loop.
enum MessageEffect {
    Next,
    /// Positions are missing in front of this message.
    Missing {
        found: u64,
    },
}

impl<P: Feed> SourceRun<P> {
    pub fn new(
        producer: P,
        decoding: Decoding<P::Event>,
        connection: Connection,
        settings: SourceSettings,
        extent: &Extent,
        shared: Arc<SourceStatus>,
    ) -> SourceRun<P> {
        let chunk = (producer.slots() / 4).clamp(1, 4096);
        shared.connected(&connection);
        let until = settings.until_end.then(|| extent.positions.map_or(0, |(_, end)| end));
        // If the stream has several journals, the source reads only up to the end of the first one
        // that it meets.
        let one = extent.journals.filter(|(first, last)| first == last);
        let journal = settings.journal.or(one.map(|(number, _)| number));
        shared.change(|progress| {
            progress.state = State::Asking;
            progress.next = producer.next();
            progress.is_behind = progress.end > progress.next;
            progress.journal = journal.map(|number| number.0);
        });
        let producer = Some(producer);
        let (consumer, may_delete) = (None, true);
        SourceRun {
            producer,
            decoding,
            connection,
            settings,
            until,
            journal,
            seen: extent.sequence,
            shared,
            chunk,
            consumer,
            may_delete,
        }
    }

    /// Returns the ring's next position (I1).
    pub fn next(&self) -> u64 {
        self.producer.as_ref().map_or(0, |producer| producer.next())
    }

    /// Ends the ring: halts it if the source failed, and otherwise closes it.
    pub fn end(&mut self, failed: bool) {
        if let Some(producer) = self.producer.take()
            && failed
        {
            producer.end_failed();
        }
    }

    fn is_at_end(&self) -> bool {
        self.until.is_some_and(|until| self.next() >= until)
    }

    /// Removes the consumer at the server. Otherwise the server would remove it only after a while.
    pub async fn forget(&mut self) {
        if let Some(consumer) = self.consumer.take()
            && self.may_delete
        {
            let deleted = self.connection.delete_consumer(&self.settings.stream, &consumer);
            let deleted = tokio::time::timeout(FORGET, deleted).await;
            self.may_delete = deleted.unwrap_or_else(|_| self.connection.denied().is_none());
        }
    }

    /// Fills the ring up to the requested end. Reads the stream even if there is nothing to fill,
    /// because the stream may have lost events that the ring has.
    pub async fn run(&mut self) -> Result<(), Error> {
        let (mut away, mut pause) = (None::<Away>, Duration::ZERO);
        let mut losses = Losses::default();
        loop {
            let before = self.next();
            let begun = match away.take() {
                None => self.fetch().await,
                Some(Away { since, why }) => {
                    let left =
                        self.settings.fail_after.map(|all| all.saturating_sub(since.elapsed()));
                    let begun = at_most(left, self.begin_anew(since, pause)).await;
                    pause = (pause * 2).clamp(Duration::from_millis(10), LONGEST_PAUSE);
                    let Some(begun) = begun else {
                        return Err(Error::Away { waited: since.elapsed(), why });
                    };
                    away = Some(Away { since, why });
                    begun
                }
            };
            let stopped = match begun {
                Ok(fetch) => {
                    // The server has answered, even if it sent no event.
                    (away, losses) = (None, Losses::default());
                    let reconnects = self.connection.reconnects();
                    self.shared.change(|progress| {
                        progress.state = State::Publishing;
                        progress.reconnects = reconnects;
                    });
                    match self.follow(fetch).await {
                        Ok(()) => return Ok(()),
                        Err(stopped) => stopped,
                    }
                }
                Err(stopped) => stopped,
            };
            if self.next() != before {
                pause = Duration::ZERO;
            }
            let why = match stopped {
                Stopped::Failed(error) => {
                    if !losses.excuse(&error, self.connection.is_in_cluster()) {
                        return Err(error);
                    }
                    error.to_string()
                }
                Stopped::Away(why) => why,
            };
            self.shared.change(|progress| {
                progress.state = State::Away;
                progress.last_doubt.clone_from(&why);
            });
            let since = away.map_or_else(Instant::now, |away| away.since);
            away = Some(Away { since, why });
        }
    }

    /// Searches for the ring's position again, after a pause.
    async fn begin_anew(&mut self, since: Instant, pause: Duration) -> Result<Fetch, Stopped> {
        self.shared.change(|progress| progress.restarts += 1);
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        self.connection.leave_in_time(since).await;
        self.reconnect().await.map_err(Stopped::Failed)?;
        self.fetch().await
    }

    /// Makes a new connection if the client library has given up the old one.
    async fn reconnect(&mut self) -> Result<(), Error> {
        while self.connection.notices.try_recv().is_ok() {}
        if self.connection.notices.is_closed() {
            match Connection::open(&self.settings.server).await {
                Ok(connection) => {
                    self.shared.connected(&connection);
                    self.connection = connection;
                }
                Err(error @ Error::Option { .. }) => return Err(error),
                Err(_) => {} // the next attempt tries again
            }
        }
        Ok(())
    }

    /// Reads messages from `fetch` up to the requested end.
    async fn follow(&mut self, mut fetch: Fetch) -> Result<(), Stopped> {
        step!("source-fetching");
        let mut asked_again = None;
        while !self.is_at_end() {
            let fetched = match fetch.next(&mut self.connection, self.until.is_some()).await {
                Ok(fetched) => fetched,
                Err(fault) => return Err(self.stopped(fault)),
            };
            step!("source-fetched");
            let (sequence, expected) = (fetched.sequence, self.next());
            let (bytes, is_behind) = (fetched.payload.len() as u64, fetched.behind > 0);
            self.shared.change(|progress| progress.is_behind = true);
            let taken = self.take(fetched).await?;
            self.shared.change(|progress| {
                progress.bytes += bytes;
                progress.is_behind = is_behind;
                progress.end = progress.end.max(progress.next);
            });
            match taken {
                MessageEffect::Next => {}
                // The positions may be missing only in this delivery, so the source searches again
                // before it reports a gap.
                MessageEffect::Missing { found } if asked_again == Some(sequence) => {
                    return Err(Stopped::Failed(Error::Gap { expected, found, sequence }));
                }
                MessageEffect::Missing { .. } => {
                    asked_again = Some(sequence);
                    fetch = self.fetch().await?;
                }
            }
        }
        Ok(())
    }

    /// Searches for the ring's position in the stream, and begins to fetch there.
    async fn fetch(&mut self) -> Result<Fetch, Stopped> {
        let stream = self.settings.stream.clone();
        let (next, until, journal, seen) = (self.next(), self.until, self.journal, self.seen);
        let info = self.connection.info(&stream).await.map_err(|fault| self.stopped(fault))?;
        let wanted = Wanted { next, until, journal, seen };
        let found = find::find(&self.connection, &stream, &info.state, &wanted).await;
        let found = match found {
            Ok(found) => found.map_err(Stopped::Failed)?,
            Err(fault) => return Err(self.stopped(fault)),
        };
        if let Some(doubt) = found.doubt {
            self.shared.change(|progress| progress.last_doubt = doubt.to_string());
        }
        step!("source-found");
        self.forget().await;
        let consumer = format!("slipring-{:016x}", fastrand::u64(..));
        self.consumer = Some(consumer.clone());
        let from = FetchStart {
            stream: &stream,
            consumer: &consumer,
            sequence: found.sequence,
            inactive_limit: info.inactive_limit(),
        };
        let fetch = Fetch::new(&self.connection, from).await;
        fetch.map_err(|fault| self.stopped(fault))
    }

    /// Decides whether a later attempt may succeed after `fault`.
    fn stopped(&self, fault: Fault) -> Stopped {
        if let Some(denied) = self.connection.denied() {
            return Stopped::Failed(denied);
        }
        let is_bad = match fault {
            Fault::Away(why) => return Stopped::Away(why),
            Fault::Refused { is_bad, .. } => is_bad,
        };
        match self.connection.failed(&self.settings.stream, fault) {
            error @ (Error::NoStream { .. } | Error::NoJetStream { .. }) => Stopped::Failed(error),
            error if is_bad => Stopped::Failed(error),
            error => Stopped::Away(error.to_string()),
        }
    }

    /// Publishes the events of a message, except those that the ring already has.
    async fn take(&mut self, fetched: Fetched) -> Result<MessageEffect, Stopped> {
        let sequence = fetched.sequence;
        let bad = |bad| Stopped::Failed(Error::of_message(bad, sequence));
        let description = fetched.description.as_deref();
        let (header, mut events) = message::read(description, &fetched.payload).map_err(bad)?;
        self.check(&header)?;
        self.seen = self.seen.max(sequence);
        self.shared.change(|progress| {
            progress.messages += 1;
            progress.journal = Some(header.ring.0);
        });
        let next = self.next();
        if header.end() <= next {
            self.shared.change(|progress| progress.passed_over += 1);
            return Ok(MessageEffect::Next);
        }
        if twin!("missing-unnoticed": header.after > next => false) {
            return Ok(MessageEffect::Missing { found: header.after });
        }
        twin!("hole-filled": self.leave_out(header.first).await? => ());
        for _ in header.first..twin!("frame-begun-again": self.next() => 0) {
            events.next().transpose().map_err(bad)?; // the ring has this one
        }
        self.publish(&header, events, sequence).await?;
        Ok(MessageEffect::Next)
    }

    /// Refuses a message of another type or another journal.
    fn check(&mut self, header: &Header) -> Result<(), Stopped> {
        let (ours, theirs) = (self.decoding.fingerprint(), header.fingerprint);
        if ours != theirs {
            return Err(Stopped::Failed(Error::WrongType { ours, theirs }));
        }
        let expected = *self.journal.get_or_insert(header.ring);
        find::check_journal(expected, header.ring).map_err(Stopped::Failed)
    }

    /// Leaves out the positions up to `first`, which belong to a hole (I3).
    async fn leave_out(&mut self, first: u64) -> Result<(), Stopped> {
        while self.next() < first {
            let (from, left) = (self.next(), first - self.next());
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk);
            let Some(producer) = &mut self.producer else { break };
            match producer.skip(len).await {
                Ok(true) => self.shared.change(|progress| {
                    progress.holes += len as u64;
                    progress.next = from + len as u64;
                }),
                Ok(false) => return Err(Stopped::Failed(Error::Hole { from, to: first })),
                Err(error) => return Err(claim_failed(error)),
            }
        }
        Ok(())
    }

    /// Decodes the remaining events into the ring's slots.
    async fn publish(
        &mut self,
        header: &Header,
        mut events: Events<'_>,
        sequence: u64,
    ) -> Result<(), Stopped> {
        let until = self.until.unwrap_or(u64::MAX).min(header.end());
        while self.next() < until {
            let (first, left) = (self.next(), until - self.next());
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(self.chunk);
            let SourceRun { producer: Some(producer), decoding, .. } = self else { break };
            let mut at = first;
            let filled = producer.fill(len, |slot| {
                let decoded = match events.next() {
                    Some(Ok(event)) => decoding.decode(event, slot).map_err(DecodeError::By),
                    Some(Err(bad)) => Err(DecodeError::Bad(bad)),
                    None => {
                        Err(DecodeError::Bad(Bad::Damaged("it has fewer events than it names")))
                    }
                };
                at += 1;
                decoded
            });
            match filled.await {
                Ok(Ok(published)) if published == first => {
                    step!("source-published");
                    let len = len as u64;
                    self.shared.change(|progress| {
                        progress.events += len;
                        progress.next = first + len;
                    });
                }
                // Another producer of the ring has claimed positions.
                Ok(Ok(published)) => {
                    let error = Error::WrongEpoch { ring: published, stream: first };
                    return Err(Stopped::Failed(error));
                }
                Ok(Err(DecodeError::Bad(bad))) => {
                    return Err(Stopped::Failed(Error::of_message(bad, sequence)));
                }
                Ok(Err(DecodeError::By(why))) => {
                    let (stage, seq) = (SOURCE_THREAD.into(), at - 1);
                    return Err(Stopped::Failed(Error::Function { stage, seq, why }));
                }
                Err(error) => return Err(claim_failed(error)),
            }
        }
        Ok(())
    }
}

/// An outage of the server.
struct Away {
    since: Instant,
    /// Reason why the last attempt failed.
    why: String,
}

/// Waits for `attempt`, but at most for `left`. Returns `None` if the attempt takes longer.
async fn at_most<T>(left: Option<Duration>, attempt: impl Future<Output = T>) -> Option<T> {
    match left {
        Some(left) => tokio::time::timeout(left, attempt).await.ok(),
        None => Some(attempt.await),
    }
}

/// The reason why the source stopped reading.
enum Stopped {
    Failed(Error),
    Away(String),
}

/// The reason why an event was not decoded.
enum DecodeError {
    By(String),
    Bad(Bad),
}

fn claim_failed(error: ClaimError) -> Stopped {
    Stopped::Failed(match error {
        ClaimError::Wait(error) => Error::Ring(error),
        other => Error::Server { why: format!("the ring gives no slot: {other}") },
    })
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::time::Duration;

    use super::at_most;
    use crate::runtime::Background;

    #[test]
    fn an_attempt_that_never_ends_takes_as_long_as_it_may() {
        let background = Background::new().unwrap();
        for left in [None, Some(Duration::MAX)] {
            assert_eq!(background.run_here(at_most(left, ready(1))), Some(1), "{left:?}");
        }
        for left in [Duration::ZERO, Duration::from_millis(1)] {
            let never = at_most(Some(left), pending::<u64>());
            assert_eq!(background.run_here(never), None, "{left:?}");
        }
    }
}
