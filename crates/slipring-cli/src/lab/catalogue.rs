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

/// Returns the experiment with this name.
pub fn find(name: &str) -> Option<&'static dyn Experiment> {
    all().into_iter().find(|experiment| experiment.about().name == name)
}
