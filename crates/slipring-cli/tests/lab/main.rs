//! `slipring lab` as a user runs it: a module for each experiment, and modules for their common
//! behaviour.

mod all;
#[path = "../common/mod.rs"]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod common;
mod cores;
mod exchange;
mod graph;
mod ordered;
#[path = "../common/pty.rs"]
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod pty;
mod records;
mod report;
mod scaling;
mod shapes;
mod waits;
