//! The search for the best candidate: one setting after the other, each with all its alternatives.
//!
//! The alternatives of a setting are measured in turns, in a random order for each round, together
//! with the best candidate so far. So a disturbance hits all of them alike.

use anyhow::Result;
use fastrand::Rng;

use super::candidate::{Alternatives, Candidate, Setting};
use super::demand::Demand;
use super::measure::RunFigures;
use crate::lab::statistics::Spread;

/// The outcomes of one candidate's runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    pub candidate: Candidate,
    pub outcomes: Vec<RunFigures>,
}

impl Measured {
    pub fn latency(&self) -> Spread {
        self.spread(|outcome| outcome.latency_ns)
    }

    pub fn cores(&self) -> Spread {
        self.spread(|outcome| outcome.cores)
    }

    fn spread(&self, figure: impl Fn(&RunFigures) -> f64) -> Spread {
        let values: Vec<f64> = self.outcomes.iter().map(figure).collect();
        Spread::of(&values).unwrap_or(Spread { low: f64::NAN, median: f64::NAN, high: f64::NAN })
    }

    /// Divides the candidate's median latency, and its median processor use, by the limit that the
    /// demand sets, and returns the larger ratio. It is 1 or less if the candidate keeps all
    /// limits. The medians count, because otherwise one disturbed run of three would hide a good
    /// candidate. The final comparison considers the spread.
    pub fn excess(&self, demand: &Demand) -> f64 {
        let limit = demand.latency.map(|latency| latency.limit.0.as_nanos() as f64);
        let latency = limit.map_or(0.0, |limit| self.latency().median / limit);
        let cores = demand.budget.map_or(0.0, |budget| self.cores().median / budget.0);
        latency.max(cores)
    }
}

/// The choice of one setting.
#[derive(Clone, Debug)]
pub struct Choice {
    pub setting: Setting,
    pub chosen: Measured,
    /// The best alternative with another value.
    pub next: Option<Measured>,
    /// Whether the difference to the next best candidate exceeds the noise.
    pub is_clear: bool,
}

/// The figure by which the search compares candidates that keep the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The least processor time, if the demand limits the latency.
    Cores,
    /// The least latency, for any other demand.
    Latency,
}

impl Goal {
    pub fn of(demand: &Demand) -> Goal {
        if demand.latency.is_some() { Goal::Cores } else { Goal::Latency }
    }

    fn figure(self, measured: &Measured) -> Spread {
        match self {
            Goal::Cores => measured.cores(),
            Goal::Latency => measured.latency(),
        }
    }
}

/// Searches among the alternatives. `run` measures a candidate once. Its second argument is the
/// round, which determines the schedule.
pub fn search(
    demand: &Demand,
    alternatives: &Alternatives,
    rounds: u32,
    noise: f64,
    mut run: impl FnMut(&Candidate, u32) -> Result<RunFigures>,
) -> Result<Vec<Choice>> {
    let mut current = alternatives.default_candidate();
    let mut choices = Vec::new();
    let mut order = Rng::with_seed(7);
    for setting in Setting::ALL {
        let variants = alternatives.variants(setting, &current);
        if variants.len() < 2 {
            continue;
        }
        let mut measured: Vec<Measured> = variants
            .into_iter()
            .map(|candidate| Measured { candidate, outcomes: Vec::new() })
            .collect();
        for round in 0..rounds {
            let mut turns: Vec<usize> = (0..measured.len()).collect();
            order.shuffle(&mut turns);
            for which in turns {
                let outcome = run(&measured[which].candidate, round)?;
                measured[which].outcomes.push(outcome);
            }
        }
        let choice = choose(setting, measured, demand, noise);
        current = choice.chosen.candidate.clone();
        choices.push(choice);
    }
    Ok(choices)
}

/// Chooses the best of several candidates, of which the first is the default. The default stays
/// unless another candidate is better beyond the noise.
fn choose(setting: Setting, mut all: Vec<Measured>, demand: &Demand, noise: f64) -> Choice {
    let mut best = 0;
    for other in 1..all.len() {
        if is_better(&all[other], &all[best], demand, noise) {
            best = other;
        }
    }
    let chosen = all.remove(best);
    let mut next: Option<Measured> = None;
    for other in all {
        if next.as_ref().is_none_or(|next| is_better(&other, next, demand, 0.0)) {
            next = Some(other);
        }
    }
    let is_clear = next.as_ref().is_some_and(|next| is_better(&chosen, next, demand, noise));
    Choice { setting, chosen, next, is_clear }
}

