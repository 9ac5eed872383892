//! Every kind of event: zero-sized, over-aligned, of odd size, owning, callable, borrowing. Each
//! event is dropped exactly once.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use slipring::{
    Graph, Monitor, Producer, Reader, Ring,
    errors::{BuildError, ErrorKind},
    handles::Events,
    markers::{Contiguous, Interleaved, Layout},
    ring,
};

/// A layout. If its batches have slices, `check` checks these.
trait TestLayout: Layout {
    fn of<E>(graph: Graph<'_, E>) -> Graph<'_, E, Self>;
    fn check<E>(_: &Events<'_, E, Self>) {}
}
impl TestLayout for Interleaved {
    fn of<E>(graph: Graph<'_, E>) -> Graph<'_, E> {
        graph
    }
}
impl TestLayout for Contiguous {
    fn of<E>(graph: Graph<'_, E>) -> Graph<'_, E, Contiguous> {
        graph.contiguous()
    }
    fn check<E>(events: &Events<'_, E, Contiguous>) {
        let (front, back) = events.as_slices();
        assert_eq!(front.len() + back.len(), events.len());
        assert!(front.iter().chain(back).zip(events.iter()).all(|(a, b)| std::ptr::eq(a, b)));
    }
}

const EVENTS: u64 = if cfg!(miri) { 20 } else { 200 };

/// Passes events through a writer, a pool, and two readers side by side.
fn carry<E: Send + Sync + 'static, L: TestLayout>(
    make: fn() -> E,
    fill: fn(&mut E, u64),
    change: fn(&mut E),
    check: fn(&E, u64),
) {
    for capacity in [1, 2, 8] {
        let graph = L::of(Graph::new(capacity, make));
        let change_key = graph.updater("change");
        let pool = graph.pool_updater("pool", 2.min(capacity)).after(&change_key);
        let a = graph.reader("a").after(&pool);
        let b = graph.reader("b").after(&pool);
        let ring = graph.build().unwrap();
        let (mut tx, mut writer, mut pool) =
            (ring.producer(), ring.updater(change_key), ring.pool_updaters(pool));
        let (mut a, mut b) = (ring.reader(a), ring.reader(b));
        let aligned = |event: &E| assert_eq!(std::ptr::from_ref(event).addr() % align_of::<E>(), 0);
        let (mut sent, mut seen, mut polled) = (0, 0, 0);
        while seen < EVENTS || polled < EVENTS {
            if sent < EVENTS && tx.try_publish(|event| fill(event, sent)).is_ok() {
                sent += 1;
            }
            let _ = writer.poll(3, |event, _| {
                aligned(event);
                change(event);
            });
            for worker in &mut pool {
                let _ = worker.poll(1, |event, _| {
                    aligned(event);
                    change(event);
                });
            }
            if let Ok(batch) = a.try_batch(5) {
                L::check(&batch);
                for event in batch.iter() {
                    aligned(event);
                    check(event, seen);
                    seen += 1;
                }
                batch.release();
            }
            let _ = b.poll(2, |event, _| {
                check(event, polled);
                polled += 1;
            });
        }
        tx.close();
        assert!(a.poll(1, |_, _| ()).is_err());
    }
}

macro_rules! both {
    ($name:ident, $event:ty, $make:expr, $fill:expr, $change:expr, $check:expr) => {
        #[test]
        fn $name() {
            let _watched = crate::common::watched();
            carry::<$event, Interleaved>($make, $fill, $change, $check);
            carry::<$event, Contiguous>($make, $fill, $change, $check);
        }
    };
}

#[derive(Clone, Copy, Default)]
#[repr(align(256))]
struct Wide([u8; 3]);

/// A zero-sized type with an alignment.
#[derive(Clone, Copy, Default)]
#[repr(align(512))]
struct WideNothing;

both!(nothing, (), || (), |_, _| (), |_| (), |_, _| ());
both!(aligned_nothing, WideNothing, || WideNothing, |_, _| (), |_| (), |_, _| ());
both!(over_aligned, Wide, Wide::default, |e, i| e.0 = [i as u8; 3], |e| e.0[1] += 1, |e, i| {
    assert_eq!(e.0, [i as u8, (i as u8).wrapping_add(2), i as u8]);
});
both!(one_byte, u8, || 0, |e, i| *e = i as u8, |e| *e ^= 0x0f, |e, i| assert_eq!(*e, i as u8));
both!(
    three_bytes,
    [u8; 3],
    || [0; 3],
    |e, i| *e = [i as u8, 1, 2],
    |e| e.rotate_left(1),
    |e, i| assert_eq!(*e, [2, i as u8, 1])
);
both!(
    strings,
    String,
    String::new,
    |e, i| *e = format!("event {i}"),
    |e| e.push('!'),
    |e, i| assert_eq!(*e, format!("event {i}!!"))
);
both!(
    large,
    [u64; 100],
    || [0; 100],
    |e, i| *e = [i; 100],
    |e| e.iter_mut().for_each(|n| *n += 1),
    |e, i| assert_eq!(*e, [i + 2; 100])
);
both!(
    boxes,
    Option<Box<u64>>,
    || None,
    |e, i| *e = Some(Box::new(i)),
    |e| *e = e.take().map(|n| Box::new(*n + 1)),
    |e, i| assert_eq!(e.as_deref(), Some(&(i + 2)))
);

/// `FnMut` events are not `Sync`, so only stages that write may handle them.
#[test]
fn closures_are_events_of_writers() {
    let _watched = crate::common::watched();
    type Task = Box<dyn FnMut() -> usize + Send>;
    fn tasks<L: TestLayout>() {
        let called = Arc::new(AtomicUsize::new(0));
        let graph = L::of(Graph::new(4, || Box::new(|| 0usize) as Task));
        let once = graph.updater("once");
        let twice = graph.pool_updater("twice", 2).after(&once);
        let ring = graph.build().unwrap();
        let (mut tx, mut once, mut pool) =
            (ring.producer(), ring.updater(once), ring.pool_updaters(twice));
        let mut done = 0;
        let mut sent = 0;
        while done < EVENTS {
            let called = called.clone();
            let fresh = move || {
                let mut own = 0;
                Box::new(move || {
                    own += 1;
                    called.fetch_add(own, Relaxed);
                    own
                }) as Task
            };
            if sent < EVENTS && tx.try_publish(|task| *task = fresh()).is_ok() {
                sent += 1;
            }
            once.poll(4, |task, _| assert_eq!(task(), 1)).unwrap();
            for worker in &mut pool {
                done += worker.poll(4, |task, _| assert_eq!(task(), 2)).unwrap() as u64;
            }
        }
        assert_eq!(called.load(Relaxed) as u64, 3 * EVENTS);
    }
    tasks::<Interleaved>();
    tasks::<Contiguous>();
}

/// A single stage may have events that are not `Sync`.
#[test]
fn cells_are_events_of_a_single_reader() {
    let _watched = crate::common::watched();
    let (mut tx, mut rx) = slipring::unicast(2, || Cell::new(0)).unwrap();
    for i in 0..EVENTS {
        tx.publish(|cell| cell.set(i)).unwrap();
        assert_eq!(rx.poll(1, |cell, _| assert_eq!(cell.replace(0), i)).unwrap(), 1);
    }
}

#[test]
fn events_may_borrow_locals() {
    let _watched = crate::common::watched();
    let text: String = (0..EVENTS).map(|i| format!("line {i}\n")).collect();
    let mut counts: Vec<u64> = vec![0; EVENTS as usize];
    let mut lines = Vec::new();
    // Each event borrows a line by `&` and a counter by `&mut`.
    ring(4, || ("", None::<&mut u64>))
        .update("count", |(_, count), _| **count.as_mut().unwrap() += 1)
        .update_pool("again", 2, |_| |(_, count), _| **count.as_mut().unwrap() += 1)
        .read("keep", |(line, _), _| lines.push(*line))
        .feed(text.lines().zip(&mut counts), |slot, (line, count)| *slot = (line, Some(count)))
        .unwrap();
    assert!(lines.into_iter().eq(text.lines()));
    assert!(counts.iter().all(|&count| count == 2));
    let mut lines = Vec::new();
    ring(4, || "")
        .contiguous()
        .read("keep", |line, _| lines.push(*line))
        .run_inline(|p| Ok(p.publish_all(text.lines(), |s, l| *s = l)?))
        .unwrap();
    assert!(lines.into_iter().eq(text.lines()));
}

/// A channel for any events, as users wrap a graph.
fn channel<T: Send + Sync>(capacity: usize) -> (Producer<Option<T>>, Reader<Option<T>>, Monitor) {
    let graph = Graph::new(capacity, || None);
    let key = graph.reader("receiver");
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(key), ring.monitor())
}

/// Monitors, and the keys of taps, may be dropped after the locals that events borrow.
#[test]
fn observers_outlive_borrowed_locals() {
    let _watched = crate::common::watched();
    let (monitor, late, later);
    {
        let text = String::from("borrowed");
        let (mut tx, mut rx, observer) = channel(2);
        monitor = observer;
        tx.publish(|slot| *slot = Some(&*text)).unwrap();
        monitor.wait_for_by("receiver", 0, std::time::Instant::now()).unwrap_err();
        assert_eq!(rx.poll(1, |word, _| assert_eq!(*word, Some(&*text))).unwrap(), 1);
        monitor.wait_for("receiver", 0).unwrap();

        let graph = Graph::new(2, || &*text);
        (late, later) = (graph.tap("late", 1), graph.reader("later"));
        let ring = graph.build().unwrap();
        ring.producer().publish(|word| *word = &word[1..]).unwrap();
    }
    assert!(monitor.report().is_none());
    monitor.wait_for("receiver", 1).unwrap_err();
    drop((late, later));
}

/// How often each event was dropped. The vector has one count per event that was made.
#[derive(Clone, Default)]
struct Census(Arc<std::sync::Mutex<Vec<u32>>>);

struct Counted {
    census: Census,
    number: usize,
}

impl Census {
    fn event(&self) -> Counted {
        let mut drops = self.0.lock().unwrap();
        drops.push(0);
        Counted { census: self.clone(), number: drops.len() - 1 }
    }
    /// Asserts that each event was dropped once, and returns their number.
    fn all_dropped(&self) -> usize {
        let drops = self.0.lock().unwrap();
        assert!(drops.iter().all(|&times| times == 1), "{drops:?}");
        drops.len()
    }
    fn none_dropped(&self) {
        assert!(self.0.lock().unwrap().iter().all(|&times| times == 0));
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.0.lock().unwrap()[self.number] += 1;
    }
}

fn counted_ring<L: TestLayout>(
    census: &Census,
    capacity: usize,
) -> (Ring<Counted, L>, Producer<Counted, L>, slipring::Updater<Counted, L>) {
    let make = census.clone();
    let graph = L::of(Graph::new(capacity, move || make.event()));
    let key = graph.updater("writer");
    let ring = graph.build().unwrap();
    let (tx, writer) = (ring.producer(), ring.updater(key));
    (ring, tx, writer)
}

fn drops<L: TestLayout>() {
    // `end` selects the state in which the ring is dropped: 0: unused; 1: used; 2: the producer and
    // a stage have replaced events; 3: closed with unseen events; 4: halted; 5: its stage was
    // dropped before.
    for end in 0..6 {
        let census = Census::default();
        let (ring, mut tx, mut writer) = counted_ring::<L>(&census, 4);
        census.none_dropped();
        let mut made = 4;
        if end > 0 {
            for _ in 0..3 {
                tx.publish(|_| ()).unwrap();
            }
            census.none_dropped();
            assert_eq!(writer.poll(2, |_, _| ()).unwrap(), 2);
            census.none_dropped();
        }
        if end > 1 {
            tx.publish(|slot| *slot = census.event()).unwrap();
            writer.poll(2, |slot, _| *slot = census.event()).unwrap();
            made += 3;
        }
        if end > 2 {
            tx.publish(|_| ()).unwrap();
            let mut claim = tx.try_claim().unwrap();
            *claim = census.event();
            made += 1;
            if end == 3 { drop(claim) } else { std::mem::forget(claim) }
        }
        if end == 4 {
            ring.halt();
        }
        if end == 5 {
            drop(writer);
            assert!(tx.publish(|_| ()).is_err());
            drop(ring);
            drop(tx);
        } else {
            drop((tx, ring));
            assert!(census.0.lock().unwrap().contains(&0), "the last handle must keep the events");
            drop(writer);
        }
        assert_eq!(census.all_dropped(), made, "{end}");
    }
}

fn drops_after_panics<L: TestLayout>() {
    let census = Census::default();
    let (ring, mut tx, mut writer) = counted_ring::<L>(&census, 2);
    tx.publish(|_| ()).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        writer.poll(1, |slot, _| {
            *slot = census.event();
            resume_unwind(Box::new("handling"))
        })
    }));
    assert!(panicked.is_err());
    assert_eq!(writer.poll(1, |slot, _| *slot = census.event()).unwrap(), 1); // the same event
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        tx.publish(|slot| {
            *slot = census.event();
            resume_unwind(Box::new("filling"))
        })
    }));
    assert!(panicked.is_err());
    drop((ring, tx, writer));
    assert_eq!(census.all_dropped(), 2 + 3);
}

