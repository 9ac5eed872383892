//! Starting threads: virtual ones within a simulation, real ones outside of it.
//!
//! - I1: A scope returns only when all threads that it started have ended, or not at all, so the
//!   borrows of their bodies last. `running` counts them; each thread subtracts itself as its last
//!   act, when its body, its result's place and all that they own are gone or handed over.

use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::thread::{Thread, current, park};
use crate::error::panic_text;
use crate::running::VirtualId;
use crate::waiting::{self, Sleep};

/// The result of a thread, as the standard library's [`Result`](std::thread::Result).
type Ended<T> = std::thread::Result<T>;

/// Starts a thread.
///
/// ```
/// use slipring_coherence::sync;
///
/// assert_eq!(sync::spawn(|| 1 + 1).join().unwrap(), 2);
/// ```
///
/// # Panics
///
/// If there is no core or no memory for the thread.
#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(body).expect("failed to start a thread")
}

/// A thread's settings.
///
/// ```
/// use slipring_coherence::sync::Builder;
///
/// let handle = Builder::new().name("worker".into()).spawn(|| ()).unwrap();
/// assert_eq!(handle.thread().name(), Some("worker"));
/// handle.join().unwrap();
/// ```
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
    process: Option<u32>,
}

impl Builder {
    /// Returns the default settings.
    ///
    /// Example: [`Builder`].
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Sets the thread's name.
    ///
    /// Example: [`Builder`].
    #[must_use]
    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Makes the thread one of a virtual process, which can [die](crate::kill). Without this call,
    /// a thread belongs to the process of the thread that starts it. Outside of a simulation,
    /// nothing changes.
    ///
    /// Example: [`kill`](crate::kill).
    #[must_use]
    pub fn process(mut self, number: u32) -> Builder {
        self.process = Some(number);
        self
    }