/// Returns whether one candidate is better than another by more than the noise. Candidates that
/// keep the limits come first; among the others, smaller excesses come first.
pub fn is_better(one: &Measured, other: &Measured, demand: &Demand, noise: f64) -> bool {
    let (excess, other_excess) = (one.excess(demand), other.excess(demand));
    match (excess <= 1.0, other_excess <= 1.0) {
        (true, false) => true,
        (false, true) => false,
        (false, false) => excess * (1.0 + noise) < other_excess,
        (true, true) => {
            let goal = Goal::of(demand);
            let (figure, other_figure) = (goal.figure(one), goal.figure(other));
            let apart = noise == 0.0 || figure.high < other_figure.low;
            apart && figure.median * (1.0 + noise) < other_figure.median
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::candidate::{Layout, Threads};
    use super::super::demand::{Cores, Rate};
    use super::*;

    fn demand() -> Demand {
        Demand {
            event_bytes: 8,
            rate: Rate(1e5),
            work: Duration::ZERO,
            stages: 2,
            budget: None,
            latency: None,
        }
    }

    /// A machine on which spinning is fast but expensive, blocking is slow but cheap, small rings
    /// are slow, and nothing else matters.
    fn machine(candidate: &Candidate, round: u32) -> Result<RunFigures> {
        let (latency, cores) = match candidate.wait.as_str() {
            "busy-spin" => (300.0, 2.0),
            "blocking" => (40_000.0, 0.1),
            _ => (10_000.0, 0.5),
        };
        let full = if candidate.capacity < 100 { 2.0 } else { 1.0 };
        let jitter = 1.0 + f64::from(round) / 1000.0;
        let latency_ns = latency * full * jitter;
        Ok(RunFigures { latency_ns, p50_ns: latency_ns / 2.0, cores, events: 1000 })
    }

    fn found(demand: &Demand) -> (Candidate, Vec<Choice>) {
        let alternatives = Alternatives::new(2, 2, |_| vec!["spread".to_owned()]);
        let choices = search(demand, &alternatives, 3, 0.05, machine).unwrap();
        (choices.last().unwrap().chosen.candidate.clone(), choices)
    }

    #[test]
    fn without_limits_the_least_latency_wins_and_defaults_stay_where_nothing_differs() {
        let (best, choices) = found(&demand());
        assert_eq!(best.wait, "busy-spin");
        let rest = (best.threads, best.capacity, best.layout, best.batch);
        assert_eq!(rest, (Threads::Own, 1024, Layout::Interleaved, None));
        let clear: Vec<bool> = choices.iter().map(|choice| choice.is_clear).collect();
        assert_eq!(clear, [false; 5], "other threads with busy-spin are as good");
        assert!(choices.iter().all(|choice| choice.next.is_some()));
    }

    #[test]
    fn a_latency_limit_takes_the_cheapest_candidate_that_keeps_it() {
        let limit = |text: &str| Demand { latency: text.parse().ok(), ..demand() };
        assert_eq!(found(&limit("p99:50us")).0.wait, "blocking");
        assert_eq!(found(&limit("p99:20us")).0.wait, "adaptive", "the first of equals");
        assert_eq!(found(&limit("p99:1us")).0.wait, "busy-spin");
    }

    #[test]
    fn a_budget_takes_the_fastest_candidate_within_it() {
        let budget = |cores| Demand { budget: Some(Cores(cores)), ..demand() };
        assert_eq!(found(&budget(1.0)).0.wait, "adaptive");
        assert_eq!(found(&budget(0.2)).0.wait, "blocking");
        let (best, choices) = found(&budget(0.05));
        assert_eq!(best.wait, "blocking", "the one that exceeds it least");
        assert!(choices[0].chosen.excess(&budget(0.05)) > 1.0);
    }
}
