//! Handles of all kinds work over words that change at random, during calls and between them. Each
//! call may fail.
//!
//! The words lie on the heap, each area in an allocation of its own. So AddressSanitizer sees each
//! access outside of an area. Without AddressSanitizer, lines of a known value surround each area.
//!
//! The first byte of an input chooses the handles:
//!
//! - Handles that lend events. No other thread changes events here, because a segment's user
//!   promises that (`Segment::attach`).
//! - Handles that copy events (`copies.rs`), in half of the inputs. Here the events change, too.
//! - Handles of blocks and messages (`contents.rs`), in inputs whose first byte is large.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use slipring::segment::{
    Areas, Declaration, Needs, OnDeath, Participant, Proof, Seated, SegmentConsumer,
    SegmentProducer, SegmentRing, StageDeclaration, StageDelivery, begin,
};
use slipring::{
    Wait,
    errors::{ClaimError, WaitError},
    markers::{Reading, Updating},
};

#[path = "contents.rs"]
mod contents;
#[path = "copies.rs"]
mod copies;

/// Size of a line, in bytes.
const LINE: usize = 128;
/// Lines of a known value before and behind each area.
const GUARDS: usize = if cfg!(fuzzing) { 0 } else { 8 };
const GUARD: u8 = 0xA5;
/// Number of calls of one input.
const CALLS: usize = 100;

/// An area, in an allocation of its own.
struct Area {
    first: NonNull<u8>,
    lines: usize,
    /// Distance between the words that change, in bytes.
    stride: usize,
    /// Size of the words, in bytes: 4 or 8.
    word: usize,
    layout: Layout,
}

impl Area {
    fn new(lines: usize, stride: usize, word: usize) -> Area {
        let size = (lines + 2 * GUARDS) * LINE;
        let layout = Layout::from_size_align(size.max(LINE), LINE).unwrap();
        // SAFETY: the size is not zero.
        let begin = NonNull::new(unsafe { alloc(layout) }).expect("memory");
        // SAFETY: the whole allocation.
        unsafe { begin.write_bytes(GUARD, layout.size()) };
        // SAFETY: the guards and the area were allocated.
        let first = unsafe { begin.add(GUARDS * LINE) };
        // SAFETY: as above.
        unsafe { first.write_bytes(0, lines * LINE) };
        Area { first, lines, stride, word, layout }
    }

    /// Asserts that no byte beside the area was written.
    fn check(&self) {
        let (before, behind) = (GUARDS * LINE, (GUARDS + self.lines) * LINE);
        for at in (0..before).chain(behind..behind + before) {
            // SAFETY: the guards were allocated and set, and no thread writes to them any more.
            let byte = unsafe { self.first.sub(before).add(at).read() };
            assert_eq!(byte, GUARD, "a byte outside of an area was written");
        }
    }

    /// Changes a word.
    fn change(&self, random: &mut fastrand::Rng, status: bool) {
        let count = self.lines * LINE / self.stride;
        if count == 0 {
            return;
        }
        // SAFETY: the word lies in the area.
        let word = |random: &mut fastrand::Rng| unsafe {
            self.first.add(random.usize(..count) * self.stride).cast::<AtomicU64>()
        };
        let at = word(random);
        if status && at.cast() == self.first {
            // SAFETY: the word lies in the area, and the status has 32 bits there.
            let bits = unsafe { at.cast::<AtomicU32>().as_ref() };
            return bits.store(random.u32(..) & random.u32(..) & random.u32(..) & 31, Relaxed);
        }
        if self.word == 4 {
            // SAFETY: as above.
            let word = unsafe { at.cast::<AtomicU32>().as_ref() };
            return word.store(random.u32(..) >> random.u32(..32), Relaxed);
        }
        // SAFETY: the words lie in the area, and all threads use them by atomic accesses.
        let (word, other) = unsafe { (at.as_ref(), word(random).as_ref()) };
        let value = match random.u8(..6) {
            0 => random.u64(..) >> random.u32(..64),
            1 => word.load(Relaxed).wrapping_add(random.u64(..9)).wrapping_sub(4),
            2 => word.load(Relaxed) ^ 1 << random.u32(..64),
            3 => other.load(Relaxed),
            4 => 0,
            _ => random.u64(..32),
        };
        word.store(value, Relaxed);
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.first.sub(GUARDS * LINE).as_ptr(), self.layout) }
    }
}

