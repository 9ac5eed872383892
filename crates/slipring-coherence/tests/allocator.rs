//! A program without the simulator's allocator.

use slipring_coherence::{Machine, Simulation, SimulationError};

#[test]
fn a_run_without_lines_of_its_own_is_refused() {
    let machine = Machine::two_vcpus();
    let error = Simulation::new(&machine).thread("only", || ()).run().unwrap_err();
    assert!(matches!(error, SimulationError::Allocator));
    assert_eq!(
        error.to_string(),
        "the program's global allocator is not `slipring_coherence::Lines`, which a simulation \
         needs: write `#[global_allocator] static LINES: Lines = Lines;`"
    );
}