fn drops_after_half_a_factory<L: TestLayout>() {
    for capacity in [1, 2, 8] {
        for fatal in 0..capacity {
            let census = Census::default();
            let make = census.clone();
            let mut made = 0;
            let graph = L::of(Graph::new(capacity, move || {
                if made == fatal {
                    resume_unwind(Box::new("factory failed"));
                }
                made += 1;
                make.event()
            }));
            let key = graph.updater("writer");
            match graph.build().map(drop).unwrap_err().kind() {
                ErrorKind::Build(BuildError::Factory { index, panic }) => {
                    assert_eq!((*index, &**panic), (fatal, "factory failed"))
                }
                other => panic!("{other:?}"),
            }
            drop(key);
            assert_eq!(census.all_dropped(), fatal);
        }
    }
}

thread_local! {
    static NOTHINGS: Cell<i64> = const { Cell::new(0) };
}

/// A zero-sized event, counted on its test's thread.
struct Nothing;

impl Nothing {
    fn new() -> Nothing {
        NOTHINGS.set(NOTHINGS.get() + 1);
        Nothing
    }
}

impl Drop for Nothing {
    fn drop(&mut self) {
        NOTHINGS.set(NOTHINGS.get() - 1);
    }
}

fn drops_of_nothing<L: TestLayout>() {
    let graph = L::of(Graph::new(8, Nothing::new));
    let key = graph.updater("writer");
    let ring = graph.build().unwrap();
    let (mut tx, mut writer) = (ring.producer(), ring.updater(key));
    assert_eq!(NOTHINGS.get(), 8);
    for _ in 0..20 {
        tx.publish(|slot| *slot = Nothing::new()).unwrap();
        writer.poll(1, |slot, _| *slot = Nothing::new()).unwrap();
        assert_eq!(NOTHINGS.get(), 8);
    }
    drop((ring, tx, writer));
    assert_eq!(NOTHINGS.get(), 0);
    let mut made = 0;
    let graph = L::of(Graph::new(8, move || {
        made += 1;
        if made == 6 { resume_unwind(Box::new(())) } else { Nothing::new() }
    }));
    let key = graph.updater("writer");
    assert!(graph.build().is_err());
    drop(key);
    assert_eq!(NOTHINGS.get(), 0);
}

