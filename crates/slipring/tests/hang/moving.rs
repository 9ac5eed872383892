//! The slot that a handler waits for may change during the wait: other producers take the slot, and
//! the handler then waits for a slot that it holds itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slipring::{
    At, Graph, Reader, SharedProducer, Wait,
    errors::{ClaimError, WaitError},
    faults::Fault,
    stages::ReadHandler,
};

use crate::common::ends;

/// How a handler publishes more events than it handles.
#[derive(Clone, Copy, Debug)]
enum Publication {
    One,
    ByDeadline,
    Claim,
    All,
}

const PUBLICATIONS: [Publication; 4] =
    [Publication::One, Publication::ByDeadline, Publication::Claim, Publication::All];

/// A time that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);

impl Publication {
    fn publish(self, tx: &mut SharedProducer<u64>) -> Result<(), ClaimError> {
        match self {
            Publication::One => tx.publish(|slot| *slot += 1)?,
            Publication::ByDeadline => tx.publish_by(Instant::now() + NEVER, |slot| *slot += 1)?,
            Publication::Claim => tx.claim_n(2)?.publish(),
            Publication::All => tx.publish_all(0..3, |slot, i| *slot = i)?,
        };
        Ok(())
    }
}

/// The thread that runs the publishing stage: its own thread, a named one, or one of several shared
/// threads.
#[derive(Clone, Copy, Debug)]
enum Threads {
    Own,
    Named,
    Shared(usize),
}

/// The handler of the stage `a` publishes into its own ring, while the program's own thread
/// publishes as fast as it can. Returns the error that the handler gets.
fn beside_another_producer(publication: Publication, threads: Threads, wait: Wait) -> WaitError {
    let own = Mutex::new(None::<SharedProducer<u64>>);
    let told = Mutex::new(None);
    let chain = slipring::ring(8, || 0u64).wait(wait);
    let chain = match threads {
        Threads::Shared(count) => chain.threads(count),
        _ => chain,
    };
    let chain = chain.read("a", |_, _| {
        let mut own = own.lock().unwrap();
        let Some(tx) = own.as_mut() else { return Ok(()) };
        let published = (0..2).try_for_each(|_| publication.publish(tx));
        published.inspect_err(|error| *told.lock().unwrap() = Some(error.to_string()))
    });
    let chain = if let Threads::Named = threads { chain.on("t") } else { chain };
    let chain = chain.read("b", |_, _| ());
    let chain = if let Threads::Named = threads { chain.on("t") } else { chain };
    let failed = chain.run_shared(|tx| {
        *own.lock().unwrap() = Some(tx.clone());
        loop {
            if let Err(error) = tx.publish(|slot| *slot = 0) {
                return Err::<(), Fault>(error.into());
            }
        }
    });
    own.lock().unwrap().take();
    let failure = failed.unwrap_err();
    let told = told.into_inner().unwrap().expect("the handler's own call fails");
    assert!(told.contains("it needs a release by stage `a`"), "{told}");
    assert_eq!(failure.stage(), Some("a"), "{failure}");
    match failure.downcast_ref::<ClaimError>() {
        Some(ClaimError::Wait(error @ WaitError::WaitsForItself(_))) => error.clone(),
        other => panic!("{failure}: {other:?}"),
    }
}

#[test]
fn a_handler_that_publishes_beside_another_producer_hears_that_it_waits_for_itself() {
    let _watched = crate::common::watched();
    for threads in [Threads::Own, Threads::Named, Threads::Shared(1), Threads::Shared(2)] {
        for publication in PUBLICATIONS {
            for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::SLEEPING] {
                let name = format!("{publication:?}, {threads:?}, {wait}");
                // Which producer takes the last free slot differs from run to run.
                for _ in 0..3 {
                    let wait = wait.clone();
                    ends(&name, move || beside_another_producer(publication, threads, wait));
                }
            }
        }
    }
}

/// The handler of `a` begins to wait for slots that `b` holds. Then another producer takes each
/// slot that `b` releases, until the next one is held by `a` itself.
#[test]
fn a_handler_whose_awaited_slot_moves_on_hears_that_it_waits_for_itself() {
    let _watched = crate::common::watched();
    for publication in PUBLICATIONS {
        for shared in [None, Some(1), Some(2)] {
            for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::SLEEPING] {
                let name = format!("{publication:?}, shared threads: {shared:?}, {wait}");
                ends(&name, move || slots_are_taken_away(publication, shared, wait));
            }
        }
    }
}

