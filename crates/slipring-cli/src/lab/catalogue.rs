//! All experiments, in the order of `lab all`.

use super::experiment::Experiment;

/// Returns all experiments.
pub fn all() -> Vec<&'static dyn Experiment> {
    vec![
        &super::shapes::Shapes,
        &super::scaling::Scaling,
        &super::ordered::Ordered,
        &super::graph::Graph,
        &super::exchange::Exchange,
        &super::waits::Waits,
        &super::cores::Cores,
        &super::placements::Placements,
    ]
}

/// Returns all experiments that a record may have: those of `lab all`, and the simulated one.
pub fn recorded() -> Vec<&'static dyn Experiment> {
    let mut experiments = all();
    experiments.insert(2, &super::scaling::simulated::SHOWN);
    experiments
}

/// Returns the experiment with this name.
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    recorded().into_iter().find(|experiment| experiment.about().name == name)
}