#[test]
fn each_event_is_dropped_once() {
    let _watched = crate::common::watched();
    drops::<Interleaved>();
    drops::<Contiguous>();
    drops_after_panics::<Interleaved>();
    drops_after_panics::<Contiguous>();
    drops_after_half_a_factory::<Interleaved>();
    drops_after_half_a_factory::<Contiguous>();
    drops_of_nothing::<Interleaved>();
    drops_of_nothing::<Contiguous>();
}

#[test]
fn each_event_of_a_chain_is_dropped_once() {
    let _watched = crate::common::watched();
    for failing in ["none", "handler", "panic", "producer", "fill"] {
        for contiguous in [false, true] {
            let census = Census::default();
            let made = AtomicUsize::new(4);
            let replaced = || {
                made.fetch_add(1, Relaxed);
                census.event()
            };
            let write = |slot: &mut Counted, at: slipring::At| {
                *slot = replaced();
                match failing {
                    "handler" if at.seq == 9 => Err("enough"),
                    "panic" if at.seq == 9 => resume_unwind(Box::new("enough")),
                    _ => Ok(()),
                }
            };
            let produce = |i: u64, slot: &mut Counted| {
                *slot = replaced();
                if failing == "fill" && i == 9 {
                    resume_unwind(Box::new("enough"));
                }
            };
            let chain = ring(4, || census.event());
            let outcome = if contiguous {
                chain
                    .contiguous()
                    .update("writer", write)
                    .read_pool("pool", 2, |_| |_, _| ())
                    .feed(0..20, |slot, i| produce(i, slot))
                    .map(drop)
            } else {
                let chain = chain.update("writer", write).read_pool("pool", 2, |_| |_, _| ());
                let run = chain.run(|p| {
                    for i in 0..20 {
                        if failing == "producer" && i == 9 {
                            return Err(slipring::faults::Fault::msg("enough"));
                        }
                        p.publish(|slot| produce(i, slot))?;
                    }
                    Ok(())
                });
                run.map(drop)
            };
            assert_eq!(
                outcome.is_ok(),
                failing == "none" || (failing == "producer" && contiguous),
                "{failing}"
            );
            assert_eq!(census.all_dropped(), made.load(Relaxed));
        }
    }
}

