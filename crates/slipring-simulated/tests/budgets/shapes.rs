//! The shapes: what is built, which threads work with it, and what they check.
//!
//! - I1: A shape's program ends only when each stage has seen all events, in order.

use std::time::Duration;

use slipring_coherence::sync::scope;
use slipring_simulated::{Graph, Wait, handles::StartAt, ring};

use crate::fronts;
use crate::measure::Load;

/// A shape of ring and handles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// One producer publishes one by one, to so many readers.
    Readers(usize),
    /// The same for one reader that spins without a queue.
    Spinning(usize),
    /// One producer publishes so many at a time, to one reader.
    Batches(u64),
    /// Contiguous events, one by one, to so many readers.
    Contiguous(usize),
    /// Contiguous events, so many at a time, to one reader.
    ContiguousBatches(u64),
    /// So many producers, and one reader.
    Producers(usize),
    /// So many producers which publish 16 at a time, and one reader.
    ProducersOfBatches(usize),
    /// One producer, and a pool of so many workers that spin.
    Pool(usize),
    /// The same with events that fill a line, so that no two workers wait for one line.
    WidePool(usize),
    /// A pool of narrow events with the default strategy, with which idle workers sleep.
    AdaptivePool(usize),
    /// One producer, and so many shards.
    Shards(usize),
    /// The same, but events come so seldom that the shards' waits outlast their first polls.
    WaitingShards(usize),
    /// One producer, a reader, and a tap with room for 8 members of which so many have joined.
    Tap(usize),
    /// Writers in a line, and a reader at its end: so many stages.
    Line(usize),
    /// Two readers beside each other, and a third that follows both.
    Diamond,
    /// A line of five stages on so many threads.
    Threads(usize),
    /// The producer and the reader are tasks.
    Tasks,
    /// An event each 100 microseconds, and a reader that sleeps between two.
    Sleeping,
    /// The same with the default strategy.
    SleepingAdaptively,
    /// Each event is a request whose answer the producer waits for.
    Requests,
    /// One producer and one reader of a segment.
    Segment,
    /// So many producers of a segment, and one reader.
    SegmentProducers(usize),
    /// One producer of a segment, and a pool of so many workers.
    SegmentPool(usize),
}
pub use Shape::*;

impl Shape {
    /// Number of threads.
    pub fn threads(self) -> usize {
        match self {
            Readers(n)
            | Spinning(n)
            | Contiguous(n)
            | Producers(n)
            | ProducersOfBatches(n)
            | Pool(n)
            | WidePool(n)
            | AdaptivePool(n)
            | Shards(n)
            | WaitingShards(n)
            | Line(n)
            | Threads(n)
            | SegmentProducers(n)
            | SegmentPool(n) => n + 1,
            Tap(members) => members + 2,
            Diamond => 4,
            Batches(_) | ContiguousBatches(_) | Tasks | Sleeping | SleepingAdaptively
            | Requests | Segment => 2,
        }
    }

    /// Number of producers.
    pub fn producers(self) -> u64 {
        match self {
            Producers(n) | ProducersOfBatches(n) | SegmentProducers(n) => n as u64,
            _ => 1,
        }
    }

    /// Number of threads that share the handling of the events.
    pub fn parallel_handlers(self) -> u32 {
        match self {
            Pool(n) | WidePool(n) | AdaptivePool(n) | SegmentPool(n) | Shards(n)
            | WaitingShards(n) => n as u32,
            _ => 1,
        }
    }

    /// Whether an event comes so seldom that the threads sleep.
    pub fn sleeps(self) -> bool {
        matches!(self, Sleeping | SleepingAdaptively)
    }

    /// Whether all threads spin, so that there is no queue to become quiet.
    pub fn spins(self) -> bool {
        matches!(self, Spinning(_) | Pool(_) | WidePool(_))
    }

    /// Capacity of the ring.
    pub fn capacity(self) -> usize {
        match self {
            Requests => 8,
            _ => 256,
        }
    }

    /// Private work of a producer before each event, when paced: more than all stages need.
    pub fn pace(self) -> Duration {
        let micros = |micros| Duration::from_micros(micros);
        match self {
            Sleeping | SleepingAdaptively => micros(100),
            // Each reader fetches the line of the event.
            Readers(n) | Spinning(n) | Contiguous(n) if n > 11 => micros(1),
            // Each event moves at least the claim word's line, from one of many cores to another.
            Pool(n) | WidePool(n) | AdaptivePool(n) | SegmentPool(n) if n > 11 => micros(2),
            Producers(n) | SegmentProducers(n) => Duration::from_nanos(150) * n as u32,
            Tasks | Requests => micros(1),
            WaitingShards(_) => micros(3),
            _ => Duration::from_nanos(300),
        }
    }

