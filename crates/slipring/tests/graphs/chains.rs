//! The named shapes as chains: on threads of their own and on shared threads, under every suitable
//! strategy; inline, and spawned.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use slipring::{
    Chain, Wait,
    errors::JoinError,
    markers::{Contiguous, Interleaved, Layout},
    placement::Threads,
    ring,
};

const EVENTS: u64 = if cfg!(miri) { 12 } else { 150 };

/// A chain of either layout.
trait Start: Layout {
    fn chain<'env>(capacity: usize) -> Chain<'env, u64, Self>;
}
impl Start for Interleaved {
    fn chain<'env>(capacity: usize) -> Chain<'env, u64, Interleaved> {
        shared(ring(capacity, || 0))
    }
}
impl Start for Contiguous {
    fn chain<'env>(capacity: usize) -> Chain<'env, u64, Contiguous> {
        shared(ring(capacity, || 0).contiguous())
    }
}

thread_local! {
    /// Number of threads that this test's chains share. If it is `None`, each stage has a thread of
    /// its own.
    static THREADS: Cell<Option<Threads>> = const { Cell::new(None) };
}

fn shared<'env, L: Layout>(chain: Chain<'env, u64, L>) -> Chain<'env, u64, L> {
    match THREADS.get() {
        Some(threads) => chain.threads(threads),
        None => chain,
    }
}

/// Runs a shape twice: with one thread per stage, and on shared threads.
fn on_any_threads(shape: fn()) {
    let counts = [1, 2, 3].map(|count| Some(Threads::from(count)));
    for threads in [None, Some(Threads::Auto)].into_iter().chain(counts) {
        THREADS.set(threads);
        shape();
    }
}

/// Returns strategies, capacities and first positions for a shape on this number of threads.
fn settings(threads: usize) -> Vec<(Wait, usize, u64)> {
    let mut all = Vec::new();
    let is_shared = THREADS.get().is_some();
    // A thread that spins needs a core of its own.
    for wait in Wait::all().into_iter().skip(usize::from(threads > 2 || is_shared)) {
        for (capacity, start) in [(1usize, 0), (2, u64::MAX - 7), (64, 0u64.wrapping_sub(100))] {
            all.push((wait.clone(), capacity, start));
        }
    }
    if cfg!(miri) { all.into_iter().skip(threads % 2).step_by(5).collect() } else { all }
}

/// Checks that events come once and in order. The fields are the next position, and the number of
/// events so far.
struct Order(u64, u64);

impl Order {
    fn new(start: u64) -> Order {
        Order(start, 0)
    }
    fn next(&mut self, seq: u64) {
        assert_eq!(seq, self.0, "in order");
        self.0 = self.0.wrapping_add(1);
        self.1 += 1;
    }
    fn all(&self) {
        assert_eq!(self.1, EVENTS);
    }
}

fn unicast<L: Start>() {
    for (wait, capacity, start) in settings(2) {
        let (mut order, mut sum) = (Order::new(start), 0);
        let done = L::chain(capacity).wait(wait).first_seq(start).read("sum", |v, at| {
            order.next(at.seq);
            sum += v;
        });
        let done = done.feed(0..EVENTS, |slot, i| *slot = i).unwrap();
        order.all();
        assert_eq!((done.value, sum), (EVENTS, EVENTS * (EVENTS - 1) / 2));
        assert_eq!(done.report.stage("sum").unwrap().events, EVENTS);
    }
}

fn pipeline<L: Start>() {
    for (wait, capacity, start) in settings(5) {
        let mut order = Order::new(start);
        L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .update("times", |v, _| *v *= 10)
            .update_batch("plus", |events, _| events.iter_mut().for_each(|v| *v += 1))
            .read_batch("look", |events, first| assert_eq!(events.first_seq(), first))
            .read("check", |v, at| {
                assert_eq!(*v, order.1 * 10 + 1);
                order.next(at.seq);
            })
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        order.all();
    }
}

