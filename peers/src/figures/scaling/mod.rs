//! The scaling study: the cost of an event as one number grows, all else being equal.
//!
//! - [`parties`]: stages, producers and members of a tap.
//! - [`workers`]: workers of a pool and shards.
//! - [`memory`]: slots of the ring and bytes of an event.
//! - [`threads`]: threads per core.
//!
//! A column's name is its number and the unit, so that `--picture` can draw the tables.

mod memory;
mod parties;
mod threads;
mod workers;

use crate::measure::{Figure, Size};

/// Returns all figures of the study.
pub fn figures(size: Size) -> Vec<Figure> {
    let figures = [
        parties::figures(size),
        workers::figures(size),
        memory::figures(size),
        threads::figures(size),
    ];
    figures.into_iter().flatten().collect()
}
