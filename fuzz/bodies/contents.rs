//! Handles of blocks (raw ones, too) and of messages work over words that change at random. Between
//! two calls, while no block is lent, the headers of messages change, too.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use slipring::segment::{
    BlockConsumer, BlockProducer, BlockStart, Declaration, MessageConsumer, MessageProducer,
    OnDeath, SegmentRing, StageDeclaration, StageDelivery, Strided,
};
use slipring::{Wait, handles::StartAt};

use super::{Area, CALLS, LINE, Stops, World, soon, told};

type Ring = SegmentRing<BlockStart, Strided>;
/// Makes one call of a handle. The arguments are a number that chooses the call, and a count of
/// blocks.
type Hand = Box<dyn FnMut(u8, usize)>;

/// Size of a message's cell, in bytes.
const CELL: usize = 64;

/// The meaning of the byte that chooses a graph.
#[derive(Clone, Copy)]
struct Choice {
    messages: bool,
    /// Whether the stamps lie between the blocks.
    inside: bool,
    /// Whether the handles of blocks are raw.
    raw: bool,
    size: usize,
}

/// Returns the contents of a graph, and its declaration.
fn declare(capacity: usize, start: u64, graph: u8) -> (Choice, Declaration) {
    let messages = graph & 1 != 0;
    let raw = graph & 128 != 0;
    let choice = match messages {
        true => Choice { messages, inside: false, raw: false, size: CELL },
        false => Choice { messages, inside: graph & 2 != 0, raw, size: if raw { 24 } else { 40 } },
    };
    let on_death = [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail][usize::from(graph) / 32 % 3];
    let (delivery, writes) = match graph / 8 % 4 {
        0 => (StageDelivery::Each, !messages),
        1 => (StageDelivery::Tap(2), false),
        2 if !messages && !raw => (StageDelivery::Pool(capacity.min(2)), true),
        _ => (StageDelivery::Each, false),
    };
    let stage = |name: &str, writes, delivery, after: &[usize]| StageDeclaration {
        name: name.into(),
        writes,
        delivery,
        after: after.to_vec(),
        on_death,
    };
    let stages = vec![
        stage("first", writes, delivery, &[]),
        stage("last", false, StageDelivery::Each, &[0]),
    ];
    let producers = if graph & 4 == 0 { 1 } else { 3 };
    (choice, Declaration { capacity, start, stages, producers, producer_on_death: on_death })
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|&byte| u64::from(byte)).sum()
}

/// Makes call number `$call` of a handle that is lent blocks.
macro_rules! read {
    ($hand:expr, $call:expr, $count:expr) => {{
        let (hand, count) = ($hand, $count);
        match $call % 6 {
            0 => told(hand.poll(count, |block, _| _ = sum(block)).err()),
            1 => {
                _ = hand.try_batch(count).map(|batch| {
                    let [first, second] = batch.stretches();
                    assert_eq!(first.count + second.count, batch.len());
                    batch.iter().map(sum).sum::<u64>()
                })
            }
            2 => _ = hand.try_batch(count).map(|batch| batch.release()),
            3 => _ = hand.batch_by(count, soon()).map(|batch| batch.release()),
            4 => {
                _ = hand.try_batch(count).map(|mut batch| {
                    batch.release_front(batch.len() / 2);
                    assert!(batch.get(batch.len()).is_none());
                })
            }
            _ => _ = format!("{hand:?}, {}", hand.next_seq()),
        }
    }};
}

/// Makes call number `$call` of a handle that may change blocks.
macro_rules! change {
    ($hand:expr, $call:expr, $count:expr) => {{
        let hand = $hand;
        match $call % 3 {
            0 => {
                _ = hand.try_batch($count).map(|mut batch| {
                    (0..batch.len()).for_each(|offset| batch.get_mut(offset).unwrap().fill(3));
                    batch.release();
                })
            }
            _ => read!(hand, $call / 3, $count),
        }
    }};
}

/// Makes call number `$call` of a raw handle that is lent blocks.
macro_rules! read_raw {
    ($hand:expr, $call:expr, $count:expr, $size:expr) => {{
        let hand = $hand;
        let found = match $call % 3 {
            0 => hand.wait_by($count, soon()),
            _ => hand.available($count),
        };
        for stretch in hand.stretches() {
            for block in 0..stretch.count {
                // SAFETY: the block is lent.
                let block = unsafe { stretch.address.add(block * stretch.stride) };
                // SAFETY: as above.
                _ = sum(unsafe { std::slice::from_raw_parts(block.as_ptr(), $size) });
            }
        }
        if let Ok(found) = found {
            _ = hand.done(found.first_seq().wrapping_add(u64::from($call / 3 % 4)));
        }
    }};
}