    pub fn run(self, load: &Load) {
        match self {
            Readers(n) => readers(load, n, Wait::ADAPTIVE),
            Spinning(n) => readers(load, n, Wait::BusySpin),
            Sleeping => readers(load, 1, Wait::Blocking),
            SleepingAdaptively => readers(load, 1, Wait::ADAPTIVE),
            Batches(len) => batches(load, len),
            Contiguous(n) => contiguous(load, n, 1),
            ContiguousBatches(len) => contiguous(load, 1, len),
            Producers(n) => producers(load, n, 1),
            ProducersOfBatches(n) => producers(load, n, 16),
            Pool(n) => pool(load, n, Wait::BusySpin, |number| number, |event| *event),
            WidePool(n) => pool(load, n, Wait::BusySpin, |number| [number; 7], |event| event[0]),
            AdaptivePool(n) => pool(load, n, Wait::ADAPTIVE, |number| number, |event| *event),
            Shards(n) | WaitingShards(n) => shards(load, n),
            Tap(members) => tap(load, members),
            Line(n) => line(load, n),
            Diamond => diamond(load),
            Threads(n) => threads(load, n),
            Tasks => fronts::tasks(load),
            Requests => fronts::requests(load),
            Segment => fronts::segment(load),
            SegmentProducers(n) => fronts::segment_producers(load, n),
            SegmentPool(n) => fronts::segment_pool(load, n),
        }
    }
}

/// Checks that a stage sees all events in order.
pub struct InOrder(u64);

impl InOrder {
    pub fn new() -> InOrder {
        InOrder(0)
    }

    pub fn see(&mut self, event: u64) {
        assert_eq!(event, self.0, "an event was lost, doubled or overtaken");
        self.0 += 1;
    }

    pub fn end(self, load: &Load) {
        assert_eq!(self.0, load.events, "the last events were lost");
    }
}

/// Calls `read` with the function that handles an event of a stage that sees all events.
pub fn read_in_order(load: &Load, read: impl FnOnce(&mut dyn FnMut(u64))) {
    let mut seen = InOrder::new();
    read(&mut |event| {
        seen.see(event);
        load.handle();
    });
    seen.end(load);
}

fn readers(load: &Load, count: usize, wait: Wait) {
    let graph = Graph::new(load.capacity, || 0u64).wait(wait);
    let keys: Vec<_> = (0..count).map(|i| graph.reader(&format!("reader {i}"))).collect();
    let ring = graph.build().unwrap();
    let _idle: Vec<_> = (0..load.idle).map(|_| ring.monitor()).collect();
    let (mut tx, readers) = (ring.producer(), keys.into_iter().map(|key| ring.reader(key)));
    let readers: Vec<_> = readers.collect();
    scope(|scope| {
        for mut rx in readers {
            scope.spawn(move || {
                read_in_order(load, |see| {
                    rx.for_each(|event, _| see(*event)).unwrap();
                });
            });
        }
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
    });
}

fn batches(load: &Load, len: u64) {
    let graph = Graph::new(load.capacity, || 0u64);
    let key = graph.reader("read");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    scope(|scope| {
        scope.spawn(move || {
            read_in_order(load, |see| {
                rx.for_each(|event, _| see(*event)).unwrap();
            });
        });
        load.produce(load.events, len, |number| {
            let len = len.min(load.events - number);
            let mut claim = tx.claim_n(len as usize).unwrap();
            (number..).zip(claim.iter_mut()).for_each(|(number, slot)| *slot = number);
            claim.publish();
        });
        drop(tx);
    });
}