/// All areas of a segment: lines, queues, seats, status, failure, counters, waits, slots, cells,
/// shard ids, blocks that lie apart from their stamps.
struct Memory([Area; 11]);

// SAFETY: the memory holds atomic words and slots. Either one thread alone uses a slot, or all
// threads use it by atomic words.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn change(&self, random: &mut fastrand::Rng) {
        // Counters matter least.
        let number = [0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 7, 7, 8, 9][random.usize(..14)];
        self.0[number].change(random, number == 3);
    }
}

/// Reports a participant as dead if its bit is set in this word, which changes at random, too.
struct Dead(AtomicU64);

impl Proof for Dead {
    fn is_dead(&self, number: u32) -> bool {
        self.0.load(Relaxed) >> (number & 63) & 1 != 0
    }

    fn recover(&self, number: u32, settle: &mut dyn FnMut()) -> bool {
        let dead = self.is_dead(number);
        if dead {
            settle();
        }
        dead
    }

    fn pid(&self, number: u32) -> u32 {
        number
    }
}

enum Hand {
    Reads(SegmentConsumer<u64, Reading, Seated>),
    Writes(SegmentConsumer<u64, Updating, Seated>),
}

struct World {
    declaration: Declaration,
    areas: Areas,
    memory: Arc<Memory>,
    dead: Arc<Dead>,
    wait: Wait,
}

impl World {
    fn new(capacity: usize, start: u64, graph: u8, wait: Wait) -> World {
        // For each stage: whether it writes, and which stage it follows.
        let graphs: [&[(bool, Option<usize>)]; 6] = [
            &[(false, None)],
            &[(true, None)],
            &[(true, None), (false, Some(0))],
            &[(false, None), (true, Some(0)), (false, Some(1))],
            &[(false, None), (false, None)],
            &[(false, None), (false, Some(0)), (true, Some(1))],
        ];
        let on_death = [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail];
        let stages = graphs[usize::from(graph) % 6].iter().enumerate();
        let stages = stages.map(|(number, &(writes, after))| StageDeclaration {
            name: format!("s{number}"),
            writes,
            delivery: StageDelivery::Each,
            after: after.into_iter().collect(),
            on_death: on_death[(usize::from(graph) / 6 + number) % 3],
        });
        let declaration = Declaration {
            capacity,
            start,
            stages: stages.collect(),
            producers: 1,
            producer_on_death: on_death[usize::from(graph) / 18 % 3],
        };
        // A slot begins with its stamp.
        let slot = declaration.needs::<u64>().unwrap().slot;
        World::of(declaration, wait, slot)
    }

    /// Makes a world, in which every `stride`th byte of a slot begins a word that changes.
    fn of(declaration: Declaration, wait: Wait, stride: usize) -> World {
        let needs = declaration.needs::<u64>().unwrap();
        let slots = Area::new((needs.slot * declaration.capacity).div_ceil(LINE), stride, 8);
        World::with(declaration, wait, &needs, (slots, Area::new(0, 8, 8), (0, 0)))
    }

    /// Makes a world with these slots and blocks, which lie `strides` bytes apart. If the blocks
    /// have no area of their own, the events lie behind the first stamp.
    fn with(
        declaration: Declaration,
        wait: Wait,
        needs: &Needs,
        (slots, blocks, strides): (Area, Area, (usize, usize)),
    ) -> World {
        let capacity = declaration.capacity;
        let (mut slots, mut blocks) = (Some(slots), Some(blocks));
        let lines = [
            needs.lines,
            needs.queues,
            needs.seats,
            1,
            needs.failure,
            needs.counters,
            needs.waited,
            0,
            (needs.cells * capacity * 8).div_ceil(LINE),
            (needs.shard_ids * capacity * 4).div_ceil(LINE),
        ];
        let area = |number: usize| match number {
            7 => slots.take().unwrap(),
            10 => blocks.take().unwrap(),
            9 => Area::new(lines[number], 4, 4),
            _ => Area::new(lines[number], 8, 8),
        };
        let memory = Arc::new(Memory(std::array::from_fn(area)));
        let at = |number: usize| memory.0[number].first;
        let events = match strides {
            (0, 0) => at(7),
            // SAFETY: a slot begins with its stamp.
            _ if memory.0[10].lines == 0 => unsafe { at(7).add(8) },
            _ => at(10),
        };
        let areas = Areas {
            lines: at(0),
            queues: at(1),
            seats: at(2),
            status: at(3),
            failure: at(4),
            counters: at(5),
            waited: at(6),
            stamps: at(7),
            events,
            strides,
            cells: at(8),
            shard_ids: at(9),
            mapping: memory.clone(),
        };
        // SAFETY: the areas have the sizes that the declaration needs.
        unsafe { begin(&declaration, &areas) }.unwrap();
        World { declaration, areas, memory, dead: Arc::new(Dead(AtomicU64::new(0))), wait }
    }

