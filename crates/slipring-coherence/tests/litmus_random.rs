//! Random small programs: the simulator gives only results that total store order allows.
//!
//! The reference is the usual machine: each thread has a buffer of stores, from which the oldest
//! goes to memory at any time. All its executions are enumerated.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use slipring_coherence::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use slipring_coherence::sync::{self, AtomicU64};
use slipring_coherence::{Lines, Machine, Placement, Simulation, membarrier, own_lines, work};

#[global_allocator]
static LINES: Lines = Lines;

const WORDS: usize = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Store(usize, u64),
    /// A sequentially consistent store.
    StoreAll(usize, u64),
    Load(usize),
    Swap(usize, u64),
    Fence,
    Membarrier,
}

type Program = Vec<Vec<Step>>;
/// The values that each thread loaded, in order, and the words at the end.
type Outcome = (Vec<Vec<u64>>, [u64; WORDS]);

/// A generator of random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn program(&mut self) -> Program {
        let mut value = 0;
        let threads = 2 + self.below(2) as usize;
        if self.below(2) == 0 {
            return (0..threads).map(|thread| self.buffered_store(thread, threads)).collect();
        }
        let steps = if threads == 2 { 4 } else { 3 };
        let mut step = |random: &mut Random| {
            value += 1;
            let word = random.below(WORDS as u64) as usize;
            match random.below(14) {
                0..=4 => Step::Store(word, value),
                5..=8 => Step::Load(word),
                9 => Step::Swap(word, value),
                10 => Step::StoreAll(word, value),
                11 => Step::Fence,
                _ => Step::Membarrier,
            }
        };
        (0..threads).map(|_| (0..steps).map(|_| step(self)).collect()).collect()
    }
}

