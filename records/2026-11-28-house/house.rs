//! The speed of two structures of the library: the same calls, compiled against either.
//!
//! A package of its own: dependencies `slipring` and `slipring-shm` (paths to a checkout) and
//! `libc` 0.2, and the feature `before` for the names that blocks and messages had. `house NAME`
//! prints one row's value, in nanoseconds an operation: the median of ten parts. A row of one
//! thread counts the thread's CPU time, a row of several threads the wall time of the whole. `house
//! list` prints the names of the rows, `house sizes` the sizes of handles, and `house count NAME`
//! the number of instructions that one operation of a row of one thread executes, by single steps.
//! Each row checks the sum of what it has read.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use slipring::{ClaimError, Graph, Producer, Promise, Reader, SharedProducer, StartAt, Wait};
use slipring_shm::{Attached, Blocks, Builder, Contents, Messages, Segment};

/// Number of parts of a row of one thread, after one that is not counted.
const PARTS: u64 = 10;
/// Number of events that a row of two threads streams.
const STREAMED: u64 = 2_000_000;

fn cpu_time() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a `timespec`, and the pointer is to one.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Number of the operations whose instructions are counted, after [`WARM`] that are not.
const COUNTED: u64 = 64;
const WARM: u64 = 1_000;

/// Measures parts of `operations` calls of `operation`, which gets the call's number. Under the
/// tracer, marks the begin and the end of each of [`COUNTED`] calls, and ends the process.
fn parts(operations: u64, mut operation: impl FnMut(u64)) -> f64 {
    if std::env::var_os("HOUSE_COUNTED").is_some() {
        (0..WARM).for_each(&mut operation);
        mark();
        for call in WARM..WARM + COUNTED {
            operation(call);
            mark();
        }
        std::process::exit(0);
    }
    let mut times: Vec<f64> = (0..=PARTS)
        .map(|part| {
            let began = cpu_time();
            for call in part * operations..(part + 1) * operations {
                operation(call);
            }
            (cpu_time() - began) as f64 / operations as f64
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2] + times[(times.len() - 1) / 2]) / 2.0
}

/// Measures `stream`, which passes events `0..events` and returns their sum.
fn wall(events: u64, stream: impl FnOnce() -> u64) -> f64 {
    let began = Instant::now();
    let sum = stream();
    let time = began.elapsed().as_nanos() as f64 / events as f64;
    assert_eq!(sum, events * (events - 1) / 2);
    time
}

/// Stops at the tracer.
fn mark() {
    // SAFETY: a breakpoint, which changes no register. The tracer continues behind it.
    unsafe { std::arch::asm!("int3") };
}

/// Returns the median number of instructions of an operation of the row `name`, which a traced
/// child runs. What is done by time comes far more often under the tracer, so a mean would count
/// it.
fn count(name: &str) -> f64 {
    use std::os::unix::process::CommandExt;
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.arg(name).env("HOUSE_COUNTED", "1");
    // SAFETY: the call changes only this process's state.
    let traced = || match unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: `traced` makes one system call.
    let pid = unsafe { child.pre_exec(traced) }.spawn().unwrap().id() as libc::pid_t;
    let (mut marks, mut steps, mut counts, mut status) = (0, 0u64, Vec::new(), 0);
    while marks <= COUNTED {
        // SAFETY: a child of this process, and an integer to write to.
        assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
        assert!(libc::WIFSTOPPED(status), "{name} ended: {status}");
        // A breakpoint is told apart from a step by the signal's code.
        // SAFETY: the type consists of integers, for which zeros are values.
        let mut signal: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes a `siginfo_t` of a stopped child.
        unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, pid, 0, &mut signal) };
        match (marks, signal.si_code) {
            (_, 0x80 /* SI_KERNEL: int3 */) => {
                marks += 1;
                counts.push(std::mem::take(&mut steps));
            }
            (0, _) => (),
            _ => steps += 1,
        }
        let go_on = if (1..=COUNTED).contains(&marks) {
            libc::PTRACE_SINGLESTEP
        } else {
            libc::PTRACE_CONT
        };
        // SAFETY: the child is stopped, and traced by this process.
        unsafe { libc::ptrace(go_on, pid, 0, 0) };
    }
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    let counts = &mut counts[1..];
    counts.sort_unstable();
    counts[counts.len() / 2] as f64
}

