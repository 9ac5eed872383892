//! A machine that a model explores: every state that some threads can reach on cores that keep
//! stores back.
//!
//! [`sync`] and [`system`] have the names of the crate's own modules, so that a file of the library
//! is compiled against this machine without a change. The machine runs no thread. A thread is a
//! function that makes *calls*, and a call is replayed: its earlier accesses return what they
//! returned before, then one access is made on the state, and the next one unwinds out of the call.
//! So a state is plain data, and the code between two accesses is the library's own.
//!
//! - **Memory** is x86-TSO (Sewell et al., 2010). A store goes to its thread's buffer and to memory
//!   some time later; a load sees its own thread's buffer first; a fence, a read-modify-write
//!   operation and a lock wait until the buffer is empty. A barrier in all threads empties every
//!   buffer.
//! - **The compiler** may keep a store back, too, until the next fence of either kind or the next
//!   read-modify-write operation. A barrier in all threads does not reach such a store.
//! - **Statistics** are no state: a load returns any number that the code tells apart.
//!
//! Not covered: memory orderings (all accesses are as strong as x86 makes them, which is what the
//! loom models are for), spurious wake-ups, and the clock.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt::{self, Debug};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// The data of a lock. Two are the same if they are printed alike.
#[derive(Clone)]
struct Guarded {
    value: Rc<dyn Any>,
    text: Rc<str>,
}

impl Guarded {
    fn new<T: Debug + 'static>(value: T) -> Guarded {
        Guarded { text: format!("{value:?}").into(), value: Rc::new(value) }
    }
}

impl PartialEq for Guarded {
    fn eq(&self, other: &Guarded) -> bool {
        self.text == other.text
    }
}

impl Hash for Guarded {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.text.hash(hasher);
    }
}

impl Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// What an access returned.
#[derive(Clone, PartialEq, Hash, Debug)]
enum Seen {
    Nothing,
    Word(u32),
    Locked(Guarded),
}

/// Whether a thread sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rest {
    Awake,
    Asleep { condvar: usize, limited: bool },
    Woken,
}

/// A store on its way to memory. The compiler holds it until it is `emitted`, then the core does.
#[derive(Clone, Hash, Debug)]
struct Store {
    word: usize,
    value: u32,
    emitted: bool,
}

#[derive(Clone, Hash, Debug)]
struct Thread {
    name: &'static str,
    /// Argument of the present call; `None`: the thread is done.
    call: Option<u8>,
    /// The accesses of the present call.
    log: Vec<Seen>,
    /// Oldest first.
    buffer: Vec<Store>,
    rest: Rest,
    /// The barrier was refused in the present call.
    refused: bool,
    /// A barrier that a twin puts off.
    owed: bool,
}

#[derive(Clone, Hash, Debug, Default)]
struct Lock {
    address: usize,
    holder: Option<usize>,
    /// `None`: as the lock was made.
    value: Option<Guarded>,
}

#[derive(Clone, Hash, Debug, Default)]
struct State {
    /// Words by address. One that is not here is as it was made.
    words: Vec<(usize, u32)>,
    locks: Vec<Lock>,
    threads: Vec<Thread>,
}

impl State {
    fn read(&self, address: usize, made: u32) -> u32 {
        self.words.iter().find(|(known, _)| *known == address).map_or(made, |(_, value)| *value)
    }

    fn write(&mut self, address: usize, value: u32) {
        match self.words.iter_mut().find(|(known, _)| *known == address) {
            Some((_, known)) => *known = value,
            None => {
                self.words.push((address, value));
                self.words.sort_unstable();
            }
        }
    }

    fn lock(&mut self, address: usize) -> &mut Lock {
        let at = self.locks.iter().position(|lock| lock.address == address).unwrap_or_else(|| {
            self.locks.push(Lock { address, ..Lock::default() });
            self.locks.len() - 1
        });
        &mut self.locks[at]
    }

    /// One store of a thread reaches memory. `false`: there is none.
    fn drain(&mut self, thread: usize) -> bool {
        let some = !self.threads[thread].buffer.is_empty();
        if some {
            let Store { word, value, .. } = self.threads[thread].buffer.remove(0);
            self.write(word, value);
        }
        some
    }

