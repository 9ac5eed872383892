//! Contains panics of user code. The drop of a user's value counts as user code.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a panic and drops the payload. A panic of that drop is contained.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = panic.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a payload that is not a string".to_owned()
    };
    drop_payload(panic);
    message
}

/// A user's value whose drop may panic. Every drop of the wrapper contains such a panic;
/// [`Contained::drop_contained`] also returns the panic's message.
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Contained<T> {
        Contained(Some(value))
    }

    /// Returns the value. A later panic of the value's drop is not contained.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("only consuming methods and the drop take the value")
    }

    /// Drops the value. Returns the panic's message if the drop panics.
    pub(crate) fn drop_contained(mut self) -> Option<String> {
        drop_contained(self.0.take())
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("only consuming methods and the drop take the value")
    }
}

impl<T> DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only consuming methods and the drop take the value")
    }
}

impl<T: Clone> Clone for Contained<T> {
    fn clone(&self) -> Self {
        Contained(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Contained<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Contained<T> {
    fn drop(&mut self) {
        if self.0.is_some() {
            drop_contained(self.0.take());
        }
    }
}

/// Drops a user's value. Returns the panic's message if the drop panics.
pub(crate) fn drop_contained<T>(value: T) -> Option<String> {
    catch_unwind(AssertUnwindSafe(move || drop(value))).err().map(panic_message)
}

/// Calls a user's closure or waker, and contains a panic of the call.
pub(crate) fn call_contained(call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        drop_payload(panic);
    }
}

/// Drops a panic's payload. If that drop panics, the payload of the new panic is leaked, because
/// its drop could panic, too.
pub(crate) fn drop_payload(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