fn attach<C: Contents>(builder: Builder<C>) -> Attached<C> {
    // SAFETY: no other process has the memfd.
    unsafe { builder.build().unwrap().attach().unwrap() }
}

fn numbers(capacity: u64) -> Builder<u64> {
    Segment::<u64>::create_memfd("house").capacity(capacity)
}

fn blocks() -> Attached<Blocks> {
    let segment = Segment::<Blocks>::create_memfd("house").capacity(1024);
    attach(segment.block(24, 8).reader("r"))
}

fn messages() -> Attached<Messages> {
    attach(Segment::<Messages>::create_memfd("house").capacity(1024).reader("r"))
}

/// The handles of blocks and of messages, by the names of each version.
macro_rules! handles {
    (blocks $attached:ident) => {{
        #[cfg(feature = "before")]
        let pair = ($attached.block_producer().unwrap(), $attached.block_reader("r").unwrap());
        #[cfg(not(feature = "before"))]
        let pair = ($attached.producer().unwrap(), $attached.reader("r").unwrap());
        pair
    }};
    (messages $attached:ident) => {{
        #[cfg(feature = "before")]
        let pair = ($attached.message_producer().unwrap(), $attached.message_reader("r").unwrap());
        #[cfg(not(feature = "before"))]
        let pair = ($attached.producer().unwrap(), $attached.reader("r").unwrap());
        pair
    }};
}

/// Publishes and polls one event in each operation.
macro_rules! each_one {
    ($operations:expr, $tx:ident, $rx:ident) => {{
        let mut sum = 0;
        let time = parts($operations, |call| {
            $tx.publish(|slot| *slot = call).unwrap();
            assert_eq!($rx.poll(8, |value, _| sum += *value).unwrap(), 1);
        });
        checked(time, $operations, sum)
    }};
}

/// Publishes one event, and polls two handles that share the events.
macro_rules! either_one {
    ($operations:expr, $tx:ident, $one:ident, $other:ident) => {{
        let mut sum = 0;
        let time = parts($operations, |call| {
            $tx.publish(|slot| *slot = call).unwrap();
            let first = $one.poll(8, |value, _| sum += *value).unwrap();
            assert_eq!(first + $other.poll(8, |value, _| sum += *value).unwrap(), 1);
        });
        checked(time, $operations, sum)
    }};
}

macro_rules! batches {
    ($operations:expr, $tx:ident, $rx:ident) => {{
        let mut sum = 0;
        let time = parts($operations / 100, |call| {
            let mut claim = $tx.claim_n(100).unwrap();
            claim.iter_mut().zip(call * 100..).for_each(|(slot, value)| *slot = value);
            claim.publish();
            let batch = $rx.batch(100).unwrap();
            sum += batch.iter().sum::<u64>();
            batch.release();
        });
        checked(time / 100.0, $operations / 100 * 100, sum)
    }};
}

macro_rules! empty_poll {
    ($rx:ident) => {
        parts(200_000, |_| assert_eq!(black_box(&mut $rx).poll(8, |_, _| ()).unwrap(), 0))
    };
}

macro_rules! refused {
    ($tx:ident) => {{
        while $tx.try_publish(|slot| *slot = 1).is_ok() {}
        parts(100_000, |_| {
            let refused = black_box(&mut $tx).try_publish(|slot| *slot = 2);
            assert!(matches!(refused, Err(ClaimError::Gated { .. })));
        })
    }};
}

