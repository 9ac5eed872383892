//! Misuses that a build or a call refuses: the whole message, which says what to do. The guide's
//! page of misuses has a row for each. `must_fail.rs` has the misuses that the compiler finds.

mod common;
#[path = "common/page.rs"]
mod page;

use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use slipring::faults::Marks;
use slipring::handles::StartAt;
use slipring::markers::{Branch, FanOut, Interleaved};
use slipring::{Chain, Graph, OnFault, Pool, Tap, Wait, ring, unicast};

/// A misuse: what the user writes, the whole message, the remedy, and the program.
struct Misuse(&'static str, &'static str, &'static str, fn() -> String);

fn numbers(capacity: usize) -> Chain<'static, u64> {
    ring(capacity, || 0u64)
}

/// Feeds a chain that cannot start.
fn fed(chain: Chain<'_, u64>) -> String {
    error(chain.feed(0..3, |slot, i| *slot = i))
}

fn error<T, E: Display>(result: Result<T, E>) -> String {
    result.err().expect("an error").to_string()
}

/// Returns the message of a program's panic.
fn panic(program: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(program)).expect_err("a panic");
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).expect("a message")
}

/// Returns what the program prints if `main` returns the error.
fn printed_by_main<T, E: Debug>(result: Result<T, E>) -> String {
    format!("Error: {:?}", result.err().expect("an error"))
}

/// A misuse of which a running program gets a warning.
const NEVER_RELEASED: [&str; 3] = [
    "take batch after batch, without a release",
    "`reader` got the batch at event 1 a hundred times in a row. A batch that is dropped is lent \
     again: give its events back by `release`, or take events by `for_each`, which releases them \
     itself",
    "`release`, or `for_each`",
];

