//! How events become bytes, and bytes become events.

use std::panic::{AssertUnwindSafe, catch_unwind};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::frame;
use crate::nats::subject::{MAX_SUBJECT, is_subject, matches};
use crate::runtime::panic_text;

/// How a sink turns events into bytes, and the type that it declares for them.
///
/// The name and the version describe the bytes, and go into the type's fingerprint. A sink compares
/// the fingerprints, and refuses to continue a stream of another type. A source refuses to read
/// such a stream.
///
/// ```
/// use slipring_nats::Encoding;
/// // Plain data: the bytes as they lie in memory.
/// let plain = Encoding::<u64>::plain("count", 1);
/// // Anything else by a closure.
/// let lines = Encoding::by("line", 1, |line: &String, bytes| bytes.extend(line.as_bytes()));
/// assert_ne!(plain.fingerprint(), lines.fingerprint());
/// ```
pub struct Encoding<E> {
    fingerprint: u64,
    kind: EncodingKind<E>,
}

type Encode<E> = Box<dyn FnMut(&E, &mut Vec<u8>) + Send>;
type Subject<E> = Box<dyn FnMut(&E) -> String + Send>;

enum EncodingKind<E> {
    /// Frames whose events all have one size. `append` knows it at compile time.
    Plain { size: u32, append: fn(&E, &mut Vec<u8>) },
    /// Frames of events of varying sizes.
    By(Encode<E>),
    /// One message for each event; `covered` has the subjects of the stream.
    Messages { encode: Encode<E>, subject: Subject<E>, covered: Vec<String> },
}

impl<E> Encoding<E> {
    /// Events that are plain data. A frame contains their bytes as they lie in memory. An event has
    /// no padding and no uninitialised bytes, which the derives of `zerocopy` check.
    ///
    /// Readers on other machines must have the same byte order.
    ///
    /// Example: [`Encoding`].
    pub fn plain(name: &str, version: u32) -> Encoding<E>
    where
        E: IntoBytes + Immutable,
    {
        const { assert!(size_of::<E>() > 0, "an event has at least one byte") };
        const { assert!(size_of::<E>() <= u32::MAX as usize, "an event has less than 4 GiB") };
        let size = size_of::<E>() as u32;
        let fingerprint = frame::fingerprint(name, version, size);
        let append = |event: &E, to: &mut Vec<u8>| to.extend_from_slice(event.as_bytes());
        Encoding { fingerprint, kind: EncodingKind::Plain { size, append } }
    }

    /// Events of any type: `encode` appends the bytes of an event to the given vector. In a frame,
    /// the length of each event precedes its bytes.
    ///
    /// `encode` runs on the sink's thread. A panic ends the sink with
    /// [`Error::Function`](crate::Error).
    ///
    /// Example: [`Encoding`].
    pub fn by(
        name: &str,
        version: u32,
        encode: impl FnMut(&E, &mut Vec<u8>) + Send + 'static,
    ) -> Encoding<E> {
        let fingerprint = frame::fingerprint(name, version, 0);
        Encoding { fingerprint, kind: EncodingKind::By(Box::new(encode)) }
    }

    /// One message for each event, for consumers in other languages. `encode` appends the message's
    /// body, `subject` returns its subject, and the header `Slipring-Position` has the event's
    /// position. The stream's subjects must cover the returned subjects: a subject that is not
    /// covered ends the sink with [`Error::Function`](crate::Error).
    ///
    /// The stream must allow atomic batches (`allow_atomic`, server 2.12 or later): the server
    /// stores up to 1,000 such messages together, or none of them. A message costs the server far
    /// more than an event in a frame.
    ///
    /// ```
    /// use slipring_nats::Encoding;
    /// struct Order { id: u64, market: &'static str }
    /// let _ = Encoding::messages(
    ///     "order",
    ///     1,
    ///     |order: &Order| format!("orders.{}", order.market),
    ///     |order, bytes| bytes.extend(order.id.to_string().bytes()),
    /// );
    /// ```
    pub fn messages(
        name: &str,
        version: u32,
        subject: impl FnMut(&E) -> String + Send + 'static,
        encode: impl FnMut(&E, &mut Vec<u8>) + Send + 'static,
    ) -> Encoding<E> {
        let fingerprint = frame::fingerprint(name, version, 0);
        let (encode, subject) = (Box::new(encode), Box::new(subject));
        let kind = EncodingKind::Messages { encode, subject, covered: Vec::new() };
        Encoding { fingerprint, kind }
    }

    /// Returns the fingerprint of the type.
    ///
    /// Example: [`Encoding`].
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns the size of each event, in bytes, or `None` if the size varies.
    pub(crate) fn size(&self) -> Option<u32> {
        match self.kind {
            EncodingKind::Plain { size, .. } => Some(size),
            _ => None,
        }
    }

