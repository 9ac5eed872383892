//! Why a sink or a source fails.

use std::fmt;
use std::time::Duration;

use slipring::errors::WaitError;

use crate::frame::{Bad, Id};

/// Formats a text as [`one_line`].
macro_rules! line {
    ($($text:tt)*) => {
        one_line(format_args!($($text)*))
    };
}

/// The reason why a sink or a source did not start, or ended.
///
/// Each message is one line that says what was wrong and what to do next.
///
/// ```
/// use slipring_nats::{Encoding, Error, Server, Sink};
/// let server = Server::at("nats://127.0.0.1:1"); // no process listens there
/// let error = Sink::to(server, "ORDERS").open(Encoding::<u64>::plain("order", 1)).unwrap_err();
/// assert!(matches!(error, Error::Unreachable { .. }));
/// let error = slipring::Error::from(error); // as `?` does
/// assert!(matches!(error.downcast_ref(), Some(Error::Unreachable { .. })));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No NATS server answers at the address.
    #[error("{}", line!(
        "no NATS server answers at {address} ({why}): check the address, and that the server runs"
    ))]
    Unreachable {
        /// The addresses that were tried.
        address: String,
        /// Result of the connection attempt.
        why: String,
    },
    /// A server answers, but TLS fails: it is another server than expected, refuses the client's
    /// certificate, or has no TLS.
    #[error("{}", line!(
        "no connection by TLS to the server at {address} ({why}): check that it has TLS, and the \
         certificates (Server::root_certificates, Server::client_certificate)"
    ))]
    Tls {
        /// The addresses that were tried.
        address: String,
        /// Result of the connection attempt.
        why: String,
    },
    /// The server refuses the credentials, or denies the user a permission that the call needs.
    #[error("{}", line!(
        "the server at {address} refuses this user ({why}): check the credentials and the user's \
         permissions"
    ))]
    Denied {
        /// The addresses that were tried.
        address: String,
        /// The server's words.
        why: String,
    },
    /// JetStream is disabled for the server or for the user's account.
    #[error("{}", line!(
        "the server at {address} has no JetStream for this user: start it with -js, or enable \
         JetStream for the account"
    ))]
    NoJetStream {
        /// The addresses that were tried.
        address: String,
    },
    /// The stream does not exist, and the call was not asked to create it.
    #[error("{}", line!(
        "there is no stream {stream}: create it, or ask the sink to do so (Sink::create)"
    ))]
    NoStream {
        /// The stream's name.
        stream: String,
    },
    /// The stream has no consumer of this name, or was recreated since the consumer was opened.
    #[error("{}", line!(
        "the stream {stream} has no consumer {name}, or was made anew since it was opened: check \
         the name, and open it (NamedConsumer::open)"
    ))]
    NoConsumer {
        /// The stream's name.
        stream: String,
        /// The consumer's name.
        name: String,
    },
    /// The stream's settings do not suit a journal.
    #[error("{}", line!(
        "the stream {stream} is not fit to be a journal: {}; change it or use another stream",
        wrong.join("; ")
    ))]
    WrongStream {
        /// The stream's name.
        stream: String,
        /// Each unsuitable setting, with its value and the required one.
        wrong: Vec<String>,
    },
    /// An option of the call contradicts another one, or makes no sense.
    #[error("{}", line!("{what}"))]
    Option {
        /// The mistake and its remedy.
        what: String,
    },
    /// An event does not fit into a message.
    #[error(
        "an event needs a message of {needs} bytes, and {limit} are possible: raise the server's \
         max_payload, the stream's max_msg_size and Sink::max_frame (at most 512 KiB), or make \
         events smaller"
    )]
    TooLarge {
        /// Size of the event in a message of its own, in bytes.
        needs: u64,
        /// Largest message that the server, the stream and the sink's options allow, in bytes.
        limit: u64,
    },
    /// Another sink has taken over the stream.
    #[error(
        "another sink took over the stream: this one is incarnation {ours}, that one {theirs}; end \
         one of them"
    )]
    Fenced {
        /// Incarnation of this sink.
        ours: u64,
        /// Incarnation of the sink that took over.
        theirs: u64,
    },
    /// Positions are missing in the stream, and no message declares a hole there.
    #[error(
        "positions {expected} to {} are missing in front of the message of sequence {sequence}: \
         restore the stream; or make the source's ring with first_seq({found}), or accept the loss \
         (Sink::accept_loss)",
        found.saturating_sub(1)
    )]
    Gap {
        /// First missing position.
        expected: u64,
        /// Position of the next event in the stream.
        found: u64,
        /// Sequence of the message that carries that event.
        sequence: u64,
    },
    /// The stream's retention has removed positions that the source still needs.
    #[error(
        "the stream has no positions before {oldest} any more, and the source needs {wanted}: make \
         its ring with first_seq({oldest}) or later, and raise the stream's limits"
    )]
    Trimmed {
        /// Position that the source needs next.
        wanted: u64,
        /// Oldest position in the stream.
        oldest: u64,
    },
    /// The stream has lost positions that the server acknowledged, or has lost messages at its end
    /// that may have carried such positions.
    #[error(fmt = lost_acknowledged)]
    LostAcknowledged {
        /// Last position that is known to be acknowledged and lost. `None` if no such position is
        /// known, but messages are gone.
        acknowledged: Option<u64>,
        /// Position behind the stream's last event.
        found: u64,
        /// First and last sequence of the messages that are gone at the stream's end; `None` if the
        /// server knows of none.
        gone: Option<(u64, u64)>,
    },
    /// A message of the stream was not written by a sink.
    #[error(
        "the message of sequence {sequence} is none of ours: a stream belongs to one ring; remove \
         what else publishes to it, and that message"
    )]
    Foreign {
        /// Sequence of the message.
        sequence: u64,
    },
    /// A message was written by a sink, but its bytes contradict each other.
    #[error("{}", line!(
        "the message of sequence {sequence} is damaged ({what}): restore the stream, or make the \
         source's ring with a first_seq behind it"
    ))]
    Damaged {
        /// Sequence of the message.
        sequence: u64,
        /// The contradiction.
        what: &'static str,
    },
    /// The stream's events are of another type than the ring's.
    #[error(
        "the stream has events of the type {theirs:016x}, and the ring of the type {ours:016x}: \
         use the type's name and version with which the stream was written"
    )]
    WrongType {
        /// Fingerprint of the ring's events.
        ours: u64,
        /// Fingerprint of the stream's events.
        theirs: u64,
    },
    /// The stream's last events come from another ring, and this ring does not continue behind
    /// them.
    #[error(
        "the stream ends before position {stream} with events of another ring, and this ring goes \
         on at {ring}: make the ring with first_seq({stream}), use another stream, or restore this \
         one if it had more"
    )]
    WrongEpoch {
        /// Position at which the ring continues.
        ring: u64,
        /// Position behind the stream's last event.
        stream: u64,
    },
    /// The stream's journal is not the one that the source or the sink expects: the stream was
    /// recreated, or a sink continued it after it had lost its end.
    #[error(
        "the stream has the journal {}, and {} is expected: it was made anew, or lost its end and \
         went on; read it into a new ring, and expect its number (Source::expect_journal, \
         Sink::journal)",
        Id(*found), Id(*expected)
    )]
    OtherJournal {
        /// Number of the expected journal.
        expected: [u8; 16],
        /// Number of the stream's journal.
        found: [u8; 16],
    },
    /// The stream was used, but has no message left from which to learn where to continue.
    #[error(
        "the stream was used up to sequence {last_sequence} and has no message left that says \
         where to go on: say the position (Sink::resume_at; Sink::accept_loss of a ring that is \
         there; first_seq of a source's ring)"
    )]
    Emptied {
        /// Sequence of the stream's last message, which is gone.
        last_sequence: u64,
    },
    /// The stream is full, and the sink has waited as long as it was asked to.
    #[error("{}", line!("the stream is full ({why}): raise its limits, or remove old messages"))]
    Full {
        /// The server's words.
        why: String,
    },
    /// The server did not answer within the time that the sink or the source was asked to wait.
    #[error("{}", line!(
        "the server did not answer for {:.1} s ({why}): bring it back, and start again",
        waited.as_secs_f64()
    ))]
    Away {
        /// Time without an answer.
        waited: Duration,
        /// Result of the last attempt.
        why: String,
    },
    /// The stream or its servers do not give the required durability.
    #[error("{}", line!("{why}"))]
    NotDurable {
        /// The missing setting and its remedy.
        why: String,
    },
    /// The server gave an answer that the call did not expect.
    #[error("{}", line!("the server refuses: {why}: see the server's log and its configuration"))]
    Server {
        /// The server's words.
        why: String,
    },
    /// The ring ended before the sink had stored all of it, or before the source had filled it.
    #[error("{}", line!("the ring ended: {_0}"))]
    Ring(WaitError),
    /// The stream has a hole, and a ring with a single producer cannot leave positions out.
    #[error(
        "the stream has no events from position {from} up to {to}, and a ring with a single \
         producer cannot leave positions out: fill a ring with several producers (Graph::shared)"
    )]
    Hole {
        /// First position of the hole.
        from: u64,
        /// Position behind the hole.
        to: u64,
    },
    /// A function of the user panicked, or refused an event.
    #[error("{}", line!(
        "the function of `{stage}` failed at position {seq} ({why}): correct it, and start again"
    ))]
    Function {
        /// Name of the stage.
        stage: String,
        /// Position of the event.
        seq: u64,
        /// Message of the panic, or the error.
        why: String,
    },
    /// The sink or the source was asked to stop.
    #[error("it was told to stop before its end: start it again")]
    Stopped,
    /// The system refused a thread or a runtime.
    #[error("{}", line!("the system refuses a thread or a timer: {_0}"))]
    System(std::io::Error),
}