const MISUSES: &[Misuse] = &[
    Misuse(
        "a ring of 1,000 slots",
        "the capacity 1000 is not a power of two: take 512 or 1024",
        "a power of two",
        || fed(numbers(1000).read("print", |_, _| ())),
    ),
    Misuse(
        "a ring without slots",
        "the capacity is 0: take a power of two, at least 1",
        "a power of two",
        || fed(numbers(0).read("print", |_, _| ())),
    ),
    Misuse(
        "a `main` that returns the error",
        "Error: the capacity 1000 is not a power of two: take 512 or 1024",
        "the message says it: `Debug` of an error is its message",
        || printed_by_main(numbers(1000).read("print", |_, _| ()).feed(0..3, |s, i| *s = i)),
    ),
    Misuse(
        "two stages of one name",
        "two stages are named `log`: rename one, so that reports can tell them apart",
        "another name",
        || fed(numbers(8).read("log", |_, _| ()).read("log", |_, _| ())),
    ),
    Misuse(
        "a pool without workers",
        "stage `print` cannot have 0 workers or shards: take 1 to 8 on a ring of 8 slots",
        "at least one worker, and at most as many as slots",
        || fed(numbers(8).read_pool("print", 0, |_worker| |_, _| ())),
    ),
    Misuse(
        "feed a chain without stages",
        "the chain has no stage, so its events would be overwritten unseen: declare one, such as \
         `.read(\"print\", |event, _| ...)`",
        "a stage",
        || fed(numbers(8)),
    ),
    Misuse(
        "an option of a stage, before the stage",
        "`max_batch` must follow the stage that it is for",
        "the option after its stage",
        || fed(numbers(8).max_batch(4).read("print", |_, _| ())),
    ),
    Misuse(
        "an option of a stage, behind the fan-out that the stage is in",
        "`max_batch` follows a fan-out: put it inside, behind the stage that it is for",
        "the option inside, after its stage",
        || {
            let side = |side: Chain<'static, u64, _, _>| {
                side.read("log", |_, _| ()).read("send", |_, _| ())
            };
            fed(numbers(8).fan_out(side).max_batch(4))
        },
    ),
    Misuse(
        "`contiguous`, after a stage",
        "`contiguous` must come before the first stage, and `print` is declared already",
        "`contiguous` first",
        || error(numbers(8).read("print", |_, _| ()).contiguous().feed(0..3, |s, i| *s = i)),
    ),
    Misuse(
        "a stage of a graph that writes, beside one that reads",
        "stage `double` may update events and is not ordered with stage `log`: let one follow the other \
         (`after`), or let `double` only read",
        "`after`",
        || {
            let graph = Graph::new(8, || 0u64);
            let _keys = (graph.reader("log"), graph.updater("double"));
            error(graph.build())
        },
    ),
    Misuse(
        "a stage of a graph, without keeping its key",
        "the key of stage `log` was dropped, so no handle can attach and the ring would stay full: \
         keep the key, and attach with it",
        "keep the key",
        || {
            let graph = Graph::new(8, || 0u64);
            _ = graph.reader("log");
            error(graph.build())
        },
    ),
    Misuse(
        "order the stages of a graph that is built",
        "stage `log` cannot be put after `parse`: the graph was built already; call this before \
         `build`",
        "`after` before `build`",
        || {
            let graph = Graph::new(8, || 0u64);
            let (parse, log) = (graph.reader("parse"), graph.reader("log"));
            let _ring = graph.build().unwrap();
            panic(|| drop(log.after(&parse)))
        },
    ),
    Misuse(
        "a handle for the key of another graph",
        "the key of stage `log` belongs to another graph: give it to the ring that its own graph \
         was built into",
        "the ring of the same graph",
        || {
            let (graph, other) = (Graph::new(8, || 0u64), Graph::new(8, || 0u64));
            let (key, _print) = (graph.reader("log"), other.reader("print"));
            let ring = other.build().unwrap();
            panic(|| drop(ring.reader(key)))
        },
    ),
    Misuse(
        "two producers of a graph",
        "this ring has one producer, and it was taken already; declare the graph `shared()` for \
         several",
        "`shared()`",
        || {
            let graph = Graph::new(8, || 0u64);
            let _log = graph.reader("log");
            let ring = graph.build().unwrap();
            let _first = ring.producer();
            panic(|| drop(ring.producer()))
        },
    ),
    Misuse(
        "handlers for a graph, and forget one",
        "stage `log` has no handler: give its key to `Handlers::read` or the like, or exchange the \
         key for a handle before `Ring::handlers`",
        "a handler for each key",
        || {
            let graph = Graph::new(8, || 0u64);
            let _log = graph.reader("log");
            error(graph.build().unwrap().handlers().feed(0..3, |slot, i| *slot = i))
        },
    ),
    Misuse(
        "a factory that makes no event",
        "the factory of events panicked at event 0: no file; return an event there, and fill it \
         when it is published",
        "an empty event, filled at its publication",
        || error(unicast(8, || -> u64 { panic!("no file") })),
    ),
    Misuse(
        "publish without waiting, and `unwrap`, while the ring is full",
        "called `Result::unwrap()` on an `Err` value: the ring is full, because stage `reader` is \
         2 events behind: try again when it has released some",
        "`publish`, which waits; or handle the error",
        || {
            let (mut tx, _rx) = unicast(2, || 0u64).unwrap();
            panic(|| (0..3).for_each(|i| _ = tx.try_publish(|slot| *slot = i).unwrap()))
        },
    ),
    Misuse(
        "claim more slots than the ring has",
        "cannot claim 9 slots at once: claim 1 to 8 slots on this ring",
        "smaller claims, or a larger ring",
        || {
            let (mut tx, _rx) = unicast(8, || 0u64).unwrap();
            error(tx.claim_n(9))
        },
    ),
    Misuse(
        "publish from a handler, into the full ring of its own stage",
        "this call would wait for ever: it needs a release by stage `reader`, which only the \
         calling thread can make; release events there first",
        "another ring, or `try_publish`",
        || {
            let (mut tx, mut rx) = unicast(2, || 0u64).unwrap();
            (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i));
            let (mut tx, mut told) = (Some(tx), String::new());
            rx.for_each(|_, _| {
                tx.take().into_iter().for_each(|mut tx| told = error(tx.publish(|_| ())));
            })
            .unwrap();
            told
        },
    ),
    Misuse(
        "more events, while the handle holds the whole ring",
        "this call would wait for ever: it needs a release by stage `reader`, which only the \
         calling thread can make; release events there first",
        "`release_until` before the next batch",
        || {
            let (mut tx, mut rx) = unicast(2, || 0u64).unwrap();
            (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i));
            rx.batch(2).unwrap().hold();
            error(rx.batch(2).map(|_| ()))
        },
    ),
    Misuse(
        "publish after the reader was dropped",
        "the graph has ended: stage `reader` was dropped at event 0 before the stream ended: keep \
         its handle until a call returns `Closed`",
        "keep the reader until its stream ends",
        || {
            let (mut tx, rx) = unicast(2, || 0u64).unwrap();
            drop(rx);
            error(tx.publish(|slot| *slot = 1))
        },
    ),
    Misuse(
        "publish by a clone, after another closed the ring",
        "the ring is closed: it takes no event any more, and has none left for this handle; drop it",
        "publish first, and close last",
        || {
            let (tx, _pipeline) = numbers(8).read("print", |_, _| ()).spawn_shared().unwrap();
            let mut late = tx.clone();
            tx.close_all();
            error(late.publish(|slot| *slot = 1))
        },
    ),
    Misuse(
        "join while a producer is open, with a limit",
        "stage `print` is still running, with 0 events left: close the producers, or halt the \
         pipeline; if that is done, its handler has not returned",
        "`close` or drop each producer before the join",
        || {
            let chain = numbers(8).read("print", |_, _| ());
            let (_tx, pipeline) = chain.spawn().unwrap();
            error(pipeline.join_within(Duration::from_millis(1)))
        },
    ),
    Misuse(
        "join while a producer is open, in a graph with a deadline",
        "stage `print` was still waiting at event 0 when the graph's deadline of 1ms passed: close \
         the producers if no event will come, find in the report the stage that it waited for, or \
         allow more time",
        "`close` or drop each producer before the join",
        || {
            let chain = numbers(8).deadline(Duration::from_millis(1));
            let (_tx, pipeline) = chain.read("print", |_, _| ()).spawn().unwrap();
            error(pipeline.join())
        },
    ),
    Misuse(
        "a stage that joins its own pipeline",
        "stage `print` failed: a stage cannot wait for its own pipeline to end: join on another \
         thread",
        "join where the pipeline was spawned",
        || {
            let ((send, pipelines), (tell, told)) = (mpsc::channel(), mpsc::channel());
            let join = move |_: &u64, _| {
                let pipeline: slipring::Pipeline = pipelines.recv().unwrap();
                tell.send(error(pipeline.join())).unwrap();
            };
            let (mut tx, pipeline) = numbers(8).read("print", join).spawn().unwrap();
            send.send(pipeline).unwrap();
            tx.publish(|slot| *slot = 1).unwrap();
            told.recv().unwrap()
        },
    ),
    Misuse(
        "release a position, before asking for one",
        "this handle holds no position, so not 0: call `next` first",
        "`next`, then `done`",
        || {
            let (_tx, rx) = unicast(8, || 0u64).unwrap();
            error(rx.into_raw().done(0))
        },
    ),
    Misuse(
        "join a tap before its graph runs",
        "no graph with this tap or pool is running: join between the graph's start and its end",
        "`subscribe` after `spawn`, or inside `run`",
        || error(Tap::<u64>::new().subscribe(StartAt::Now)),
    ),
    Misuse(
        "join a pool that has all the workers that it has room for",
        "all 1 seats are taken: wait until a reader of the tap or a worker of the pool leaves, or \
         declare the tap or the pool with more room (`Tap::room`, `Key::room`, `Pool::reading(n)`, \
         `Pool::updating(n)`)",
        "`Pool::updating(n)` of `open`, or `Key::room`: the first workers count, too",
        || {
            let graph = Graph::new(8, || 0u64);
            let key = graph.pool_reader("print", 1);
            let ring = graph.build().unwrap();
            let workers = ring.pool_readers(key);
            error(workers[0].pool().join())
        },
    ),
    Misuse(
        "a wait strategy by a name that none has",
        "`spinning` is not a wait strategy: choose one of busy-spin, yielding, sleeping, blocking, \
         phased-backoff, alternating-yield-block, alternating-spin-block, \
         alternating-yield-sleep, alternating-spin-sleep, adaptive, timeout",
        "one of the names that the message lists",
        || error("spinning".parse::<Wait>()),
    ),
];

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
const SEGMENTS: &[Misuse] = &[
    Misuse(
        "a segment whose name is a path",
        "segment \"fields/one\": the name has a slash: leave it out, or give a whole path \
         (`create_at`, `open_at`)",
        "`create_at`",
        || error(Segment::create("fields/one").capacity(8).reader("log").build()),
    ),
    Misuse(
        "make a segment that exists",
        "segment /dev/shm/field.slipring: it exists already: open it instead, or remove it if no \
         process uses it (`slipring rm`)",
        "`open`",
        || named(|name| error(Segment::create(name).capacity(8).reader("log").build())),
    ),
    Misuse(
        "open a segment before it is made",
        "segment /dev/shm/misused.slipring: there is none: start the program that makes it first, \
         and compare the names (`slipring ls`)",
        "start the program that makes it first",
        || error(Segment::open("misused")),
    ),
    Misuse(
        "open a segment with another type of events",
        "segment memfd \"numbers\": the name of its events is `u64`, and this program's is `f32`: \
         build both programs with one definition of the event, or take another name",
        "one definition of the event for both programs",
        || error(slipring_shm::Segment::<f32>::open_memfd(made().memfd().unwrap(), "numbers")),
    ),
    Misuse(
        "the handle of a stage that the segment does not have",
        "segment (memfd): it has no stage `print`; its stages are: log",
        "one of the names that the message lists",
        || attached(|segment| error(segment.reader("print"))),
    ),
    Misuse(
        "write in a stage that was declared as a reader",
        "segment (memfd): stage `log` was declared as a reader: ask for it by `reader` (a pool: \
         `pool_reader`; shards: `shard_reader`)",
        "`reader`, or declare it by `updater`",
        || attached(|segment| error(segment.updater("log"))),
    ),
    Misuse(
        "a second reader of one stage, while the first one lives",
        "segment (memfd): process 7 runs `log` and is alive: end it first, or wait until it leaves \
         (`slipring ls`)",
        "another stage, a pool or a tap; or end the first process",
        || {
            let pid = std::process::id().to_string();
            attached(|segment| {
                let _first = segment.reader("log").unwrap();
                error(segment.reader("log")).replace(&pid, "7")
            })
        },
    ),
];

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
const SEGMENTS: &[Misuse] = &[];

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
use segments::*;

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod segments {
    use slipring_shm::Attached;

    pub type Segment = slipring_shm::Segment<u64>;

    pub fn made() -> Segment {
        Segment::create_memfd("numbers").capacity(8).reader("log").build().unwrap()
    }

    pub fn attached(program: impl FnOnce(&Attached<u64>) -> String) -> String {
        // SAFETY: no other process has the memfd.
        program(&unsafe { made().attach() }.unwrap())
    }

    /// Calls a program with the name of a segment that exists. In the message, the name is `field`.
    pub fn named(program: impl FnOnce(&str) -> String) -> String {
        let name = format!("misused-{}", std::process::id());
        let segment = Segment::create(&name).capacity(8).reader("log").build().unwrap();
        let message = program(&name);
        drop(segment);
        slipring_shm::remove(&name).unwrap();
        message.replace(&name, "field")
    }
}

