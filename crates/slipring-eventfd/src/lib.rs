//! The progress of a ring as a readable file descriptor, for event loops on `epoll`, `poll`, or
//! whatever waits for descriptors.
//!
//! A loop that waits for sockets and timers cannot sleep in a ring at the same time. `EventFd` is a
//! descriptor that becomes readable when a handle of a ring (a consumer with events to come, a
//! producer with room to come) is worth a look, so the loop waits for everything in one place.
//!
//! Only Linux has eventfd. On other systems this crate compiles and is empty: wait for several
//! rings with `slipring::Selector`, or for rings and sockets with the futures of `slipring` on a
//! runtime.
#![forbid(unsafe_code)]
#![deny(missing_docs, unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

#[cfg(target_os = "linux")]
mod fd;

#[cfg(target_os = "linux")]
pub use fd::EventFd;