    /// Returns whether each event becomes a message of its own.
    pub(crate) fn is_messages(&self) -> bool {
        matches!(self.kind, EncodingKind::Messages { .. })
    }

    /// Appends the bytes of an event.
    #[inline]
    pub(crate) fn append(&mut self, event: &E, to: &mut Vec<u8>) {
        match &mut self.kind {
            EncodingKind::Plain { append, .. } => append(event, to),
            EncodingKind::By(encode) | EncodingKind::Messages { encode, .. } => encode(event, to),
        }
    }

    /// Sets the stream's subjects, which must cover the subject of each event.
    pub(crate) fn cover(&mut self, subjects: &[String]) {
        if let EncodingKind::Messages { covered, .. } = &mut self.kind {
            *covered = subjects.to_vec();
        }
    }

    /// Returns the subject for the event's message, or the reason why the stream does not take that
    /// subject.
    pub(crate) fn subject(&mut self, event: &E) -> Result<String, String> {
        let EncodingKind::Messages { subject, covered, .. } = &mut self.kind else {
            return Ok(String::new());
        };
        let subject = subject(event);
        if is_subject(&subject) && covered.iter().any(|pattern| matches(pattern, &subject)) {
            return Ok(subject);
        }
        let begin: String = subject.chars().take(100).collect();
        Err(format!(
            "the subject {begin:?} ({} bytes) is none of the stream's, which are {}, in at most \
             {MAX_SUBJECT} bytes",
            subject.len(),
            covered.join(", ")
        ))
    }
}

/// How a source turns bytes into events, and the type that it expects.
///
/// ```
/// use slipring_nats::{Decoding, Encoding};
/// let numbers = Decoding::<u64>::plain("count", 1);
/// assert_eq!(numbers.fingerprint(), Encoding::<u64>::plain("count", 1).fingerprint());
/// let lines = Decoding::by("line", 1, |bytes, line: &mut String| {
///     line.clear();
///     line.push_str(std::str::from_utf8(bytes).map_err(|error| error.to_string())?);
///     Ok(())
/// });
/// # drop(lines);
/// ```
pub struct Decoding<E> {
    fingerprint: u64,
    kind: DecodingKind<E>,
}

/// The slice does not have the length of an event.
struct SizeError;

type Decode<E> = Box<dyn FnMut(&[u8], &mut E) -> Result<(), String> + Send>;

enum DecodingKind<E> {
    /// `copy` refuses a slice that does not have the length of the event.
    Plain {
        size: usize,
        copy: fn(&[u8], &mut E) -> Result<(), SizeError>,
    },
    By(Decode<E>),
}

impl<E> Decoding<E> {
    /// Events that are plain data, as [`Encoding::plain`] writes them.
    ///
    /// Example: [`Decoding`].
    pub fn plain(name: &str, version: u32) -> Decoding<E>
    where
        E: FromBytes + IntoBytes + KnownLayout,
    {
        let size = size_of::<E>();
        let fingerprint = frame::fingerprint(name, version, size as u32);
        let copy =
            |from: &[u8], slot: &mut E| from.write_to(slot.as_mut_bytes()).map_err(|_| SizeError);
        Decoding { fingerprint, kind: DecodingKind::Plain { size, copy } }
    }

    /// Events from [`Encoding::by`] or [`Encoding::messages`]: `decode` gets the bytes that the
    /// sink's closure appended, and writes the event into the ring's slot. The slot still contains
    /// the event of the previous lap. An error or a panic ends the source with
    /// [`Error::Function`](crate::Error), and the event is not published.
    ///
    /// Example: [`Decoding`].
    pub fn by(
        name: &str,
        version: u32,
        decode: impl FnMut(&[u8], &mut E) -> Result<(), String> + Send + 'static,
    ) -> Decoding<E> {
        let fingerprint = frame::fingerprint(name, version, 0);
        Decoding { fingerprint, kind: DecodingKind::By(Box::new(decode)) }
    }

    /// Returns the fingerprint of the type.
    ///
    /// Example: [`Decoding`].
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Decodes an event into its slot. A panic of the closure becomes an error.
    #[inline]
    pub(crate) fn decode(&mut self, from: &[u8], slot: &mut E) -> Result<(), String> {
        match &mut self.kind {
            DecodingKind::Plain { size, copy } => copy(from, slot)
                .map_err(|_| format!("an event has {} bytes instead of {size}", from.len())),
            DecodingKind::By(decode) => catch_unwind(AssertUnwindSafe(|| decode(from, slot)))
                .unwrap_or_else(|panic| Err(panic_text(&*panic))),
        }
    }
}

impl<E> std::fmt::Debug for Encoding<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Encoding({:016x})", self.fingerprint)
    }
}

impl<E> std::fmt::Debug for Decoding<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoding({:016x})", self.fingerprint)
    }
}

#[cfg(test)]
mod tests;
