//! Handles of all kinds that copy events work over words and events that change at random.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use slipring::segment::{
    Apart, AtomicBytes, CopyingConsumer, CopyingProducer, Declaration, OnDeath, Seated,
    SeatedShard, SeatedWorker, SegmentRing, StageDeclaration, StageDelivery,
};
use slipring::{
    Wait,
    handles::StartAt,
    markers::{Joined, Reading, Updating},
};

use super::{CALLS, Stops, World, soon};

type Ring = SegmentRing<AtomicBytes<u64>>;

/// A handle of a stage.
enum Hand {
    Reads(CopyingConsumer<u64, Reading, Seated>),
    Writes(CopyingConsumer<u64, Updating, Seated>),
    Works(CopyingConsumer<u64, Updating, SeatedWorker>),
    Shard(CopyingConsumer<u64, Updating, SeatedShard>),
    Joined(CopyingConsumer<u64, Reading, Joined>),
}

enum Tx {
    One(CopyingProducer<u64>),
    OneOfMany(CopyingProducer<u64, Apart>),
}

fn declare(capacity: usize, start: u64, graph: u8) -> Declaration {
    let graph = usize::from(graph) % 54;
    // A pool has no more workers than the ring has slots.
    let several = capacity.min(3);
    let shards = StageDelivery::Shards { shards: capacity.min(2), key_offset: 3, key_length: 5 };
    let deliveries = [
        StageDelivery::Each,
        StageDelivery::Pool(capacity.min(2)),
        shards,
        StageDelivery::Tap(3),
        StageDelivery::Each,
        StageDelivery::Pool(several),
    ];
    let first = deliveries[graph % 6];
    let on_death = [OnDeath::Wait, OnDeath::Tell, OnDeath::Fail][graph / 6 % 3];
    // A tap follows no other tap.
    let second = match deliveries[graph / 18 + 1] {
        StageDelivery::Tap(_) if graph % 6 == 3 => StageDelivery::Each,
        delivery => delivery,
    };
    let stage = |name: &str, writes, delivery, after: &[usize]| StageDeclaration {
        name: name.into(),
        writes: writes && !matches!(delivery, StageDelivery::Tap(_)),
        delivery,
        after: after.to_vec(),
        on_death,
    };
    let stages = vec![
        stage("first", true, first, &[]),
        stage("second", true, second, &[0]),
        stage("last", false, StageDelivery::Each, &[1]),
    ];
    let producers = if graph % 2 == 0 { 1 } else { 3 };
    Declaration { capacity, start, stages, producers, producer_on_death: on_death }
}

impl World {
    fn copies(&self, number: u32) -> Ring {
        // SAFETY: the areas have the sizes that the declaration needs, and all threads access their
        // words by atomic accesses of their sizes.
        unsafe {
            SegmentRing::over_copies(&self.declaration, &self.areas, &self.participant(number))
        }
        .unwrap()
    }

    /// Makes the handle of a stage, even if the stage's seat cannot be taken.
    fn copying_hand(&self, number: u32, stage: usize, place: usize) -> Option<Hand> {
        let ring = self.copies(number);
        let seats = ring.seats_of(stage);
        let seat = seats.start + place % seats.len();
        let declared = &self.declaration.stages[stage];
        if !matches!(declared.delivery, StageDelivery::Tap(_)) {
            let _ = ring.seat(seat).take(number);
        }
        use CopyingConsumer as Copies;
        // SAFETY: the ring is one of copies.
        Some(unsafe {
            match declared.delivery {
                StageDelivery::Each if declared.writes => {
                    Hand::Writes(Copies::over(ring.updater(stage)))
                }
                StageDelivery::Each => Hand::Reads(Copies::over(ring.reader(stage))),
                StageDelivery::Pool(_) => Hand::Works(Copies::over(ring.pool_updater(stage, seat))),
                StageDelivery::Shards { shards, .. } => {
                    Hand::Shard(Copies::over(ring.shard_updater(stage, place % shards)))
                }
                StageDelivery::Tap(_) => {
                    let starts = [StartAt::Now, StartAt::Oldest, StartAt::At(place as u64)];
                    let member = ring.subscribe(stage, starts[place % 3]).ok()?;
                    Hand::Joined(Copies::over(member))
                }
            }
        })
    }

    fn copying_tx(&self, number: u32) -> Tx {
        let ring = self.copies(number);
        let seats = ring.seats_of(ring.producer_party());
        let seat = seats.start + number as usize % seats.len();
        let _ = ring.seat(seat).take(number);
        // SAFETY: the ring is one of copies.
        unsafe {
            match seats.len() {
                1 => Tx::One(CopyingProducer::over(ring.producer())),
                _ => Tx::OneOfMany(CopyingProducer::over(ring.shared_producer(seat))),
            }
        }
    }
}

