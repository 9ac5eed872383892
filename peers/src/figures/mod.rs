//! The figures, one module for each question.

mod arrivals;
mod batches;
mod behind_stage;
mod busy;
mod layouts;
mod one_by_one;
mod one_shot;
mod oversubscribed;
mod pools;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub mod processes;
mod producers;
mod round_trip;
mod scaling;
mod shared_threads;
#[cfg(target_os = "linux")]
mod strategies;

use crate::contenders::foreign::Programs;
use crate::measure::{Figure, Size};

/// Returns all figures, in the order of the report.
pub fn all(size: Size, programs: &Programs) -> Vec<Figure> {
    let figures = [
        one_by_one::figures(size, programs),
        batches::figures(size, programs),
        busy::full::figures(size, programs),
        busy::uneven::figures(size),
        busy::shapes::figures(size, programs),
        busy::open::figures(size, programs),
        round_trip::figures(size, programs),
        #[cfg(target_os = "linux")]
        strategies::figures(size),
        one_shot::figures(size),
        behind_stage::figures(size),
        producers::figures(size, programs),
        pools::figures(size, programs),
        oversubscribed::figures(size, programs),
        layouts::figures(size),
        scaling::figures(size),
        shared_threads::shapes::figures(size),
        shared_threads::open::figures(size),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        processes::figures(size, programs),
    ];
    figures.into_iter().flatten().collect()
}