/// All other events are dropped although some drops panic.
#[test]
fn an_event_whose_drop_panics_does_not_keep_the_others() {
    let _watched = crate::common::watched();
    struct Bomb(Option<Arc<AtomicUsize>>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            match &self.0 {
                Some(dropped) => {
                    dropped.fetch_add(1, Relaxed);
                }
                None => resume_unwind(Box::new("bomb")),
            }
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let mut made = 0;
    let make = || {
        made += 1;
        Bomb((made != 3 && made != 5).then(|| dropped.clone()))
    };
    let outcome = ring(8, make).update("look", |_, _| ()).feed(0..3, |_, _| ());
    assert!(
        matches!(outcome.unwrap_err().kind(), ErrorKind::EventDrop(message) if message == "bomb")
    );
    assert_eq!(dropped.load(Relaxed), 6);
}

/// A producer fills claims of every length as slices, a writer changes batches as slices, and a
/// reader sees each event once and in order, wherever a claim or a batch goes around the ring's
/// end.
#[test]
fn claims_and_batches_are_filled_and_changed_as_slices() {
    let _watched = crate::common::watched();
    let graph = Graph::new(8, String::new).contiguous();
    let writer = graph.updater("writer");
    let reader = graph.reader("reader").after(&writer);
    let ring = graph.build().unwrap();
    let (mut tx, mut writer, mut reader) =
        (ring.producer(), ring.updater(writer), ring.reader(reader));
    let (mut sent, mut seen, mut wrapped) = (0, 0, 0);
    for len in (1..=8).cycle().take(40) {
        let mut claim = tx.claim_n(len).unwrap();
        let (front, back) = claim.as_mut_slices();
        assert_eq!(front.len() + back.len(), len);
        wrapped += usize::from(!back.is_empty());
        for slot in front.iter_mut().chain(back) {
            *slot = sent.to_string();
            sent += 1;
        }
        claim.publish();
        while seen < sent {
            let mut batch = writer.try_batch(3).unwrap();
            let (front, back) = batch.as_mut_slices();
            front.iter_mut().chain(back).for_each(|text| text.push('!'));
            batch.release();
            let polled = reader.poll(8, |text, _| {
                assert_eq!(*text, format!("{seen}!"));
                seen += 1;
            });
            assert!(polled.unwrap() > 0);
        }
    }
    assert!(wrapped > 10, "{wrapped} claims went around");
}