/// Makes call number `$call` of a producer of blocks.
macro_rules! publish {
    ($tx:expr, $call:expr, $count:expr) => {{
        let (tx, count) = ($tx, $count);
        match $call % 6 {
            0 => _ = tx.try_publish(|block| block.fill(1)),
            1 => _ = tx.publish_by(soon(), |block| block.fill(1)),
            2 => {
                _ = tx.try_claim_n(count).map(|mut claim| {
                    (0..claim.len()).for_each(|offset| claim[offset].fill(2));
                    claim.publish()
                })
            }
            3 => _ = tx.try_claim_n(count).map(std::mem::forget),
            4 => _ = tx.claim_n_by(count, soon()).map(drop),
            _ => _ = format!("{tx:?}, {}", tx.remaining()),
        }
    }};
}

/// Makes call number `$call` of a raw producer of blocks.
macro_rules! publish_raw {
    ($tx:expr, $call:expr, $count:expr, $size:expr) => {{
        let tx = $tx;
        let claimed = match $call % 4 {
            0 => tx.claim_by($count, soon()),
            1..=2 => tx.try_claim($count),
            _ => return tx.give_up(),
        };
        for stretch in tx.stretches() {
            for block in 0..stretch.count {
                // SAFETY: the block is claimed.
                unsafe { stretch.address.add(block * stretch.stride).write_bytes(2, $size) };
            }
        }
        if let Ok(first) = claimed {
            _ = tx.done(first.wrapping_add(u64::from($call / 4 % 4)));
        }
    }};
}

/// Makes call number `$call` of a producer of messages.
macro_rules! send {
    ($tx:expr, $call:expr, $count:expr) => {{
        let (tx, bytes) = ($tx, [7; 20 * 40]);
        let len = $count * (usize::from($call) / 4 % 40);
        match $call % 4 {
            0 | 1 => _ = tx.try_publish(9, &bytes[..len]),
            2 => _ = tx.publish_by(soon(), 9, &bytes[..len.min(tx.max_len())]),
            _ => _ = format!("{tx:?}, {}", tx.max_len()),
        }
    }};
}

/// Makes call number `$call` of a handle that is lent messages.
macro_rules! receive {
    ($hand:expr, $call:expr) => {{
        let hand = $hand;
        match $call % 4 {
            0 => told(hand.poll(|message| _ = sum(message.bytes)).err()),
            1 => {
                _ = hand.try_batch().map(|batch| batch.iter().map(|it| sum(it.bytes)).sum::<u64>())
            }
            2 => _ = hand.batch_by(soon()).map(|batch| batch.release()),
            _ => _ = format!("{hand:?}, {}", hand.next_seq()),
        }
    }};
}

impl World {
    fn contents(&self, number: u32) -> Ring {
        // SAFETY: the areas have the sizes that the declaration needs. The blocks have a size at
        // which any bytes are valid. No other thread changes blocks.
        unsafe { Ring::over(&self.declaration, &self.areas, &self.participant(number)) }.unwrap()
    }

    /// Makes the handle of a stage, even if the stage's seat cannot be taken.
    fn contents_hand(&self, choice: Choice, number: u32, stage: usize, place: usize) -> Hand {
        let (ring, Choice { messages, raw, size, .. }) = (self.contents(number), choice);
        let seats = ring.seats_of(stage);
        let seat = seats.start + place % seats.len();
        let declared = &self.declaration.stages[stage];
        if matches!(declared.delivery, StageDelivery::Tap(_)) {
            let start = [StartAt::Now, StartAt::Oldest, StartAt::At(place as u64)][place % 3];
            let Ok(joined) = ring.subscribe(stage, start) else { return Box::new(|_, _| ()) };
            // SAFETY: the blocks have this size.
            let mut hand = unsafe { BlockConsumer::over(joined, size) };
            if messages {
                let mut hand = MessageConsumer::over(hand);
                return Box::new(move |call, _| receive!(&mut hand, call));
            }
            return Box::new(move |call, count| read!(&mut hand, call, count));
        }
        let _ = ring.seat(seat).take(number);
        if matches!(declared.delivery, StageDelivery::Pool(_)) {
            // SAFETY: the blocks have this size, and the seat has no other handle.
            let mut hand = unsafe { BlockConsumer::over(ring.pool_updater(stage, seat), size) };
            return Box::new(move |call, count| change!(&mut hand, call, count));
        }
        if declared.writes {
            // SAFETY: the blocks have this size, and the stage was declared as a writer.
            let mut hand = unsafe { BlockConsumer::over(ring.updater(stage), size) };
            if raw {
                let mut hand = hand.into_raw();
                return Box::new(move |call, count| read_raw!(&mut hand, call, count, size));
            }
            return Box::new(move |call, count| match call % 4 {
                0 => told(hand.pass_over_suspects().err()),
                1 => _ = (hand.suspects(), hand.redelivered()),
                _ => change!(&mut hand, call / 4, count),
            });
        }
        // SAFETY: as above.
        let mut hand = unsafe { BlockConsumer::over(ring.reader(stage), size) };
        if messages {
            let mut hand = MessageConsumer::over(hand);
            return Box::new(move |call, _| receive!(&mut hand, call));
        }
        if raw {
            let mut hand = hand.into_raw();
            return Box::new(move |call, count| read_raw!(&mut hand, call, count, size));
        }
        Box::new(move |call, count| read!(&mut hand, call, count))
    }