    /// Each core empties its buffer. What it does to one after the other is no less than this: a
    /// store that comes in between may reach memory by itself.
    fn bar(&mut self) {
        for thread in 0..self.threads.len() {
            while self.threads[thread].buffer.first().is_some_and(|store| store.emitted) {
                self.drain(thread);
            }
        }
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

/// One step of one thread.
struct Run {
    state: State,
    thread: usize,
    /// Accesses of the call that were replayed or made.
    made: usize,
    /// The access of this step was made.
    stepped: bool,
    over: bool,
    /// The choices of this step: which one was taken, and of how many.
    choices: Vec<(u32, u32)>,
    chosen: usize,
}

impl Run {
    fn thread(&mut self) -> &mut Thread {
        &mut self.state.threads[self.thread]
    }

    fn has_no_stores(&mut self) -> bool {
        self.thread().buffer.is_empty()
    }
}

/// The payload that unwinds out of a call after the access of a step.
struct Stop;

thread_local! {
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
    static TWIN: Cell<&'static str> = const { Cell::new("") };
}

pub(crate) fn twin_is(name: &str) -> bool {
    TWIN.get() == name
}

/// Makes an access, or returns what it returned in an earlier step. `act`: `None` if the thread
/// must wait. A step has one access that is `visible` to other threads.
fn access(visible: bool, act: impl FnOnce(&mut Run) -> Option<Seen>) -> Seen {
    let seen = RUN.with_borrow_mut(|run| {
        let run = run.as_mut().expect("the machine is explored");
        let made = run.made;
        run.made += 1;
        if run.over {
            return None;
        }
        if let Some(seen) = run.thread().log.get(made) {
            return Some(seen.clone());
        }
        let seen = if visible && run.stepped { None } else { act(run) };
        match &seen {
            Some(seen) => {
                run.stepped |= visible;
                run.thread().log.push(seen.clone());
            }
            None => run.over = true,
        }
        seen
    });
    seen.unwrap_or_else(|| resume_unwind(Box::new(Stop)))
}

fn access_word(act: impl FnOnce(&mut Run) -> Option<u32>) -> u32 {
    match access(true, |run| act(run).map(Seen::Word)) {
        Seen::Word(value) => value,
        other => panic!("the code depends on more than what it sees: {other:?} is no word"),
    }
}

fn is_over() -> bool {
    RUN.with_borrow(|run| run.as_ref().is_none_or(|run| run.over))
}

/// Any number below `count`.
fn choose(count: u32) -> u32 {
    let seen = access(false, |run| {
        let at = run.chosen;
        run.chosen += 1;
        if at == run.choices.len() {
            run.choices.push((0, count));
        }
        Some(Seen::Word(run.choices[at].0))
    });
    match seen {
        Seen::Word(taken) => taken,
        other => panic!("the code depends on more than what it sees: {other:?} is no choice"),
    }
}

/// Whether a barrier was refused in the present call.
pub(crate) fn was_refused() -> bool {
    RUN.with_borrow_mut(|run| run.as_mut().is_some_and(|run| run.thread().refused))
}

pub(crate) mod sync {
    use std::ops::{Deref, DerefMut};
    pub(crate) use std::sync::atomic::Ordering::{self, Relaxed, SeqCst};
    use std::sync::{LockResult, PoisonError};
    use std::time::Duration;

    use super::*;
    pub(crate) use crate::base::sync::{Line, whole};

    macro_rules! twin {
        ($name:literal: $right:expr => $wrong:expr) => {
            if crate::wait::queue_model::machine::twin_is($name) { $wrong } else { $right }
        };
    }
    pub(crate) use twin;

    /// A word, known by its address. The field is the value that it is made with.
    pub(crate) struct AtomicU32(u32);

    impl AtomicU32 {
        pub(crate) const fn new(value: u32) -> AtomicU32 {
            AtomicU32(value)
        }

        fn address(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }

        fn update(&self, change: impl FnOnce(u32) -> Option<u32>) -> u32 {
            access_word(|run| {
                let empty = run.has_no_stores();
                empty.then(|| {
                    let value = run.state.read(self.address(), self.0);
                    if let Some(value) = change(value) {
                        run.state.write(self.address(), value);
                    }
                    value
                })
            })
        }

        pub(crate) fn load(&self, _: Ordering) -> u32 {
            access_word(|run| {
                let own = run
                    .thread()
                    .buffer
                    .iter()
                    .rfind(|store| store.word == self.address())
                    .map(|store| store.value);
                Some(own.unwrap_or_else(|| run.state.read(self.address(), self.0)))
            })
        }

        pub(crate) fn store(&self, value: u32, _: Ordering) {
            access(true, |run| {
                let store = Store { word: self.address(), value, emitted: false };
                run.thread().buffer.push(store);
                Some(Seen::Nothing)
            });
        }

        pub(crate) fn fetch_add(&self, value: u32, _: Ordering) -> u32 {
            self.update(|old| Some(old.wrapping_add(value)))
        }

        pub(crate) fn fetch_sub(&self, value: u32, _: Ordering) -> u32 {
            self.update(|old| Some(old.wrapping_sub(value)))
        }

        pub(crate) fn fetch_or(&self, value: u32, _: Ordering) -> u32 {
            self.update(|old| Some(old | value))
        }

        pub(crate) fn compare_exchange(
            &self,
            old: u32,
            new: u32,
            _: Ordering,
            _: Ordering,
        ) -> Result<u32, u32> {
            let found = self.update(|found| (found == old).then_some(new));
            if found == old { Ok(found) } else { Err(found) }
        }

        /// Waits until it is not zero.
        pub(crate) fn wait(&self) {
            access(true, |run| {
                (run.state.read(self.address(), self.0) != 0).then_some(Seen::Nothing)
            });
        }

        /// Its value in the state that is looked at.
        pub(crate) fn peek(&self) -> u32 {
            RUN.with_borrow(|run| run.as_ref().expect("a state").state.read(self.address(), self.0))
        }
    }

    /// A number that no protocol rests on.
    pub(crate) struct Statistic;

    impl Statistic {
        pub(crate) const fn new(_: u64) -> Statistic {
            Statistic
        }

        pub(crate) fn load(&self, _: Ordering) -> u64 {
            [crate::wait::queue_model::queue::CALM - 1, 0][choose(2) as usize]
        }

        pub(crate) fn store(&self, _: u64, _: Ordering) {}

        pub(crate) fn compare_exchange(
            &self,
            _: u64,
            _: u64,
            _: Ordering,
            _: Ordering,
        ) -> Result<u64, u64> {
            Err(0)
        }
    }

    pub(crate) fn fence(_: Ordering) {
        access(false, |run| run.has_no_stores().then_some(Seen::Nothing));
    }

    pub(crate) fn compiler_fence(_: Ordering) {
        access(false, |run| {
            run.thread().buffer.iter_mut().for_each(|store| store.emitted = true);
            Some(Seen::Nothing)
        });
    }

    /// A pause that no store outlasts.
    pub(crate) fn sleep(_: Duration) {
        access(true, |run| {
            run.state.bar();
            Some(Seen::Nothing)
        });
    }

    pub(crate) struct Instant;

    impl Instant {
        pub(crate) fn now() -> Instant {
            Instant
        }

        pub(crate) fn elapsed(&self) -> Duration {
            Duration::from_secs(1)
        }
    }

    /// A lock, known by its address. The field is the value that it is made with.
    pub(crate) struct Mutex<T>(T);

    /// A copy of what the lock guards; the lock has it back with the guard.
    pub(crate) struct MutexGuard<'a, T: Clone + Debug + 'static> {
        mutex: &'a Mutex<T>,
        value: Option<T>,
    }

    impl<T: Clone + Debug + 'static> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(value)
        }

        fn address(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }

        /// Takes the lock, if the thread is awake or has been woken.
        fn take(&self) -> MutexGuard<'_, T> {
            let seen = access(true, |run| {
                let me = run.thread;
                let asleep = matches!(run.thread().rest, Rest::Asleep { .. });
                let ready = run.has_no_stores()
                    && !asleep
                    && run.state.lock(self.address()).holder.is_none();
                ready.then(|| {
                    run.thread().rest = Rest::Awake;
                    let lock = run.state.lock(self.address());
                    lock.holder = Some(me);
                    Seen::Locked(lock.value.clone().unwrap_or_else(|| Guarded::new(self.0.clone())))
                })
            });
            let Seen::Locked(guarded) = seen else {
                panic!("the code depends on more than what it sees")
            };
            let value: &T = guarded.value.downcast_ref().expect("the lock's own data");
            MutexGuard { mutex: self, value: Some(value.clone()) }
        }

