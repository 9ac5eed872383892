//! Models of the protocol: loom explores every order of the threads, and every value that a load
//! may return.
//!
//! A model runs the library's code on a small ring, and loom watches one cell per event
//! (`Core::touch`). For an access that no edge orders, loom reports a causality violation; for a
//! lost wake-up, loom reports a deadlock.
//!
//! - **Least executions.** Every model sets a minimum of executions, because a model that explores
//!   nothing would pass, too.
//! - **Bounded polls.** A model that polls without waiting polls a bounded number of times. Its
//!   threads return their handles instead of dropping them: the drops would end the graph, and loom
//!   would explore each order of them, in many further executions. `ending.rs` has the models of
//!   how a graph ends.
//! - **Pure readers last.** A thread that only polls is spawned last. If a load runs after a write
//!   of the same word, loom explores all values that the load may return. If it runs before the
//!   write, loom tries the opposite order only if no third access to the word runs between the two.
//!   So a writing thread that loads the word just before its write can keep loom from trying the
//!   write before another thread's load.
//! - **Preemption bounds.** If three threads of a model sleep or execute compare-and-swap
//!   operations, the model allows only 2 or 3 preemptions in an execution, because it would take
//!   minutes to hours without a limit. A model of two producers that claim twice each allows 5.
//!   Each twin fails under its model's limit, too.
//! - **Data edges.** A data edge is a release store with the acquire loads that read its value. Its
//!   model runs under [`explore_unfenced`], which asserts that at most one thread issues `SeqCst`
//!   fences. The models of data edges through a tap (`tap.rs`) run under `explore`. PROTOCOL.md
//!   explains this ("Unfenced models").
//! - **Start.** The first event's position is 2^64 - 1 and the second event's position is 0, unless
//!   a model sets another start.
//! - **Twins.** Each edge has a *twin*: its model with one step weakened, which must fail in the
//!   way that the twin's test expects. A test that expects a deadlock also names the stages and
//!   producers that stay asleep. A twin runs in a child process, because a failing model drops
//!   handles while loom unwinds, and such a drop aborts the process.

use std::io::{BufRead, BufReader, Write, read_to_string};
use std::ops::Range;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::base::model_hooks::{choose_twin, fencing_threads};
use crate::base::panics::Contained;
use crate::base::sync::Arc;
use crate::consumer::handle::{Consumer, PoolUpdater, Reader, Updater};
use crate::errors::BatchError;
use crate::producer::{Producer, SharedProducer};
use crate::ring::build::build;
use crate::ring::core::Core;
use crate::ring::owner::Owner;
use crate::ring::settings::Settings;
use crate::ring::slots::Interleaved;
use crate::ring::spec::{Access, Delivery, StageSpec, ThreadChoice};
use crate::wait::{HandleLearner, Wait};

mod asked;
mod asleep;
mod chunks;
mod claims;
mod closing;
mod early;
mod ending;
mod executor;
mod gate;
mod gather;
mod join;
mod last_out;
mod members;
mod mortal;
mod observe;
mod passing;
mod policy;
mod pool;
mod processes;
mod promise;
mod publish;
mod publisher;
mod reactor;
mod recovery;
mod select;
mod shard;
mod shard_deaths;
mod shared_queue;
mod suspects;
mod tap;
mod task;
mod ticket;
mod tombstone;
mod wait;
mod wake_one;

/// Name of the environment variable that holds the twin's name for a child process.
const TWIN: &str = "SLIPRING_TWIN";
/// Number of executions after which a twin counts as not caught. The twin that is hardest to catch
/// takes about 190,000.
const TWIN_EXECUTIONS: usize = 2_000_000;
/// End of the line that a model prints about its executions once a minute.
const SO_FAR: &str = " executions so far";

/// Runs `model` in every order of its threads, and asserts that there are at least `least`
/// executions. `preemptions`, if given, limits the switches away from a thread that could continue.
fn explore(least: usize, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    if let Ok(twin) = std::env::var(TWIN) {
        choose_twin(twin.leak());
        asleep::print_at_a_panic();
    }
    let executions = Arc::new(AtomicUsize::new(0));
    let (counted, news) = (executions.clone(), News::default());
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    let began = Instant::now();
    builder.check(move || {
        news.tell(counted.fetch_add(1, Ordering::Relaxed));
        model();
    });
    let (executions, took) = (executions.load(Ordering::Relaxed), began.elapsed());
    println!("{executions} executions in {took:.1?}");
    // Mutation testing counts a mutant as caught if a model fails. A mutant may change a model's
    // number of executions, so the minimum is not checked for mutants.
    let mutated = std::env::var_os("SLIPRING_MUTANT").is_some();
    assert!(
        mutated || executions >= least,
        "{executions} executions are fewer than this model's minimum of {least}"
    );
}

