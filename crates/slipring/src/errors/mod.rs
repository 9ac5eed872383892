//! Errors and reports: what calls come back with.

pub(crate) mod error;
pub(crate) mod report;
