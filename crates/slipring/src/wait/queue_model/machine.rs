//! The simulated machine: its memory, its threads, and one step of a thread. It starts no real
//! threads. A simulated thread makes its *calls* one after the other, and a call takes several
//! steps. In each step, the machine runs the call's code again from the beginning. Accesses that
//! earlier steps made return their recorded results. Then the code can make one *new* access that
//! other threads can see, and when it tries to make a second one, a panic ends the step.
//!
//! Therefore, a state of the machine is plain data: instead of a suspended call, it contains the
//! results of the call's accesses so far. The code between two accesses is the library's own.
//!
//! - **Memory** is x86-TSO (Sewell et al., 2010). A store enters its thread's buffer and reaches
//!   memory later. A load returns the newest store to the word in its own thread's buffer. If that
//!   buffer has no store to the word, the load reads memory. A fence, a read-modify-write operation
//!   and a lock wait until the buffer is empty. A membarrier empties the buffers of all threads.
//! - **The compiler** may delay a store until the next compiler or processor fence, or the next
//!   read-modify-write operation. A membarrier does not reach a store that the compiler delays.
//! - **Statistics** are not part of the state. Where `queue.rs` branches on the value of a
//!   statistic, the exploration takes both branches.
//!
//! The machine covers neither memory orderings (the loom models do), nor spurious wake-ups, nor the
//! clock. All accesses of the machine are as strong as on x86.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::{self, Debug};
use std::hash::{Hash, Hasher};
use std::panic::resume_unwind;
use std::rc::Rc;

/// The data of a lock. Two values are equal if their `Debug` texts are equal.
#[derive(Clone)]
pub(super) struct LockData {
    pub(super) value: Rc<dyn Any>,
    pub(super) text: Rc<str>,
}

impl LockData {
    pub(super) fn new<T: Debug + 'static>(value: T) -> LockData {
        LockData { text: format!("{value:?}").into(), value: Rc::new(value) }
    }
}

impl PartialEq for LockData {
    fn eq(&self, other: &LockData) -> bool {
        self.text == other.text
    }
}

impl Hash for LockData {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.text.hash(hasher);
    }
}

impl Debug for LockData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The result of an access.
#[derive(Clone, PartialEq, Hash, Debug)]
pub(super) enum Seen {
    Nothing,
    Word(u64),
    Locked(LockData),
}

/// State of a thread: awake, asleep on a condition variable, or woken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Sleep {
    Awake,
    /// The thread sleeps on the condition variable at the given address, with or without a time
    /// limit.
    Asleep {
        condvar: usize,
        limited: bool,
    },
    /// The thread is woken, but does not have the lock yet.
    Woken,
}

/// A store that has not reached memory.
#[derive(Clone, Hash, Debug)]
pub(super) struct Store {
    /// Address of the word.
    pub(super) word: usize,
    pub(super) value: u64,
    /// Whether the compiler has emitted the store, so that the store is in the core's store buffer.
    pub(super) emitted: bool,
}

#[derive(Clone, Hash, Debug)]
pub(super) struct Thread {
    pub(super) name: &'static str,
    /// Argument of the current call; `None` after the thread's final call.
    pub(super) call: Option<u8>,
    /// Results of the current call's accesses.
    pub(super) log: Vec<Seen>,
    /// Stores that have not reached memory, oldest first.
    pub(super) buffer: Vec<Store>,
    pub(super) sleep: Sleep,
    /// Whether the simulated system has refused a barrier in the thread's current call.
    pub(super) refused: bool,
    /// Whether a twin has postponed a barrier of the thread's current call.
    pub(super) postponed: bool,
    /// Number of the thread's sleeps that ended at their time limit when no thread could take a
    /// step.
    pub(super) overslept: u8,
}

impl Thread {
    /// Returns a thread that is about to make its first call.
    pub(super) fn new(name: &'static str) -> Thread {
        Thread {
            name,
            call: Some(0),
            log: Vec::new(),
            buffer: Vec::new(),
            sleep: Sleep::Awake,
            refused: false,
            postponed: false,
            overslept: 0,
        }
    }
}

#[derive(Clone, Hash, Debug, Default)]
pub(super) struct Lock {
    pub(super) address: usize,
    /// Index of the thread that holds the lock.
    pub(super) holder: Option<usize>,
    /// The lock's data; `None` before the first unlock.
    pub(super) value: Option<LockData>,
}