/// Time at which the last line about a model's executions was printed. Before the first line, this
/// is the time of the model's start.
struct News(Mutex<Instant>);

impl Default for News {
    fn default() -> Self {
        Self(Mutex::new(Instant::now()))
    }
}

impl News {
    /// Prints the number of executions once a minute. `cargo xtask loom` takes such a line as
    /// progress, and takes a model without progress for one that hangs. The line goes directly to
    /// standard error, because the test harness holds printed text back.
    fn tell(&self, executions: usize) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() >= Duration::from_secs(60) {
            *last = Instant::now();
            let _ = writeln!(std::io::stderr(), "{executions}{SO_FAR}");
        }
    }
}

/// Runs the model of a data edge as [`explore`] does, and asserts that in each execution at most
/// one thread issues a `SeqCst` fence.
///
/// loom lets two `SeqCst` fences synchronise, which C++20 does not promise. So fences in two
/// threads of a model can hide a missing edge between these threads. The handles that the model
/// returns are dropped only after the count of the threads that fence. A fence in such a drop hides
/// nothing, because no other thread runs then.
fn explore_unfenced<T>(
    least: usize,
    preemptions: Option<usize>,
    model: impl Fn() -> T + Send + Sync + 'static,
) {
    explore(least, preemptions, move || {
        fencing_threads();
        let kept = model();
        let threads = fencing_threads();
        drop(kept);
        assert!(threads < 2, "{threads} threads issue SeqCst fences, which loom lets synchronise");
    });
}

/// The kind of failure that a model must show when one step is weakened.
#[derive(Clone, Copy)]
enum Caught {
    /// Two unordered accesses to one event.
    Race,
    /// A deadlock. The field lists all parties that the deadlock leaves asleep. Each entry is a
    /// stage's name, or `producer`.
    Deadlock(&'static [&'static str]),
    /// A panic whose message contains the given text. The panic comes from an assertion of the
    /// model, or from the library.
    Message(&'static str),
}

/// Waits for the end of `child`, and returns its standard output and standard error. Passes on each
/// line about executions at once, because the child's progress is this process's progress, too.
fn heard(mut child: Child) -> (ExitStatus, String, String) {
    let (out, err) = (child.stdout.take().expect("a pipe"), child.stderr.take().expect("a pipe"));
    let out = std::thread::spawn(move || read_to_string(out).expect("text"));
    let mut text = String::new();
    for line in BufReader::new(err).lines() {
        let line = line.expect("text");
        if line.ends_with(SO_FAR) {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        text += &line;
        text.push('\n');
    }
    let out = out.join().expect("the output of the child process");
    (child.wait().expect("the end of the child process"), out, text)
}

/// Runs `model` (a test's path below this module) with the step `twin` weakened, and asserts that
/// the model fails in the way `how`.
fn caught(model: &str, twin: &str, how: Caught) {
    let expected = match how {
        Caught::Race => "Causality violation",
        Caught::Deadlock(_) => "deadlock; threads",
        Caught::Message(text) => text,
    };
    let (_, here) = module_path!().split_once("::").expect("a module inside a crate");
    let child = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "--nocapture", "--test-threads=1", &format!("{here}::{model}")])
        .env(TWIN, twin)
        // The limit counts executions. A time limit would catch fewer twins on a busy machine.
        .env("LOOM_MAX_PERMUTATIONS", TWIN_EXECUTIONS.to_string())
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a child process");
    let (status, out, err) = heard(child);
    assert!(out.contains("running 1 test"), "there is no model `{model}`:\n{out}");
    // The first panic message says why the model failed; later panics come from the unwinding.
    let reason = err.split("panicked at").nth(1).unwrap_or_default();
    assert!(!status.success(), "the model `{model}` does not catch `{twin}`:\n{out}");
    assert!(reason.contains(expected), "`{twin}` fails, but not with `{expected}`:\n{out}{err}");
    if let Caught::Deadlock(parties) = how {
        assert!(
            asleep::are_asleep(reason, parties),
            "`{twin}` leaves other parties asleep than {parties:?}:\n{out}{err}"
        );
    }
}

