//! The shapes of tasks, requests and segments.
//!
//! - I1: The areas of a segment have the sizes that its declaration needs, and their memory lives
//!   as long as a ring over it.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use slipring_coherence::sync::{Thread, current, park, scope};
use slipring_simulated::segment::{
    Areas, Declaration, OnDeath, Participant, Proof, SegmentRing, StageDeclaration, StageDelivery,
    on_heap,
};
use slipring_simulated::{Promise, Wait, ring, unicast};

use crate::measure::Load;
use crate::shapes::{InOrder, check_parts, from, read_in_order, read_of_many, seen_part};

pub fn tasks(load: &Load) {
    let (mut tx, mut rx) = unicast(load.capacity, || 0u64).unwrap();
    scope(|scope| {
        scope.spawn(move || {
            let mut seen = InOrder::new();
            block_on(async {
                while let Ok(batch) = rx.batch_async(usize::MAX).await {
                    for event in batch.iter() {
                        seen.see(*event);
                        load.handle();
                    }
                    batch.release();
                }
            });
            seen.end(load);
        });
        load.produce(load.events, 1, |number| {
            block_on(tx.publish_async(|slot| *slot = number)).unwrap();
        });
        drop(tx);
    });
}

/// Runs a future on the current virtual thread, which parks while the future is pending.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        park();
    }
}

#[derive(Default)]
struct Request {
    number: u64,
    answer: Option<Promise<u64>>,
}

pub fn requests(load: &Load) {
    ring(load.capacity, Request::default)
        .update("square", |request, _| {
            load.handle();
            if let Some(answer) = request.answer.take() {
                let _ = answer.fulfil(request.number * request.number);
            }
        })
        .run(|tx| {
            load.produce(load.events, 1, |number| {
                let mut answer = tx
                    .ask(|request, answer| *request = Request { number, answer: Some(answer) })
                    .unwrap();
                assert_eq!(answer.wait().unwrap(), number * number);
            });
            Ok(())
        })
        .unwrap();
}

/// A proof of death that finds all participants alive.
struct Alive;

impl Proof for Alive {
    fn is_dead(&self, _number: u32) -> bool {
        false
    }
    fn recover(&self, _number: u32, _settle: &mut dyn FnMut()) -> bool {
        false
    }
    fn pid(&self, number: u32) -> u32 {
        number
    }
}

/// A segment on the heap. Virtual threads stand for its processes.
struct Segment {
    declaration: Declaration,
    areas: Areas,
}

impl Segment {
    fn new(capacity: usize, producers: usize, delivery: StageDelivery) -> Segment {
        let stages = vec![StageDeclaration {
            name: "read".into(),
            writes: false,
            delivery,
            after: Vec::new(),
            on_death: OnDeath::Wait,
        }];
        let producer_on_death = OnDeath::Wait;
        let declaration = Declaration { capacity, start: 0, stages, producers, producer_on_death };
        let areas = on_heap::<u64>(&declaration).unwrap();
        Segment { declaration, areas }
    }

    fn attach(&self, number: u32) -> SegmentRing<u64> {
        let participant = Participant {
            number,
            proof: Arc::new(Alive),
            notice: Duration::from_millis(20),
            always_fences: false,
            wait: Wait::ADAPTIVE,
            producer_wait: Wait::ADAPTIVE,
        };
        // SAFETY: I1, and all rings follow the protocol.
        unsafe { SegmentRing::over(&self.declaration, &self.areas, &participant) }.unwrap()
    }

    /// Attaches a participant that takes the given seat of a party.
    fn seated(&self, number: u32, producer: bool, index: usize) -> (SegmentRing<u64>, usize) {
        let ring = self.attach(number);
        let party = if producer { ring.producer_party() } else { 0 };
        let seat = ring.seats_of(party).start + index;
        ring.seat(seat).take(number).unwrap();
        (ring, seat)
    }
}

pub fn segment(load: &Load) {
    let segment = Segment::new(load.capacity, 1, StageDelivery::Each);
    // SAFETY: both seats were taken.
    let (mut tx, mut rx) = unsafe {
        (segment.seated(1, true, 0).0.producer(), segment.seated(2, false, 0).0.reader(0))
    };
    scope(|scope| {
        scope.spawn(move || {
            read_in_order(load, |see| {
                rx.for_each(|event, _| see(*event)).unwrap();
            });
        });
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
    });
}

pub fn segment_producers(load: &Load, count: usize) {
    let segment = Segment::new(load.capacity, count, StageDelivery::Each);
    let producer = |index: usize| {
        let (ring, seat) = segment.seated(index as u32 + 1, true, index);
        // SAFETY: the seat was taken.
        unsafe { ring.shared_producer(seat) }
    };
    let all: Vec<_> = (0..count).map(producer).collect();
    // SAFETY: the seat was taken.
    let mut rx = unsafe { segment.seated(count as u32 + 1, false, 0).0.reader(0) };
    let each = load.events / count as u64;
    scope(|scope| {
        // The handles stay until the end, whose costs are not counted.
        let threads: Vec<_> = (0..)
            .zip(all)
            .map(|(producer, mut tx)| {
                scope.spawn(move || {
                    load.produce(each, 1, |number| {
                        tx.publish(|slot| *slot = from(producer, number)).unwrap();
                    });
                    tx
                })
            })
            .collect();
        read_of_many(load, count, |see| {
            let mut left = load.events;
            while left > 0 {
                left -= rx.poll(usize::MAX, |event, _| see(*event)).unwrap() as u64;
            }
        });
        threads.into_iter().for_each(|thread| drop(thread.join().unwrap()));
    });
}

pub fn segment_pool(load: &Load, workers: usize) {
    let segment = Segment::new(load.capacity, 1, StageDelivery::Pool(workers));
    // SAFETY: the seat was taken.
    let mut tx = unsafe { segment.seated(1, true, 0).0.producer() };
    let worker = |index: usize| {
        let (ring, seat) = segment.seated(index as u32 + 2, false, index);
        // SAFETY: the seat was taken.
        unsafe { ring.pool_reader(0, seat) }
    };
    let workers: Vec<_> = (0..workers).map(worker).collect();
    scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                scope.spawn(move || {
                    seen_part(load, |see| {
                        worker.for_each(|event, _| see(*event)).unwrap();
                    })
                })
            })
            .collect();
        load.produce(load.events, 1, |number| {
            tx.publish(|slot| *slot = number).unwrap();
        });
        drop(tx);
        check_parts(load, threads.into_iter().map(|thread| thread.join().unwrap()).collect());
    });
}
