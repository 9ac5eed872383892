//! Panics of user code: contained, and turned into messages.

use std::any::Any;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Takes the message out of a panic and drops the rest, wherever that leads.
pub(crate) fn panic_message(panic: Box<dyn Any + Send>) -> String {
    let message = if let Some(text) = panic.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a payload that is no text".to_owned()
    };
    discard(panic);
    message
}

/// A value of the user's whose drop may panic: the panic goes no further, however the value goes.
/// Where it is to become an error, [`Contained::let_go`] says what it was.
pub(crate) struct Contained<T>(Option<T>);

impl<T> Contained<T> {
    pub(crate) fn new(value: T) -> Contained<T> {
        Contained(Some(value))
    }

    /// The value, which is the caller's to contain.
    pub(crate) fn into_inner(mut self) -> T {
        self.0.take().expect("only this call and the drop take the value")
    }

    /// Drops the value; says what panicked if that did.
    pub(crate) fn let_go(mut self) -> Option<String> {
        let_go(self.0.take())
    }
}

impl<T> Deref for Contained<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("the value is there until this goes")
    }
}

impl<T> DerefMut for Contained<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("the value is there until this goes")
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
            let_go(self.0.take());
        }
    }
}

/// Drops what is the user's; says what panicked if that did.
pub(crate) fn let_go<T>(value: T) -> Option<String> {
    catch_unwind(AssertUnwindSafe(move || drop(value))).err().map(panic_message)
}

/// Drops a panic's payload. A payload whose own drop panics is contained, and what *that* throws is
/// leaked: it could go on for ever.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
