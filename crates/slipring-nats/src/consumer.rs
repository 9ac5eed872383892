//! Named consumers, and the trimming of streams. A named consumer records at the server how far a
//! program has come with a stream's events. Trimming removes the events that all named consumers
//! have finished with.
//!
//! Invariants
//! - I1: a note never covers more than was acknowledged. It counts whole messages, so a message
//!   that is acknowledged in part does not count.
//! - I2: a note is a consumer of the stream, and ends with the stream. A recreated stream has none
//!   of the old notes, and a handle that was opened on the old stream moves no note of the new one.

use std::fmt;

use crate::errors::Error;
use crate::find::{self, Wanted};
use crate::nats::api::StreamState;
use crate::nats::consumer::{Consumer, OLDEST};
use crate::nats::subject::check_name;
use crate::nats::{Connection, Fault, Server};
use crate::runtime::Background;

/// A note at the server that records how far a program has come with a stream's events.
///
/// A source needs no note, because its ring says where it continues. A program whose ring ends with
/// its process needs one, and so does [`trim`], which removes events that all named consumers have
/// finished with. The note is a durable consumer of the stream, which `nats consumer info ORDERS
/// billing` shows. It records the acknowledged position, and delivers no messages.
///
/// ```
/// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
/// # let nats = slipring_nats_server::Server::start(Default::default())?;
/// # let url = nats.url();
/// # let sink = slipring_nats::Sink::to(slipring_nats::Server::at(nats.url()), "ORDERS")
/// #     .create(slipring_nats::StreamSettings::new("orders"))
/// #     .max_frame(104 + 8)
/// #     .open(slipring_nats::Encoding::<u64>::plain("order", 1))?;
/// # let (mut tx, orders) = slipring::unicast(8, || 0)?;
/// # let running = sink.start(orders)?;
/// # for i in 0..3 { tx.publish(|slot| *slot = i)?; }
/// # tx.close();
/// # running.join()?;
/// use slipring_nats::{Decoding, NamedConsumer, Server, Source, trim};
///
/// let server = Server::at(url);
/// let mut billing = NamedConsumer::open(server.clone(), "ORDERS", "billing")?;
/// let first = billing.next_seq().unwrap_or(0); // where the program continues
/// let source = Source::of(server.clone(), "ORDERS").until_end().open()?;
/// let graph = slipring::Graph::new(1024, || 0u64).shared().first_seq(first);
/// let key = graph.reader("bill");
/// let ring = graph.build()?;
/// let (tx, mut bill) = (ring.producer(), ring.reader(key));
/// let source = source.start(Decoding::plain("order", 1), tx)?;
/// while let Ok(batch) = bill.batch(1024) {
///     let end = batch.first_seq() + batch.len() as u64;
///     // ... write the bills to disk, and then:
///     batch.release();
///     billing.acknowledge(end)?;
/// }
/// source.join()?;
///
/// // At intervals, in any program:
/// let trimmed = trim(server, "ORDERS", &["billing"])?;
/// assert!(trimmed.messages > 0 && trimmed.oldest == Some(2)); // the last message stays
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Guarantees
///
/// - Events that were not acknowledged come again: a program that is killed between its work and
///   the acknowledgement finds them at [`next_seq`](NamedConsumer::next_seq). The last acknowledged
///   events may come again as well, up to one message of them, because the note counts whole
///   messages. A program that must not repeat its work stores the position together with the work,
///   and uses the note for [`trim`] alone.
/// - The note is as durable as the stream, whose storage and replicas it has.
/// - A name belongs to one program at a time. Two programs that use it overwrite each other's
///   notes.
/// - A note can be moved back, so that a program can read events again. Trimmed events are gone,
///   and so are the events that a `trim` in progress removes.
/// - A name that is no longer used should be [removed](NamedConsumer::remove), here or by `nats
///   consumer rm`, or left out of the call of `trim`.
///
/// A note needs nats-server 2.14. Its user needs the permission for
/// `$JS.API.CONSUMER.{INFO,CREATE,RESET,DELETE}`.
pub struct NamedConsumer {
    runtime: Background,
    connection: Connection,
    stream: String,
    name: String,
    /// Creation time of the stream that the note belongs to.
    created: String,
    /// Sequence up to which all messages were acknowledged.
    floor: u64,
    next: Option<u64>,
}

