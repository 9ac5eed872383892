//! No thread allocates between the first event and the last.
//!
//! The file has a single test, because another one in the process would allocate meanwhile.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use slipring::{
    Graph, Mirror, Wait,
    errors::{BatchError, ConflateError},
    handles::StartAt,
};

struct Counting;

const CAPACITY: u64 = 1024;
/// Number of events: a million counted events, and the uncounted first and last events.
const EVENTS: u64 = 1_000_000 + 3 * CAPACITY;

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

// SAFETY: each call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.realloc(at, layout, size) }
    }
}

fn count() {
    if COUNTING.load(SeqCst) {
        COUNT.fetch_add(1, SeqCst);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Counts allocations while the last stage handles all events but the first and the last few.
///
/// All threads start before the first event. No thread ends while the last stage is more than a
/// ring's length away from the last event.
fn window(seq: u64) {
    if seq == CAPACITY {
        COUNTING.store(true, SeqCst);
    } else if seq == EVENTS - 2 * CAPACITY {
        COUNTING.store(false, SeqCst);
    }
}

fn wait_for(begun: &AtomicU64, threads: u64) {
    while begun.load(SeqCst) < threads {
        thread::yield_now();
    }
}

/// Returns the number of allocations, and resets it.
fn take_count() -> u64 {
    assert!(!COUNTING.load(SeqCst));
    COUNT.swap(0, SeqCst)
}

#[test]
fn a_million_events_pass_without_an_allocation() {
    let _watched = crate::common::watched();
    let begun = Instant::now();
    let parts: [(&str, fn(), u64); 4] = [
        ("chain", || chain(Wait::Blocking), 0),
        ("leases", || leases(Wait::YIELDING), 0),
        ("members and shards", || members_and_shards(Wait::YIELDING), 0),
        // Each promise is allocated once, and freed once.
        ("promises", promises, 2 * PROMISES),
    ];
    for (name, part, expected) in parts {
        let before = begun.elapsed();
        part();
        let mut counted = take_count();
        // After a minute the test harness allocates once, for its message about slow tests.
        if before < MINUTE && begun.elapsed() >= MINUTE {
            part();
            counted = take_count();
        }
        assert_eq!(counted, expected, "{name}");
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Number of counted promises.
const PROMISES: u64 = 1000;

/// Asks for answers, one request at a time. Every eighth answer is delayed, so that the asking
/// thread usually sleeps.
fn promises() {
    let (mut asks, mut requests) = {
        let graph = Graph::new(1, || (0u64, None::<slipring::Promise<u64>>)).wait(Wait::Blocking);
        let key = graph.updater("answers");
        let ring = graph.build().unwrap();
        (ring.producer(), ring.updater(key))
    };
    let answering = thread::spawn(move || {
        requests.for_each(|(number, promise), _| {
            if *number % 8 == 0 {
                thread::sleep(Duration::from_micros(200));
            }
            promise.take().expect("each request has a promise").fulfil(*number).unwrap();
        })
    });
    for number in 0..PROMISES + 2 {
        COUNTING.store((1..=PROMISES).contains(&number), SeqCst);
        let (promise, mut answer) = slipring::promise();
        asks.publish(|slot| *slot = (number, Some(promise))).unwrap();
        assert_eq!(answer.wait(), Ok(number));
    }
    drop(asks);
    assert!(answering.join().unwrap().is_ok());
}

fn chain(wait: Wait) {
    let begun = AtomicU64::new(0);
    let (mut left, mut right, mut sum) = (0u64, AtomicU64::new(0), 0u64);
    let (shared, started) = (&right, &begun);
    // The observer starts before the counting does. It must not allocate, whether it is overtaken,
    // waits, or is up to date.
    let mirror = Mirror::new(64).unwrap();
    let observer = mirror.handle().observe();
    let observing = thread::spawn(move || {
        // The iterator ends when the mirror's stage ends. That stage is not the chain's last one.
        observer.map(|seen| seen.missed + 1).sum::<u64>()
    });
    slipring::ring(CAPACITY as usize, || 0u64)
        .wait(wait)
        .on_thread_start(move |_| {
            started.fetch_add(1, SeqCst);
        })
        .update("head", |v, _| *v += 1)
        .fan_out(|side| {
            side.read("left", |v, _| left += v).observe("mirror", mirror, |v| [*v; 3]).read_pool(
                "right",
                2,
                |_| {
                    |v, _| {
                        shared.fetch_add(*v, SeqCst);
                    }
                },
            )
        })
        .read_batch("tail", |events, first| {
            for (v, seq) in events.iter().zip(first..) {
                sum += v;
                window(seq);
            }
        })
        .run_shared(|p| {
            wait_for(&begun, 6);
            for i in 0..EVENTS {
                p.publish(|slot| *slot = i)?;
            }
            Ok(())
        })
        .unwrap();
    let expected = EVENTS * (EVENTS + 1) / 2;
    assert_eq!((left, *right.get_mut(), sum), (expected, expected, expected));
    assert_eq!(observing.join().unwrap(), EVENTS);
}

/// Waits until these threads are gone. A scope alone waits until their closures have returned, and
/// what a thread frees after that would be counted in the next part.
fn join(threads: Vec<thread::ScopedJoinHandle<'_, ()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn leases(wait: Wait) {
    let begun = AtomicU64::new(0);
    let begun = &begun;
    let graph = Graph::new(CAPACITY as usize, || 0u64).wait(wait).contiguous();
    let head = graph.pool_updater("head", 2);
    let (a, b) = (graph.reader("a").after(&head), graph.reader("b").after(&head));
    let tail = graph.reader("tail").after(&a).after(&b);
    let ring = graph.build().unwrap();
    let (mut tx, head, mut a, mut b, mut tail) = (
        ring.producer(),
        ring.pool_updaters(head),
        ring.reader(a),
        ring.reader(b),
        ring.reader(tail),
    );
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for mut worker in head {
            threads.push(scope.spawn(move || {
                begun.fetch_add(1, SeqCst);
                worker.for_each(|v, _| *v += 1).unwrap();
            }));
        }
        threads.push(scope.spawn(move || {
            begun.fetch_add(1, SeqCst);
            a.for_each(|_, _| ()).unwrap();
        }));
        threads.push(scope.spawn(move || {
            begun.fetch_add(1, SeqCst);
            while let Ok(batch) = b.batch(100) {
                batch.release();
            }
        }));
        threads.push(scope.spawn(move || {
            wait_for(begun, 4);
            tx.publish_batches(10, 0..EVENTS / 2, |slot, i| *slot = i).unwrap();
            let mut next = EVENTS / 2;
            while next < EVENTS {
                match tx.try_claim_n(2) {
                    Ok(mut slots) => {
                        (slots[0], slots[1]) = (next, next + 1);
                        next += slots.len() as u64;
                        slots.publish();
                    }
                    Err(_) => thread::yield_now(),
                }
                if next.is_multiple_of(1000) {
                    drop(tx.claim().unwrap());
                }
            }
        }));
        let mut sum = 0;
        tail.for_each(|v, at| {
            sum += v;
            window(at.seq);
        })
        .unwrap();
        assert_eq!(sum, EVENTS * (EVENTS + 1) / 2);
        join(threads);
    });
}

/// Passes events through shards, raw calls and a conflator, while readers and workers come and go.
fn members_and_shards(wait: Wait) {
    let begun = AtomicU64::new(0);
    let begun = &begun;
    let over = &AtomicBool::new(false);
    let graph = Graph::new(CAPACITY as usize, || 0u64).wait(wait);
    let shards = graph.shard_updater("shards", 2, |v: &u64| *v / 8);
    let pool = graph.pool_reader("pool", 1).room(2).after(&shards);
    let tap = graph.tap("tap", 1).after(&shards);
    let tail = graph.reader("tail").after(&pool);
    let ring = graph.build().unwrap();
    let tx = ring.producer();
    let (shards, mut pool, tap, mut tail) = (
        ring.shard_updaters(shards),
        ring.pool_readers(pool),
        ring.tap(tap),
        ring.reader(tail).into_raw(),
    );
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for mut shard in shards {
            threads.push(scope.spawn(move || {
                begun.fetch_add(1, SeqCst);
                shard.for_each(|v, _| *v += 1).unwrap();
            }));
        }
        threads.push(scope.spawn(move || {
            let door = pool[0].pool();
            begun.fetch_add(1, SeqCst);
            while pool[0].poll(64, |_, _| ()).is_ok() {
                if let Ok(mut colleague) = door.join() {
                    let _ = colleague.poll(8, |_, _| ());
                }
                thread::yield_now();
            }
        }));
        threads.push(scope.spawn(move || {
            begun.fetch_add(1, SeqCst);
            while !over.load(SeqCst) {
                if let Ok(mut late) = tap.subscribe(StartAt::Now) {
                    let _ = late.poll(64, |_, _| ());
                }
                thread::yield_now();
            }
        }));
        threads.push(scope.spawn(move || {
            wait_for(begun, 4);
            let mut tx = tx.conflate(64, |slot, key: &u64, _: u64| *slot = *key).unwrap();
            for i in 0..EVENTS {
                while let Err(ConflateError::Full { .. }) = tx.send(i, i) {
                    thread::yield_now();
                }
            }
            tx.finish().unwrap();
        }));
        let mut sum = 0;
        loop {
            match tail.available(100) {
                Ok(there) => {
                    let last = there.last_seq();
                    for seq in there {
                        sum += tail.at(seq).unwrap();
                        window(seq);
                    }
                    tail.done(last).unwrap();
                }
                Err(BatchError::Wait(_)) => break,
                Err(_) => thread::yield_now(),
            }
        }
        over.store(true, SeqCst);
        assert_eq!(sum, EVENTS * (EVENTS + 1) / 2);
        join(threads);
    });
}