/// Makes call number `$call` of a handle of a stage.
macro_rules! read {
    ($hand:expr, $call:expr, $count:expr) => {{
        let (hand, mut events) = ($hand, [0; 20]);
        match $call % 6 {
            0 => _ = hand.try_next(),
            1 => _ = hand.next_by(soon()),
            2 => _ = hand.try_read_batch(&mut events[..$count]),
            3 => _ = hand.read_batch_by(soon(), &mut events[..$count]),
            4 => hand.release(),
            5 if $count > 9 => {
                _ = hand.read_batch_within_by(Duration::MAX, soon(), &mut events[..$count]);
            }
            _ => _ = format!("{hand:?}, {}", hand.stage()),
        }
    }};
}

/// Makes call number `$call` of a handle of a stage that writes.
macro_rules! change {
    ($hand:expr, $call:expr, $count:expr, $capacity:expr) => {{
        let hand = $hand;
        match $call % 4 {
            0 => assert!(hand.redelivered().count() <= $capacity),
            1 => {
                if let Ok((event, seq)) = hand.try_next() {
                    assert!(hand.write_back(seq, &(event + u64::from(event < u64::MAX))));
                }
            }
            _ => read!(hand, $call / 4, $count),
        }
    }};
}

/// Makes call number `$call` of a producer.
macro_rules! publish {
    ($tx:expr, $call:expr, $count:expr) => {{
        let (tx, events) = ($tx, [7; 20]);
        match $call % 6 {
            0 => _ = tx.try_publish(&1),
            1 => _ = tx.publish_by(soon(), &2),
            2 => _ = tx.try_publish_batch(&events[..$count]),
            3 => _ = tx.publish_batch_by(soon(), &events[..$count]),
            4 => _ = tx.remaining(),
            _ => {
                _ = format!("{tx:?}");
                _ = (tx.flush_by(soon()), tx.wait_for_by("second", $count as u64, soon()));
            }
        }
    }};
}

/// Runs the target.
pub(super) fn run(
    (capacity, start, graph): (usize, u64, u8),
    wait: Wait,
    mut random: fastrand::Rng,
    speed: u64,
    next: &mut dyn FnMut() -> Option<u8>,
) {
    let world = World::of(declare(capacity, start, graph), wait, 8);
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
        let ring = world.copies(1);
        let mut tx = world.copying_tx(2);
        let mut hands: Vec<_> =
            (0..stages).map(|stage| world.copying_hand(3 + stage as u32, stage, 0)).collect();
        // A dying process does not drop its handles. So the handles of simulated dead processes are
        // kept here, and freed at the end of the test.
        let (mut dead_hands, mut dead_producers) = (Vec::new(), Vec::new());
        for _ in 0..CALLS {
            let Some(call) = next() else { break };
            let argument = next().unwrap_or(0);
            let (count, stage) = (usize::from(argument % 20), usize::from(argument) % stages);
            match call % 8 {
                0 | 1 => match &mut tx {
                    Tx::One(tx) => publish!(tx, call / 8, count),
                    Tx::OneOfMany(tx) => publish!(tx, call / 8, count),
                },
                2..=4 => match &mut hands[stage] {
                    Some(Hand::Reads(hand)) => read!(hand, call / 8, count),
                    Some(Hand::Writes(hand)) => change!(hand, call / 8, count, capacity),
                    Some(Hand::Works(hand)) => change!(hand, call / 8, count, capacity),
                    Some(Hand::Shard(hand)) => change!(hand, call / 8, count, capacity),
                    Some(Hand::Joined(hand)) => read!(hand, call / 8, count),
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
                        let number = 10 + u32::from(argument);
                        hands[stage] = world.copying_hand(number, stage, count);
                    }
                    1 => {
                        let before =
                            std::mem::replace(&mut tx, world.copying_tx(10 + u32::from(argument)));
                        if argument & 64 == 0 {
                            dead_producers.push(before);
                        }
                    }
                    _ => world.dead.0.store(u64::from(argument), Relaxed),
                },
                _ => {
                    let seat = ring.seat(usize::from(argument) % ring.seats());
                    match call / 8 % 6 {
                        0 => _ = ring.report().to_string(),
                        1 => _ = (ring.is_over(), ring.position(stage)),
                        2 => _ = (seat.owner(), seat.deaths(), seat.held(), seat.boundary()),
                        3 => {
                            let seat = usize::from(argument) % ring.seats();
                            ring.settle_seat(seat, ring.seat(seat).owner().unwrap_or(0));
                        }
                        4 => seat.free(seat.owner().unwrap_or(0)),
                        _ => _ = (seat.take(u32::from(argument)), seat.adopt_chunk(1)),
                    }
                }
            }
        }
        drop((tx, hands));
    });
    world.memory.0.iter().for_each(super::Area::check);
}