impl NamedConsumer {
    /// Opens the note `name` of the stream. A new note begins at the oldest event.
    ///
    /// Example: [`NamedConsumer`].
    ///
    /// # Errors
    /// Every [`Error`] about the server or the stream, and:
    /// - [`Error::WrongStream`] if the stream is a mirror, because notes belong to its origin;
    /// - [`Error::Option`] if the name has a character that is not allowed, if it belongs to
    ///   another kind of consumer, or if the server is older than 2.14.
    pub fn open(
        server: Server,
        stream: impl Into<String>,
        name: impl Into<String>,
    ) -> Result<NamedConsumer, Error> {
        let (stream, name) = (stream.into(), name.into());
        check_name("consumer", &name)?;
        let runtime = Background::new()?;
        let (connection, created, floor, next) = runtime.run(async {
            let connection = Connection::open(&server).await?;
            let created = check_stream(&connection, &stream).await?;
            check_version(&connection, &server)?;
            let failed = |fault| connection.failed(&stream, fault);
            let found = connection.consumer(&stream, &name).await.map_err(failed)?;
            let consumer = match found {
                Some(consumer) => consumer,
                None => connection.make_consumer(&stream, &name).await.map_err(failed)?,
            };
            if !consumer.is_ours() {
                let what = format!(
                    "the stream {stream} has a consumer {name} of another kind: choose another \
                     name (NamedConsumer::open)"
                );
                return Err(Error::Option { what });
            }
            let floor = consumer.floor();
            let next = position(&connection, &stream, floor).await.map_err(failed)??;
            Ok((connection, created, floor, next))
        })?;
        Ok(NamedConsumer { runtime, connection, stream, name, created, floor, next })
    }

    /// Returns the position of the first event that was not acknowledged. After
    /// [`open`](NamedConsumer::open), it may be lower than the position that was last given to
    /// [`acknowledge`](NamedConsumer::acknowledge), by less than a message. Returns `None` if the
    /// stream had no message when the note was opened, and no position was acknowledged since.
    ///
    /// Example: [`NamedConsumer`].
    pub fn next_seq(&self) -> Option<u64> {
        self.next
    }

    /// Records that the program has finished with all events before position `next`, and with none
    /// from there on. `next` may be lower than in an earlier call.
    ///
    /// The call waits for the answers to some requests, which takes milliseconds. So call it once a
    /// second or once in 100,000 events, for instance, and not for each event.
    ///
    /// Example: [`NamedConsumer`].
    ///
    /// # Errors
    /// - [`Error::Unreachable`] if the server does not answer. The note may or may not have moved;
    ///   repeat the call later.
    /// - [`Error::Trimmed`] if the stream has removed events from `next` on.
    /// - [`Error::LostAcknowledged`] if the stream ends before `next`.
    /// - [`Error::NoConsumer`] if the note was removed meanwhile, or the stream was recreated. Open
    ///   the consumer again.
    pub fn acknowledge(&mut self, next: u64) -> Result<(), Error> {
        let (connection, stream, name) = (&self.connection, &self.stream, &self.name);
        let created = &self.created;
        let (before, floor) = (self.next, self.floor);
        let floor = self.runtime.run(async {
            let failed = |fault| connection.failed(stream, fault);
            let info = connection.info(stream).await.map_err(failed)?;
            if info.created != *created {
                // I2
                return Err(Error::NoConsumer { stream: stream.clone(), name: name.clone() });
            }
            let state = info.state;
            if state.last_stored() == 0
                && let Some(last) = next.checked_sub(1)
            {
                return Err(Error::LostAcknowledged {
                    acknowledged: Some(last),
                    found: 0,
                    gone: None,
                });
            }
            // If the note moves forward, the search can begin at the last acknowledged message.
            // That message is read first, to see whether the stream still has it: the stream may
            // have lost its end.
            let mut low = 0;
            if before.is_some_and(|before| before <= next) && floor > state.first_seq {
                let message = connection.next_from(stream, floor).await.map_err(failed)?;
                if let Some(message) = message.filter(|message| message.sequence == floor)
                    && message.header()?.end() <= next
                {
                    low = floor;
                }
            }
            let state = StreamState { first_seq: state.first_seq.max(low), ..state };
            let wanted = Wanted { next, until: None, journal: None, seen: 0 };
            let found = find::find(connection, stream, &state, &wanted).await;
            let sequence = found.map_err(failed)??.sequence; // I1
            match connection.reset_consumer(stream, name, sequence).await {
                Ok(()) => Ok(sequence - 1),
                // The server does not answer if there is no such consumer.
                Err(fault) => match consumer(connection, stream, name).await {
                    Err(error @ Error::NoConsumer { .. }) => Err(error),
                    _ => Err(failed(fault)),
                },
            }
        })?;
        (self.floor, self.next) = (floor, Some(next));
        Ok(())
    }

