//! Where the threads of a graph run.
//!
//! The library binds no thread to a core itself. It tells a [`Placement`] the names of a graph's
//! threads when the graph is built, and calls the [`Places`] that the placement chose: on each
//! thread before its first stage starts, and on the building thread around the making of the slots.
//!
//! Invariants
//! - I1: what a [`Bound`] undoes, it undoes on the thread that was bound, because it is not `Send`.
//! - I2: every call of the user's placement is contained: a panic in it is an error of the build or
//!   a failure of the graph.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::threads::{Shared, shared_thread_name};
use crate::base::fault::Fault;
use crate::base::name::PRODUCER;
use crate::base::panics::{Contained, drop_contained, panic_message};
use crate::errors::{BindError, BuildError, Cause};
use crate::ring::owner::Owner;
use crate::ring::settings::Settings;
use crate::ring::slots::Layout;
use crate::ring::spec::{Delivery, StageSpec, thread_name};

/// Chooses where the threads of a graph run: see [`Chain::placement`](crate::Chain::placement).
///
/// The crate `slipring-machine` has placements by name, such as "on cores that share a cache". A
/// placement of your own suits a program that binds its threads in its own way.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use slipring::{Bound, Fault, Placement, Places};
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
    /// `threads` are the threads' names: [`PRODUCER`] first, then the threads of the stages in the
    /// order of declaration. A stage's thread has the name of the stage, or the name that
    /// [`Chain::on`](crate::Chain::on) gave it. Workers and shards are numbered from 0 (`store-0`),
    /// and so are threads that all stages share (`stages-0`). The readers of a tap are not among
    /// the threads. Threads of one name have one place.
    ///
    /// Example: [`Placement`].
    ///
    /// # Errors
    /// A placement that the machine does not allow. The graph is then not built
    /// ([`BuildError::Placement`]).
    fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault>;
}

/// The places of one graph's threads, as a [`Placement`] chose them.
///
/// Example: [`Placement`].
pub trait Places: Send + Sync {
    /// Returns the number of different cores that the threads have together. Where it is less than
    /// the number of threads, waits that adapt do not spin, and strategies that spin are warned of.
    /// The build calls it once.
    ///
    /// Example: [`Placement`].
    fn cores(&self) -> usize;

    /// Binds the calling thread to the place of the thread of this name, until the result is
    /// dropped.
    ///
    /// Example: [`Placement`].
    ///
    /// # Errors
    /// The system's refusal, or a name that the graph does not have. The graph then fails with an
    /// error of the thread's first stage.
    fn bind(&self, thread: &str) -> Result<Bound, Fault>;

    /// Binds the calling thread to where the ring's memory is to lie, until the result is dropped.
    /// The thread touches the memory first while it is bound, so the system takes the memory from
    /// the NUMA node of that place.
    ///
    /// Example: [`Placement`].
    ///
    /// # Errors
    /// The system's refusal. The graph is then not built ([`BuildError::Placement`]).
    fn bind_to_memory(&self) -> Result<Bound, Fault>;
}

/// A thread that is bound to a place. The drop undoes it.
///
/// ```
/// use slipring::Bound;
/// let undone = std::rc::Rc::new(std::cell::Cell::new(false));
/// let bound = Bound::new({ let undone = undone.clone(); move || undone.set(true) });
/// assert!(!undone.get());
/// drop(bound);
/// assert!(undone.get());
/// ```
#[must_use = "the drop of the value undoes what was bound"]
pub struct Bound(Option<Box<dyn FnOnce()>>);

impl Bound {
    /// Makes the value from the closure that undoes the binding. The closure is called once, on the
    /// thread that calls `new`.
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

/// The places of a graph that has a placement. The last reference's drop is user code.
pub(crate) type Assigned = Contained<Arc<dyn Places>>;

/// Lets a placement choose the places of a graph's threads. Tells the ring how many cores they have.
pub(crate) fn assign(
    placement: &dyn Placement,
    specs: &[StageSpec],
    shared: Shared,
    settings: &mut Settings,
) -> Result<Assigned, BuildError> {
    let names = thread_names(specs, shared);
    let places = Contained::new(contained(|| placement.assign(&names))?);
    settings.cores = Some(contained(|| Ok(places.cores()))?);
    Ok(places)
}

/// Returns the names of a graph's threads, as [`Placement::assign`] gets them.
fn thread_names(specs: &[StageSpec], shared: Shared) -> Vec<String> {
    let mut names = vec![PRODUCER.to_owned()];
    let mut add = |name: String| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for spec in specs.iter().filter(|spec| !matches!(spec.delivery, Delivery::Tap(_))) {
        if spec.thread.is_shared() {
            (0..shared.started).map(shared_thread_name).for_each(&mut add);
        } else {
            let name = |worker| thread_name(&spec.thread, spec.delivery, &spec.name, worker);
            (0..spec.delivery.len()).map(name).for_each(&mut add);
        }
    }
    names
}

/// Builds a ring while the calling thread is bound to where the ring's memory is to lie.
pub(crate) fn build_in_place<E, L: Layout>(
    places: Option<&Assigned>,
    build: impl FnOnce() -> Result<Owner<E, L>, BuildError>,
) -> Result<Owner<E, L>, BuildError> {
    let bound = places.map(|places| contained(|| places.bind_to_memory())).transpose()?;
    let built = build();
    let panic = drop_contained(bound);
    let core = built?;
    if let Some(panic) = panic {
        core.control.fail(core.control.producer_party(), None, Cause::Panic(panic));
    }
    Ok(core)
}

/// Binds the calling thread, which is the user's own, to the place of the thread of this name, if
/// the graph has a placement.
pub(crate) fn bind(places: Option<&Assigned>, thread: &str) -> Result<Option<Bound>, BindError> {
    let bound = places.map(|places| places.bind(thread)).transpose();
    bound.map_err(|fault| BindError { thread: thread.to_owned(), problem: fault.to_string() })
}

/// Calls a method of the placement during the build (I2).
fn contained<T>(call: impl FnOnce() -> Result<T, Fault>) -> Result<T, BuildError> {
    let problem = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return Ok(value),
        // The error's `to_string` and its drop are user code, too.
        Ok(Err(fault)) => catch_unwind(AssertUnwindSafe(move || fault.to_string())),
        Err(panic) => Ok(format!("the placement panicked: {}", panic_message(panic))),
    };
    let problem = problem.unwrap_or_else(|panic| {
        format!("the placement's error panicked: {}", panic_message(panic))
    });
    Err(BuildError::Placement { problem })
}
