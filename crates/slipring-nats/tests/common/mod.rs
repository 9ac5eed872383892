//! The watchdog, servers, and an oracle. The oracle reads a stream only by the layout that
//! FRAMES.md describes.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../../../slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::io::Write as _;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use slipring::{Graph, Producer, Reader, markers::Layout};
use slipring_nats::{
    Decoding, Encoding, OpenSink, RunningSink, RunningSource, Server as At, Sink, Source,
    StreamSettings,
};
use slipring_nats_server::{Client, Options, Server, Stored, binary, wait_for};

pub use watchdog::watched;

/// Time limit of a wait for something that usually happens at once.
pub const SOON: Duration = Duration::from_secs(30);
/// Name of the stream in these tests.
pub const STREAM: &str = "ORDERS";
/// Subject of frames in these tests.
pub const SUBJECT: &str = "orders";
/// Length of a frame's header, in bytes.
pub const HEADER: usize = 104;

/// Returns whether there is a server program. Without one the test does not run, and says so on
/// stderr.
pub fn has_server() -> bool {
    let found = binary::find();
    if let Err(error) = &found {
        let _ = writeln!(std::io::stderr(), "\nSKIPPED: {error}");
    }
    found.is_ok()
}

/// Starts a server with the default settings; `None` where there is no program.
pub fn server() -> Option<Server> {
    has_server().then(|| Server::start(Options::new()).unwrap())
}

/// Returns a separate client for the oracle.
pub fn client(server: &Server) -> Client {
    Client::connect(server.port(), None).unwrap()
}

/// Returns a sink to the tests' stream at `url`, which it creates.
pub fn sink(url: &str) -> Sink {
    Sink::to(At::at(url), STREAM).create(StreamSettings::new(SUBJECT))
}

/// The numbers of these tests: each event is a function of its position.
pub fn numbers() -> Encoding<u64> {
    Encoding::plain("number", 1)
}

/// Returns the event at a position.
pub fn event(seq: u64) -> u64 {
    seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Starts a sink on a new ring of threads, which begins at the position that the sink returns.
pub fn start(open: OpenSink<u64>, capacity: usize) -> (Producer<u64>, RunningSink) {
    let (tx, journal) = ring(open.next_seq(), capacity);
    (tx, open.start(journal).unwrap())
}

/// Stores the events up to position `end` with a separate sink.
pub fn store(server: &Server, end: u64) {
    let (mut tx, running) = start(sink(&server.url()).open(numbers()).unwrap(), 64);
    feed(&mut tx, end).unwrap();
    tx.close();
    running.join().unwrap();
}

/// A ring with one stage, `journal`.
pub fn ring(first: u64, capacity: usize) -> (Producer<u64>, Reader<u64>) {
    let graph = Graph::new(capacity, || 0u64).first_seq(first);
    let key = graph.reader("journal");
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(key))
}

/// Publishes the events up to position `end`.
pub fn feed<L: Layout>(
    tx: &mut Producer<u64, L>,
    end: u64,
) -> Result<(), slipring::errors::WaitError> {
    while tx.next_seq() < end {
        let seq = tx.next_seq();
        tx.publish(|slot| *slot = event(seq))?;
    }
    Ok(())
}

/// Fills the ring without ever waiting, and returns the next position.
pub fn fill(tx: &mut Producer<u64>) -> u64 {
    loop {
        let seq = tx.next_seq();
        if tx.try_publish(|slot| *slot = event(seq)).is_err() {
            return seq;
        }
    }
}

/// Fills a ring from position `first` on, and starts a thread that checks each event. The thread
/// returns the position behind the last event.
pub fn follow(source: Source, first: u64, capacity: usize) -> (RunningSource, JoinHandle<u64>) {
    let open = source.open().unwrap();
    let (tx, mut rx) = ring(first, capacity);
    let source = open.start(Decoding::<u64>::plain("number", 1), tx).unwrap();
    let reading = std::thread::spawn(move || {
        let _ = rx.for_each(|number, at| assert_eq!(*number, event(at.seq)));
        rx.next_seq()
    });
    (source, reading)
}

/// A frame as the documentation describes its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    pub sequence: u64,
    pub ring: u128,
    pub epoch: u128,
    pub incarnation: u64,
    pub after: u64,
    pub first: u64,
    pub events: Vec<Vec<u8>>,
}

impl Frame {
    pub fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

/// Reads a frame.
pub fn frame(message: &Stored) -> Frame {
    let bytes = &message.payload;
    let u16_at = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let u128_at = |at: usize| u128::from_be_bytes(bytes[at..at + 16].try_into().unwrap());
    assert_eq!(&bytes[..8], b"SLIPFRAM");
    assert_eq!((u16_at(8), u16_at(10) as usize), (1, HEADER));
    let (size, count, length) = (u32_at(12) as usize, u32_at(88), u32_at(92) as usize);
    assert_eq!(bytes.len(), HEADER + length);
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[..96]);
    sum.update(&bytes[100..]);
    assert_eq!(sum.finalize(), u32_at(96));
    let (mut rest, mut events) = (&bytes[HEADER..], Vec::new());
    for _ in 0..count {
        let length = if size == 0 {
            let (length, behind) = rest.split_first_chunk::<4>().unwrap();
            rest = behind;
            u32::from_le_bytes(*length) as usize
        } else {
            size
        };
        let (event, behind) = rest.split_at(length);
        events.push(event.to_vec());
        rest = behind;
    }
    assert!(rest.is_empty());
    Frame {
        sequence: message.sequence(),
        ring: u128_at(16),
        epoch: u128_at(32),
        incarnation: u64_at(48),
        after: u64_at(72),
        first: u64_at(80),
        events,
    }
}

/// A message that has a sequence, so that this module need not name the type that the oracle's
/// client uses.
trait Sequence {
    fn sequence(&self) -> u64;
}

impl Sequence for Stored {
    fn sequence(&self) -> u64 {
        self.seq
    }
}

/// Reads and returns all frames of the stream. Checks that their positions are contiguous, and that
/// each event is the one that belongs to its position.
pub fn scan(client: &mut Client) -> Vec<Frame> {
    // After an election, JetStream may refuse a request for a moment.
    let messages = wait_for("the stream's messages", SOON, || client.messages(STREAM)).unwrap();
    let frames: Vec<Frame> = messages.iter().map(frame).collect();
    check(&frames);
    frames
}

/// Checks frames like [`scan`].
pub fn check(frames: &[Frame]) {
    let (mut next, mut incarnation) = (frames.first().map_or(0, |frame| frame.after), 0);
    for frame in frames {
        assert_eq!(frame.after, next, "a frame does not follow the one before: {frame:?}");
        assert!(frame.first >= frame.after && frame.incarnation >= incarnation);
        for (bytes, seq) in frame.events.iter().zip(frame.first..) {
            assert_eq!(bytes.as_slice(), event(seq).to_ne_bytes(), "the event at {seq}");
        }
        (next, incarnation) = (frame.end(), frame.incarnation);
    }
}

/// Copies a folder.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}