macro_rules! remaining {
    ($tx:ident) => {{
        $tx.publish(|slot| *slot = 1).unwrap();
        let room = $tx.remaining();
        parts(150_000, |_| assert_eq!(black_box(&mut $tx).remaining(), room))
    }};
}

/// Waits of 1 ms that end without an event.
macro_rules! timeouts {
    ($rx:ident) => {
        parts(4, |_| {
            assert!($rx.batch_by(8, Instant::now() + Duration::from_millis(1)).is_err());
        })
    };
}

/// Waits of 1 ms for room that does not come.
macro_rules! full_timeouts {
    ($tx:ident) => {{
        while $tx.try_publish(|slot| *slot = 1).is_ok() {}
        parts(4, |_| {
            let deadline = Instant::now() + Duration::from_millis(1);
            assert!($tx.publish_by(deadline, |slot| *slot = 2).is_err());
        })
    }};
}

/// Streams from this thread to another.
macro_rules! two_threads {
    ($tx:ident, $rx:ident) => {{
        let mut tx = $tx;
        let mut rx = $rx;
        wall(STREAMED, || {
            let reader = thread::spawn(move || {
                let mut sum = 0;
                rx.for_each(|value, _| sum += value).unwrap();
                sum
            });
            for value in 0..STREAMED {
                tx.publish(|slot| *slot = value).unwrap();
            }
            tx.close();
            reader.join().unwrap()
        })
    }};
}

fn checked(time: f64, operations: u64, sum: u64) -> f64 {
    let events = operations * (PARTS + 1);
    assert_eq!(sum, events * (events - 1) / 2);
    time
}

fn pair(wait: Wait, capacity: usize) -> (Producer<u64>, Reader<u64>) {
    let graph = Graph::new(capacity, || 0u64).wait(wait);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(key))
}

fn one() -> f64 {
    let (mut tx, mut rx) = pair(Wait::ADAPTIVE, 1024);
    each_one!(100_000, tx, rx)
}

fn one_batches() -> f64 {
    let (mut tx, mut rx) = pair(Wait::ADAPTIVE, 1024);
    batches!(1_000_000, tx, rx)
}

fn one_empty() -> f64 {
    let (_tx, mut rx) = pair(Wait::ADAPTIVE, 1024);
    empty_poll!(rx)
}

fn one_refused() -> f64 {
    let (mut tx, _rx) = pair(Wait::ADAPTIVE, 8);
    refused!(tx)
}

fn one_remaining() -> f64 {
    let (mut tx, _rx) = pair(Wait::ADAPTIVE, 8);
    remaining!(tx)
}

fn one_shared() -> f64 {
    let graph = Graph::new(1024, || 0u64).shared();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    each_one!(100_000, tx, rx)
}

fn one_shared_second() -> f64 {
    let graph = Graph::new(1024, || 0u64).shared();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    let _second = ring.producer();
    each_one!(100_000, tx, rx)
}

fn one_pool() -> f64 {
    let graph = Graph::new(1024, || 0u64);
    let key = graph.pool_reader("r", 2);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    let mut workers = ring.pool_readers(key).into_iter();
    let (mut one, mut other) = (workers.next().unwrap(), workers.next().unwrap());
    either_one!(20_000, tx, one, other)
}

fn one_shards() -> f64 {
    let graph = Graph::new(1024, || 0u64);
    let key = graph.shard_reader("r", 2, |value| *value);
    let ring = graph.build().unwrap();
    let mut tx = ring.producer();
    let mut shards = ring.shard_readers(key).into_iter();
    let (mut one, mut other) = (shards.next().unwrap(), shards.next().unwrap());
    either_one!(40_000, tx, one, other)
}

fn one_tap() -> f64 {
    let graph = Graph::new(1024, || 0u64);
    let key = graph.tap("feed", 4);
    let ring = graph.build().unwrap();
    let (mut tx, tap) = (ring.producer(), ring.tap(key));
    let mut rx = tap.subscribe(StartAt::Now).unwrap();
    each_one!(100_000, tx, rx)
}

