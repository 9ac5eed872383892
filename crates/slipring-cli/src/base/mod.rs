//! Parts that all commands use: output, files that are written at the end, exit codes.

pub mod console;
pub mod destination;
pub mod exit;
