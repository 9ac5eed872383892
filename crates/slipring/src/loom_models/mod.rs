//! The protocol under the model checker: every order of the threads, and every value that a load
//! may come back with.
//!
//! A model runs the real code on a small ring. Events stand for cells that the checker watches
//! (`Core::touch`), so an access that no edge orders is reported as a causality violation, and a
//! lost wake-up as a deadlock. Such a twin names the parties that its deadlock leaves asleep.
//!
//! - Every model states the least number of executions that it takes: one that explores nothing
//!   passes too.
//! - A model that looks without waiting looks a bounded number of times; whoever is through early
//!   hands its handle back, so that the endings, which have models of their own, do not multiply
//!   the others.
//! - Whoever only looks is spawned last. The checker goes back to a look only if a later write
//!   *directly* follows it: where a writer reads the word itself before it swaps it, its own look
//!   hides the other one. From a write to a later look it always goes back.
//! - Where the search is bounded to 2 or 3 preemptions it would take minutes or hours without:
//!   three threads that sleep, or swap. Every twin is caught under the bound of its model.
//! - A model of a data edge runs under [`explore_unfenced`]: at most one of its threads fences.
//!   PROTOCOL.md lists them ("Edges without fences").
//! - Rings start one position before the wrap, unless a model says otherwise.
//! - Each edge has a weakened twin: the same model with one step wrong, and it must fail for the
//!   reason that the twin names. A failing model drops handles in the middle of the checker's own
//!   unwinding, which ends the process; so a twin runs in a child.

use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::base::panics::Contained;
use crate::base::sync::{Arc, choose_twin, fencing_threads};
use crate::consumer::handle::{Consumer, PoolWriter, Reader, Writer};
use crate::errors::BatchError;
use crate::producer::{Producer, SharedProducer};
use crate::ring::build::build;
use crate::ring::core::{Core, Settings};
use crate::ring::owner::Owner;
use crate::ring::slots::Interleaved;
use crate::ring::spec::{Access, Delivery, StageSpec};
use crate::wait::{Learned, Wait};
pub(crate) use asleep::asleep;

mod asleep;
mod ending;
mod gate;
mod join;
mod observe;
mod policy;
mod pool;
mod publish;
mod select;
mod shard;
mod tap;
mod task;
mod tombstone;
mod wait;

/// The variable by which a child process is told which twin to run.
const TWIN: &str = "SLIPRING_TWIN";

/// Runs `model` in every order that differs, or in those with at most `preemptions` preemptions:
/// switches away from a thread that could have gone on.
fn explore(least: usize, preemptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    if let Ok(twin) = std::env::var(TWIN) {
        choose_twin(twin.leak());
        asleep::print_at_a_panic();
    }
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    let began = Instant::now();
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let (executions, took) = (executions.load(Ordering::Relaxed), began.elapsed());
    println!("{executions} executions in {took:.1?}");
    // Where an ordering was mutated, fewer executions are no catch.
    let mutated = std::env::var_os("SLIPRING_MUTANT").is_some();
    assert!(
        mutated || executions >= least,
        "{executions} executions are fewer than the {least} that this model takes"
    );
}

/// As [`explore`], of a model that shows a data edge without fences: in each execution at most one
/// thread issues a `SeqCst` fence. The checker lets two `SeqCst` fences synchronise, which C++20
/// does not promise, so a fence in each of two threads could hide an edge that is missing. What the
/// model returns is dropped after that is checked: dropping the last handles fences, and no other
/// thread runs then.
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
        assert!(
            threads < 2,
            "{threads} threads issue SeqCst fences, which the checker lets synchronise"
        );
    });
}

/// How a twin shows itself.
#[derive(Clone, Copy)]
enum Caught {
    /// An event is touched by two, and nothing orders them.
    Race,
    /// A deadlock that leaves exactly these parties asleep: stages by name, or `producer`; a party
    /// once for each of its waits.
    Deadlock(&'static [&'static str]),
    /// An assertion of the model, or a panic of the library, that says this.
    Saying(&'static str),
}

/// Runs `model`, a test's path below this module, with the step `twin` weakened, and expects it to
/// be caught.
fn caught(model: &str, twin: &str, how: Caught) {
    let expected = match how {
        Caught::Race => "Causality violation",
        Caught::Deadlock(_) => "deadlock; threads",
        Caught::Saying(text) => text,
    };
    let (_, here) = module_path!().split_once("::").expect("a module inside a crate");
    let child = Command::new(std::env::current_exe().expect("the path of this program"))
        .args(["--exact", "--nocapture", "--test-threads=1", &format!("{here}::{model}")])
        .env(TWIN, twin)
        // A twin that takes longer than this was not caught.
        .env("LOOM_MAX_DURATION", "200")
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("a child process");
    let (out, err) =
        (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(out.contains("running 1 test"), "there is no model `{model}`:\n{out}");
    // What comes after the first panic comes from the unwinding.
    let reason = err.split("panicked at").nth(1).unwrap_or_default();
    assert!(!child.status.success(), "the model `{model}` does not catch `{twin}`:\n{out}");
    assert!(reason.contains(expected), "`{twin}` fails, but not with `{expected}`:\n{out}{err}");
    if let Caught::Deadlock(parties) = how {
        assert!(
            asleep::are_asleep(reason, parties),
            "`{twin}` leaves other parties asleep than {parties:?}:\n{out}{err}"
        );
    }
}

/// A ring of a model: its events are their own positions, counted from the first.
type Ring = Owner<u64, Interleaved>;

/// A stage of a model: whether it writes, how many workers it has (0: it is no pool), and after
/// which stages it comes.
type Spec<'a> = (Access, usize, &'a [usize]);

/// One position before the wrap.
const START: u64 = u64::MAX;

fn settings(capacity: usize) -> Settings {
    // Nobody is ever rung, unless a model is about waiting.
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

/// As [`ring`], with any crews.
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
    Producer::new(ring.clone(), Learned::default())
}

fn shared_producer(ring: &Ring) -> SharedProducer<u64> {
    Producer::new(ring.clone(), Learned::default())
}

fn reader(ring: &Ring, stage: usize) -> Reader<u64> {
    Consumer::every(ring.clone(), stage, Learned::default())
}

fn writer(ring: &Ring, stage: usize) -> Writer<u64> {
    Consumer::every(ring.clone(), stage, Learned::default())
}

fn worker(ring: &Ring, stage: usize, worker: usize) -> PoolWriter<u64> {
    Consumer::worker(ring.clone(), stage, worker, Learned::default())
}

/// Whether a look without waiting found nothing; anything but nothing or the loss of a race is
/// unexpected.
fn nothing<T>(looked: Result<T, BatchError>) -> Option<T> {
    match looked {
        Ok(found) => Some(found),
        Err(BatchError::Unavailable | BatchError::Contended) => None,
        Err(other) => panic!("a look without waiting: {other}"),
    }
}

/// Publishes these values in turn, in so many tries; returns the first that did not get through.
fn publish_some(tx: &mut Producer<u64>, values: Range<u64>, tries: usize) -> u64 {
    let mut next = values.start;
    for _ in 0..tries {
        if next < values.end && tx.try_publish(|event| *event = next).is_ok() {
            next += 1;
        }
    }
    next
}

/// Reads what is there, `polls` times, and says how many events that were; each event is its own
/// position, counted from the first.
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