fn contiguous(load: &Load, readers: usize, len: u64) {
    let graph = Graph::new(load.capacity, || 0u64).contiguous();
    let keys: Vec<_> = (0..readers).map(|i| graph.reader(&format!("reader {i}"))).collect();
    let ring = graph.build().unwrap();
    let (mut tx, readers) = (ring.producer(), keys.into_iter().map(|key| ring.reader(key)));
    let readers: Vec<_> = readers.collect();
    scope(|scope| {
        for mut rx in readers {
            scope.spawn(move || {
                read_in_order(load, |see| {
                    rx.for_each(|event, _| see(*event)).unwrap();
                });
            });
        }
        load.produce(load.events, len, |number| {
            let len = len.min(load.events - number);
            let mut claim = tx.claim_n(len as usize).unwrap();
            (number..).zip(claim.iter_mut()).for_each(|(number, slot)| *slot = number);
            claim.publish();
        });
        drop(tx);
    });
}

fn producers(load: &Load, count: usize, len: u64) {
    let graph = Graph::new(load.capacity, || 0u64).shared();
    let key = graph.reader("read");
    let ring = graph.build().unwrap();
    let all: Vec<_> = (0..count).map(|_| ring.producer()).collect();
    let _idle: Vec<_> = (0..load.idle).map(|_| (ring.producer(), ring.monitor())).collect();
    let mut rx = ring.reader(key);
    let each = load.events / count as u64;
    scope(|scope| {
        // The handles stay until the end, whose costs are not counted.
        let run = |(producer, mut tx): (u64, slipring_simulated::SharedProducer<u64>)| {
            scope.spawn(move || {
                load.produce(each, len, |number| {
                    let (len, first) = (len.min(each - number), from(producer, number));
                    if len == 1 {
                        tx.publish(|slot| *slot = first).unwrap();
                        return;
                    }
                    let mut claim = tx.claim_n(len as usize).unwrap();
                    (first..).zip(claim.iter_mut()).for_each(|(event, slot)| *slot = event);
                    claim.publish();
                });
                tx
            })
        };
        let threads: Vec<_> = (0..).zip(all).map(run).collect();
        read_of_many(load, count, |see| {
            // The idle handles would keep the ring open, so the reader ends at the last event.
            let mut left = load.events;
            while left > 0 {
                left -= rx.poll(usize::MAX, |event, _| see(*event)).unwrap() as u64;
            }
        });
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    });
}

/// The event `number` of a producer.
pub fn from(producer: u64, number: u64) -> u64 {
    producer << 32 | number
}

/// Calls `read` with the function that handles an event of one of `count` producers.
pub fn read_of_many(load: &Load, count: usize, read: impl FnOnce(&mut dyn FnMut(u64))) {
    let mut next = vec![0; count];
    read(&mut |event| {
        let own = &mut next[(event >> 32) as usize];
        assert_eq!(event & 0xffff_ffff, *own, "an event was lost, doubled or overtaken");
        *own += 1;
        load.handle();
    });
    assert_eq!(next.iter().sum::<u64>(), load.events, "the last events were lost");
}

/// Number and sum of the events that a worker or shard has seen, each greater than the last.
pub fn seen_part(load: &Load, read: impl FnOnce(&mut dyn FnMut(u64))) -> (u64, u64) {
    let (mut count, mut sum, mut least) = (0, 0, 0);
    read(&mut |event| {
        assert!(event >= least, "an event was doubled or overtaken");
        (count, sum, least) = (count + 1, sum + event, event + 1);
        load.handle();
    });
    (count, sum)
}

/// Checks that the parts are all events.
pub fn check_parts(load: &Load, parts: Vec<(u64, u64)>) {
    let (count, sum) = parts.iter().fold((0, 0), |all, part| (all.0 + part.0, all.1 + part.1));
    assert_eq!((count, sum), (load.events, load.events * (load.events - 1) / 2));
}

fn pool<E: Send + Sync + 'static>(
    load: &Load,
    workers: usize,
    wait: Wait,
    make: fn(u64) -> E,
    number_of: fn(&E) -> u64,
) {
    let graph = Graph::new(load.capacity, move || make(0)).wait(wait);
    let key = graph.pool_reader("work", workers).room(workers + load.idle);
    let ring = graph.build().unwrap();
    let _idle: Vec<_> = (0..load.idle).map(|_| (ring.pool(&key), ring.monitor())).collect();
    let joined: Vec<_> = (0..load.idle).map(|_| ring.pool(&key).join().unwrap()).collect();
    let (mut tx, workers) = (ring.producer(), ring.pool_readers(key));
    scope(|scope| {
        let run = |mut worker: slipring_simulated::handles::PoolReader<E>| {
            scope.spawn(move || {
                seen_part(load, |see| {
                    worker.for_each(|event, _| see(number_of(event))).unwrap();
                })
            })
        };
        let threads: Vec<_> = workers.into_iter().map(run).collect();
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = make(number)).unwrap();
        });
        drop((tx, joined));
        check_parts(load, threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    });
}

