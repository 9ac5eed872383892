//! The figures, one module for each question.

mod batches;
mod behind_stage;
mod busy;
mod layouts;
mod one_by_one;
mod oversubscribed;
mod pools;
mod producers;
mod round_trip;

use crate::measure::{Figure, Size};

/// Returns all figures, in the order of the report.
pub fn all(size: Size) -> Vec<Figure> {
    let figures = [
        one_by_one::figures(size),
        batches::figures(size),
        busy::full::figures(size),
        busy::shapes::figures(size),
        busy::open::figures(size),
        round_trip::figures(size),
        behind_stage::figures(size),
        producers::figures(size),
        pools::figures(size),
        oversubscribed::figures(size),
        layouts::figures(size),
    ];
    figures.into_iter().flatten().collect()
}
