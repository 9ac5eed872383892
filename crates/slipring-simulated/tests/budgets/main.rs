//! Budgets: how many cache-line transfers, read-modify-writes and fences an event may cost.
//!
//! `table.rs` has one row for each shape, regime and machine, with the range in which the three
//! counts must lie. `measure.rs` runs a row over several seeds, which vary the latencies by a
//! tenth. Each run also checks that no event was lost, doubled or out of order.
//!
//! A count above its range is an unwanted cost, or a change that was meant. A count below it is
//! news, too: the range then comes down, so that the gain stays. Virtual time is never judged.
//!
//! `cargo test -p slipring-simulated --test budgets -- --nocapture` prints all rows as they are
//! measured, in the form that `table.rs` has, so a row can be replaced by what a run printed.

mod fronts;
mod idle;
mod measure;
mod planted;
mod shapes;
mod table;

use slipring_coherence::Lines;

#[global_allocator]
static LINES: Lines = Lines;
