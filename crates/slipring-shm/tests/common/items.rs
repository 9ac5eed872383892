//! The oracle that checks a stream of blocks or messages, no matter which process was killed.
//!
//! An *item* is a block or a message. Each item has an id, which indexes the ledger. A producer
//! enters an item into the ledger before it publishes the item, so a kill leaves no unknown item.
//! - Each published item reaches each stage whole, in order, and once, except for the items that a
//!   stage's successor announces as redelivered.
//! - If a producer is killed while it publishes an item, both stages see the whole item, or both
//!   see no part of it. The same holds for all items of one publication together.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use slipring::{
    Wait,
    errors::{BatchError, ClaimError, WaitError},
    raw::SeqRange,
};
use slipring_shm::parts::layout::HEAD;
use slipring_shm::{
    Attached, Producer, Reader, Segment, SegmentError, SharedProducer, Updater,
    blocks::Blocks,
    errors::{MessageError, Problem},
    messages::Messages,
};

use super::oracle::{STAGES, retry, shared_words};

/// Size of a block, in bytes.
pub const BLOCK: usize = 40;
/// Size of a message's cell and of its header, in bytes.
const CELL: usize = 64;
const HEADER: usize = 8;

/// States of an item.
const ENTERED: u64 = 1;
const PUBLISHED: u64 = 2;
/// A flag that is added to the count of an item that a stage handles as a redelivered one.
const AGAIN: u64 = 1 << 32;
/// A flag that is added to the count of an item that the first stage has passed over.
const PASSED: u64 = 1 << 48;

/// Number of words in front of the items' words: the next id, and two words for the test.
const HEAD_WORDS: usize = 3;
/// Number of words of an item: its state, the first id of its publication, the life of its
/// producer, its length, and a count for each stage.
const WORDS: usize = 6;

/// A record of what is known about each item. Forked children share the ledger's memory, so a kill
/// does not destroy the record.
pub struct Ledger {
    words: &'static [AtomicU64],
}

impl Ledger {
    /// Makes a ledger of at most `items` items.
    pub fn new(items: usize) -> Ledger {
        Ledger { words: shared_words(HEAD_WORDS + items * WORDS) }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let used = HEAD_WORDS + self.ids().end as usize * WORDS;
        self.words[..used].iter().for_each(|word| word.store(0, SeqCst));
    }

    /// Returns the ids of all entered items.
    pub fn ids(&self) -> Range<u64> {
        0..self.words[0].load(SeqCst)
    }

    /// Returns the number of items that the ledger has room for.
    pub fn room(&self) -> u64 {
        ((self.words.len() - HEAD_WORDS) / WORDS) as u64
    }

    /// Returns the word in which the test stores the position at which a victim publishes or reads.
    /// All ones mean any position.
    pub fn next_seq(&self) -> &AtomicU64 {
        &self.words[1]
    }

    /// Returns a word that the test uses to stop producers: they stop once it is not zero.
    pub fn stop(&self) -> &AtomicU64 {
        &self.words[2]
    }

    fn word(&self, id: u64, word: usize) -> &AtomicU64 {
        &self.words[HEAD_WORDS + id as usize * WORDS + word]
    }

    fn count(&self, stage: usize, id: u64) -> u64 {
        self.word(id, 4 + stage).load(SeqCst)
    }

    /// Enters the items of one publication. `life` identifies the producer that publishes them.
    /// Returns their ids.
    pub fn enter(&self, life: u64, lens: &[usize]) -> Range<u64> {
        let first = self.words[0].fetch_add(lens.len() as u64, SeqCst);
        for (id, &len) in (first..).zip(lens) {
            self.word(id, 1).store(first, SeqCst);
            self.word(id, 2).store(life, SeqCst);
            self.word(id, 3).store(len as u64, SeqCst);
            self.word(id, 0).store(ENTERED, SeqCst);
        }
        first..first + lens.len() as u64
    }

    /// Notes that items are published for sure.
    pub fn publish(&self, ids: Range<u64>) {
        ids.for_each(|id| assert_eq!(self.word(id, 0).swap(PUBLISHED, SeqCst), ENTERED));
    }

    /// Returns the ids of items that may or may not be published.
    pub fn unsure(&self) -> Vec<u64> {
        self.ids().filter(|&id| self.word(id, 0).load(SeqCst) == ENTERED).collect()
    }