fn shards(load: &Load, shards: usize) {
    let graph = Graph::new(load.capacity, || 0u64);
    let key = graph.shard_reader("shard", shards, |event| *event);
    let ring = graph.build().unwrap();
    let _idle: Vec<_> = (0..load.idle).map(|_| ring.monitor()).collect();
    let (mut tx, shards) = (ring.producer(), ring.shard_readers(key));
    scope(|scope| {
        let run = |mut shard: slipring_simulated::handles::ShardReader<u64>| {
            scope.spawn(move || {
                seen_part(load, |see| {
                    shard.for_each(|event, _| see(*event)).unwrap();
                })
            })
        };
        let threads: Vec<_> = shards.into_iter().map(run).collect();
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
        check_parts(load, threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    });
}

fn tap(load: &Load, members: usize) {
    let graph = Graph::new(load.capacity, || 0u64);
    let (key, tap) = (graph.reader("read"), graph.tap("tap", 8 + load.idle));
    let ring = graph.build().unwrap();
    let (mut tx, mut rx, tap) = (ring.producer(), ring.reader(key), ring.tap(tap));
    let joined: Vec<_> = (0..members).map(|_| tap.subscribe(StartAt::Now).unwrap()).collect();
    let _idle: Vec<_> = (0..load.idle).map(|_| (tap.clone(), ring.monitor())).collect();
    scope(|scope| {
        scope.spawn(move || {
            read_in_order(load, |see| {
                rx.for_each(|event, _| see(*event)).unwrap();
            });
        });
        for mut member in joined {
            scope.spawn(move || {
                let mut seen = InOrder::new();
                member
                    .for_each(|event, _| {
                        seen.see(*event);
                        load.handle_early();
                    })
                    .unwrap();
                seen.end(load);
            });
        }
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
    });
}

fn line(load: &Load, stages: usize) {
    let graph = Graph::new(load.capacity, || 0u64);
    let mut writers = vec![graph.updater("stage 0")];
    for stage in 1..stages - 1 {
        let key = graph.updater(&format!("stage {stage}")).after(&writers[stage - 1]);
        writers.push(key);
    }
    let last = graph.reader("last").after(&writers[stages - 2]);
    let ring = graph.build().unwrap();
    let _idle: Vec<_> = (0..load.idle).map(|_| ring.monitor()).collect();
    let writers: Vec<_> = writers.into_iter().map(|key| ring.updater(key)).collect();
    let (mut tx, mut last) = (ring.producer(), ring.reader(last));
    scope(|scope| {
        for mut writer in writers {
            scope.spawn(move || {
                writer
                    .for_each(|event, _| {
                        *event += 1;
                        load.handle();
                    })
                    .unwrap();
            });
        }
        scope.spawn(move || {
            read_in_order(load, |see| {
                last.for_each(|event, _| see(*event - (stages as u64 - 1))).unwrap();
            });
        });
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
    });
}

fn diamond(load: &Load) {
    let graph = Graph::new(load.capacity, || 0u64);
    let (left, right) = (graph.reader("left"), graph.reader("right"));
    let both = graph.reader("both").after(&left).after(&right);
    let ring = graph.build().unwrap();
    let _idle: Vec<_> = (0..load.idle).map(|_| ring.monitor()).collect();
    let mut tx = ring.producer();
    let readers = [left, right, both].map(|key| ring.reader(key));
    scope(|scope| {
        for mut rx in readers {
            scope.spawn(move || {
                read_in_order(load, |see| {
                    rx.for_each(|event, _| see(*event)).unwrap();
                });
            });
        }
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
    });
}

fn threads(load: &Load, threads: usize) {
    let mut seen = InOrder::new();
    let add = |event: &mut u64, _| *event += 1;
    ring(load.capacity, || 0u64)
        .threads(threads)
        .update("first", add)
        .update("second", add)
        .update("third", add)
        .update("fourth", add)
        .read("fifth", |event, _| {
            seen.see(*event - 4);
            load.handle();
        })
        .run(|tx| {
            load.produce(load.events, 1, |number| {
                tx.publish(|slot| *slot = number).unwrap();
            });
            Ok(())
        })
        .unwrap();
    seen.end(load);
}
