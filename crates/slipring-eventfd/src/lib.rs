//! The progress of a ring as a readable file descriptor, for event loops on `epoll`, `poll` or any
//! other call that waits for descriptors.
//!
//! ```text
//! cargo add slipring-eventfd
//! # until it is published:
//! cargo add --path PATH/TO/crates/slipring-eventfd
//! ```
//!
//! ```text
//!   ring ──> EventFd ─┐
//!   sockets ──────────┼──> one epoll loop
//!   timers ───────────┘
//! ```
//!
//! A thread that waits for sockets and timers cannot sleep in a ring at the same time. `EventFd` is
//! a descriptor that becomes readable when a ring's handle can make progress: a consumer gets
//! events, or a producer gets room. So the loop waits for all of its sources in one place.
//!
//! Only Linux has eventfd. On other systems this crate compiles and is empty. There,
//! `slipring::tasks::Selector` waits for several rings, and the futures of `slipring` wait for
//! rings and sockets on a runtime.
#![forbid(unsafe_code)]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(target_os = "linux")]
mod fd;

#[cfg(target_os = "linux")]
pub use fd::EventFd;