    /// Removes the note. [`trim`] then refuses the name.
    ///
    /// ```
    /// # if slipring_nats_server::binary::find().is_err() { return Ok(()) }
    /// # let nats = slipring_nats_server::Server::start(Default::default())?;
    /// # let server = slipring_nats::Server::at(nats.url());
    /// # slipring_nats::Sink::to(server.clone(), "ORDERS")
    /// #     .create(slipring_nats::StreamSettings::new("orders"))
    /// #     .open(slipring_nats::Encoding::<u64>::plain("order", 1))?;
    /// use slipring_nats::{Error, NamedConsumer, trim};
    /// NamedConsumer::open(server.clone(), "ORDERS", "abandoned")?.remove()?;
    /// let error = trim(server, "ORDERS", &["abandoned"]).unwrap_err();
    /// assert!(matches!(error, Error::NoConsumer { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Every [`Error`] about the server or the stream.
    pub fn remove(self) -> Result<(), Error> {
        let NamedConsumer { runtime, connection, stream, name, .. } = self;
        runtime.run(async {
            connection.delete_consumer(&stream, &name).await;
            match consumer(&connection, &stream, &name).await {
                Err(Error::NoConsumer { .. }) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => {
                    let why = format!("the consumer {name} is still there");
                    Err(connection.denied().unwrap_or(Error::Server { why }))
                }
            }
        })
    }
}

impl fmt::Debug for NamedConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NamedConsumer");
        shown.field("stream", &self.stream).field("name", &self.name).field("next", &self.next);
        shown.finish()
    }
}

/// Result of [`trim`].
///
/// Example: [`NamedConsumer`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trim {
    /// Number of removed messages.
    pub messages: u64,
    /// Oldest position that the stream still has; `None` if the stream has no message.
    pub oldest: Option<u64>,
    /// Consumer that has acknowledged the least. The remaining messages are kept for it.
    pub held_by: String,
}