fn one_contiguous() -> f64 {
    let graph = Graph::new(1024, || 0u64).contiguous();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    each_one!(100_000, tx, rx)
}

fn one_contiguous_batches() -> f64 {
    let graph = Graph::new(1024, || 0u64).contiguous();
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.reader(key));
    batches!(1_000_000, tx, rx)
}

fn one_promise() -> f64 {
    let mut sum = 0;
    let time = parts(100_000, |call| {
        let (promise, mut answer) = slipring::promise();
        promise.fulfil(call).unwrap();
        sum += answer.wait().unwrap();
    });
    checked(time, 100_000, sum)
}

fn one_ask() -> f64 {
    let graph = Graph::new(64, || (0u64, None::<Promise<u64>>));
    let key = graph.writer("answer");
    let ring = graph.build().unwrap();
    let (mut tx, mut rx) = (ring.producer(), ring.writer(key));
    let mut sum = 0;
    let time = parts(30_000, |call| {
        let mut answer = tx.ask(|event, answer| *event = (call, Some(answer))).unwrap();
        rx.poll(8, |event, _| event.1.take().unwrap().fulfil(event.0).unwrap()).unwrap();
        sum += answer.wait().unwrap();
    });
    checked(time, 30_000, sum)
}

fn one_timeout() -> f64 {
    let (_tx, mut rx) = pair(Wait::ADAPTIVE, 8);
    timeouts!(rx)
}

fn one_timeout_blocking() -> f64 {
    let (_tx, mut rx) = pair(Wait::Blocking, 8);
    timeouts!(rx)
}

fn one_full_timeout() -> f64 {
    let (mut tx, _rx) = pair(Wait::Blocking, 8);
    full_timeouts!(tx)
}

fn one_inline() -> f64 {
    let mut sum = 0;
    let done = slipring::ring(1024, || 0u64)
        .read("one", |_, _| ())
        .read("two", |_, _| ())
        .read("three", |value, _| sum += value)
        .run_inline(|tx| {
            Ok(parts(20_000, |call| {
                tx.publish(|slot| *slot = call).unwrap();
                tx.work();
            }))
        })
        .unwrap();
    checked(done.value, 20_000, sum)
}

fn two_spinning() -> f64 {
    let (tx, rx) = pair(Wait::BusySpin, 1024);
    two_threads!(tx, rx)
}

fn two_blocking() -> f64 {
    let (tx, rx) = pair(Wait::Blocking, 1024);
    two_threads!(tx, rx)
}

fn two_adaptive() -> f64 {
    let (tx, rx) = pair(Wait::ADAPTIVE, 1024);
    two_threads!(tx, rx)
}

fn three_stages() -> f64 {
    let events = STREAMED / 20;
    wall(events, || {
        let mut sum = 0;
        slipring::ring(1024, || 0u64)
            .wait(Wait::Blocking)
            .read("one", |_, _| ())
            .read("two", |_, _| ())
            .read("three", |value, _| sum += value)
            .feed(0..events, |slot, value| *slot = value)
            .unwrap();
        sum
    })
}

