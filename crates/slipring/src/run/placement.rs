//! Decides where the threads of a graph run.
//!
//! The library binds no thread to a core itself. When a graph is built, the library tells a
//! [`Placement`] the names of the graph's threads. It then calls the [`Places`] that the placement
//! chose: on each thread, before the thread's first stage starts, and on the building thread,
//! before and after it makes the slots.
//!
//! Invariants
//! - I1: a [`Bound`] is not `Send`, so a binding is undone on the thread on which it was made.
//! - I2: the library catches each panic of the user's placement, and turns it into an error of the
//!   build or a failure of the graph. After the graph's end, and while a thread of the library
//!   undoes its binding, it catches the panic and ignores it.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::threads::{SharedThreads, shared_thread_name};
use crate::base::fault::Fault;
use crate::base::name::PRODUCER;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::errors::{BindError, BuildError, Cause};
use crate::ring::check;
use crate::ring::owner::Owner;
use crate::ring::settings::Settings;
use crate::ring::slots::Layout;
use crate::ring::spec::{Delivery, StageSpec, ThreadChoice, thread_name};

/// Chooses where the threads of a graph run: see [`Chain::placement`](crate::Chain::placement).
///
/// The crate `slipring-machine` has placements by name, such as "on cores that share a cache". A
/// placement of your own suits a program that binds its threads in its own way.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use slipring::{faults::Fault, placement::{Bound, Placement, Places}};
///
/// /// Notes which thread would be bound, in place of binding it.
/// #[derive(Clone, Default)]
/// struct Noted(Arc<Mutex<Vec<String>>>);
/// impl Placement for Noted {
///     fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault> {
///         assert_eq!(threads, ["producer", "parse", "store-0", "store-1"]);
///         Ok(Arc::new(self.clone()))
///     }
/// }
/// impl Places for Noted {
///     fn cores(&self) -> usize {
///         4
///     }
///     fn bind(&self, thread: &str) -> Result<Bound, Fault> {
///         self.0.lock().unwrap().push(thread.to_owned());
///         Ok(Bound::new(|| ()))
///     }
///     fn bind_to_memory(&self) -> Result<Bound, Fault> {
///         Ok(Bound::new(|| ()))
///     }
/// }
///
/// let noted = Noted::default();
/// slipring::ring(8, || 0)
///     .placement(noted.clone())
///     .read("parse", |_, _| ())
///     .read_pool("store", 2, |_worker| |_, _| ())
///     .feed(0..3, |slot, i| *slot = i)?;
/// let mut bound = noted.0.lock().unwrap().clone();
/// bound.sort();
/// assert_eq!(bound, ["parse", "producer", "store-0", "store-1"]);
/// # Ok::<(), slipring::Error>(())
/// ```
pub trait Placement {
    /// Chooses the places of a graph's threads. The build calls it once, before it makes the slots.
    ///
    /// `threads` are the threads' names: [`PRODUCER`] first, then those of the stages in the order
    /// of declaration. A stage's thread has the stage's name, or the name that
    /// [`Chain::on`](crate::Chain::on) gave the thread. Workers and shards are numbered from 0
    /// (`store-0`), and so are threads that all stages share (`stages-0`). No two names are the
    /// same. The list does not contain the readers of a tap, nor workers that join a pool later.
    ///
    /// Example: [`Placement`].
    ///
    /// # Errors
    /// Fails if the machine does not allow the placement. The graph is then not built
    /// ([`BuildError::Placement`]).
    fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault>;
}

/// The places of one graph's threads, as a [`Placement`] chose them.
///
/// Example: [`Placement`].
pub trait Places: Send + Sync {
    /// Returns the number of different cores that the threads have together. If this number is less
    /// than the number of threads, adaptive waits do not spin, and the library warns of strategies
    /// that spin. Otherwise, the number of cores that the process may use decides both. The build
    /// calls `cores` once.
    ///
    /// Example: [`Placement`].
    fn cores(&self) -> usize;

    /// Binds the calling thread to the place that was chosen for the thread named `thread`, until
    /// the result is dropped.
    ///
    /// Example: [`Placement`].
    ///
    /// # Errors
    /// Fails if the system refuses the binding, or if the graph has no thread of this name. The
    /// graph then fails with an error of the thread's first stage.
    fn bind(&self, thread: &str) -> Result<Bound, Fault>;

    /// Binds the calling thread to the place where the ring's memory should lie, until the result
    /// is dropped. While it is bound, the thread is the first to touch the memory, so the system
    /// takes the memory from the NUMA node of that place.
    ///
    /// Example: [`Placement`].
    ///
    /// # Errors
    /// Fails if the system refuses the binding. The graph is then not built
    /// ([`BuildError::Placement`]).
    fn bind_to_memory(&self) -> Result<Bound, Fault>;
}

