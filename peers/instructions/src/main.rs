//! Runs each operation of the hot paths in a loop of its own, in one thread and without a wait, so
//! that callgrind can tell how many instructions it executes. `cargo xtask instructions` compares
//! the counts with the budgets.
//!
//! Without arguments, the program does a few laps with each operation and checks the results.
//! `--list` prints the operations instead, one a line, with tabs between the columns: the name, the
//! symbol of the counted function, the number of its units in one call, the unit, what the
//! operation is, and the operation of slipring that it is compared with (empty for slipring's own).

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod clock;
mod limit;
mod operation;
mod ours;
mod queues;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod segments;

use std::env;

use operation::Operation;

fn main() {
    let operations = [ours::OPERATIONS, queues::OPERATIONS, limit::OPERATIONS];
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    let operations = [&operations[..], &[segments::OPERATIONS]].concat();
    let operations = operations.iter().copied().flatten();
    if env::args().any(|arg| arg == "--list") {
        for Operation { name, symbol, units, unit, what, beside, .. } in operations {
            let beside = beside.unwrap_or_default();
            println!("{name}\t{symbol}\t{units}\t{unit}\t{what}\t{beside}");
        }
    } else {
        operations.for_each(|operation| (operation.run)());
    }
}
