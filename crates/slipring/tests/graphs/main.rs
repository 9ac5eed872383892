//! Graphs of every shape, and of random shapes, against a sequential model and on threads; every
//! kind of event.
#![cfg(not(slipring_loom))]

#[path = "../common/mod.rs"]
mod common;

mod chains;
mod events;
mod handlers;
mod handles;
mod large;
mod model;
mod oracle;
mod script;
mod shape;
mod shapes;
mod threads;
