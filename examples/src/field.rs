//! The common part of `field_simulation` and `field_analysis`: the block that is one event, the
//! physics, and the properties that the theory predicts for each block.
//!
//! The field is the temperature of a plate with insulated edges, in degrees: two hot discs cool
//! down in a cold plate. Each step solves the heat equation explicitly. With insulated edges the
//! total heat is constant, and no cell ever leaves the range of the first field.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use slipring_shm::{Event, Segment, SegmentError};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Default name of the segment.
pub const NAME: &str = "field";
/// Name of the simulation's own stage. It keeps the newest block in its slot, so that the next
/// step, or the next simulation, can be computed from that block.
pub const NEWEST: &str = "newest";
/// Stage of the analysis.
pub const ANALYSIS: &str = "analysis";
/// Number of columns of the plate.
pub const WIDTH: usize = 256;
/// Number of rows of the plate.
pub const HEIGHT: usize = 512;
/// Temperature of the cold plate, in degrees.
pub const COLD: f64 = 20.0;
/// Temperature of the discs in the first field, in degrees.
pub const HOT: f64 = 100.0;
/// Diffusivity times the time step, over the square of a cell's width. The solution is stable up to
/// 1/4.
const RATE: f64 = 0.2;
/// Greatest error that rounding may cause, relative to the total heat, or in degrees.
const ROUNDING: f64 = 1e-9;
/// Discs of the first field: column, row, radius.
const DISCS: [(f64, f64, f64); 2] = [(80.0, 256.0, 14.0), (176.0, 256.0, 6.0)];
/// Longest time between two checks for an interruption.
pub const TURN: Duration = Duration::from_millis(50);

/// One time step of the field: an event of 1 MiB, which no program copies.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Block {
    /// Number of the step, from 0.
    pub step: u64,
    /// Temperatures by row and column, in degrees.
    pub cells: [[f64; WIDTH]; HEIGHT],
}

impl Event for Block {
    const NAME: &'static str = "field/Block";
    const VERSION: u32 = 1;
}

/// Returns the temperature of a cell in the first field.
fn first(row: usize, column: usize) -> f64 {
    let inside = |(x, y, radius): (f64, f64, f64)| {
        let (x, y) = (column as f64 - x, row as f64 - y);
        x * x + y * y <= radius * radius
    };
    if DISCS.into_iter().any(inside) { HOT } else { COLD }
}

/// Returns the total heat that the theory predicts for every step, in degrees times cells.
pub fn theory() -> f64 {
    let cells = (0..HEIGHT).flat_map(|row| (0..WIDTH).map(move |column| first(row, column)));
    cells.sum()
}

impl Block {
    /// Makes this block the first field.
    pub fn begin(&mut self) {
        self.step = 0;
        for (row, cells) in self.cells.iter_mut().enumerate() {
            for (column, cell) in cells.iter_mut().enumerate() {
                *cell = first(row, column);
            }
        }
    }

    /// Makes this block the step after `before`.
    pub fn advance(&mut self, before: &Block) {
        self.step = before.step + 1;
        for (row, cells) in self.cells.iter_mut().enumerate() {
            // A missing neighbour counts as having the cell's own temperature, so no heat crosses
            // the edges.
            let here = &before.cells[row];
            let above = &before.cells[row.saturating_sub(1)];
            let below = &before.cells[(row + 1).min(HEIGHT - 1)];
            for (column, cell) in cells.iter_mut().enumerate() {
                let (left, right) = (column.saturating_sub(1), (column + 1).min(WIDTH - 1));
                let around = here[left] + here[right] + above[column] + below[column];
                *cell = here[column] + RATE * (around - 4.0 * here[column]);
            }
        }
    }

    /// Measures the field where it lies.
    pub fn measure(&self) -> Measures {
        let (mut minimum, mut maximum, mut heat) = (f64::INFINITY, f64::NEG_INFINITY, 0.0);
        for row in &self.cells {
            // The sums are taken row by row, so that rounding stays small.
            let mut sum = 0.0;
            for &cell in row {
                minimum = minimum.min(cell);
                maximum = maximum.max(cell);
                sum += cell;
            }
            heat += sum;
        }
        Measures { minimum, maximum, heat }
    }

