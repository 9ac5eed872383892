//! What the examples are made of, as a library, so that tests and programs use the same code.
//!
//! Each example is a module here and a thin program of its own: [`readings`] is `readings/main.rs`.

pub mod readings;
