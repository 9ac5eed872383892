//! Contenders on virtual cores, and how they are run there.
//!
//! - I1: A run is a function of the machine, its seed and the contender: a contender gets no real
//!   time and no other input.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use peers_unchanged::{Build, Host, Spec, Threads, expected, slipring_threads};
use slipring_coherence::{
    Machine, Placement, Report, Simulation, begin_measuring, own_lines, sync, work,
};

#[path = "hand/mod.rs"]
pub mod hand;

/// Number and sum of the events that the consumers of the run have received.
static DONE: Mutex<(u64, u64)> = Mutex::new((0, 0));

fn with_done<T>(f: impl FnOnce(&mut (u64, u64)) -> T) -> T {
    f(&mut DONE.lock().unwrap_or_else(PoisonError::into_inner))
}

const HOST: Host = Host {
    pause: sync::spin_loop,
    work: |nanos| work(Duration::from_nanos(nanos)),
    begin: begin_measuring,
    done: |count, sum| {
        with_done(|done| *done = (done.0 + count, done.1.wrapping_add(sum)));
    },
};

slipring_threads!(
    /// Returns the threads of the library that is compiled for the simulator.
    build_slipring, slipring_simulated, polls: false
);

/// Returns one thread, which builds a ring and starts the others: a graph asks the machine for its
/// cores when it is built, so it is built within the simulation.
pub fn slipring(spec: Spec, _: Host) -> Option<Threads> {
    let body = move || {
        let mut threads = build_slipring(spec, HOST).expect("slipring has each shape");
        let all = threads.len();
        let arrived = Arc::new(sync::Mutex::new(0));
        let (_, first) = threads.remove(0);
        sync::scope(|scope| {
            for (name, body) in threads {
                let arrived = arrived.clone();
                let body = move || {
                    wait_for_all(&arrived, all);
                    body();
                };
                let builder = sync::Builder::new().name(name);
                builder.spawn_scoped(scope, body).expect("each thread has a core");
            }
            wait_for_all(&arrived, all);
            first();
        });
    };
    Some(vec![("producer 0".to_owned(), Box::new(body))])
}

/// Waits until all threads have been started, which takes long on the core that starts them.
fn wait_for_all(arrived: &sync::Mutex<usize>, all: usize) {
    let count = |more| {
        let mut arrived = arrived.lock().expect("no thread panics under the lock");
        *arrived += more;
        *arrived
    };
    count(1);
    while count(0) < all {
        sync::sleep(Duration::from_micros(20));
    }
}

/// Runs a contender. Returns `None` if it has not this shape.
///
/// The run has a system thread for itself, so that it finds nothing in thread-locals.
///
/// # Errors
///
/// If the run fails, or the consumers have not received what they should.
pub fn run(
    machine: &Machine,
    placement: Placement,
    spec: Spec,
    build: Build,
) -> Result<Option<Report>, String> {
    let run = || run_here(machine, placement, spec, build);
    let ended = thread::scope(|scope| scope.spawn(run).join());
    ended.unwrap_or_else(|_| Err("the contender cannot be built".to_owned()))
}

fn run_here(
    machine: &Machine,
    placement: Placement,
    spec: Spec,
    build: Build,
) -> Result<Option<Report>, String> {
    let Some(threads) = own_lines(|| build(spec, HOST)) else { return Ok(None) };
    with_done(|done| *done = (0, 0));
    let mut simulation = Simulation::new(machine).place(placement);
    for (name, body) in threads {
        simulation = simulation.thread(name, body);
    }
    let report = simulation.run().map_err(|error| error.to_string())?;
    let (done, all) = (with_done(|done| *done), expected(spec));
    if done != all {
        return Err(format!("number and sum of events are {done:?} and not {all:?}"));
    }
    Ok(Some(report))
}
