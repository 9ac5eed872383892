//! What user code may end with: nothing, or a `Result` with any error.

use std::error::Error as StdError;
use std::fmt;

type Boxed = Box<dyn StdError + Send + Sync + 'static>;

/// Any error of the user's own, kept whole: it comes back through
/// [`Error::downcast_ref`](crate::Error::downcast_ref).
///
/// Made by `?` from every `std` error. Like other carriers of any error it does not implement
/// [`std::error::Error`] itself; it dereferences to the error it carries.
pub struct Fault(Boxed);

impl Fault {
    /// A fault that is only a message.
    pub fn msg(message: impl Into<String>) -> Fault {
        Fault(message.into().into())
    }

    /// Carries an error that is boxed already (or what turns into one, such as `anyhow::Error`).
    pub fn from_boxed(error: impl Into<Box<dyn StdError + Send + Sync + 'static>>) -> Fault {
        Fault(error.into())
    }

    /// The carried error, if it is a `T`.
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }

    pub(crate) fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }
}

impl<E: StdError + Send + Sync + 'static> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault(error.into())
    }
}

impl From<Fault> for Boxed {
    fn from(fault: Fault) -> Boxed {
        fault.0
    }
}

impl std::ops::Deref for Fault {
    type Target = dyn StdError + Send + Sync + 'static;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a handler may return: nothing, or a `Result<(), _>` with any error. An error ends the graph
/// and is reported with the stage's name and the event's position.
#[diagnostic::on_unimplemented(
    message = "a handler returns nothing or a `Result<(), _>` with an error, not `{Self}`",
    label = "this closure's value would be lost",
    note = "to let the value go, put the body in braces and end it with `;`: `|event, _| {{ ...; }}`",
    note = "to keep it, store it in a local that the closure borrows; an error type must be `Send + Sync + 'static`"
)]
pub trait Outcome {
    /// The outcome as a result with one error type.
    fn outcome(self) -> Result<(), Fault>;
}

impl Outcome for () {
    #[inline(always)]
    fn outcome(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl<X: Into<Box<dyn StdError + Send + Sync + 'static>>> Outcome for Result<(), X> {
    #[inline(always)]
    fn outcome(self) -> Result<(), Fault> {
        self.map_err(|error| Fault(error.into()))
    }
}

/// The type of what never comes back, which stable Rust lets one write only as a function's return
/// type.
type Never = <fn() -> ! as never::Returns>::Value;

mod never {
    pub trait Returns {
        type Value;
    }
    impl<T> Returns for fn() -> T {
        type Value = T;
    }
}

/// A handler that always panics, as in a test of what happens then.
#[diagnostic::do_not_recommend]
impl Outcome for Never {
    fn outcome(self) -> Result<(), Fault> {
        match self {}
    }
}