        /// What it guards in the state that is looked at.
        pub(crate) fn peek(&self) -> String {
            let value = RUN.with_borrow_mut(|run| {
                run.as_mut().expect("a state").state.lock(self.address()).value.clone()
            });
            value.unwrap_or_else(|| Guarded::new(self.0.clone())).text.to_string()
        }
    }

    pub(crate) fn lock<T: Clone + Debug + 'static>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.take()
    }

    impl<T: Clone + Debug + 'static> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.value.as_ref().expect("the lock is held")
        }
    }

    impl<T: Clone + Debug + 'static> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.value.as_mut().expect("the lock is held")
        }
    }

    impl<T: Clone + Debug + 'static> Drop for MutexGuard<'_, T> {
        fn drop(&mut self) {
            if let Some(value) = self.value.take()
                && !is_over()
                && !std::thread::panicking()
            {
                access(true, |run| {
                    run.has_no_stores().then(|| {
                        *run.state.lock(self.mutex.address()) = Lock {
                            address: self.mutex.address(),
                            holder: None,
                            value: Some(Guarded::new(value)),
                        };
                        Seen::Nothing
                    })
                });
            }
        }
    }

    /// Known by its address.
    pub(crate) struct Condvar(#[expect(dead_code, reason = "an address of its own")] u8);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar(0)
        }

        fn address(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }

        fn sleep<'a, T: Clone + Debug + 'static>(
            &self,
            mut guard: MutexGuard<'a, T>,
            limited: bool,
        ) -> MutexGuard<'a, T> {
            let (mutex, value) = (guard.mutex, guard.value.take());
            // To fall asleep and to let the lock go are one.
            access(true, |run| {
                assert!(
                    !run.thread().refused,
                    "a thread falls asleep although its barrier was refused"
                );
                run.thread().rest = Rest::Asleep { condvar: self.address(), limited };
                if std::mem::take(&mut run.thread().owed) {
                    run.state.bar();
                }
                *run.state.lock(mutex.address()) =
                    Lock { address: mutex.address(), holder: None, value: value.map(Guarded::new) };
                Some(Seen::Nothing)
            });
            mutex.take()
        }

        pub(crate) fn wait<'a, T: Clone + Debug + 'static>(
            &self,
            guard: MutexGuard<'a, T>,
        ) -> LockResult<MutexGuard<'a, T>> {
            Ok::<_, PoisonError<_>>(self.sleep(guard, false))
        }

        pub(crate) fn wait_timeout<'a, T: Clone + Debug + 'static>(
            &self,
            guard: MutexGuard<'a, T>,
            _: Duration,
        ) -> LockResult<(MutexGuard<'a, T>, ())> {
            Ok((self.sleep(guard, true), ()))
        }

        fn wake(&self, most: usize) {
            access(true, |run| {
                let here = |thread: &&mut Thread| matches!(thread.rest, Rest::Asleep { condvar, .. } if condvar == self.address());
                run.state
                    .threads
                    .iter_mut()
                    .filter(here)
                    .take(most)
                    .for_each(|thread| thread.rest = Rest::Woken);
                Some(Seen::Nothing)
            });
        }

        pub(crate) fn notify_all(&self) {
            self.wake(usize::MAX);
        }

        pub(crate) fn notify_one(&self) {
            self.wake(1);
        }
    }
}