    fn participant(&self, number: u32) -> Participant {
        Participant {
            number,
            proof: self.dead.clone(),
            notice: Duration::ZERO,
            always_fences: true,
            wait: self.wait.clone(),
            producer_wait: self.wait.clone(),
        }
    }

    fn attach(&self, number: u32) -> SegmentRing<u64> {
        // SAFETY: the areas have the sizes that the declaration needs. The words break the
        // protocol, which is what the target tests; the events are left alone.
        unsafe { SegmentRing::over(&self.declaration, &self.areas, &self.participant(number)) }
            .unwrap()
    }

    /// Makes the handle of a stage, even if the stage's seat cannot be taken.
    fn hand(&self, number: u32, stage: usize) -> Hand {
        let ring = self.attach(number);
        let _ = ring.seat(stage).take(number);
        match self.declaration.stages[stage].writes {
            // SAFETY: the stage has no other handle, and was declared as a writer.
            true => Hand::Writes(unsafe { ring.updater(stage) }),
            // SAFETY: as above.
            false => Hand::Reads(unsafe { ring.reader(stage) }),
        }
    }

    fn producer(&self, number: u32) -> SegmentProducer<u64> {
        let ring = self.attach(number);
        let _ = ring.seat(ring.seats_of(ring.producer_party()).start).take(number);
        // SAFETY: the ring has no other producer.
        unsafe { ring.producer() }
    }
}

fn told(error: Option<WaitError>) {
    // The text of a failure comes from the shared words, so the test also makes the message.
    let _ = error.map(|error| error.to_string());
}

/// Returns a deadline that passes soon.
fn soon() -> Instant {
    Instant::now() + Duration::from_micros(20)
}

/// Makes call number `$call` of a handle of a stage.
macro_rules! call {
    ($hand:expr, $call:expr, $count:expr) => {{
        let (hand, count) = ($hand, $count);
        match $call % 8 {
            0 => told(hand.poll(count, |_, _| ()).err()),
            1 => _ = hand.try_batch(count).map(|batch| batch.iter().sum::<u64>()),
            2 => _ = hand.try_batch(count).map(|batch| batch.release()),
            3 => _ = hand.try_batch(count).map(|batch| batch.hold()),
            4 => _ = hand.batch_by(count, soon()).map(|batch| batch.release()),
            5 => {
                _ = hand.try_batch(count).map(|mut batch| {
                    let front = batch.len() / 2;
                    batch.release_front(front);
                })
            }
            6 => hand.release_until(hand.next_seq().wrapping_sub(count as u64 / 2)),
            _ => _ = (hand.redelivered(), hand.stage()),
        }
    }};
}