fn sequencer<L: Start>() {
    for (wait, capacity, start) in settings(5) {
        let mut next = [0; 3];
        let done = L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .read("merge", |v, _| {
                let (p, k) = ((v >> 32) as usize, v & 0xffff_ffff);
                assert_eq!(k, next[p]);
                next[p] += 1;
            })
            .run_shared(|producer| {
                thread::scope(|scope| {
                    for p in 0..3 {
                        let mut producer = producer.clone();
                        scope.spawn(move || {
                            for k in 0..EVENTS {
                                if k % 5 == 3 {
                                    drop(producer.claim().unwrap());
                                }
                                producer.publish(|slot| *slot = p << 32 | k).unwrap();
                            }
                        });
                    }
                });
                Ok(())
            })
            .unwrap();
        assert_eq!(next, [EVENTS; 3]);
        let (merge, producers) = (done.report.stage("merge").unwrap(), done.report.producer());
        assert_eq!((merge.events, merge.tombstones), (3 * EVENTS, producers.tombstones));
        assert_eq!(producers.tombstones, 3 * (0..EVENTS).filter(|k| k % 5 == 3).count() as u64);
    }
}

fn multicast<L: Start>() {
    for (wait, capacity, start) in settings(4) {
        let (mut a, mut b, mut c) = (Order::new(start), Order::new(start), Order::new(start));
        L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .fan_out(|x| {
                x.read("a", |_, at| a.next(at.seq))
                    .read("b", |_, at| b.next(at.seq))
                    .read("c", |_, at| c.next(at.seq))
            })
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        [a, b, c].iter().for_each(Order::all);
    }
}

fn diamond<L: Start>() {
    for (wait, capacity, start) in settings(5) {
        let (left, right) = (AtomicU64::new(0), AtomicU64::new(0));
        let mut order = Order::new(start);
        L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .update("double", |v, _| *v *= 2)
            .fan_out(|x| {
                x.read("left", |v, _| left.store(*v, Relaxed))
                    .read("right", |v, _| right.store(*v, Relaxed))
            })
            .update("join", |v, at| {
                assert_eq!(*v, 2 * order.1);
                assert!(left.load(Relaxed) >= *v && right.load(Relaxed) >= *v);
                *v = u64::MAX; // no stage before may see this value
                order.next(at.seq);
            })
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        order.all();
    }
}

fn worker_pool<L: Start>() {
    for (wait, capacity, start) in settings(5) {
        let mut order = Order::new(start);
        let workers = 3.min(capacity);
        let seen = AtomicU64::new(0);
        L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .update_pool("work", workers, |_| |v, _| *v += 7)
            .read_pool("count", workers, |_| {
                |v, _| {
                    seen.fetch_add(*v, Relaxed);
                }
            })
            .read("release", |v, at| {
                assert_eq!(*v, order.1 + 7);
                order.next(at.seq);
            })
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        order.all();
        assert_eq!(seen.into_inner(), EVENTS * (EVENTS - 1) / 2 + 7 * EVENTS);
    }
}

/// Sums of the pools of the nested chain.
#[derive(Default)]
struct Nest {
    pools: [AtomicU64; 2],
}

fn add(sum: &AtomicU64, value: u64) {
    sum.fetch_add(value, Relaxed);
}

fn nested<'env, L: Start>(
    capacity: usize,
    start: u64,
    nest: &'env Nest,
    order: &'env mut Order,
) -> Chain<'env, u64, L> {
    let workers = 2.min(capacity);
    let [first, second] = &nest.pools;
    L::chain(capacity)
        .first_seq(start)
        .update("one", |v, _| *v += 1)
        .fan_out(move |x| {
            x.fan_out(|y| {
                y.read_pool("pool", workers, |_| |v, _| add(first, *v)).read("beside", |_, _| ())
            })
            .branch(|y| {
                y.read("before", |_, _| ())
                    .read_pool("inner", workers, |_| |v, _| add(second, *v))
                    .fan_out(|z| {
                        z.read("deep", |_, _| ())
                            .branch(|w| w.read("deeper", |_, _| ()).read("deepest", |_, _| ()))
                    })
            })
        })
        .update_pool("two", workers, |_| |v, _| *v *= 3)
        .read("check", move |v, at| {
            assert_eq!(*v, (order.1 + 1) * 3);
            order.next(at.seq);
        })
}

fn nested_fan_outs<L: Start>() {
    for (wait, capacity, start) in settings(11) {
        let (nest, mut order) = (Nest::default(), Order::new(start));
        nested::<L>(capacity, start, &nest, &mut order)
            .wait(wait)
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        order.all();
        assert_eq!(nest.pools.map(|sum| sum.into_inner()), [EVENTS * (EVENTS + 1) / 2; 2]);
    }
}