impl Random {
    /// A store, and a load of the next thread's word: the load may be first, unless all threads
    /// have something between.
    fn buffered_store(&mut self, thread: usize, threads: usize) -> Vec<Step> {
        let between = match self.below(6) {
            0 => None,
            1 => Some(Step::Membarrier),
            2 => Some(Step::Swap(thread, 2)),
            _ => Some(Step::Fence),
        };
        let store = match self.below(6) {
            0 => Step::StoreAll(thread, 1),
            _ => Step::Store(thread, 1),
        };
        let load = Step::Load((thread + 1) % threads);
        [Some(store), between, Some(load)].into_iter().flatten().collect()
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    next: Vec<usize>,
    buffers: Vec<VecDeque<(usize, u64)>>,
    /// Threads that the current membarrier of a thread has interrupted, as bits.
    interrupted: Vec<u32>,
    loaded: Vec<Vec<u64>>,
    words: [u64; WORDS],
}

/// Returns all outcomes that total store order allows.
fn allowed(program: &Program) -> BTreeSet<Outcome> {
    let threads = program.len();
    let start = State {
        next: vec![0; threads],
        buffers: vec![VecDeque::new(); threads],
        interrupted: vec![0; threads],
        loaded: vec![Vec::new(); threads],
        words: [0; WORDS],
    };
    let (mut seen, mut open, mut outcomes) =
        (BTreeSet::from([start.clone()]), vec![start], BTreeSet::new());
    while let Some(state) = open.pop() {
        let mut is_end = true;
        for thread in 0..threads {
            for next in successors(program, &state, thread) {
                is_end = false;
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        if is_end {
            outcomes.insert((state.loaded, state.words));
        }
    }
    outcomes
}

fn successors(program: &Program, state: &State, thread: usize) -> Vec<State> {
    let mut all = Vec::new();
    if let Some(&(word, value)) = state.buffers[thread].front() {
        let mut next = state.clone();
        next.buffers[thread].pop_front();
        next.words[word] = value;
        all.push(next);
    }
    let Some(&step) = program[thread].get(state.next[thread]) else { return all };
    let is_drained = state.buffers[thread].is_empty();
    let mut next = state.clone();
    next.next[thread] += 1;
    match step {
        Step::Store(word, value) => next.buffers[thread].push_back((word, value)),
        Step::Load(word) => {
            let own = state.buffers[thread].iter().rev().find(|(of, _)| *of == word);
            next.loaded[thread].push(own.map_or(state.words[word], |(_, value)| *value));
        }
        Step::StoreAll(..) | Step::Swap(..) | Step::Fence if !is_drained => return all,
        Step::StoreAll(word, value) => next.words[word] = value,
        Step::Swap(word, value) => {
            let old = std::mem::replace(&mut next.words[word], value);
            next.loaded[thread].push(old);
        }
        Step::Fence => {}
        Step::Membarrier => {
            // Each thread, the caller included, is interrupted at some time with an empty buffer.
            let all_threads = (1 << program.len()) - 1;
            if state.interrupted[thread] != all_threads {
                for other in 0..program.len() {
                    let is_new = state.interrupted[thread] >> other & 1 == 0;
                    if is_new && state.buffers[other].is_empty() {
                        let mut next = state.clone();
                        next.interrupted[thread] |= 1 << other;
                        all.push(next);
                    }
                }
                return all;
            }
            next.interrupted[thread] = 0;
        }
    }
    all.push(next);
    all
}

/// Runs a program once, with latencies and delays by `random`.
fn simulated(program: &Program, random: &mut Random) -> Outcome {
    let mut machine = Machine::server("2x2".parse().unwrap());
    (machine.jitter, machine.seed) = (random.below(100), random.below(1_000_000));
    machine.costs.buffer = 1 + random.below(4);
    // As short as a transfer, so that stores still wait when it ends.
    machine.costs.membarrier = 1 + random.below(60_000);
    machine.costs.interrupt = random.below(60_000);
    let spread = if random.below(2) == 0 { Placement::Packed } else { Placement::Spread };
    let words: [Box<AtomicU64>; WORDS] =
        own_lines(|| std::array::from_fn(|_| Box::new(AtomicU64::new(0))));
    let loaded = std::cell::RefCell::new(vec![Vec::new(); program.len()]);
    let mut simulation = Simulation::new(&machine).place(spread);
    for (thread, steps) in program.iter().enumerate() {
        let delays: Vec<u64> = steps.iter().map(|_| random.below(4) * random.below(60)).collect();
        let warm = random.below(2) == 0;
        let (words, loaded) = (&words, &loaded);
        simulation = simulation.thread(format!("{thread}"), move || {
            if warm {
                for word in words {
                    word.load(Relaxed);
                }
            }
            work(Duration::from_nanos(1_000) - Duration::from_nanos(if warm { 3 } else { 0 }));
            let mut own = Vec::new();
            for (step, delay) in steps.iter().zip(delays) {
                work(Duration::from_nanos(delay));
                match *step {
                    Step::Store(word, value) => words[word].store(value, Release),
                    Step::StoreAll(word, value) => words[word].store(value, SeqCst),
                    Step::Load(word) => own.push(words[word].load(Acquire)),
                    Step::Swap(word, value) => own.push(words[word].swap(value, Relaxed)),
                    Step::Fence => sync::fence(SeqCst),
                    Step::Membarrier => membarrier(),
                }
            }
            loaded.borrow_mut()[thread] = own;
        });
    }
    simulation.run().unwrap();
    (loaded.into_inner(), std::array::from_fn(|word| words[word].load(Relaxed)))
}

#[test]
fn random_programs_have_only_outcomes_of_total_store_order() {
    let mut random = Random(1);
    let (mut reached, mut possible) = (0, 0);
    for _ in 0..100 {
        let program = random.program();
        let allowed = allowed(&program);
        let mut seen = BTreeSet::new();
        for _ in 0..40 {
            let outcome = simulated(&program, &mut random);
            assert!(allowed.contains(&outcome), "{program:?}\n{outcome:?}");
            seen.insert(outcome);
        }
        reached += seen.len();
        possible += allowed.len();
    }
    // Not one schedule again and again.
    assert!(reached * 4 > possible, "{reached} of {possible} outcomes");
    println!("{reached} of {possible} outcomes");
}