/// A state of the machine.
#[derive(Clone, Hash, Debug, Default)]
pub(super) struct State {
    /// Addresses and values of the words that were written.
    words: Vec<(usize, u64)>,
    locks: Vec<Lock>,
    /// The threads, copied on write: a state shares a thread with earlier states until a step
    /// changes it. Copying all threads made up most of the cost of a state.
    pub(super) threads: Vec<Rc<Thread>>,
    /// Number of threads that have died.
    pub(super) deaths: u8,
    /// The bits that memory drops from each word that is written. If memory keeps only one bit of
    /// an epoch, the epoch soon wraps around, and the model shows the effect.
    not_kept: u64,
}

impl State {
    /// Returns the first state, in which no word was written and no thread has taken a step.
    pub(super) fn new(threads: Vec<Thread>, not_kept: u64) -> State {
        let threads = threads.into_iter().map(Rc::new).collect();
        State { threads, not_kept, ..State::default() }
    }

    pub(super) fn thread_mut(&mut self, thread: usize) -> &mut Thread {
        Rc::make_mut(&mut self.threads[thread])
    }

    /// Returns a word's value in memory; `initial` is its value before the first write.
    pub(super) fn read(&self, address: usize, initial: u64) -> u64 {
        self.words.iter().find(|(known, _)| *known == address).map_or(initial, |(_, value)| *value)
    }

    pub(super) fn write(&mut self, address: usize, value: u64) {
        let value = value & !self.not_kept;
        match self.words.iter_mut().find(|(known, _)| *known == address) {
            Some((_, known)) => *known = value,
            None => {
                self.words.push((address, value));
                self.words.sort_unstable();
            }
        }
    }

    pub(super) fn lock(&mut self, address: usize) -> &mut Lock {
        let at = self.locks.iter().position(|lock| lock.address == address).unwrap_or_else(|| {
            self.locks.push(Lock { address, ..Lock::default() });
            self.locks.len() - 1
        });
        &mut self.locks[at]
    }

    /// Moves the oldest store in a thread's buffer to memory. The buffer must not be empty.
    pub(super) fn drain(&mut self, thread: usize) {
        let Store { word, value, .. } = self.thread_mut(thread).buffer.remove(0);
        self.write(word, value);
    }

    /// Empties the store buffer of every core.
    ///
    /// A real barrier reaches the cores one after the other, and a simulated barrier reaches all
    /// cores at once. In a model with one notifier or one sleeper, this hides no outcome, because
    /// only notifiers have stores in their buffers. With one notifier, the barrier empties only one
    /// buffer. With one sleeper, only the thread that issues the barrier reads the notifiers'
    /// stores. No model of a queue of one process has both several notifiers and several sleepers.
    /// The models of a queue that processes share call [`State::barrier`] instead.
    pub(super) fn membarrier(&mut self) {
        for thread in 0..self.threads.len() {
            self.barrier(thread);
        }
    }

    /// Empties the store buffer of a thread's core.
    pub(super) fn barrier(&mut self, thread: usize) {
        while self.threads[thread].buffer.first().is_some_and(|store| store.emitted) {
            self.drain(thread);
        }
    }

