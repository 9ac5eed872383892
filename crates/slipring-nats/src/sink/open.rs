//! Opening a sink: it connects, checks its stream, and takes the stream over.
//!
//! Invariants
//! - I1: a sink is open only once its begin messages are known to be stored. From then on no
//!   condition of an earlier sink holds (resume::I2).
//! - I2: each attempt to begin a new journal draws another number for it (resume::I5).

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::settings::{Durability, SinkSettings};
use super::units::MESSAGE_HEADERS;
use crate::encoding::Encoding;
use crate::errors::Error;
use crate::frame::{HEADER, Header, Id, LENGTH, MAX_FRAME};
use crate::message;
use crate::nats::publish::{AppendAnswer, Body, Publisher, Single, UNACKNOWLEDGED};
use crate::nats::stream::{Stream, Writes};
use crate::nats::{Connection, Fault, Patience, REQUEST, power};
use crate::resume::{self, Losses, Party, Point, Start};

/// Time limit of a takeover.
const TAKEOVER: Duration = Duration::from_secs(15);
/// Number of the append that has the begin messages.
pub const BEGIN: u64 = u64::MAX;
/// Bytes that the server may count for a message in addition to its payload and the stream's name:
/// the headers and their framing.
const MESSAGE_OVERHEAD: usize = 256;

/// The state of a running sink, apart from its ring.
pub struct Opened<E> {
    pub connection: Connection,
    pub publisher: Publisher,
    pub stream: Stream,
    pub party: Party,
    pub point: Point,
    pub encoding: Encoding<E>,
    pub settings: SinkSettings,
    /// Greatest length of a frame, in bytes.
    pub max_frame: usize,
    pub durability: Durability,
    /// Greatest number of messages in flight.
    pub window: u32,
    /// Subject of frames and of begin messages.
    pub subject: String,
    /// Name of the ring's stage.
    pub name: String,
}

impl<E> Opened<E> {
    /// Connects, checks the stream, and takes it over for the ring `epoch`.
    pub async fn new(
        settings: SinkSettings,
        mut encoding: Encoding<E>,
        epoch: Id,
        start: Start,
    ) -> Result<Opened<E>, Error> {
        let mut patience = Patience::new(settings.wait);
        let (connection, stream) = loop {
            match connect(&settings, encoding.is_messages()).await {
                Err(error) if patience.lasts(&error).await => {}
                connected => break connected?,
            }
        };
        step!("sink-checked");
        let max_frame = max_frame(&connection, &stream, &settings, &encoding)?;
        let subject = subject(&stream, &settings, encoding.is_messages())?;
        encoding.cover(&stream.subjects);
        let durability = durability(&stream, &settings).await?;
        let party = Party { epoch, writer: fastrand::u64(..), fingerprint: encoding.fingerprint() };
        let publisher = Publisher::new(&connection, &stream.name, &subject, party.writer).await;
        let publisher = publisher.map_err(|fault| connection.failed(&stream.name, fault))?;
        let point =
            Point { expected: 0, after: 0, next: 0, ring: epoch, incarnation: 0, messages: 0 };
        // Without atomic batches, a later sink could not fence several messages in flight
        // (resume::I2).
        let several = stream.atomic && !encoding.is_messages();
        let window = if several { settings.window as u32 } else { 1 };
        let mut opened = Opened {
            connection,
            publisher,
            stream,
            party,
            point,
            encoding,
            settings,
            max_frame,
            durability,
            window,
            subject,
            name: String::new(),
        };
        opened.take_over(start, TAKEOVER.max(patience.left())).await?;
        Ok(opened)
    }

    /// Returns the header that all messages share, except for their positions.
    pub fn template(&self) -> Header {
        self.template_at(&self.point)
    }

    fn template_at(&self, point: &Point) -> Header {
        Header {
            ring: point.ring,
            epoch: self.party.epoch,
            incarnation: point.incarnation,
            writer: self.party.writer,
            fingerprint: self.party.fingerprint,
            event_size: self.encoding.size().unwrap_or(0),
            after: point.after,
            first: point.next,
            count: 0,
            window: self.window,
        }
    }

    /// Adopts the current size limits of the stream and the server. `max_message` is the stream's
    /// limit, in bytes.
    pub fn learn_limit(&mut self, max_message: u64) -> Result<(), Error> {
        self.stream.max_message = max_message;
        let Opened { connection, stream, settings, encoding, .. } = self;
        self.max_frame = max_frame(connection, stream, settings, encoding)?;
        Ok(())
    }

