//! Other ways to hold a handle: by positions, as a task, several rings at once.

pub(crate) mod raw;
pub(crate) mod select;
pub(crate) mod task;