fn slots_are_taken_away(publication: Publication, shared: Option<usize>, wait: Wait) {
    let graph = Graph::new(8, || 0u64).shared().wait(wait);
    let graph = if let Some(threads) = shared { graph.threads(threads) } else { graph };
    let a = graph.reader("a");
    let b = graph.reader("b").after(&a).own_loop();
    let ring = graph.build().unwrap();
    let (mut tx, mut own) = (ring.producer(), Some(ring.producer()));
    let mut behind = ring.reader(b);
    let (waits, told) = (AtomicBool::new(false), Mutex::new(None));
    let mut handlers = ring.handlers();
    handlers.read(a, |_, at| {
        // The handler takes its producer, and drops it at the end, so that the ring closes.
        if at.seq == 4
            && let Some(mut own) = own.take()
        {
            waits.store(true, Ordering::Release);
            let error = loop {
                if let Err(error) = publication.publish(&mut own) {
                    break error;
                }
            };
            *told.lock().unwrap() = Some(error);
        }
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                tx.publish(|_| ()).unwrap();
            }
            // `b` gets these four events only once `a` has released them.
            while behind.try_batch(4).map_or(0, |batch| batch.len()) < 4 {
                std::thread::yield_now();
            }
            // All four are published at once, because the handler publishes as soon as it sees the
            // first of them.
            tx.claim_n(4).unwrap().publish();
            while !waits.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // The sleep is long enough for the handler to begin its wait.
            std::thread::sleep(Duration::from_millis(20));
            for _ in 0..4 {
                assert_eq!(behind.poll(1, |_, _| ()).unwrap(), 1);
                drop(tx.try_publish(|_| ()));
            }
            drop(tx);
            behind.for_each(|_, _| ()).unwrap();
        });
        handlers.run(|_| Ok(())).unwrap();
    });
    match told.into_inner().unwrap() {
        Some(ClaimError::Wait(WaitError::WaitsForItself(stage))) => assert_eq!(stage.as_str(), "a"),
        other => panic!("{other:?}"),
    }
}

/// A handler that, after its first event, waits for the next event of a stage behind its own.
struct Idler<'a> {
    has_begun: bool,
    behind: Option<Reader<u64>>,
    waits: &'a AtomicBool,
    told: &'a Mutex<Option<WaitError>>,
}

impl ReadHandler<u64> for Idler<'_> {
    fn event(&mut self, _: &u64, _: At) -> Result<(), Fault> {
        self.has_begun = true;
        Ok(())
    }
    fn idle(&mut self) -> Result<(), Fault> {
        if let Some(mut behind) = self.behind.take_if(|_| self.has_begun) {
            behind.batch(1)?.release();
            self.waits.store(true, Ordering::Release);
            *self.told.lock().unwrap() = behind.batch(1).err();
        }
        Ok(())
    }
}

/// When the wait begins, no producer has claimed the awaited event. Once a producer has claimed it,
/// the handler's own stage holds it.
#[test]
fn an_idle_handler_hears_of_an_event_that_it_holds_itself() {
    let _watched = crate::common::watched();
    for shared in [None, Some(1), Some(2)] {
        for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::SLEEPING] {
            ends(&format!("shared threads: {shared:?}, {wait}"), move || {
                let graph = Graph::new(4, || 0u64).wait(wait);
                let graph = if let Some(count) = shared { graph.threads(count) } else { graph };
                let a = graph.reader("a");
                let behind = graph.reader("behind").after(&a).own_loop();
                let ring = graph.build().unwrap();
                let (waits, told) = (AtomicBool::new(false), Mutex::new(None));
                let behind = Some(ring.reader(behind));
                let mut handlers = ring.handlers();
                handlers
                    .read_with(a, Idler { has_begun: false, behind, waits: &waits, told: &told });
                let ended = handlers.run(|tx| {
                    tx.publish(|_| ())?;
                    while !waits.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                    // The sleep is long enough for the handler to begin its wait.
                    std::thread::sleep(Duration::from_millis(20));
                    tx.publish(|_| ())?;
                    while told.lock().unwrap().is_none() {
                        std::thread::yield_now();
                    }
                    tx.halt();
                    Ok(())
                });
                drop(ended);
                let told = told.into_inner().unwrap().unwrap();
                assert!(
                    matches!(&told, WaitError::WaitsForItself(a) if a.as_str() == "a"),
                    "{told}"
                );
            });
        }
    }
}

