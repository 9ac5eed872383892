//! The oracle that checks a stream, no matter which process was killed. Each published event must
//! reach each stage in order, and only once unless a successor announces it as redelivered. No part
//! of an unfinished publication may be seen.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use slipring::segment::Seat;
use slipring::{
    errors::{ClaimError, WaitError},
    handles::StartAt,
    raw::SeqRange,
};
use slipring_shm::parts::layout::HEAD;
use slipring_shm::{
    Attached, Event, Producer, Reader, Segment, SegmentError, Subscription, Updater,
    errors::Problem,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An event that knows its position and its publisher.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Numbered {
    pub seq: u64,
    pub by: u64,
    check: u64,
    /// Two words that a writing stage changes, one after the other.
    once: u64,
    twice: u64,
}

impl Event for Numbered {
    const NAME: &'static str = "test/Numbered";
    const VERSION: u32 = 1;
}

fn mix(seq: u64, by: u64) -> u64 {
    (seq ^ by.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

impl Numbered {
    /// Fills the event, word by word.
    pub fn fill(&mut self, seq: u64, by: u64) {
        (self.seq, self.by, self.once, self.twice) = (seq, by, 0, 0);
        self.check = mix(seq, by);
    }

    #[track_caller]
    fn assert_whole(&self, seq: u64) {
        assert_eq!((self.seq, self.check), (seq, mix(seq, self.by)), "{self:?}");
    }

    /// Changes the event as the writing stage does.
    fn change(&mut self) {
        self.once = !self.seq;
        self.twice = !self.seq;
    }
}

/// Names of the stages: the first stage, and the stage behind it.
pub const STAGES: [&str; 2] = ["first", "later"];

/// Makes words, all zero, in memory that forked children share. The memory is never unmapped.
pub fn shared_words(count: usize) -> &'static [AtomicU64] {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: the kernel chooses an address for new memory, which is never unmapped.
    unsafe {
        let first = libc::mmap(std::ptr::null_mut(), count * 8, access, flags, -1, 0);
        assert_ne!(first, libc::MAP_FAILED);
        std::slice::from_raw_parts(first.cast::<AtomicU64>(), count)
    }
}

/// A record of how often each stage has handled each event, and of which events producers have
/// published. Forked children share the memory of its words, so a kill does not destroy them.
pub struct Journal {
    words: &'static [AtomicU64],
    events: usize,
}

/// Number of words in a journal before the counts.
const HEADER: usize = 4;
/// A flag that is added to an event's count if a stage handles the event as redelivered.
const AGAIN: u64 = 1 << 32;
/// A flag that is added to the count of an event that a stage passes over.
const PASSED: u64 = 1 << 48;

impl Journal {
    /// Makes a journal of a stream of at most `events` events.
    pub fn new(events: usize) -> Journal {
        let words = shared_words(HEADER + STAGES.len() * events);
        Journal { words, events }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.words.iter().for_each(|word| word.store(0, SeqCst));
    }

    fn count(&self, stage: usize, seq: u64) -> &AtomicU64 {
        &self.words[HEADER + stage * self.events + seq as usize]
    }

    /// Returns the word that holds the position before which all events are published, as far as
    /// the producers know.
    pub fn published(&self) -> &AtomicU64 {
        &self.words[0]
    }

    /// Returns the word that holds how many events a producer has begun to publish.
    pub fn unsure(&self) -> &AtomicU64 {
        &self.words[2]
    }

    /// Returns a word that the test uses as it likes.
    pub fn note(&self) -> &AtomicU64 {
        &self.words[1]
    }

    /// Asserts that a stage has handled each event before `end`, and that each event that it
    /// handled again was announced to it.
    #[track_caller]
    pub fn assert_complete(&self, stage: usize, end: u64) {
        for seq in 0..end {
            let count = self.count(stage, seq).load(SeqCst);
            assert!(count == 1 || count >= AGAIN, "{}: {count} times {seq}", STAGES[stage]);
        }
        for seq in end..self.events as u64 {
            assert_eq!(self.count(stage, seq).load(SeqCst), 0, "{seq} was never published");
        }
    }
}

/// The handle of a stage, and the position that it must see next.
pub struct Stage {
    hand: Hand,
    number: usize,
    next: u64,
    pub redelivered: SeqRange,
    /// Whether the first stage writes to events.
    writes: bool,
    /// First position that a successor of the producer has published, or `u64::MAX` if there is
    /// none.
    successor_from: u64,
}

enum Hand {
    Reads(Reader<Numbered>),
    Writes(Updater<Numbered>),
}

impl Stage {
    fn handle(
        (number, writes, successor_from): (usize, bool, u64),
        next: &mut u64,
        redelivered: &SeqRange,
        journal: &Journal,
        event: &Numbered,
        seq: u64,
    ) {
        assert_eq!(seq, *next, "{}: in order", STAGES[number]);
        *next += 1;
        event.assert_whole(seq);
        assert!(seq < successor_from || event.by == SUCCESSOR, "{seq}: of an unfinished claim");
        let new = !redelivered.contains(seq);
        let counted = if new { 1 } else { 1 + AGAIN };
        let before = journal.count(number, seq).fetch_add(counted, SeqCst);
        assert!(!new || before == 0, "{}: {} came again, unannounced", STAGES[number], seq);
        if number == 0 && new {
            assert_eq!((event.once, event.twice), (0, 0), "touched before, and not announced");
        }
        let passed = journal.count(0, seq).load(SeqCst) >= PASSED;
        if number == 1 && writes && !passed {
            assert_eq!((event.once, event.twice), (!seq, !seq), "released half-changed");
        }
    }

    /// Handles and releases up to `max` events that are available now.
    pub fn poll(&mut self, max: usize, journal: &Journal) -> Result<usize, WaitError> {
        let Stage { hand, number, next, redelivered, writes, successor_from } = self;
        let stage = (*number, *writes, *successor_from);
        match hand {
            Hand::Reads(reader) => reader.poll(max, |event, at| {
                Stage::handle(stage, next, redelivered, journal, event, at.seq);
            }),
            Hand::Writes(writer) => writer.poll(max, |event, at| {
                Stage::handle(stage, next, redelivered, journal, event, at.seq);
                event.change();
            }),
        }
    }

    /// Waits for events, handles up to `max` of them, and releases them.
    pub fn batch(&mut self, max: usize, journal: &Journal) -> Result<usize, WaitError> {
        let Stage { hand, number, next, redelivered, writes, successor_from } = self;
        let stage = (*number, *writes, *successor_from);
        macro_rules! batch {
            ($handle:expr, $events:ident => $iterator:expr, $change:expr) => {{
                #[allow(unused_mut, reason = "a batch that is read")]
                let mut $events = $handle.batch(max)?;
                let first = $events.first_seq();
                let mut seq = first;
                for event in $iterator {
                    Stage::handle(stage, next, redelivered, journal, event, seq);
                    #[allow(clippy::redundant_closure_call, reason = "a macro")]
                    ($change)(event);
                    seq += 1;
                }
                $events.release();
                Ok((seq - first) as usize)
            }};
        }
        match hand {
            Hand::Reads(reader) => batch!(reader, events => events.iter(), |_: &Numbered| ()),
            Hand::Writes(writer) => {
                batch!(writer, events => events.iter_mut(), |event: &mut Numbered| event.change())
            }
        }
    }

    /// Handles up to `max` events that are available now, and does not release them.
    pub fn hold(&mut self, max: usize, journal: &Journal) {
        let Stage { hand, number, next, redelivered, writes, successor_from } = self;
        let stage = (*number, *writes, *successor_from);
        macro_rules! hold {
            ($handle:expr, $batch:ident => $events:expr, $change:expr) => {{
                #[allow(unused_mut, reason = "a batch that is read")]
                let mut $batch = $handle.try_batch(max).unwrap();
                for (event, seq) in $events.zip(next.clone()..) {
                    Stage::handle(stage, next, redelivered, journal, event, seq);
                    #[allow(clippy::redundant_closure_call, reason = "a macro")]
                    ($change)(event);
                }
                $batch.hold();
            }};
        }
        match hand {
            Hand::Reads(reader) => hold!(reader, batch => batch.iter(), |_: &Numbered| ()),
            Hand::Writes(writer) => {
                hold!(writer, batch => batch.iter_mut(), |event: &mut Numbered| event.change());
            }
        }
    }

    /// Handles all events until the stream ends.
    pub fn drain(&mut self, journal: &Journal) {
        loop {
            match self.batch(3, journal) {
                Ok(_) => {}
                Err(WaitError::Closed) => return,
                Err(WaitError::PeerDead(_)) => {}
                Err(error) => panic!("{}: {error}", STAGES[self.number]),
            }
        }
    }
}

/// The shape of a ring.
#[derive(Clone, Copy)]
pub struct Shape {
    pub capacity: u64,
    /// Whether the first stage writes to events.
    pub writes: bool,
    /// Whether a successor of the writing stage passes over events that may be half-written.
    pub passes: bool,
    pub notice: Duration,
    pub tap: Tapped,
}

/// Place of the tap in the ring's graph, if the ring has a tap.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tapped {
    No,
    /// Directly behind the producer, and before the later stage.
    First,
    /// Between the two stages.
    Between,
}

/// Name of the tap, which has room for one reader.
pub const TAP: &str = "viewers";

/// A segment, and this process as one participant of it.
pub struct World {
    pub segment: Segment<Numbered>,
    pub me: Attached<Numbered>,
    pub shape: Shape,
}

pub fn join(segment: &Segment<Numbered>) -> Attached<Numbered> {
    // SAFETY: only these tests use the segment, and a forked child attaches to it anew.
    unsafe { segment.attach() }.unwrap()
}

/// Repeats a call as long as it finds a place taken, because a killed process holds its places
/// until the kernel has freed the process's memory.
pub fn retry<T>(mut take: impl FnMut() -> Result<T, SegmentError>) -> Result<T, SegmentError> {
    loop {
        match take() {
            Err(error) if matches!(error.problem(), Problem::Taken { .. } | Problem::Busy) => {
                thread::sleep(Duration::from_micros(200));
            }
            result => return result,
        }
    }
}

impl World {
    /// Makes a segment without a name.
    pub fn new(shape: Shape) -> World {
        let builder = Segment::create_memfd("kills").capacity(shape.capacity).notice(shape.notice);
        let builder = match shape.writes {
            true => builder.updater(STAGES[0]),
            false => builder.reader(STAGES[0]),
        };
        let builder = match shape.tap {
            Tapped::No => builder.reader(STAGES[1]).after([STAGES[0]]),
            Tapped::First => builder.tap(TAP, 1).reader(STAGES[1]).after([STAGES[0], TAP]),
            Tapped::Between => {
                builder.tap(TAP, 1).after([STAGES[0]]).reader(STAGES[1]).after([TAP])
            }
        };
        let segment = builder.build().unwrap();
        let me = join(&segment);
        World { segment, me, shape }
    }

    /// Returns the bytes that processes change. The caller has stopped all processes that write.
    pub fn memory(&self) -> &[u8] {
        let mapping = self.me.participation().mapping();
        let (head, length) = (HEAD as usize, mapping.length());
        // SAFETY: the bytes are mapped, and the caller has stopped every process that could write.
        unsafe { std::slice::from_raw_parts(mapping.base().as_ptr().add(head), length - head) }
    }

    fn seat(&self, party: u64) -> &Seat {
        let participation = self.me.participation();
        let seats = &participation.checked().areas.seats;
        participation.mapping().record::<Seat>(seats, party).unwrap()
    }

    /// Returns how many owners of a party's seat have died.
    pub fn deaths(&self, party: u64) -> u32 {
        self.seat(party).deaths()
    }

    /// Returns the participant that owns a party's seat.
    pub fn owner(&self, party: u64) -> Option<u32> {
        self.seat(party).owner()
    }

    /// Takes the place of a stage.
    pub fn stage(&self, by: &Attached<Numbered>, number: usize, journal: &Journal) -> Stage {
        let writes = self.shape.writes;
        let (hand, redelivered, next) = if writes && number == 0 {
            let mut writer = retry(|| by.updater(STAGES[0])).unwrap();
            let redelivered = writer.redelivered();
            let suspects = writer.suspects();
            assert_eq!(suspects.len(), redelivered.len());
            assert!(redelivered.clone().all(|seq| suspects.contains(seq)));
            if self.shape.passes {
                // The events are noted first, because this process may be killed as well.
                redelivered.clone().for_each(|seq| {
                    journal.count(0, seq).fetch_or(PASSED, SeqCst);
                });
                assert_eq!(writer.pass_over_suspects().unwrap(), suspects.len() as u64);
                assert_eq!(writer.next_seq(), redelivered.end_seq());
            }
            let next = writer.next_seq();
            (Hand::Writes(writer), redelivered, next)
        } else {
            let reader = retry(|| by.reader(STAGES[number])).unwrap();
            let (redelivered, next) = (reader.redelivered(), reader.next_seq());
            (Hand::Reads(reader), redelivered, next)
        };
        Stage { hand, number, next, redelivered, writes, successor_from: u64::MAX }
    }

    /// Joins the tap at its oldest event.
    pub fn view(&self, by: &Attached<Numbered>) -> Subscription<Numbered> {
        loop {
            match by.subscribe(TAP, StartAt::Oldest) {
                Err(error) if matches!(error.problem(), Problem::AllTaken { .. }) => {
                    thread::sleep(Duration::from_micros(200));
                }
                joined => return joined.unwrap(),
            }
        }
    }

    /// Lets a reader of the tap handle up to `max` available events, and release them.
    pub fn look(
        &self,
        reader: &mut Subscription<Numbered>,
        max: usize,
    ) -> Result<usize, WaitError> {
        let mut next = reader.next_seq();
        let changed = self.shape.writes && self.shape.tap == Tapped::Between;
        let look = |event: &Numbered, at: slipring::At| {
            assert_eq!(at.seq, next, "in order");
            next += 1;
            event.assert_whole(at.seq);
            let done = if changed { !at.seq } else { 0 };
            // If a successor passed over an event, the event stays as the dead process left it.
            let is_left = changed && self.shape.passes;
            let is_done = (event.once, event.twice) == (done, done);
            assert!(is_done || is_left, "{}: not released, or changed since", at.seq);
        };
        reader.poll(max, look)
    }

    /// Takes the producer's place. Returns `None` if the ring is closed.
    pub fn producer(&self, by: &Attached<Numbered>) -> Option<Producer<Numbered>> {
        match retry(|| by.producer()) {
            Ok(producer) => Some(producer),
            Err(error) if matches!(error.problem(), Problem::Over) => None,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Publishes one event, and notes it.
pub fn publish(tx: &mut Producer<Numbered>, by: u64, journal: &Journal) {
    let seq = journal.published().load(SeqCst);
    assert_eq!(tx.publish(|slot| slot.fill(seq, by)).unwrap(), seq);
    journal.published().store(seq + 1, SeqCst);
}

/// Publishes several events together, and notes them.
pub fn publish_run(tx: &mut Producer<Numbered>, len: u64, by: u64, journal: &Journal) {
    let first = journal.published().load(SeqCst);
    let mut claim = tx.claim_n(len as usize).unwrap();
    claim.iter_mut().zip(first..).for_each(|(slot, seq)| slot.fill(seq, by));
    assert_eq!(claim.publish(), first);
    journal.published().store(first + len, SeqCst);
}

/// Handles of this process.
#[derive(Default)]
pub struct Hands {
    pub tx: Option<Producer<Numbered>>,
    pub stages: [Option<Stage>; 2],
    /// Another process, which runs the first stage until the stream ends.
    pub first: Option<libc::pid_t>,
}

/// Producer after a kill.
const SUCCESSOR: u64 = 999;

/// Lets the survivors and newcomers finish a stream, and checks the whole stream. `unsure` is the
/// number of events that a killed producer was publishing. `run` is the number of events in the
/// first publication after the kill.
pub fn finish(world: &World, mut hands: Hands, journal: &Journal, unsure: u64, run: u64) {
    let sure = journal.published().load(SeqCst);
    // The stages see all of an unfinished publication, or nothing of it.
    for stage in hands.stages.iter_mut().flatten() {
        while stage.poll(usize::MAX, journal).unwrap_or(0) != 0 {}
        assert!(stage.next <= sure || stage.next == sure + unsure, "{sure}: {}", stage.next);
    }
    let newcomer = join(&world.segment);
    let successor = hands.tx.is_none();
    let mut tx = hands.tx.take().or_else(|| world.producer(&newcomer));
    let remote = hands.first.take();
    let mut stages: Vec<Stage> = (0..2)
        .filter(|&number| number != 0 || remote.is_none())
        .map(|number| {
            let survivor = hands.stages[number].take();
            survivor.unwrap_or_else(|| world.stage(&newcomer, number, journal))
        })
        .collect();
    let mut end = sure;
    if let Some(tx) = &mut tx {
        for sent in 0..world.shape.capacity.min(32) + 3 {
            let count = if sent == 0 { run } else { 1 };
            end = loop {
                match tx.try_claim_n(count as usize) {
                    Ok(mut slots) => {
                        let first = slots.first_seq();
                        if sent == 0 && successor {
                            // Depending on the moment of the kill, a successor begins at one of two
                            // positions. Its first claim shows at which one.
                            let known = first == sure || first == sure + unsure;
                            assert!(known, "{sure}, {unsure}: {first}");
                            stages.iter_mut().for_each(|stage| {
                                stage.successor_from = first;
                                assert!(stage.next <= first, "{} of {first}", stage.next);
                            });
                        } else {
                            assert_eq!(first, end);
                        }
                        let slots_of = slots.iter_mut().zip(first..);
                        slots_of.for_each(|(slot, seq)| slot.fill(seq, SUCCESSOR));
                        assert_eq!(slots.publish(), first);
                        if count > 1 {
                            // The stages poll now, because the next publication would hide events
                            // that a dead producer may have left in the ring.
                            for stage in &mut stages {
                                while stage.poll(usize::MAX, journal).unwrap() != 0 {}
                            }
                        }
                        break first + count;
                    }
                    Err(ClaimError::Gated { .. }) => {
                        for stage in &mut stages {
                            stage.poll(2.max(count as usize / 2), journal).unwrap();
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            };
        }
    }
    let closed_before = tx.is_none();
    drop(tx);
    for stage in &mut stages {
        stage.drain(journal);
    }
    if let Some(pid) = remote {
        assert_eq!(super::trace::wait(pid), 0, "the other process failed");
    }
    let reached = stages.last().unwrap().next;
    assert!(reached == end || closed_before && reached == sure + unsure, "{end}: {reached}");
    (0..2).for_each(|number| journal.assert_complete(number, reached));
}
