//! Machines as text: a summary of a few lines, and a drawing.

mod drawing;
pub(crate) mod summary;