    /// Draws the plate's middle row, without the cells at its ends. A character stands for 6
    /// columns.
    pub fn profile(&self) -> String {
        const SHADES: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let shade = |cells: &[f64]| {
            let mean = cells.iter().sum::<f64>() / cells.len() as f64;
            let part = (mean - COLD) / (HOT - COLD) * (SHADES.len() - 1) as f64;
            SHADES[(part.round() as usize).min(SHADES.len() - 1)]
        };
        self.cells[HEIGHT / 2][32..WIDTH - 32].chunks(6).map(shade).collect()
    }
}

/// The figures of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// Least temperature, in degrees.
    pub minimum: f64,
    /// Greatest temperature, in degrees.
    pub maximum: f64,
    /// Sum of all temperatures, in degrees times cells.
    pub heat: f64,
}

impl Measures {
    /// Returns the mean temperature, in degrees.
    pub fn mean(&self) -> f64 {
        self.heat / (WIDTH * HEIGHT) as f64
    }

    /// Returns the relative difference between the heat and the value that theory gives for it.
    pub fn error(&self, theory: f64) -> f64 {
        (self.heat - theory) / theory
    }

    /// Returns whether the total heat and the range agree with theory, except for rounding.
    pub fn agrees(&self, theory: f64) -> bool {
        self.error(theory).abs() <= ROUNDING
            && self.minimum >= COLD - ROUNDING
            && self.maximum <= HOT + ROUNDING
    }
}

/// Declares the segment, and makes it.
pub fn make(name: &str, capacity: u64) -> Result<Segment<Block>, SegmentError> {
    Segment::create(name).capacity(capacity).reader(NEWEST).reader(ANALYSIS).build()
}

/// Returns a flag that Ctrl-C and SIGTERM set. A second signal ends the program at once.
pub fn interruption() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// Sleeps for `time`, or until `interrupted` is set.
pub fn pause(mut time: Duration, interrupted: &AtomicBool) {
    while !time.is_zero() && !interrupted.load(Relaxed) {
        std::thread::sleep(time.min(TURN));
        time = time.saturating_sub(TURN);
    }
}

/// Name of a segment that a run with `--smoke` makes, and that is removed with the run.
pub struct SmokeName(pub String);

impl SmokeName {
    /// Returns a name that no other process has.
    pub fn new() -> SmokeName {
        SmokeName(format!("{NAME}-smoke-{}", std::process::id()))
    }
}

impl Default for SmokeName {
    fn default() -> SmokeName {
        SmokeName::new()
    }
}

impl Drop for SmokeName {
    fn drop(&mut self) {
        let _ = slipring_shm::remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn the_heat_stays_and_the_extremes_close_in() {
        let theory = theory();
        let mut before = Block::new_box_zeroed().unwrap();
        let mut after = Block::new_box_zeroed().unwrap();
        before.begin();
        let first = before.measure();
        assert_eq!((first.minimum, first.maximum, first.heat), (COLD, HOT, theory));
        for step in 1..=30 {
            after.advance(&before);
            let (old, new) = (before.measure(), after.measure());
            assert_eq!(after.step, step);
            assert!(new.agrees(theory), "{new:?}");
            assert!(new.minimum >= old.minimum - ROUNDING && new.maximum <= old.maximum + ROUNDING);
            std::mem::swap(&mut before, &mut after);
        }
        assert_ne!(before.measure(), first, "heat flows");
        before.cells[3][4] += 1.0;
        assert!(!before.measure().agrees(theory), "a wrong cell is noticed");
    }

    #[test]
    fn the_profile_shows_both_discs() {
        let mut block = Block::new_box_zeroed().unwrap();
        block.begin();
        let profile = block.profile();
        assert_eq!(profile.chars().count(), 32);
        assert_eq!(profile.split('▁').filter(|part| !part.is_empty()).count(), 2, "{profile}");
    }
}
