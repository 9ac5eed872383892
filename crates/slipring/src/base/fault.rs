//! Defines [`Fault`], an error of any type, and [`Outcome`], the trait of the return types of
//! handlers.

use std::error::Error as StdError;
use std::fmt;

type Boxed = Box<dyn StdError + Send + Sync + 'static>;

/// A user's error of any type. After the graph has failed,
/// [`Error::downcast_ref`](crate::Error::downcast_ref) returns it.
///
/// `?` converts every error that is `Send`, `Sync` and `'static` into a `Fault`, and the `Fault`
/// dereferences to that error. `Fault` itself does not implement [`std::error::Error`], because
/// then `impl<E: Error> From<E> for Fault` would overlap with the standard `impl<T> From<T> for T`.
///
/// ```
/// use slipring::faults::Fault;
///
/// let failed = slipring::ring(8, || 0u64)
///     .read("even", |v, _| match v % 2 {
///         0 => Ok(()),
///         _ => Err(Fault::msg(format!("{v} is odd"))),
///     })
///     .feed(0..10, |slot, i| *slot = i)
///     .unwrap_err();
/// assert_eq!(failed.to_string(), "stage `even` failed at event 1: 1 is odd");
/// ```
pub struct Fault(Boxed);

impl Fault {
    /// Creates a fault that carries a message.
    ///
    /// Example: [`Fault`].
    pub fn msg(message: impl Into<String>) -> Fault {
        Fault(message.into().into())
    }

    /// Creates a fault from a boxed error, or from a type that converts into a boxed error, such as
    /// `anyhow::Error`.
    ///
    /// ```
    /// use slipring::faults::Fault;
    ///
    /// let boxed: Box<dyn std::error::Error + Send + Sync> =
    ///     "x".parse::<u64>().unwrap_err().into();
    /// let fault = Fault::from_boxed(boxed);
    /// assert!(fault.downcast_ref::<std::num::ParseIntError>().is_some());
    /// ```
    pub fn from_boxed(error: impl Into<Box<dyn StdError + Send + Sync + 'static>>) -> Fault {
        Fault(error.into())
    }

    /// Returns the carried error if its type is `T`.
    ///
    /// Example: [`Fault::from_boxed`].
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

/// Implements `Debug` of an error as its message. `unwrap`, `expect` and a `main` that returns an
/// error print the error by `Debug`, and their user needs the remedy that the message names.
macro_rules! debug_is_message {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use debug_is_message;

/// Returns `Ok(())`, as the end of a handler that uses `?` on errors of several types. Without it,
/// the closure would have to name an error type: `Ok::<_, Fault>(())`.
///
/// ```
/// let mut sum = 0;
/// slipring::ring(8, String::new)
///     .read("sum", |text, _| {
///         sum += text.parse::<u64>()?;
///         std::str::from_utf8(text.as_bytes())?;
///         slipring::ok()
///     })
///     .feed(["1", "2"], |slot, text| text.clone_into(slot))?;
/// assert_eq!(sum, 3);
/// # Ok::<(), slipring::Error>(())
/// ```
///
/// A text is no error type, so `?` and `into` do not convert it into a fault: [`Fault::msg`] does.
/// A handler whose errors are all texts ends with `Ok::<(), &str>(())` instead.
///
/// ```
/// use slipring::faults::Fault;
/// let error = slipring::ring(8, String::new)
///     .read("port", |address, _| {
///         let (_host, port) = address.split_once(':').ok_or_else(|| Fault::msg("no port"))?;
///         port.parse::<u16>()?;
///         slipring::ok()
///     })
///     .feed(["one:80", "two"], |slot, text| text.clone_into(slot))
///     .unwrap_err();
/// assert_eq!(error.to_string(), "stage `port` failed at event 1: no port");
/// ```
#[inline(always)]
pub fn ok() -> Result<(), Fault> {
    Ok(())
}

/// The return types of handlers: `()`, or `Result<(), _>` with any error. By default, an error that
/// a handler returns fails the graph, and the graph's [`Error`](crate::Error) names the stage and
/// the event's position. A closure that uses `?` ends with [`ok()`].
///
/// The library implements `Outcome` for every type that a handler may return, and only the library
/// calls [`Outcome::outcome`].
///
/// Example: [`Fault`].
#[diagnostic::on_unimplemented(
    message = "a handler returns nothing or a `Result<(), _>` with an error, not `{Self}`",
    label = "nothing would see this value",
    note = "to let the value go, put the body in braces and end it with `;`: `|event, _| {{ ...; }}`; or map the value of a `Result`: `.map(|_| ())`",
    note = "to keep it, store it in a local that the closure borrows",
    note = "an error must be a `String`, a `&str`, a `Box<dyn Error + Send + Sync>`, or a type that implements `std::error::Error` and is `Send + Sync + 'static`"
)]
pub trait Outcome {
    /// Converts the outcome into a `Result` whose error is a [`Fault`].
    ///
    /// Example: [`Fault`].
    fn outcome(self) -> Result<(), Fault>;
}

impl Outcome for () {
    #[inline(always)]
    fn outcome(self) -> Result<(), Fault> {
        Ok(())
    }
}

#[diagnostic::do_not_recommend]
impl<X: Into<Box<dyn StdError + Send + Sync + 'static>>> Outcome for Result<(), X> {
    #[inline(always)]
    fn outcome(self) -> Result<(), Fault> {
        self.map_err(|error| Fault(error.into()))
    }
}

/// The type `!`, which stable Rust allows only as a return type.
type Never = <fn() -> ! as never::Returns>::Value;

mod never {
    pub trait Returns {
        type Value;
    }
    impl<T> Returns for fn() -> T {
        type Value = T;
    }
}

/// The return type of a handler that always panics, as in a test of failures.
#[diagnostic::do_not_recommend]
impl Outcome for Never {
    fn outcome(self) -> Result<(), Fault> {
        match self {}
    }
}