impl Error {
    /// Returns the error for the message of sequence `sequence`, whose bytes are `bad`.
    pub(crate) fn of_message(bad: Bad, sequence: u64) -> Error {
        match bad {
            Bad::Foreign => Error::Foreign { sequence },
            Bad::Damaged(what) => Error::Damaged { sequence, what },
        }
    }
}

/// Joins the lines of a text. Reasons given by the server, the system or a user's function may have
/// several lines.
fn one_line(text: fmt::Arguments<'_>) -> String {
    let text = text.to_string();
    let words = text.split(|c: char| c == ' ' || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Writes the text of [`Error::LostAcknowledged`].
fn lost_acknowledged(
    acknowledged: &Option<u64>,
    found: &u64,
    gone: &Option<(u64, u64)>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let found = match found {
        0 => "has no event".into(),
        found => format!("ends before position {found}"),
    };
    match acknowledged {
        Some(acknowledged) => write!(
            f,
            "the server acknowledged position {acknowledged}, and its stream now {found}"
        )?,
        None => {
            write!(f, "the stream now {found}, and later positions may have been acknowledged")?;
        }
    }
    match gone {
        Some((one, last)) if one == last => {
            write!(f, " (its message of sequence {one} is gone)")?;
        }
        Some((first, last)) => {
            write!(f, " (its messages of sequences {first} to {last} are gone)")?;
        }
        None => {}
    }
    f.write_str(": restore the stream, or start anew and accept the loss (Sink::accept_loss)")?;
    match acknowledged {
        Some(_) => Ok(()),
        None => f.write_str("; or say that no event is lost (Sink::resume_at)"),
    }
}

impl From<Error> for slipring::Error {
    fn from(error: Error) -> slipring::Error {
        match error {
            Error::Ring(reason @ WaitError::Failed(_)) => reason.into(),
            error => slipring::Error::call(error),
        }
    }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Error {
        Error::Ring(error)
    }
}