fn several_on_one_thread<L: Start>() {
    for (wait, capacity, start) in settings(3) {
        let mut names = Vec::new();
        let mut order = Order::new(start);
        let here = || thread::current().name().map(str::to_owned);
        L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .update("one", |v, _| *v += 1)
            .on("io")
            .update("two", |v, _| *v *= 2)
            .fan_out(|x| {
                x.read("three", |_, _| assert_eq!(here().as_deref(), Some("io")))
                    .on("io")
                    .read("beside", |_, _| ())
                    .on("alone")
            })
            .read("check", |v, at| {
                assert_eq!(*v, (order.1 + 1) * 2);
                order.next(at.seq);
                names.push(here());
            })
            .on("io")
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        order.all();
        assert!(names.iter().all(|name| name.as_deref() == Some("io")));
    }
}

fn all_on_one_thread<L: Start>() {
    for (wait, capacity, start) in settings(2) {
        let mut order = Order::new(start);
        L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .update("one", |v, _| *v += 1)
            .on("io")
            .update("two", |v, _| *v *= 2)
            .on("io")
            .read("check", |v, at| {
                assert_eq!(*v, (order.1 + 1) * 2);
                order.next(at.seq);
            })
            .on("io")
            .feed(0..EVENTS, |slot, i| *slot = i)
            .unwrap();
        order.all();
    }
}

fn inline<L: Start>() {
    for (wait, capacity, start) in settings(1) {
        let (nest, mut order) = (Nest::default(), Order::new(start));
        let done = nested::<L>(capacity, start, &nest, &mut order).wait(wait).run_inline(|p| {
            let half = p.publish_all(0..EVENTS / 2, |slot, i| *slot = i)?;
            p.work();
            for i in half..EVENTS {
                p.publish(|slot| *slot = i)?;
            }
            Ok(half)
        });
        assert_eq!(done.unwrap().value, EVENTS / 2);
        order.all();
        assert_eq!(nest.pools.map(|sum| sum.into_inner()), [EVENTS * (EVENTS + 1) / 2; 2]);
    }
}

fn spawned<L: Start>() {
    for (wait, capacity, start) in settings(4) {
        let (sender, seen) = channel();
        let chain = L::chain(capacity)
            .wait(wait)
            .first_seq(start)
            .update_pool("work", 1, |_| |v, _| *v += 1);
        let (mut tx, pipeline) = chain.read("sink", move |v, _| sender.send(*v)).spawn().unwrap();
        tx.publish_all(0..EVENTS, |slot, i| *slot = i).unwrap();
        assert!(matches!(
            pipeline.join_within(Duration::ZERO),
            Err(JoinError::StillRunning { .. })
        ));
        tx.close();
        let report = pipeline.join().unwrap();
        assert_eq!(report.stage("sink").unwrap().events, EVENTS);
        assert!(seen.into_iter().eq(1..=EVENTS));
    }
}

fn spawned_for_many<L: Start>() {
    for (wait, capacity, start) in settings(4) {
        let (sender, seen) = channel();
        let chain = L::chain(capacity).wait(wait).first_seq(start);
        let (tx, pipeline) =
            chain.read("sink", move |v, _| sender.send(*v)).spawn_shared().unwrap();
        let producers: Vec<_> = (0..2u64)
            .map(|p| {
                let mut tx = tx.clone();
                thread::spawn(move || {
                    tx.publish_all(0..EVENTS, |slot, i| *slot = 2 * i + p).unwrap()
                })
            })
            .collect();
        drop(tx);
        producers.into_iter().for_each(|producer| assert_eq!(producer.join().unwrap(), EVENTS));
        pipeline.join().unwrap();
        let mut all: Vec<u64> = seen.into_iter().collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..2 * EVENTS));
    }
}

macro_rules! both_layouts {
    ($($shape:ident)*) => {
        mod interleaved {
            $(
                #[test]
                fn $shape() {
                    let _watched = crate::common::watched();
                    super::on_any_threads(super::$shape::<slipring::markers::Interleaved>);
                }
            )*
        }
        mod contiguous {
            $(
                #[test]
                fn $shape() {
                    let _watched = crate::common::watched();
                    super::on_any_threads(super::$shape::<slipring::markers::Contiguous>);
                }
            )*
        }
    };
}
both_layouts!(unicast pipeline sequencer multicast diamond worker_pool nested_fan_outs several_on_one_thread all_on_one_thread inline spawned
    spawned_for_many);