#[test]
fn each_message_says_what_to_do() {
    let _watched = crate::common::watched();
    let mut wrong = String::new();
    for Misuse(writes, says, _, program) in MISUSES.iter().chain(SEGMENTS) {
        let told = program();
        if told != *says {
            wrong += &format!("---- {writes}\nmust say {says}\nbut says {told}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
#[cfg(debug_assertions)]
fn a_loop_that_releases_no_batch_is_warned_of_once() {
    let _watched = crate::common::watched();
    static GIVEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    assert!(slipring::waiting::on_warning(|warning| {
        if matches!(warning, slipring::waiting::Warning::NeverReleased { .. }) {
            GIVEN.lock().unwrap().push(warning.to_string());
        }
    }));
    let (mut tx, mut rx) = unicast(4, || 0u64).unwrap();
    (0..2).for_each(|i| _ = tx.publish(|slot| *slot = i));
    for first in 0..2 {
        // The release between the two rounds begins the count anew.
        (0..98).for_each(|_| assert_eq!(rx.batch(4).unwrap().first_seq(), first));
        if first == 0 {
            rx.batch(1).unwrap().release();
        }
    }
    assert_eq!(rx.batch(4).unwrap().len(), 1);
    assert!(GIVEN.lock().unwrap().is_empty());
    (0..200).for_each(|_| assert_eq!(rx.batch(4).unwrap().len(), 1));
    assert_eq!(*GIVEN.lock().unwrap(), [NEVER_RELEASED[1]]);
}

/// An option belongs to the stage before it, never to a stage inside of a fan-out that has ended,
/// or before a fan-out that begins.
#[test]
fn an_option_that_follows_no_stage_is_refused() {
    let _watched = crate::common::watched();
    type Side<'a, P> = Chain<'a, u64, Interleaved, P>;
    macro_rules! each_option {
        ($($option:ident($($value:expr),*) )*) => {
            $(
                let behind = |what: &str| {
                    let option = stringify!($option);
                    format!("`{option}` follows {what}: put it inside, behind the stage that it is for")
                };
                let side = |side: Side<'static, FanOut>| side.read("log", |_, _| ());
                let told = fed(numbers(8).fan_out(side).$option($($value),*));
                assert_eq!(told, behind("a fan-out"));
                let told = fed(numbers(8).fan_out(|x| x.fan_out(side).$option($($value),*)));
                assert_eq!(told, behind("a fan-out"));
                let branch = |branch: Side<'static, Branch>| branch.read("log", |_, _| ());
                let told = fed(numbers(8).fan_out(|x| x.branch(branch).$option($($value),*)));
                assert_eq!(told, behind("a branch"));
                let before = || numbers(8).read("before", |_, _| ());
                for told in [
                    fed(before().fan_out(|x| side(x.$option($($value),*)))),
                    fed(before().fan_out(|x| x.branch(|x| branch(x.$option($($value),*))))),
                ] {
                    assert!(told.contains(stringify!($option)), "{told}");
                    assert!(told.contains("must follow the "), "{told}");
                }
            )*
        };
    }
    each_option! {
        on_error(OnFault::skip())
        on_error_with(|_| OnFault::skip())
        on_panic(OnFault::skip())
        on_panic_with(|_| OnFault::skip())
        marks(&Marks::new())
        max_batch(4)
        batch_within(4, Duration::from_millis(1))
        idle_every(Duration::from_millis(1))
        stage_wait(Wait::SLEEPING)
        on("thread")
        open(&Pool::reading(2))
    }
    // Behind a stage that follows the fan-out, the option is for that stage.
    let side = |side: Side<'static, FanOut>| side.read("log", |_, _| ()).max_batch(4);
    let chain = numbers(8).fan_out(side).read("end", |_, _| ()).max_batch(4);
    assert_eq!(chain.feed(0..3, |slot, i| *slot = i).unwrap().value, 3);
}

#[test]
fn the_guide_has_a_row_for_each_misuse() {
    let _watched = crate::common::watched();
    let row = |&Misuse(writes, says, remedy, _): &Misuse| page::Row {
        writes: writes.to_owned(),
        says: vec![says.to_owned()],
        remedy: remedy.to_owned(),
    };
    let [writes, says, remedy] = NEVER_RELEASED.map(str::to_owned);
    page::assert_has("A running program warns", &[page::Row { writes, says: vec![says], remedy }]);
    page::assert_has("A call returns an error", &MISUSES.iter().map(row).collect::<Vec<_>>());
    if !SEGMENTS.is_empty() {
        page::assert_has("Between processes", &SEGMENTS.iter().map(row).collect::<Vec<_>>());
    }
}