    pub fn is_seen(&self, stage: usize, id: u64) -> bool {
        self.count(stage, id) != 0
    }

    fn len(&self, id: u64) -> usize {
        self.word(id, 3).load(SeqCst) as usize
    }

    /// Returns the bytes of an item that is a message.
    pub fn bytes(&self, id: u64) -> Vec<u8> {
        message(id, self.len(id))
    }

    /// Asserts that both stages have handled each published item. Of the items that may be
    /// unpublished, both must have handled the same ones. Each item that a stage handled again must
    /// have been announced to it.
    #[track_caller]
    pub fn assert_complete(&self) {
        for id in self.ids() {
            let (state, first) = (self.word(id, 0).load(SeqCst), self.word(id, 1).load(SeqCst));
            for (stage, name) in STAGES.iter().enumerate() {
                let count = self.count(stage, id);
                assert!(count <= 1 || count >= AGAIN, "{name}: {count} times {id}");
                assert!(count != 0 || state != PUBLISHED, "{name}: {id} is lost");
                // If a producer was killed while it entered items, it has published none of them.
                let expected = state != 0 && self.is_seen(0, first);
                assert_eq!(self.is_seen(stage, id), expected, "{name}: {id} of {first}");
            }
        }
    }
}

fn mix(id: u64, word: u64) -> u64 {
    (id ^ word.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

/// Fills a block, word by word: id, check, two words that a writer changes, and another check.
pub fn fill(block: &mut [u8], id: u64) {
    for (at, word) in [id, mix(id, 1), 0, 0, mix(id, 4)].into_iter().enumerate() {
        block[at * 8..at * 8 + 8].copy_from_slice(&word.to_ne_bytes());
    }
}

fn words_of(block: &[u8]) -> [u64; 5] {
    assert_eq!(block.len(), BLOCK);
    std::array::from_fn(|at| u64::from_ne_bytes(block[at * 8..at * 8 + 8].try_into().unwrap()))
}

/// Changes a block as the writing stage does: two words, one after the other.
fn change(block: &mut [u8]) {
    let changed = (!words_of(block)[0]).to_ne_bytes();
    block[16..24].copy_from_slice(&changed);
    block[24..32].copy_from_slice(&changed);
}

/// Returns the bytes of a message.
fn message(id: u64, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len + 8);
    for word in 0..len.div_ceil(8) as u64 {
        bytes.extend_from_slice(&mix(id, word).to_ne_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns the number of cells of a message of `len` bytes.
pub fn cells_of(len: usize) -> u64 {
    (HEADER + len).div_ceil(CELL) as u64
}

/// The shape of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whether the ring has messages. Otherwise, it has blocks.
    pub messages: bool,
    pub capacity: u64,
    /// Whether two producers are declared.
    pub several: bool,
    /// Whether the first stage writes.
    pub writes: bool,
    /// Whether a successor of the writing stage passes over items that may be half-written.
    pub passes: bool,
}

/// An attachment.
pub enum Me {
    Blocks(Attached<Blocks>),
    Messages(Attached<Messages>),
}

impl Me {
    /// Sets the waiting strategy of the handles that are made from now on.
    pub fn wait(self, wait: Wait) -> Me {
        match self {
            Me::Blocks(me) => Me::Blocks(me.wait(wait).unwrap()),
            Me::Messages(me) => Me::Messages(me.wait(wait).unwrap()),
        }
    }
}

enum Made {
    Blocks(Segment<Blocks>),
    Messages(Segment<Messages>),
}

/// A segment, and this process as one participant of it.
pub struct World {
    made: Made,
    pub me: Me,
    pub shape: Shape,
}

const NOTICE: Duration = Duration::from_millis(2);

impl World {
    /// Makes a segment without a name.
    pub fn new(shape: Shape) -> World {
        macro_rules! made {
            ($builder:expr) => {{
                let builder = $builder.capacity(shape.capacity).notice(NOTICE);
                let builder = if shape.several { builder.producers(2) } else { builder };
                let builder = match shape.writes {
                    true => builder.updater(STAGES[0]),
                    false => builder.reader(STAGES[0]),
                };
                builder.reader(STAGES[1]).after([STAGES[0]]).build().unwrap()
            }};
        }
        let made = match shape.messages {
            true => Made::Messages(made!(Segment::<Messages>::create_memfd("messages"))),
            false => Made::Blocks(made!(Segment::<Blocks>::create_memfd("b").block(BLOCK, 8))),
        };
        World { me: attach(&made), made, shape }
    }

    /// Attaches once more, as a forked process must.
    pub fn join(&self) -> Me {
        attach(&self.made)
    }

    /// Returns the bytes that processes change. The caller has stopped all processes that write.
    pub fn memory(&self) -> &[u8] {
        let participation = match &self.me {
            Me::Blocks(me) => me.participation(),
            Me::Messages(me) => me.participation(),
        };
        let (mapping, head) = (participation.mapping(), HEAD as usize);
        let length = mapping.length() - head;
        // SAFETY: the bytes are mapped, and the caller has stopped the processes that write.
        unsafe { std::slice::from_raw_parts(mapping.base().as_ptr().add(head), length) }
    }

    /// Takes a producer's place, as soon as no killed process holds it any more. Returns `None` if
    /// the ring is closed.
    pub fn producer(&self, by: &Me) -> Option<Tx> {
        let taken = || match (by, self.shape.several) {
            (Me::Blocks(by), false) => by.producer().map(Tx::Block),
            (Me::Blocks(by), true) => by.shared_producer().map(Tx::SharedBlock),
            (Me::Messages(by), false) => by.producer().map(Tx::Message),
            (Me::Messages(by), true) => by.shared_producer().map(Tx::SharedMessage),
        };
        loop {
            match retry(taken) {
                Ok(producer) => return Some(producer),
                Err(error) if matches!(error.problem(), Problem::AllTaken { .. }) => {}
                Err(error) if matches!(error.problem(), Problem::Over) => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Takes the place of a stage.
    pub fn stage(&self, by: &Me, number: usize) -> Stage {
        let taken = || -> Result<Rx, SegmentError> {
            match by {
                Me::Blocks(by) if self.shape.writes && number == 0 => {
                    by.updater(STAGES[0]).map(Rx::Changes)
                }
                Me::Blocks(by) => by.reader(STAGES[number]).map(Rx::Reads),
                Me::Messages(by) => by.reader(STAGES[number]).map(Rx::Messages),
            }
        };
        let mut rx = retry(taken).unwrap();
        let redelivered = match &rx {
            Rx::Reads(rx) => rx.redelivered(),
            Rx::Changes(rx) => rx.redelivered(),
            Rx::Messages(rx) => rx.redelivered(),
        };
        let mut passed = SeqRange::from(0..0);
        if let Rx::Changes(rx) = &mut rx {
            let suspects = rx.suspects();
            assert_eq!(suspects.len(), redelivered.len());
            assert!(redelivered.clone().all(|seq| suspects.contains(seq)));
            if self.shape.passes {
                passed = redelivered.clone();
                assert_eq!(rx.pass_over_suspects().unwrap(), suspects.len() as u64);
                assert_eq!(rx.next_seq(), redelivered.end_seq());
            }
        }
        let mut stage = Stage {
            rx,
            view: View { number, shape: self.shape, next: 0, redelivered, last: Vec::new() },
            passed,
        };
        stage.view.next = stage.next_seq();
        stage
    }
}

fn attach(made: &Made) -> Me {
    // SAFETY: only these tests know the segment.
    unsafe {
        match made {
            Made::Blocks(made) => Me::Blocks(made.attach().unwrap()),
            Made::Messages(made) => Me::Messages(made.attach().unwrap()),
        }
    }
}

/// The handle of a producer.
pub enum Tx {
    Block(Producer<Blocks>),
    SharedBlock(SharedProducer<Blocks>),
    Message(Producer<Messages>),
    SharedMessage(SharedProducer<Messages>),
}

/// Evaluates one expression with a handle of blocks, or the other with a handle of messages.
#[macro_export]
macro_rules! either {
    ($tx:expr, $handle:ident => $blocks:expr, $messages:expr) => {
        match $tx {
            Tx::Block($handle) => $blocks,
            Tx::SharedBlock($handle) => $blocks,
            Tx::Message($handle) => $messages,
            Tx::SharedMessage($handle) => $messages,
        }
    };
}

impl Tx {
    /// Publishes an item: a block, or a message of these bytes. Returns its position.
    pub fn put(&mut self, id: u64, bytes: &[u8]) -> u64 {
        either!(self, tx => tx.publish(|block| fill(block, id)).unwrap(),
            tx.publish(id as u32, bytes).unwrap())
    }

    /// Like [`Tx::put`], but only if there is room.
    pub fn try_put(&mut self, id: u64, bytes: &[u8]) -> Result<u64, ClaimError> {
        either!(self, tx => tx.try_publish(|block| fill(block, id)),
            tx.try_publish(id as u32, bytes).map_err(|error| match error {
                MessageError::Claim(error) => error,
                error => panic!("{error}"),
            })
        )
    }

    /// Publishes items one by one, and notes each. Returns the position behind the last one.
    pub fn put_all(&mut self, ledger: &Ledger, life: u64, lens: &[usize]) -> u64 {
        let mut end = 0;
        for &len in lens {
            let ids = ledger.enter(life, &[len]);
            let bytes = ledger.bytes(ids.start);
            end = self.put(ids.start, &bytes) + either!(self, _tx => 1, cells_of(len));
            ledger.publish(ids);
        }
        end
    }

    /// Publishes a run of blocks, and notes them.
    pub fn put_run(&mut self, ledger: &Ledger, life: u64, len: usize) {
        let ids = ledger.enter(life, &vec![0; len]);
        either!(self, tx => {
            let mut claim = tx.claim_n(len).unwrap();
            ids.clone().enumerate().for_each(|(offset, id)| fill(&mut claim[offset], id));
            claim.publish();
        }, unreachable!("{tx:?}"));
        ledger.publish(ids);
    }

    /// Claims `len` blocks, or a message of `len` bytes, writes to the claim, and gives it up.
    pub fn give_up(&mut self, len: usize) {
        either!(self, tx => tx.claim_n(len).unwrap()[0].fill(0xEE),
            tx.claim(len).unwrap().fill(0xEE));
    }
}

enum Rx {
    Reads(Reader<Blocks>),
    Changes(Updater<Blocks>),
    Messages(Reader<Messages>),
}

/// The items that a stage has seen.
struct View {
    number: usize,
    shape: Shape,
    /// The position behind the last item.
    next: u64,
    redelivered: SeqRange,
    /// For each life of a producer, the last id that the stage has seen.
    last: Vec<(u64, u64)>,
}

impl View {
    /// Checks and counts an item.
    fn see(&mut self, ledger: &Ledger, seq: u64, cells: u64, id: u64) -> bool {
        let (name, capacity) = (STAGES[self.number], self.shape.capacity);
        assert!(seq >= self.next, "{name}: {seq} instead of {}", self.next);
        if !self.shape.several && seq != self.next {
            let padding = capacity - self.next % capacity;
            // A dead producer may have left padding without its message.
            let torn = [self.next, u64::MAX].contains(&ledger.next_seq().load(SeqCst));
            let padded = seq == self.next + padding && (cells > padding || torn);
            let padded = padded && self.shape.messages;
            assert!(padded, "{name}: {seq} instead of {}", self.next);
        }
        assert!(seq % capacity + cells <= capacity, "{name}: the cells lie side by side");
        self.next = seq + cells;
        assert!(ledger.ids().contains(&id), "{name}: {id} at {seq} is no item");
        let life = ledger.word(id, 2).load(SeqCst);
        match self.last.iter_mut().find(|last| last.0 == life) {
            Some((_, last)) => {
                assert!(*last < id, "{name}: {id} of {life} behind {last}");
                *last = id;
            }
            None => self.last.push((life, id)),
        }
        let new = !self.redelivered.contains(seq);
        let counted = if new { 1 } else { 1 + AGAIN };
        let before = ledger.word(id, 4 + self.number).fetch_add(counted, SeqCst);
        assert!(!new || before == 0, "{name}: {id} at {seq} came again, unannounced");
        new
    }

    fn see_block(&mut self, ledger: &Ledger, seq: u64, block: &[u8], passed: &SeqRange) {
        let [id, check, once, twice, behind] = words_of(block);
        assert_eq!((check, behind), (mix(id, 1), mix(id, 4)), "{seq}: a torn block");
        let new = self.see(ledger, seq, 1, id);
        if self.number == 0 && new {
            assert_eq!((once, twice), (0, 0), "{seq}: touched before, and not announced");
        }
        if self.number == 1 && passed.contains(seq) {
            ledger.word(id, 4).fetch_add(PASSED, SeqCst);
        } else if self.number == 1 && self.shape.writes {
            assert_eq!((once, twice), (!id, !id), "{seq}: released half-changed");
        }
    }

    fn see_message(&mut self, ledger: &Ledger, it: slipring_shm::messages::Message<'_>) {
        let id = u64::from(it.kind);
        assert!(ledger.ids().contains(&id), "{id} at {} is no message", it.seq);
        let len = ledger.len(id);
        assert_eq!(it.bytes.len(), len, "{id} at {}", it.seq);
        assert_eq!(it.bytes, message(id, len), "{id} at {}: a torn message", it.seq);
        self.see(ledger, it.seq, cells_of(len), id);
    }
}

/// A stage's handle, which checks the items that it sees.
pub struct Stage {
    rx: Rx,
    view: View,
    /// Positions that the first stage's successor has passed over.
    pub passed: SeqRange,
}

impl Stage {
    pub fn next_seq(&self) -> u64 {
        match &self.rx {
            Rx::Reads(rx) => rx.next_seq(),
            Rx::Changes(rx) => rx.next_seq(),
            Rx::Messages(rx) => rx.next_seq(),
        }
    }

    /// Returns the positions that the previous process was lent and has not released.
    pub fn redelivered(&self) -> SeqRange {
        self.view.redelivered.clone()
    }

    /// Handles and releases the available items: messages, or up to `max` blocks.
    pub fn poll(&mut self, max: usize, ledger: &Ledger) -> Result<u64, WaitError> {
        let (view, passed) = (&mut self.view, &self.passed);
        match &mut self.rx {
            Rx::Reads(rx) => {
                rx.poll(max, |block, at| view.see_block(ledger, at.seq, block, passed))
            }
            Rx::Messages(rx) => rx.poll(|it| view.see_message(ledger, it)),
            Rx::Changes(_) => match self.batch_by(max, ledger, Instant::now()) {
                Ok(count) => Ok(count),
                Err(BatchError::Wait(reason)) => Err(reason),
                Err(_) => Ok(0),
            },
        }
    }

    /// Waits until `deadline` for messages, or for up to `max` blocks. Handles and releases all of
    /// them.
    pub fn batch_by(
        &mut self,
        max: usize,
        ledger: &Ledger,
        deadline: Instant,
    ) -> Result<u64, BatchError> {
        let (view, passed) = (&mut self.view, &self.passed);
        let mut count = 0;
        match &mut self.rx {
            Rx::Reads(rx) => {
                let batch = rx.batch_by(max, deadline)?;
                for (block, seq) in batch.iter().zip(batch.first_seq()..) {
                    view.see_block(ledger, seq, block, passed);
                    count += 1;
                }
                batch.release();
            }
            Rx::Changes(rx) => {
                let mut batch = rx.batch_by(max, deadline)?;
                for offset in 0..batch.len() {
                    let seq = batch.first_seq() + offset as u64;
                    let block = batch.get_mut(offset).unwrap();
                    view.see_block(ledger, seq, block, passed);
                    change(block);
                    count += 1;
                }
                batch.release();
            }
            Rx::Messages(rx) => {
                let batch = rx.batch_by(deadline)?;
                batch.iter().for_each(|it| {
                    view.see_message(ledger, it);
                    count += 1;
                });
                batch.release();
            }
        }
        Ok(count)
    }

    /// Handles everything until the stream ends.
    pub fn drain(&mut self, ledger: &Ledger) {
        loop {
            let soon = Instant::now() + Duration::from_millis(50);
            match self.batch_by(3, ledger, soon) {
                Ok(_) | Err(BatchError::TimedOut(_)) => {}
                Err(BatchError::Wait(WaitError::PeerDead(_))) => {}
                Err(BatchError::Wait(WaitError::Closed)) => return,
                Err(error) => panic!("{}: {error}", STAGES[self.view.number]),
            }
        }
    }
}