    /// Publishes the begin messages, which have no events and the next incarnation. From then on
    /// the server refuses the messages that an earlier sink has in flight.
    async fn take_over(&mut self, mut start: Start, time: Duration) -> Result<(), Error> {
        let until = Instant::now().checked_add(time);
        let name = self.stream.name.clone();
        let mut why = String::from("no answer in time");
        let mut begun: Option<Point> = None;
        let (asking, mut losses) = (Instant::now(), Losses::default());
        for attempt in 1_u64.. {
            if until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            if let Some(error) = self.connection.denied() {
                return Err(error);
            }
            self.connection.leave_in_time(asking).await;
            self.publisher.begin_attempt();
            // An earlier sink may be appending at full speed, so little time should pass between
            // this request and the begin messages.
            let tail = match attempt % 4 == 0 || losses.are_told() {
                true => self.connection.tail(&name).await,
                false => self.connection.quick_tail(&name).await,
            };
            let tail = match tail {
                Ok(tail) => tail?,
                Err(Fault::Away(reason)) => {
                    why = reason;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(fault) => return Err(self.connection.failed(&name, fault)),
            };
            step!("sink-tail-read");
            if let Some(point) = begun.take_if(|point| resume::has_begun(&tail, &self.party, point))
            {
                step!("sink-found-begun");
                self.point = Point { expected: tail.last_sequence, ..point };
                return self.check_before(&point).await;
            }
            // A stream may begin at any sequence (first_seq). A stream that is unused never had a
            // sink.
            let mut begins = tail;
            if tail.last.is_none() && tail.last_sequence > 0 {
                match self.connection.is_unused(&name, tail.last_sequence).await {
                    Ok(true) => begins.last_sequence = 0,
                    Ok(false) => {}
                    Err(Fault::Away(reason)) => {
                        why = reason;
                        continue;
                    }
                    Err(fault) => return Err(self.connection.failed(&name, fault)),
                }
            }
            start.number = Id::random(); // I2
            let mut point = match resume::begin(&begins, &self.party, &start) {
                Ok(point) => point,
                Err(error) if losses.excuse(&error, self.connection.is_in_cluster()) => {
                    why = error.to_string();
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            losses = Losses::default();
            point.expected = tail.last_sequence;
            if point.messages > 1 && !self.stream.atomic {
                if tail.last.is_some_and(|(_, last)| last.window > 1) {
                    return Err(self.no_longer_atomic());
                }
                point.messages = 1; // no sink has more in flight there
            }
            self.point = point;
            let begin = self.begin_message(&point);
            let sent = self.publisher.send(&self.connection, BEGIN, &begin, point.expected);
            let patience = self.settings.ack_timeout.min(REQUEST); // then it asks again
            match tokio::time::timeout(patience, sent).await {
                Ok(Ok(())) => begun = Some(point),
                Ok(Err(Fault::Away(reason) | Fault::Refused { why: reason, .. })) => {
                    why = reason;
                    continue;
                }
                Err(_) => continue,
            }
            step!("sink-begin-sent");
            match tokio::time::timeout(patience, self.publisher.answer()).await {
                Ok(Some((BEGIN, AppendAnswer::Stored { sequence })))
                    if sequence == point.expected + u64::from(point.messages) =>
                {
                    step!("sink-begun");
                    self.point = Point { expected: sequence, ..point };
                    return self.check_before(&point).await;
                }
                Ok(Some((_, AppendAnswer::Full(why)))) => return Err(Error::Full { why }),
                Ok(Some((_, AppendAnswer::Never(reason)))) => {
                    return Err(Error::WrongStream { stream: name, wrong: vec![reason] });
                }
                Ok(Some((_, AppendAnswer::Later(reason)))) => {
                    why = reason;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(_) => why = UNACKNOWLEDGED.into(),
                Ok(_) => {}
            }
        }
        Err(Error::Away { waited: asking.elapsed(), why })
    }

    /// Checks that the messages in front of the begin messages at `point` are contiguous. The check
    /// covers as many messages as the previous sink may have had in flight at once.
    async fn check_before(&mut self, point: &Point) -> Result<(), Error> {
        if point.messages <= 1 || self.settings.accept_loss {
            return Ok(());
        }
        let name = &self.stream.name;
        // The first checked message must follow its predecessor as well, so the check begins one
        // message earlier.
        let from = point.expected.saturating_sub(point.messages.into());
        let asking = Instant::now();
        loop {
            match self.connection.check_chain(name, from..=point.expected, None).await {
                Ok(checked) => return checked,
                Err(Fault::Away(_)) if asking.elapsed() < TAKEOVER => {}
                Err(fault) => return Err(self.connection.failed(name, fault)),
            }
            self.connection.leave_in_time(asking).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn no_longer_atomic(&self) -> Error {
        let wrong = "an earlier sink may have several messages in flight, which a new one passes only \
                     by an atomic batch (allow_atomic)";
        Error::WrongStream { stream: self.stream.name.clone(), wrong: vec![wrong.into()] }
    }

    /// Returns the begin messages. There are as many as the previous sink may have messages in
    /// flight (resume::I2).
    pub fn begin_message(&self, point: &Point) -> Body {
        let header = self.template_at(point);
        // The first begin message declares the hole, if there is one.
        let rest = self.without_events(&Header { after: header.first, ..header });
        let mut messages = vec![rest; point.messages as usize];
        if let Some(first) = messages.first_mut() {
            *first = self.without_events(&header);
        }
        Body::Batch(messages)
    }

    /// Returns a message without events.
    pub fn without_events(&self, header: &Header) -> Single {
        let subject = self.subject.clone();
        if self.encoding.is_messages() {
            let description = Some((message::describe(header, b""), header.first));
            return Single { subject, description, payload: Bytes::new() };
        }
        let mut frame = vec![0; HEADER];
        header.write(&mut frame);
        Single { subject, description: None, payload: frame.into() }
    }

    /// Replaces a connection that the client library has given up. If that fails but a later
    /// attempt may succeed, returns the reason.
    pub async fn reconnect(
        &mut self,
        opened: Result<Connection, Error>,
    ) -> Result<Option<String>, Error> {
        let connection = match opened {
            Ok(connection) => connection,
            Err(error @ Error::Option { .. }) => return Err(error),
            Err(error) => return Ok(Some(error.to_string())),
        };
        let publisher =
            Publisher::new(&connection, &self.stream.name, &self.subject, self.party.writer).await;
        match publisher {
            Ok(publisher) => {
                self.publisher = publisher.after(&self.publisher);
                self.connection = connection;
                Ok(None)
            }
            Err(Fault::Away(why) | Fault::Refused { why, .. }) => Ok(Some(why)),
        }
    }
}

/// Connects, and checks or creates the stream.
async fn connect(settings: &SinkSettings, batches: bool) -> Result<(Connection, Stream), Error> {
    let mut connection = Connection::open(&settings.server).await?;
    step!("sink-connected");
    let chosen = settings.subject.clone().unwrap_or_default();
    let (name, create) = (&settings.stream, settings.create.as_ref());
    let writes = Writes { subject: &chosen, batches };
    let asking = Instant::now();
    loop {
        let stream = connection.stream(name, create, Some(writes)).await;
        if !connection.waits_for_leader(stream.as_ref().err(), asking).await {
            return stream.map(|stream| (connection, stream));
        }
    }
}

/// Returns the greatest length of a frame. Fails if events do not fit into it.
fn max_frame<E>(
    connection: &Connection,
    stream: &Stream,
    settings: &SinkSettings,
    encoding: &Encoding<E>,
) -> Result<usize, Error> {
    let server = connection.max_payload();
    let overhead = MESSAGE_OVERHEAD + stream.name.len();
    let stream = match usize::try_from(stream.max_message).unwrap_or(usize::MAX) {
        0 => usize::MAX,
        limit => limit,
    };
    let limit = settings.max_frame.min(MAX_FRAME).min(server.min(stream).saturating_sub(overhead));
    let needs = match encoding.size() {
        Some(size) => HEADER + size as usize,
        None if encoding.is_messages() => MESSAGE_HEADERS,
        None => HEADER + LENGTH,
    };
    if needs > limit {
        return Err(Error::TooLarge { needs: needs as u64, limit: limit as u64 });
    }
    Ok(limit)
}

/// Returns the subject of frames and begin messages: the chosen one, or that of the stream.
fn subject(stream: &Stream, settings: &SinkSettings, messages: bool) -> Result<String, Error> {
    if let Some(subject) = &settings.subject {
        return Ok(subject.clone());
    }
    let is_pattern = |subject: &String| subject.contains(['*', '>']);
    match stream.subjects.as_slice() {
        [only] if !is_pattern(only) => Ok(only.clone()),
        [first, ..] if messages => Ok(first.replace(['*', '>'], "begin")),
        subjects => {
            let what = format!(
                "the stream {} has the subjects {}: say which one the sink publishes to (Sink::subject)",
                stream.name,
                subjects.join(", ")
            );
            Err(Error::Option { what })
        }
    }
}

/// Returns the actual durability. Fails if it is less than required.
async fn durability(stream: &Stream, settings: &SinkSettings) -> Result<Durability, Error> {
    let holds = if stream.in_memory || stream.asynchronous {
        Durability::Memory
    } else if settings.confirmed {
        Durability::Power
    } else if let Some(system) = &settings.system {
        match power::syncs_always(system).await? {
            true => Durability::Power,
            false => Durability::Process,
        }
    } else {
        Durability::Process
    };
    if holds >= settings.durability {
        return Ok(holds);
    }
    let why = match (holds, settings.durability) {
        (Durability::Memory, _) => format!(
            "the stream {} is in the server's memory, or is written after its acknowledgements: use \
             file storage and the default persist_mode",
            stream.name
        ),
        _ if settings.system.is_some() => {
            "not each server has `sync_interval: always`: set it, or ask \
                                           for Durability::Process"
                .to_string()
        }
        _ => "nothing says that the servers sync before they acknowledge: let the sink check \
              (Sink::check_power), or confirm it (Sink::confirm_power)"
            .to_string(),
    };
    Err(Error::NotDurable { why })
}