    /// Sets the size of a real thread's stack, in bytes. All virtual threads have stacks of one
    /// size.
    ///
    /// Example: [`Builder`].
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    /// Starts a thread.
    ///
    /// Example: [`Builder`].
    ///
    /// # Errors
    ///
    /// If the system refuses the thread, or the simulated machine has no free core for it.
    #[track_caller]
    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let packet = Packet::new();
        let place = packet.clone();
        let life = move || {
            let ended = catch_unwind(AssertUnwindSafe(body));
            if let Err(payload) = &ended {
                waiting::note_panic(panic_text(&**payload));
            }
            place.put(ended);
        };
        // SAFETY: I1: nothing is borrowed.
        let started = unsafe { self.start(Box::new(life), Location::caller()) }?;
        Ok(JoinHandle(Started { packet, ..started }))
    }

    /// Starts a thread of a scope.
    ///
    /// Example: [`Builder`].
    ///
    /// # Errors
    ///
    /// If the system refuses the thread, or the simulated machine has no free core for it.
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, 'env>,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, T>> {
        let packet = Packet::new();
        let (place, data) = (packet.clone(), scope.data.clone());
        let life = move || {
            let ended = catch_unwind(AssertUnwindSafe(body));
            if ended.is_err() {
                data.panicked.fetch_add(1, Ordering::Relaxed);
            }
            place.put(ended);
            drop(place);
            if data.running.fetch_sub(1, Ordering::Release) == 1 {
                data.main.unpark();
            }
        };
        scope.data.running.fetch_add(1, Ordering::Relaxed);
        // SAFETY: I1: `scope` waits for the thread.
        match unsafe { self.start(Box::new(life), Location::caller()) } {
            Ok(started) => Ok(ScopedJoinHandle {
                started: Started { packet, ..started },
                data: scope.data.clone(),
                scope: PhantomData,
            }),
            Err(error) => {
                scope.data.running.fetch_sub(1, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    /// Starts `life` on a virtual core, or as a real thread.
    ///
    /// # Safety
    ///
    /// The borrows of `life` live until it has run.
    unsafe fn start<'a, T>(
        self,
        life: Box<dyn FnOnce() + Send + 'a>,
        location: &'static Location<'static>,
    ) -> io::Result<Started<T>> {
        let packet = Packet::new();
        if crate::is_simulating() {
            // SAFETY: the caller's promise is the same.
            let (id, name) = unsafe { waiting::spawn(self.name, self.process, life, location) }?;
            return Ok(Started { thread: Thread::of_run(id, name), real: None, packet });
        }
        let mut builder = std::thread::Builder::new();
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        // SAFETY: the caller's promise is the same.
        let real = unsafe { builder.spawn_unchecked(life) }?;
        Ok(Started { thread: Thread::real(real.thread().clone()), real: Some(real), packet })
    }
}

/// Where a thread leaves its result.
struct Packet<T>(Mutex<Option<Ended<T>>>);

impl<T> Packet<T> {
    fn new() -> Arc<Packet<T>> {
        Arc::new(Packet(Mutex::new(None)))
    }

    fn put(&self, ended: Ended<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }

    fn take(&self) -> Option<Ended<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_full(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// A thread that has been started.
struct Started<T> {
    thread: Thread,
    real: Option<std::thread::JoinHandle<()>>,
    packet: Arc<Packet<T>>,
}

impl<T> Started<T> {
    fn join(self, location: &'static Location<'static>) -> Ended<T> {
        match (self.real, self.thread.virtual_id()) {
            (Some(real), _) => {
                real.join().expect("the thread's body catches panics");
            }
            (None, Some(id)) => {
                waiting::join(id, location);
                forgive(id);
            }
            (None, None) => unreachable!("a real thread has a real handle"),
        }
        // A thread whose virtual process has died leaves none.
        self.packet.take().unwrap_or_else(|| Err(Box::new("the thread's process has died")))
    }
}

/// A joined thread's panic is the joiner's to handle.
fn forgive(id: VirtualId) {
    waiting::forget_panic(id);
}

/// The right to wait for a thread's end, and its result.
pub struct JoinHandle<T>(Started<T>);

impl<T> JoinHandle<T> {
    /// Waits for the thread's end.
    ///
    /// Example: [`spawn`].
    ///
    /// # Errors
    ///
    /// The payload of the thread's panic.
    ///
    /// # Panics
    ///
    /// If a virtual thread is joined after its run, which ended before it.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        self.0.join(Location::caller())
    }

    /// Returns a handle of the thread.
    ///
    /// Example: [`spawn`].
    pub fn thread(&self) -> &Thread {
        &self.0.thread
    }

    /// Returns whether the thread has ended.
    ///
    /// Example: [`spawn`].
    pub fn is_finished(&self) -> bool {
        self.0.packet.is_full()
    }
}

/// A scope whose threads may borrow from outside of it.
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<ScopeData>,
    /// Invariant in both lifetimes, as the standard library's.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

struct ScopeData {
    /// Number of threads that have not ended.
    running: AtomicUsize,
    /// Number of threads that panicked, and were not joined.
    panicked: AtomicUsize,
    /// The thread that waits for the others.
    main: Thread,
}

/// The right to wait for the end of a thread of a scope.
pub struct ScopedJoinHandle<'scope, T> {
    started: Started<T>,
    data: Arc<ScopeData>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the thread's end.
    ///
    /// Example: [`scope`].
    ///
    /// # Errors
    ///
    /// The payload of the thread's panic.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        let ended = self.started.join(Location::caller());
        if ended.is_err() {
            self.data.panicked.fetch_sub(1, Ordering::Relaxed);
        }
        ended
    }

    /// Returns a handle of the thread.
    ///
    /// Example: [`scope`].
    pub fn thread(&self) -> &Thread {
        &self.started.thread
    }

    /// Returns whether the thread has ended.
    ///
    /// Example: [`scope`].
    pub fn is_finished(&self) -> bool {
        self.started.packet.is_full()
    }
}

impl<'scope, 'env> Scope<'scope, 'env> {
    /// Starts a thread that ends before the scope.
    ///
    /// Example: [`scope`].
    ///
    /// # Panics
    ///
    /// If there is no core or no memory for the thread.
    #[track_caller]
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        Builder::new().spawn_scoped(self, body).expect("failed to start a thread")
    }
}

/// Calls `body` with a scope, and returns when all threads that it started have ended.
///
/// ```
/// use slipring_coherence::sync;
///
/// let numbers = [1, 2, 3];
/// let sum: i32 = sync::scope(|scope| scope.spawn(|| numbers.iter().sum()).join().unwrap());
/// assert_eq!(sum, 6);
/// ```
///
/// # Panics
///
/// If a thread panicked that was not joined.
#[track_caller]
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let location = Location::caller();
    let data = Arc::new(ScopeData {
        running: AtomicUsize::new(0),
        panicked: AtomicUsize::new(0),
        main: current(),
    });
    let scope = Scope { data: data.clone(), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    // I1: also when the body panicked.
    while data.running.load(Ordering::Acquire) != 0 {
        if !waiting::park(None, Sleep::Scope, location) {
            park();
        }
    }
    match result {
        Err(payload) => resume_unwind(payload),
        Ok(_) if data.panicked.load(Ordering::Relaxed) > 0 => panic!("a scoped thread panicked"),
        Ok(value) => value,
    }
}