/// A model's ring. By convention, each event's value is its position, counted from the ring's first
/// event.
type Ring = Owner<u64, Interleaved>;

/// A model's stage: its access, its number of workers (0: not a pool), and its dependencies.
type Spec<'a> = (Access, usize, &'a [usize]);

/// First position of a model's ring: 2^64 - 1, so that the next position is 0.
const START: u64 = u64::MAX;

fn settings(capacity: usize) -> Settings {
    // A handle that spins needs no notification. Models in which handles sleep use `blocking`.
    Settings { start: START, wait: Contained::new(Wait::BusySpin), ..Settings::new(capacity) }
}

fn blocking(capacity: usize) -> Settings {
    Settings { start: START, wait: Contained::new(Wait::Blocking), ..Settings::new(capacity) }
}

fn shared(settings: Settings) -> Settings {
    Settings { many_producers: true, ..settings }
}

fn ring(settings: Settings, stages: &[Spec]) -> Ring {
    let delivery = |workers| if workers == 0 { Delivery::Each } else { Delivery::pool(workers) };
    ring_of(
        settings,
        stages.iter().map(|&(access, workers, after)| (access, delivery(workers), after)),
    )
}

/// Builds a ring as [`ring`] does, from stages of any [`Delivery`].
fn ring_of<'a>(
    settings: Settings,
    stages: impl IntoIterator<Item = (Access, Delivery, &'a [usize])>,
) -> Ring {
    build(settings, named(stages), Vec::new(), &mut || u64::MAX).expect("a sound graph")
}

fn named<'a>(stages: impl IntoIterator<Item = (Access, Delivery, &'a [usize])>) -> Vec<StageSpec> {
    let named = |(i, (access, delivery, after)): (usize, (Access, Delivery, &[usize]))| {
        StageSpec::new(&format!("s{i}"), access, delivery, after)
    };
    stages.into_iter().enumerate().map(named).collect()
}

fn producer(ring: &Ring) -> Producer<u64> {
    Producer::new(ring.clone(), HandleLearner::default())
}

fn shared_producer(ring: &Ring) -> SharedProducer<u64> {
    Producer::new(ring.clone(), HandleLearner::default())
}

fn reader(ring: &Ring, stage: usize) -> Reader<u64> {
    Consumer::every(ring.clone(), stage, HandleLearner::default())
}

fn writer(ring: &Ring, stage: usize) -> Updater<u64> {
    Consumer::every(ring.clone(), stage, HandleLearner::default())
}

fn worker(ring: &Ring, stage: usize, worker: usize) -> PoolUpdater<u64> {
    Consumer::worker(ring.clone(), stage, worker, HandleLearner::default())
}

/// Returns the batch of a poll without waiting: `None` if no event was available or another worker
/// took the event. Panics on any error but [`BatchError::Unavailable`] and
/// [`BatchError::Contended`].
fn available<T>(polled: Result<T, BatchError>) -> Option<T> {
    match polled {
        Ok(found) => Some(found),
        Err(BatchError::Unavailable | BatchError::Contended) => None,
        Err(other) => panic!("a poll without waiting: {other}"),
    }
}

/// Publishes `values` in order, with at most `tries` attempts in total. Returns the first
/// unpublished value.
fn publish_some(tx: &mut Producer<u64>, values: Range<u64>, tries: usize) -> u64 {
    let mut next = values.start;
    for _ in 0..tries {
        if next < values.end && tx.try_publish(|event| *event = next).is_ok() {
            next += 1;
        }
    }
    next
}

/// Polls `polls` times, and returns the number of events. Asserts that each event's value is its
/// position, counted from the ring's first event.
fn read_some(reader: &mut Reader<u64>, polls: usize) -> usize {
    let mut seen = 0;
    for _ in 0..polls {
        seen += reader
            .poll(4, |event, at| {
                assert_eq!(*event, at.seq.wrapping_sub(START), "the event at {}", at.seq)
            })
            .unwrap();
    }
    seen
}
