//! The code of the larger example, as a library, so that tests and programs use the same code.
//!
//! [`readings`] is the library of `readings/main.rs`, a typical job for a ring. `field` is the
//! common part of `field_simulation.rs` and `field_analysis.rs`, two programs with a ring between
//! them (64-bit Linux). Each small example is one file and shows one feature:
//!
//! - `fizzbuzz.rs`: a diamond of two parallel stages and a stage behind both
//! - `many_to_many.rs`: several producers, a pool of workers, and results in order
//! - `late_subscriber.rs`: readers that join and leave while the ring runs
//! - `opening_hours.rs`: a custom wait strategy for one stage
//! - `tokio_stage.rs`: tokio tasks as a producer and as a stage, beside a stage on a thread
//! - `epoll_loop.rs`: two rings and a timer in one event loop (Linux)
//!
//! No example panics if standard output refuses a write. For `readings`, a closed pipe (`| head`)
//! is no error, because its journal is already complete. The small examples return the error and
//! end with exit code 1.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod field;
pub mod readings;