pub(crate) mod system {
    use super::*;

    pub(crate) fn membarrier_available() -> bool {
        true
    }

    /// A barrier in all threads, which may be refused in a model that says so.
    pub(crate) fn membarrier() -> bool {
        let refused = REFUSES.get() && choose(2) == 1;
        access(true, |run| {
            if refused {
                run.thread().refused = true;
            } else if twin_is("barrier-late") {
                run.thread().owed = true;
            } else {
                run.state.bar();
            }
            Some(Seen::Nothing)
        });
        !refused
    }
}

thread_local! {
    static REFUSES: Cell<bool> = const { Cell::new(false) };
}

/// Makes one call, and returns the argument of the next one; `None`: the thread is done.
pub(crate) type Program<'m> = Box<dyn Fn(u8) -> Option<u8> + 'm>;

/// Threads that begin with call 0.
#[derive(Default)]
pub(crate) struct Model<'m> {
    pub(crate) threads: Vec<(&'static str, Program<'m>)>,
    /// Whether a barrier may be refused.
    pub(crate) refuses: bool,
    /// Asserts what holds when all threads are done.
    pub(crate) end: Option<Box<dyn Fn() + 'm>>,
}

impl Model<'_> {
    /// Explores every state, with the step `twin` done wrong. Returns their number, or why one of
    /// them is wrong.
    pub(crate) fn explore(&self, twin: &'static str) -> Result<usize, String> {
        TWIN.set(twin);
        REFUSES.set(self.refuses);
        let thread = |&(name, _): &(&'static str, Program)| Thread {
            name,
            call: Some(0),
            log: Vec::new(),
            buffer: Vec::new(),
            rest: Rest::Awake,
            refused: false,
            owed: false,
        };
        let first =
            State { threads: self.threads.iter().map(thread).collect(), ..State::default() };
        // Two states with one digest would be taken for one. That is less likely than a broken
        // machine.
        let mut known = HashSet::from([first.digest()]);
        let mut left = vec![first];
        while let Some(state) = left.pop() {
            let mut next = Vec::new();
            for thread in 0..self.threads.len() {
                self.step(&state, thread, &mut next)?;
                let mut drained = state.clone();
                if drained.drain(thread) {
                    next.push(drained);
                }
                if matches!(state.threads[thread].rest, Rest::Asleep { limited: true, .. }) {
                    let mut timed_out = state.clone();
                    timed_out.threads[thread].rest = Rest::Woken;
                    next.push(timed_out);
                }
            }
            if next.is_empty() {
                self.judge(state)?;
            }
            left.extend(next.into_iter().filter(|state| known.insert(state.digest())));
        }
        Ok(known.len())
    }

    /// Adds each state that one step of a thread leads to.
    fn step(&self, state: &State, thread: usize, next: &mut Vec<State>) -> Result<(), String> {
        let Some(call) = state.threads[thread].call else { return Ok(()) };
        let mut choices = Vec::new();
        loop {
            let run = Run {
                state: state.clone(),
                thread,
                made: 0,
                stepped: false,
                over: false,
                choices,
                chosen: 0,
            };
            RUN.set(Some(run));
            let outcome = catch_unwind(AssertUnwindSafe(|| self.threads[thread].1(call)));
            let mut run = RUN.take().expect("it was there just now");
            match outcome {
                Ok(following) if !run.over => {
                    let thread = run.thread();
                    (thread.call, thread.refused, thread.owed) = (following, false, false);
                    thread.log.clear();
                    next.push(run.state);
                }
                Err(panic) if !panic.is::<Stop>() => {
                    return Err(format!(
                        "{}: {}",
                        self.threads[thread].0,
                        crate::base::panics::panic_message(panic)
                    ));
                }
                _ if run.thread().log.len() > state.threads[thread].log.len() => {
                    next.push(run.state)
                }
                _ => {}
            }
            choices = run.choices;
            while choices.last().is_some_and(|(taken, count)| taken + 1 == *count) {
                choices.pop();
            }
            match choices.last_mut() {
                Some((taken, _)) => *taken += 1,
                None => return Ok(()),
            }
        }
    }

    /// Judges a state in which no thread can go on.
    fn judge(&self, state: State) -> Result<(), String> {
        let stuck: Vec<&str> = state
            .threads
            .iter()
            .filter(|thread| thread.call.is_some())
            .map(|thread| thread.name)
            .collect();
        if !stuck.is_empty() {
            return Err(format!("left asleep: {}; {state:?}", stuck.join(", ")));
        }
        let Some(end) = &self.end else { return Ok(()) };
        RUN.set(Some(Run {
            state,
            thread: 0,
            made: 0,
            stepped: false,
            over: true,
            choices: Vec::new(),
            chosen: 0,
        }));
        let outcome = catch_unwind(AssertUnwindSafe(end));
        RUN.set(None);
        outcome
            .map_err(|panic| format!("at the end: {}", crate::base::panics::panic_message(panic)))
    }
}
