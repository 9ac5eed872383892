//! The layout of a segment's bytes, version 1.
//!
//! Invariants
//! - I1: numbers are in host byte order, and locations are offsets in the file. Areas begin behind
//!   the first 65,536 bytes, at multiples of 128. The area of slots begins at a multiple of 4,096.
//! - I2: the first 65,536 bytes (the *head*: header, stage table, schema) never change once the
//!   magic is stored. The bytes behind the defined fields are zero, so later versions can add
//!   fields.
//! - I3: a head that was read from a file becomes a [`Shape`] and [`Areas`] only by
//!   [`Head::check`]. So offsets of [`Areas`] lie in the file, are aligned, and no two areas
//!   overlap.
//! - I4: all other words change, and are read and written only as atomics ([`records`]). Zero is a
//!   valid value of each.

mod head;
pub mod records;
mod shape;

pub use crate::system::limits::*;
pub use head::{
    Checked, Head, Header, KIND_BLOCKS, KIND_EVENTS, KIND_MESSAGES, MAGIC, MAJOR, MINOR, ORDER,
    StageRecord,
};
pub use shape::{Area, Areas, Shape, Stamps};
