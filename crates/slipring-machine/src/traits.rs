//! How a graph asks for the places of its threads.

use std::fmt;
use std::sync::Arc;

use slipring::Fault;

/// Chooses where the threads of a graph run.
///
/// Example: [`Placed`](crate::Placed).
pub trait Placement {
    /// Called once by the build, with the names of the graph's threads: first the producer's, then
    /// in order of declaration.
    ///
    /// # Errors
    /// The threads have no such places.
    fn assign(&self, threads: &[String]) -> Result<Arc<dyn Places>, Fault>;
}

/// The places of one graph's threads.
pub trait Places: Send + Sync {
    /// Binds the calling thread to the place of `thread`. The drop of [`Bound`] on the same thread
    /// undoes that.
    ///
    /// # Errors
    /// There is no such thread, or the system refuses.
    fn bind(&self, thread: &str) -> Result<Bound, Fault>;

    /// Binds the calling thread to where the ring's memory is to lie, while it makes the slots.
    ///
    /// # Errors
    /// The system refuses.
    fn bind_to_memory(&self) -> Result<Bound, Fault>;
}

/// A binding of the calling thread. The drop undoes it.
#[must_use = "the drop undoes the binding"]
pub struct Bound(Option<Box<dyn FnOnce()>>);

impl Bound {
    /// Makes a binding that `undo` undoes.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    ///
    /// let bound = Rc::new(Cell::new(true));
    /// let undo = Rc::clone(&bound);
    /// drop(slipring_machine::traits::Bound::new(move || undo.set(false)));
    /// assert!(!bound.get());
    /// ```
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