    /// Ends a thread whose process was killed. The stores in the core's store buffer reach memory.
    /// The stores that the compiler delays are never made. `successor` is the argument of the first
    /// call of a thread that continues the program, or `None` if no thread continues it.
    pub(super) fn kill(&mut self, thread: usize, successor: Option<u8>) {
        self.deaths += 1;
        self.barrier(thread);
        let Thread { name, overslept, .. } = *self.threads[thread];
        *self.thread_mut(thread) = Thread { overslept, call: successor, ..Thread::new(name) };
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = Digest::default();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// A hash of 64 bits. The upper half of the product of each word and a constant is folded into the
/// lower half. The standard library's hash took a third of the exploration's time, because it
/// protects against attackers, which a model does not need.
#[derive(Default)]
pub(super) struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }
    fn write_u64(&mut self, value: u64) {
        // The first digits of the golden ratio. The last digit is odd.
        const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
        // The exclusive or with 1 makes a word of zeros change the digest, too.
        let product = u128::from(self.0.rotate_left(5) ^ value ^ 1).wrapping_mul(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// One step of one thread: a replay of the thread's current call, and at most one new access that
/// other threads can see.
pub(super) struct Step {
    pub(super) state: State,
    /// Index of the thread.
    thread: usize,
    /// Number of accesses that were replayed or made.
    accesses: usize,
    /// Whether this step has made its one new access that other threads can see.
    stepped: bool,
    /// Whether the machine is ending the thread's current call by a panic.
    pub(super) over: bool,
    /// The choices of this step: for each choice, the chosen number and the number of alternatives.
    pub(super) choices: Vec<(u64, u64)>,
    /// Number of choices made.
    chosen: usize,
}

impl Step {
    /// Returns the step of `thread` from `state` that begins with the given `choices`.
    pub(super) fn new(state: State, thread: usize, choices: Vec<(u64, u64)>) -> Step {
        Step { state, thread, accesses: 0, stepped: false, over: false, choices, chosen: 0 }
    }

    /// Returns the index of the thread.
    pub(super) fn index(&self) -> usize {
        self.thread
    }

    pub(super) fn thread(&self) -> &Thread {
        &self.state.threads[self.thread]
    }

    pub(super) fn thread_mut(&mut self) -> &mut Thread {
        self.state.thread_mut(self.thread)
    }

    pub(super) fn has_no_stores(&self) -> bool {
        self.thread().buffer.is_empty()
    }
}

/// The payload of the panic by which the machine ends a call at the end of a step.
pub(super) struct Stop;

thread_local! {
    /// The current step of the exploration. A model's final assertions run in a separate step.
    static STEP: RefCell<Option<Step>> = const { RefCell::new(None) };
    /// Name of the chosen twin; empty if no twin is chosen.
    static TWIN: Cell<&'static str> = const { Cell::new("") };
}

pub(super) fn twin_is(name: &str) -> bool {
    TWIN.get() == name
}

pub(super) fn choose_twin(name: &'static str) {
    TWIN.set(name);
}

/// Calls `f` while `step` is the current step. Returns the step as `f` left it, and the result.
pub(super) fn run<T>(step: Step, f: impl FnOnce() -> T) -> (Step, T) {
    STEP.set(Some(step));
    let result = f();
    (STEP.take().expect("`f` leaves the step in place"), result)
}

/// Calls `read` with the current step, and returns the result of `read`.
pub(super) fn with_step<T>(read: impl FnOnce(&mut Step) -> T) -> T {
    STEP.with_borrow_mut(|step| read(step.as_mut().expect("the machine is explored")))
}

/// Makes an access, or returns the result that the access had in an earlier step. `act` returns
/// `None` if the thread must wait. A step has at most one access that is `visible` to other
/// threads.
pub(super) fn access(visible: bool, act: impl FnOnce(&mut Step) -> Option<Seen>) -> Seen {
    let seen = with_step(|step| {
        let made = step.accesses;
        step.accesses += 1;
        if step.over {
            return None;
        }
        if let Some(seen) = step.thread().log.get(made) {
            return Some(seen.clone());
        }
        let seen = if visible && step.stepped { None } else { act(step) };
        match &seen {
            Some(seen) => {
                step.stepped |= visible;
                step.thread_mut().log.push(seen.clone());
            }
            None => step.over = true,
        }
        seen
    });
    seen.unwrap_or_else(|| resume_unwind(Box::new(Stop)))
}

pub(super) fn access_word(act: impl FnOnce(&mut Step) -> Option<u64>) -> u64 {
    match access(true, |step| act(step).map(Seen::Word)) {
        Seen::Word(value) => value,
        other => panic!("a replayed call made another access: expected a word, found {other:?}"),
    }
}

/// Returns whether the machine is ending the current call by a panic. Returns `true` if no call is
/// running.
pub(super) fn is_over() -> bool {
    STEP.with_borrow(|step| step.as_ref().is_none_or(|step| step.over))
}

/// Returns a number below `count`. The exploration tries each number below `count` once.
pub(super) fn choose(count: u64) -> u64 {
    let seen = access(false, |step| {
        let at = step.chosen;
        step.chosen += 1;
        if at == step.choices.len() {
            step.choices.push((0, count));
        }
        Some(Seen::Word(step.choices[at].0))
    });
    match seen {
        Seen::Word(taken) => taken,
        other => panic!("a replayed call made another access: expected a choice, found {other:?}"),
    }
}

/// Waits until every other thread has made its last call.
pub(super) fn wait_for_others() {
    access(true, |step| {
        let me = step.index();
        let others = step.state.threads.iter().enumerate().filter(|(thread, _)| *thread != me);
        others.into_iter().all(|(_, other)| other.call.is_none()).then_some(Seen::Nothing)
    });
}

/// Returns whether the simulated system has refused a barrier in the thread's current call.
pub(super) fn was_refused() -> bool {
    STEP.with_borrow(|step| step.as_ref().is_some_and(|step| step.thread().refused))
}