/// Removes the messages of a stream that all consumers of these names have acknowledged. The names
/// belong to [`NamedConsumer`]s, or to durable consumers of programs in other languages that
/// acknowledge each message.
///
/// For a consumer of another program, the server's `ack_floor` counts. A consumer with another
/// deliver policy than `all` may begin in the middle of the stream. Its floor then begins there as
/// well, so `trim` keeps no earlier messages for it.
///
/// The stream's last message stays, because it tells a sink where to continue. A sink may publish
/// meanwhile. As long as a named consumer has acknowledged nothing, all messages are kept. No
/// messages are kept for consumers that the call does not name. A source that needs removed events
/// ends with [`Error::Trimmed`].
///
/// The stream's own limits (`max_age`, for instance) do not wait for consumers. The user needs the
/// permission for `$JS.API.CONSUMER.INFO` and `$JS.API.STREAM.PURGE`.
///
/// Example: [`NamedConsumer`].
///
/// # Errors
/// Every [`Error`] about the server or the stream, and:
/// - [`Error::NoConsumer`] if a name has no consumer, in which case nothing is removed;
/// - [`Error::WrongStream`] if the stream is a mirror: trim its origin;
/// - [`Error::Option`] if no name is given, or a name belongs to a consumer that acknowledges
///   nothing.
pub fn trim(server: Server, stream: &str, names: &[&str]) -> Result<Trim, Error> {
    if names.is_empty() {
        let what = "no consumer is named, and all events would be removed: name those that must \
                    have acknowledged (trim)";
        return Err(Error::Option { what: what.into() });
    }
    for name in names {
        check_name("consumer", name)?;
    }
    Background::new()?.run(async {
        let connection = Connection::open(&server).await?;
        check_stream(&connection, stream).await?;
        let failed = |fault| connection.failed(stream, fault);
        let mut least: Option<(u64, &str)> = None;
        for &name in names {
            let consumer = consumer(&connection, stream, name).await?;
            if !consumer.acknowledges() {
                let what = format!(
                    "the consumer {name} of the stream {stream} acknowledges nothing (ack_policy \
                     none): name others (trim)"
                );
                return Err(Error::Option { what });
            }
            let floor = consumer.floor();
            if least.is_none_or(|(other, _)| floor < other) {
                least = Some((floor, name));
            }
        }
        let (floor, held_by) = least.unwrap_or_default();
        let messages = connection.purge_below(stream, floor + 1).await.map_err(failed)?;
        let extent = find::extent(&connection, stream).await.map_err(failed)??;
        let oldest = extent.positions.map(|(oldest, _)| oldest);
        Ok(Trim { messages, oldest, held_by: held_by.into() })
    })
}

/// Refuses a stream that cannot have notes. Returns the stream's creation time.
async fn check_stream(connection: &Connection, stream: &str) -> Result<String, Error> {
    connection.stream(stream, None, None).await?;
    let info = connection.info(stream).await.map_err(|fault| connection.failed(stream, fault))?;
    if info.config["mirror"].is_null() {
        return Ok(info.created);
    }
    // If the origin of a mirror loses its end and continues, positions that the mirror already has
    // come again.
    let wrong = vec!["it is a mirror, and a note must be that of its origin".into()];
    Err(Error::WrongStream { stream: stream.into(), wrong })
}

/// Returns the consumer of this name.
async fn consumer(connection: &Connection, stream: &str, name: &str) -> Result<Consumer, Error> {
    match connection.consumer(stream, name).await {
        Ok(Some(consumer)) => Ok(consumer),
        Ok(None) => Err(Error::NoConsumer { stream: stream.into(), name: name.into() }),
        Err(fault) => Err(connection.failed(stream, fault)),
    }
}

/// Returns the position at which the first message after sequence `floor` begins. If there is no
/// such message, returns the end of the stream's last message.
async fn position(
    connection: &Connection,
    stream: &str,
    floor: u64,
) -> Result<Result<Option<u64>, Error>, Fault> {
    if let Some(next) = connection.next_from(stream, floor + 1).await? {
        return Ok(next.header().map(|header| Some(header.after)));
    }
    let last = connection.last(stream).await?;
    Ok(last.map(|last| last.header().map(|header| header.end())).transpose())
}

/// Refuses a server that cannot move a note.
fn check_version(connection: &Connection, server: &Server) -> Result<(), Error> {
    let (text, version) = connection.version();
    if version.is_some_and(|version| version < OLDEST) {
        let what = format!(
            "named consumers need nats-server {}.{}, and the one at {} is {text}: update it",
            OLDEST.0,
            OLDEST.1,
            server.address()
        );
        return Err(Error::Option { what });
    }
    Ok(())
}