    fn contents_tx(&self, choice: Choice, number: u32) -> Hand {
        let (ring, Choice { messages, raw, size, .. }) = (self.contents(number), choice);
        let seats = ring.seats_of(ring.producer_party());
        let seat = seats.start + number as usize % seats.len();
        let _ = ring.seat(seat).take(number);
        macro_rules! hand {
            ($tx:expr) => {{
                // SAFETY: the blocks have this size, and the seat has no other handle.
                let mut tx = unsafe { BlockProducer::over($tx, size) };
                if messages {
                    let mut tx = MessageProducer::over(tx);
                    return Box::new(move |call, count| send!(&mut tx, call, count));
                }
                if raw {
                    let mut tx = tx.into_raw();
                    return Box::new(move |call, count| publish_raw!(&mut tx, call, count, size));
                }
                Box::new(move |call, count| publish!(&mut tx, call, count))
            }};
        }
        if seats.len() == 1 { hand!(ring.producer()) } else { hand!(ring.shared_producer(seat)) }
    }
}

/// Runs the target.
pub(super) fn run(
    (capacity, start, graph): (usize, u64, u8),
    wait: Wait,
    mut random: fastrand::Rng,
    speed: u64,
    next: &mut dyn FnMut() -> Option<u8>,
) {
    let (choice, declaration) = declare(capacity, start, graph);
    let size = choice.size;
    let needs = declaration.needs_for(size).unwrap();
    let lines = |bytes: usize| (bytes * capacity).div_ceil(LINE);
    // The headers of messages are the first words of their cells.
    let (stamps, blocks, strides) = match choice.inside {
        true => (Area::new(lines(8 + size), 8 + size, 8), Area::new(0, 8, 8), (8 + size, 8 + size)),
        false => (Area::new(lines(8), 8, 8), Area::new(lines(size), size, 8), (8, size)),
    };
    let world = World::with(declaration, wait, &needs, (stamps, blocks, strides));
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
        let mut tx = world.contents_tx(choice, 2);
        let mut hands: Vec<_> = (0..stages)
            .map(|stage| world.contents_hand(choice, 3 + stage as u32, stage, 0))
            .collect();
        // A process that dies drops none of its handles. Their memory is freed at the end of the
        // test.
        let mut dead_hands = Vec::new();
        for _ in 0..CALLS {
            let Some(call) = next() else { break };
            let argument = next().unwrap_or(0);
            let (count, stage) = (usize::from(argument % 20), usize::from(argument) % stages);
            match call % 8 {
                0 | 1 => tx((call / 8).wrapping_add((argument / 20).wrapping_mul(32)), count),
                2..=4 => hands[stage](call / 8, count),
                5 => match call / 8 % 2 {
                    0 => (0..=argument % 4).for_each(|_| world.memory.change(&mut random)),
                    _ => world.memory.0[10].change(&mut random, false),
                },
                6 => {
                    // Another process takes the place, and the previous process leaves or dies.
                    let number = 10 + u32::from(argument);
                    let before = match call / 8 % 3 {
                        0 => {
                            let hand = world.contents_hand(choice, number, stage, count);
                            std::mem::replace(&mut hands[stage], hand)
                        }
                        1 => std::mem::replace(&mut tx, world.contents_tx(choice, number)),
                        _ => {
                            world.dead.0.store(u64::from(argument), Relaxed);
                            continue;
                        }
                    };
                    if argument & 64 == 0 {
                        dead_hands.push(before);
                    }
                }
                _ => {
                    let ring = world.contents(1);
                    let number = usize::from(argument) % ring.seats();
                    let seat = ring.seat(number);
                    match call / 8 % 4 {
                        0 => _ = ring.report().to_string(),
                        1 => ring.settle_seat(number, seat.owner().unwrap_or(0)),
                        2 => seat.free(seat.owner().unwrap_or(0)),
                        _ => _ = seat.take(u32::from(argument)),
                    }
                }
            }
        }
        drop((tx, hands));
    });
    world.memory.0.iter().for_each(Area::check);
}