/// The binding of a thread to a place. Dropping the value undoes the binding.
///
/// If one thread has several bindings, drop them in the reverse order of their creation: each
/// binding restores the place at which it found the thread.
///
/// ```
/// use slipring::placement::Bound;
/// let undone = std::rc::Rc::new(std::cell::Cell::new(false));
/// let bound = Bound::new({ let undone = undone.clone(); move || undone.set(true) });
/// assert!(!undone.get());
/// drop(bound);
/// assert!(undone.get());
/// ```
#[must_use = "the drop of the value undoes what was bound"]
pub struct Bound(Option<Box<dyn FnOnce()>>);

impl Bound {
    /// Creates a `Bound` whose closure undoes the binding. The closure is called once, on the
    /// thread that called `new`.
    ///
    /// Example: [`Bound`].
    pub fn new(undo: impl FnOnce() + 'static) -> Bound {
        Bound(Some(Box::new(undo)))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(undo) = self.0.take() {
            undo();
        }
    }
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bound")
    }
}

/// The places of a graph that has a placement. Dropping the last reference runs user code.
pub(crate) type Assigned = Contained<Arc<dyn Places>>;

/// Checks the graph, and lets a placement choose the places of its threads. Tells the ring how many
/// cores the placement has.
pub(crate) fn assign(
    placement: &dyn Placement,
    specs: &[StageSpec],
    shared: SharedThreads,
    settings: &mut Settings,
) -> Result<Assigned, BuildError> {
    // The check comes before the names are made. Otherwise a pool that declares far too many
    // workers would first get a name for each of them.
    check::all(specs, settings.capacity)?;
    let names = thread_names(specs, shared)?;
    let places = Contained::new(contained(|| placement.assign(&names))?);
    settings.placed = Some(contained(|| Ok(places.cores()))?);
    Ok(places)
}

/// Returns the names of a graph's threads, as [`Placement::assign`] gets them.
fn thread_names(specs: &[StageSpec], shared: SharedThreads) -> Result<Vec<String>, BuildError> {
    let mut names = vec![PRODUCER.to_owned()];
    let mut known: HashSet<String> = names.iter().cloned().collect();
    let mut threads_of_several: Vec<&ThreadChoice> = Vec::new();
    for spec in specs.iter().filter(|spec| !matches!(spec.delivery, Delivery::Tap(_))) {
        if spec.thread != ThreadChoice::Own {
            if threads_of_several.contains(&&spec.thread) {
                continue; // an earlier stage on the same threads has named them
            }
            threads_of_several.push(&spec.thread);
        }
        let own: Vec<String> = if spec.thread.is_shared() {
            (0..shared.started).map(shared_thread_name).collect()
        } else {
            let name = |worker| thread_name(&spec.thread, spec.delivery, &spec.name, worker);
            (0..spec.delivery.len()).map(name).collect()
        };
        for name in own {
            if !known.insert(name.clone()) {
                let problem = format!(
                    "two threads of the graph are named `{name}`, and a placement could not tell \
                     them apart: rename a stage or the thread"
                );
                return Err(BuildError::Declaration { problem });
            }
            names.push(name);
        }
    }
    Ok(names)
}

/// Builds a ring while the calling thread is bound to the place where the ring's memory should lie.
pub(crate) fn build_in_place<E, L: Layout>(
    places: Option<&Assigned>,
    build: impl FnOnce() -> Result<Owner<E, L>, BuildError>,
) -> Result<Owner<E, L>, BuildError> {
    let bound = places.map(|places| contained(|| places.bind_to_memory())).transpose()?;
    let built = build();
    let panic = drop_contained(bound);
    let core = built?;
    if let Some(panic) = panic {
        core.control.fail(core.control.plan.producer_party(), None, Cause::Panic(panic));
    }
    Ok(core)
}

/// Binds the calling thread, which is the user's own, to the place that was chosen for the thread
/// named `thread`. Does nothing if the graph has no placement.
pub(crate) fn bind(places: Option<&Assigned>, thread: &str) -> Result<Option<Bound>, BindError> {
    let bound = places.map(|places| places.bind(thread)).transpose();
    bound.map_err(|fault| BindError { thread: thread.to_owned(), problem: fault.to_string() })
}

/// Calls a method of the placement during the build (I2).
fn contained<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, BuildError> {
    let problem = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(fault)) => {
            let text = catch_unwind(AssertUnwindSafe(|| fault.to_string()));
            // The error is dropped outside of `catch_unwind`. If its drop panicked while a panic of
            // its `to_string` is unwinding, the process would abort.
            drop_contained(fault);
            text.unwrap_or_else(|panic| {
                format!("the text of the placement's error panicked: {}", panic_message(panic))
            })
        }
        Err(panic) => format!("the placement panicked: {}", panic_message(panic)),
    };
    Err(BuildError::Placement { problem })
}