fn write(hand: &mut SegmentConsumer<u64, Updating, Seated>, call: u8, count: usize) {
    match call % 4 {
        0 => told(hand.pass_over_suspects().err()),
        1 => {
            let suspects = hand.suspects();
            let _ = hand.poll(count, |event, at| *event = u64::from(suspects.contains(at.seq)));
        }
        2 => {
            let _ = hand.try_batch(count).map(|mut batch| {
                let suspects = batch.suspects();
                assert!(suspects <= batch.len());
                batch.iter_mut().take(suspects).for_each(|event| *event = 0);
            });
        }
        _ => call!(hand, call >> 2, count),
    }
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut bytes = bytes.iter().copied();
    let mut next = || bytes.next();
    let mut number = || u64::from(next().unwrap_or(0));
    let first = number();
    let (capacity, graph) = (1 << (first % 5), number() as u8);
    let start = [0, 7, u64::MAX - 2, u64::MAX][number() as usize % 4];
    let waits: Vec<Wait> = Wait::all().into_iter().collect();
    let wait = waits[number() as usize % waits.len()].clone();
    let mut random = fastrand::Rng::with_seed(number() << 8 | number());
    // Speed at which another thread changes words, or 0 for no such thread.
    let speed = number() % 4;
    if first >= 0xC0 {
        return contents::run((capacity, start, graph), wait, random, speed, &mut next);
    }
    if graph / 54 % 2 == 1 {
        return copies::run((capacity, start, graph), wait, random, speed, &mut next);
    }
    let world = World::new(capacity, start, graph, wait);
    let stages = world.declaration.stages.len();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut changes = random.fork();
        let (memory, dead, stop) = (&world.memory, &world.dead, &stop);
        if speed != 0 {
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    memory.change(&mut changes);
                    dead.0.store(changes.u64(..) & changes.u64(..), Relaxed);
                    match speed {
                        1 => std::thread::sleep(Duration::from_micros(10)),
                        2 => (0..100).for_each(|_| std::hint::spin_loop()),
                        _ => {}
                    }
                }
            });
        }
        let _stops = Stops(stop);
        let ring = world.attach(1);
        let mut tx = Some(world.producer(2));
        let mut hands: Vec<_> =
            (0..stages).map(|stage| Some(world.hand(3 + stage as u32, stage))).collect();
        // A process that dies drops none of its handles. Their memory is freed at the end of the
        // test.
        let (mut dead_hands, mut dead_producers) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let Some(call) = next() else { break };
            let argument = next().unwrap_or(0);
            let (count, stage) = (usize::from(argument % 20), usize::from(argument) % stages);
            match call % 8 {
                0 | 1 => {
                    let Some(tx) = &mut tx else { continue };
                    match call / 8 % 6 {
                        0 => _ = tx.try_publish(|slot| *slot = 1),
                        1 => _ = tx.publish_by(soon(), |slot| *slot = 1),
                        2 => match tx.try_claim_n(count) {
                            Ok(claim) => _ = claim.publish(),
                            Err(ClaimError::Wait(error)) => told(Some(error)),
                            Err(_) => {}
                        },
                        3 => _ = tx.try_claim_n(count).map(std::mem::forget),
                        4 => _ = tx.try_claim_n(count).map(drop),
                        _ => _ = tx.remaining(),
                    }
                }
                2..=4 => match &mut hands[stage] {
                    // If the ring is over, the handle of a first stage reaches the end or, if the
                    // words describe no end, returns an error.
                    Some(Hand::Reads(hand)) if speed == 0 && stage == 0 && ring.is_over() => {
                        told(hand.for_each(|_, _| ()).err());
                    }
                    Some(Hand::Reads(hand)) => call!(hand, call / 8, count),
                    Some(Hand::Writes(hand)) => write(hand, call / 8, count),
                    None => {}
                },
                5 => (0..=argument % 4).for_each(|_| world.memory.change(&mut random)),
                6 => match call / 8 % 4 {
                    // Another process takes the place, and the previous process leaves or dies.
                    0 => {
                        let before = hands[stage].take();
                        if argument & 64 == 0 {
                            dead_hands.push(before);
                        }
                        hands[stage] = Some(world.hand(10 + u32::from(argument), stage));
                    }
                    1 => {
                        let before = tx.take();
                        if argument & 64 == 0 {
                            dead_producers.push(before);
                        }
                        tx = Some(world.producer(10 + u32::from(argument)));
                    }
                    _ => world.dead.0.store(u64::from(argument), Relaxed),
                },
                _ => {
                    let party = usize::from(argument) % (stages + 1);
                    let seat = ring.seat(party);
                    match call / 8 % 6 {
                        0 => _ = ring.report(),
                        1 => _ = (ring.is_over(), ring.position(stage)),
                        2 => _ = (seat.owner(), seat.deaths(), seat.held(), seat.boundary()),
                        3 => ring.settle_seat(party, seat.owner().unwrap_or(0)),
                        4 => seat.free(seat.owner().unwrap_or(0)),
                        _ => _ = seat.take(u32::from(argument)),
                    }
                }
            }
        }
        drop((tx, hands));
    });
    world.memory.0.iter().for_each(Area::check);
}

/// Stops the other thread when it is dropped, even by a panic of a call.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