fn segment() -> f64 {
    let me = attach(numbers(1024).reader("r"));
    let (mut tx, mut rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    each_one!(100_000, tx, rx)
}

fn segment_batches() -> f64 {
    let me = attach(numbers(1024).reader("r"));
    let (mut tx, mut rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    batches!(1_000_000, tx, rx)
}

fn segment_empty() -> f64 {
    let me = attach(numbers(1024).reader("r"));
    let (_tx, mut rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    empty_poll!(rx)
}

fn segment_refused() -> f64 {
    let me = attach(numbers(8).reader("r"));
    let (mut tx, _rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    refused!(tx)
}

fn segment_remaining() -> f64 {
    let me = attach(numbers(8).reader("r"));
    let (mut tx, _rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    remaining!(tx)
}

fn segment_shared() -> f64 {
    let me = attach(numbers(1024).producers(2).reader("r"));
    let (mut tx, mut rx) = (me.shared_producer().unwrap(), me.reader("r").unwrap());
    let _second = me.shared_producer().unwrap();
    each_one!(100_000, tx, rx)
}

fn segment_shared_refused() -> f64 {
    let me = attach(numbers(8).producers(2).reader("r"));
    let (mut tx, _rx) = (me.shared_producer().unwrap(), me.reader("r").unwrap());
    refused!(tx)
}

fn segment_pool() -> f64 {
    let me = attach(numbers(1024).pool_reader("r", 2));
    let mut tx = me.producer().unwrap();
    let (mut one, mut other) = (me.pool_reader("r").unwrap(), me.pool_reader("r").unwrap());
    either_one!(15_000, tx, one, other)
}

fn segment_shards() -> f64 {
    let me = attach(numbers(1024).shard_reader("r", 2, |value| value));
    let mut tx = me.producer().unwrap();
    let (mut one, mut other) = (me.shard_reader("r", 0).unwrap(), me.shard_reader("r", 1).unwrap());
    either_one!(20_000, tx, one, other)
}

fn segment_tap() -> f64 {
    let me = attach(numbers(1024).tap("feed", 4));
    let mut tx = me.producer().unwrap();
    let mut rx = me.subscribe("feed", StartAt::Now).unwrap();
    each_one!(100_000, tx, rx)
}

fn segment_writer() -> f64 {
    let me = attach(numbers(1024).writer("r"));
    let (mut tx, mut rx) = (me.producer().unwrap(), me.writer("r").unwrap());
    each_one!(100_000, tx, rx)
}

fn segment_copies() -> f64 {
    let me = numbers(1024).reader("r").build().unwrap().attach_copies().unwrap();
    let (mut tx, mut rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    let mut sum = 0;
    let time = parts(100_000, |call| {
        tx.publish(&call).unwrap();
        sum += rx.next().unwrap().0;
    });
    checked(time, 100_000, sum)
}

fn segment_blocks() -> f64 {
    let me = blocks();
    let (mut tx, mut rx) = handles!(blocks me);
    let mut sum = 0;
    let time = parts(40_000, |call| {
        tx.publish(|block| block[..8].copy_from_slice(&call.to_ne_bytes())).unwrap();
        let polled = rx.poll(8, |block, _| {
            sum += u64::from_ne_bytes(block[..8].try_into().unwrap());
        });
        assert_eq!(polled.unwrap(), 1);
    });
    checked(time, 40_000, sum)
}

fn segment_blocks_batches() -> f64 {
    let me = blocks();
    let (mut tx, mut rx) = handles!(blocks me);
    let mut sum = 0;
    let time = parts(10_000, |call| {
        let mut claim = tx.claim_n(10).unwrap();
        for offset in 0..10 {
            let value = call * 10 + offset as u64;
            claim[offset][..8].copy_from_slice(&value.to_ne_bytes());
        }
        claim.publish();
        let batch = rx.batch(10).unwrap();
        for block in batch.iter() {
            sum += u64::from_ne_bytes(block[..8].try_into().unwrap());
        }
        batch.release();
    });
    checked(time / 10.0, 100_000, sum)
}

fn segment_messages() -> f64 {
    let me = messages();
    let (mut tx, mut rx) = handles!(messages me);
    let mut sum = 0;
    let time = parts(20_000, |call| {
        tx.publish(1, &call.to_ne_bytes()).unwrap();
        rx.poll(|message| sum += u64::from_ne_bytes(message.bytes.try_into().unwrap())).unwrap();
    });
    checked(time, 20_000, sum)
}

fn segment_timeout() -> f64 {
    let me = attach(numbers(8).reader("r"));
    let (_tx, mut rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    timeouts!(rx)
}

fn segment_timeout_blocking() -> f64 {
    let me = attach(numbers(8).reader("r")).wait(Wait::Blocking).unwrap();
    let (_tx, mut rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    timeouts!(rx)
}

fn segment_full_timeout() -> f64 {
    let me = attach(numbers(8).reader("r")).wait(Wait::Blocking).unwrap();
    let (mut tx, _rx) = (me.producer().unwrap(), me.reader("r").unwrap());
    full_timeouts!(tx)
}

/// Two participants of one segment, each with a handle of its own mapping.
fn segment_two(wait: Wait) -> f64 {
    let segment = numbers(1024).reader("r").build().unwrap();
    // SAFETY: no other process has the memfd.
    let me = || unsafe { segment.attach() }.unwrap().wait(wait.clone()).unwrap();
    let (one, other) = (me(), me());
    let (tx, rx) = (one.producer().unwrap(), other.reader("r").unwrap());
    two_threads!(tx, rx)
}

fn segment_two_spinning() -> f64 {
    segment_two(Wait::BusySpin)
}

fn segment_two_blocking() -> f64 {
    segment_two(Wait::Blocking)
}

fn sizes() {
    macro_rules! size {
        ($($kind:ty),*) => {
            $(println!("{} {}", stringify!($kind), size_of::<$kind>());)*
        };
    }
    size!(Producer<u64>, SharedProducer<u64>, Reader<u64>, slipring::Writer<u64>);
    size!(slipring::PoolReader<u64>, slipring::ShardReader<u64>, slipring::Subscription<u64>);
    size!(slipring::Producer<u64, slipring::Contiguous>, slipring::Awaited<u64>);
    size!(slipring_shm::Writer<u64>, slipring_shm::Reader<u64>, slipring_shm::PoolReader<u64>);
    size!(slipring_shm::ShardReader<u64>, slipring_shm::Subscription<u64>);
    size!(slipring_shm::SharedProducer<u64>);
    let (blocks, messages) = (blocks(), messages());
    let (blocks, messages) = (handles!(blocks blocks), handles!(messages messages));
    println!("producer and reader of blocks {} {}", size_of_val(&blocks.0), size_of_val(&blocks.1));
    println!("of messages {} {}", size_of_val(&messages.0), size_of_val(&messages.1));
}

macro_rules! rows {
    ($($row:ident),* $(,)?) => {
        const ROWS: &[(&str, fn() -> f64)] = &[$((stringify!($row), $row)),*];
    };
}

rows!(
    one,
    one_batches,
    one_empty,
    one_refused,
    one_remaining,
    one_shared,
    one_shared_second,
    one_pool,
    one_shards,
    one_tap,
    one_contiguous,
    one_contiguous_batches,
    one_promise,
    one_ask,
    one_timeout,
    one_timeout_blocking,
    one_full_timeout,
    one_inline,
    segment,
    segment_batches,
    segment_empty,
    segment_refused,
    segment_remaining,
    segment_shared,
    segment_shared_refused,
    segment_pool,
    segment_shards,
    segment_tap,
    segment_writer,
    segment_copies,
    segment_blocks,
    segment_blocks_batches,
    segment_messages,
    segment_timeout,
    segment_timeout_blocking,
    segment_full_timeout,
    two_spinning,
    two_blocking,
    two_adaptive,
    three_stages,
    segment_two_spinning,
    segment_two_blocking,
);

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    match name.as_str() {
        "list" => ROWS.iter().for_each(|(name, _)| println!("{name}")),
        "sizes" => sizes(),
        "count" => {
            let row = std::env::args().nth(2).expect("a row");
            println!("{:.3}", count(&row));
        }
        _ => {
            let row = ROWS.iter().find(|(row, _)| *row == name).expect("`house list` has the rows");
            println!("{:.3}", row.1());
        }
    }
}