/// A worker of a pool ends only when the whole pool has ended, so it also waits for its colleague.
/// Here it waits inside the colleague's handler, on the same thread, so the wait would never end.
#[test]
fn a_worker_that_waits_for_the_end_inside_a_colleagues_handler_gets_an_error() {
    let _watched = crate::common::watched();
    for wait in [Wait::ADAPTIVE, Wait::Blocking, Wait::YIELDING, Wait::SLEEPING] {
        ends(&format!("{wait}"), move || {
            let graph = Graph::new(4, || 0u64).wait(wait);
            let pool = graph.pool_reader("pool", 2);
            let ring = graph.build().unwrap();
            let (mut tx, mut workers) = (ring.producer(), ring.pool_readers(pool));
            let (mut one, mut other) = (workers.remove(0), workers.remove(0));
            tx.publish(|_| ()).unwrap();
            let mut tx = Some(tx);
            let mut told = None;
            let handled = one.for_each(|_, _| {
                // The stream ends while the handler runs.
                std::thread::scope(|scope| {
                    let closing = tx.take();
                    scope.spawn(|| drop(closing));
                    told = other.batch(1).err();
                });
            });
            assert_eq!(handled.unwrap(), 1);
            let told = told.unwrap();
            assert!(
                matches!(&told, WaitError::WaitsForItself(pool) if pool.as_str() == "pool"),
                "{told}"
            );
            assert!(matches!(other.batch(1), Err(WaitError::Closed)));
        });
    }
}

/// A wait that times out names the stage that holds up the ring at that time, not the stage that
/// did so when the wait began.
#[test]
fn a_claim_that_times_out_names_the_stage_that_is_behind_now() {
    let _watched = crate::common::watched();
    let graph = Graph::new(4, || 0u64).shared();
    let (a, b) = (graph.reader("a"), graph.reader("b"));
    let ring = graph.build().unwrap();
    let (mut tx, mut other) = (ring.producer(), ring.producer());
    let (mut first, mut second) = (ring.reader(a), ring.reader(b));
    for _ in 0..4 {
        tx.publish(|_| ()).unwrap();
    }
    // `b` has handled one event, `a` none.
    assert_eq!(second.poll(1, |_, _| ()).unwrap(), 1);
    let waits = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            waits.store(true, Ordering::Release);
            other.publish_by(Instant::now() + Duration::from_secs(2), |_| ())
        });
        while !waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(100));
        // `b` has released one slot. Once `a` has released this slot, too, either this thread or
        // the other producer takes it, and then the other of the two finds the ring full. In both
        // cases, `b` holds the next slot, and `a` holds none.
        assert_eq!(first.poll(4, |_, _| ()).unwrap(), 4);
        let mine = tx.try_publish(|_| ());
        match waiting.join().unwrap() {
            Err(ClaimError::TimedOut(stage)) => assert_eq!(stage.as_str(), "b"),
            Ok(_) => assert!(matches!(
                mine,
                Err(ClaimError::Gated { stage, .. }) if stage.as_str() == "b"
            )),
            Err(other) => panic!("{other}"),
        }
    });
}

/// A thread may be inside any number of stages at once, because their list has no limit.
#[test]
fn a_stage_among_many_on_one_thread_hears_that_it_waits_for_itself() {
    let _watched = crate::common::watched();
    for stages in [2, 16, 17, 40] {
        ends(&format!("{stages} stages"), move || {
            let own = Mutex::new(None::<SharedProducer<u64>>);
            let mut chain = slipring::ring(4, || 0u64);
            for stage in 1..stages {
                chain = chain.read(&format!("s{stage}"), |_, _| ()).on("t");
            }
            let last = chain.read("last", |_, _| {
                let mut own = own.lock().unwrap();
                let Some(tx) = own.as_mut() else { return Ok(()) };
                loop {
                    if let Err(error) = tx.publish(|slot| *slot = 0) {
                        break Err(error);
                    }
                }
            });
            let failed = last.on("t").run_shared(|tx| {
                *own.lock().unwrap() = Some(tx.clone());
                tx.publish(|_| ())?;
                Ok(())
            });
            own.lock().unwrap().take();
            let failure = failed.unwrap_err();
            assert_eq!(failure.stage(), Some("last"), "{failure}");
            let text = failure.to_string();
            assert!(text.contains("which only the calling thread can make"), "{text}");
        });
    }
}
