//! What the larger examples are made of, as a library, so that tests and programs use the same
//! code.
//!
//! [`readings`] is `readings/main.rs`, the main job of a ring. The small examples are a file each,
//! and show one thing each:
//!
//! - `fizzbuzz.rs`: a diamond, two stages side by side and one behind both
//! - `many_to_many.rs`: several producers, a pool of workers, and results in order
//! - `late_subscriber.rs`: readers that join and leave while the ring runs
//! - `opening_hours.rs`: a way to wait of one's own, for one stage
//! - `tokio_stage.rs`: tasks as a producer and as a stage, beside a stage on a thread
//! - `epoll_loop.rs`: two rings and a timer in one event loop (Linux)
//!
//! No example panics where standard output refuses a write. `readings` treats a reader that has
//! gone (`| head`) as one that has seen enough; its journal is complete by then. The small examples
//! pass the error on and end with exit code 1.

pub mod readings;
