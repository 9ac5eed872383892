//! The results in the form that all experiments have in common.

use super::figures::Figures;
use super::measured::{ArrivalResult, Measured, Series};
use crate::lab::metric::{Better, Metric, Value};
use crate::lab::record::{self, Curves, Results};

/// Parameter: name of the arrival pattern.
pub const ARRIVAL: &str = "arrival";
/// Parameter, which only the runs have during which a second process works.
pub const BESIDE: &str = "beside";
const SECOND_PROCESS: &str = "a second process";

const fn metric(name: &'static str, unit: &'static str, better: Better) -> Metric {
    Metric { name, unit, better }
}

pub const P50: Metric = metric("p50", "ns", Better::Less);
pub const CPU: Metric = metric("waiter CPU", "cores", Better::Less);
pub const LOSS: Metric = metric("bystander loss", "share", Better::Less);
pub const LATENCY: Metric = metric("latency", "ns", Better::Less);
const EVENTS: Metric = metric("events", "events", Better::Neither);
const ONE_WAY: Metric = metric("one way", "ns", Better::Less);
const CALL: Metric = metric("call", "ns", Better::Less);
const WORK: Metric = metric("work", "units/s", Better::Neither);

/// A metric, and the function that reads its figure from a run.
type Column = (Metric, fn(&Figures) -> Option<f64>);

/// Every figure of a run.
const COLUMNS: [Column; 13] = [
    (P50, |of| Some(of.p50_ns)),
    (metric("p99", "ns", Better::Less), |of| Some(of.p99_ns)),
    (metric("p99.9", "ns", Better::Less), |of| Some(of.p999_ns)),
    (metric("max", "ns", Better::Less), |of| Some(of.max_ns)),
    (metric("throughput", "events/s", Better::More), |of| Some(of.events_per_s)),
    (CPU, |of| of.waiter_share),
    (metric("busiest second", "cores", Better::Less), |of| of.share_max_1s),
    (metric("waiting for core", "share", Better::Less), |of| of.waiter_kept_waiting),
    (metric("others' CPU", "cores", Better::Neither), |of| of.others_cores),
    (metric("publish", "ns", Better::Less), |of| Some(of.publish_ns)),
    (metric("producer late p50", "ns", Better::Less), |of| of.producer_late_p50_ns),
    (metric("CPU per million", "s", Better::Less), |of| of.cpu_s_per_million),
    (LOSS, |of| of.bystander_loss),
];

/// Converts all results. A metric is absent where a run lacks it, because the system does not
/// provide it or the run is too short for it.
pub fn results(measured: &Measured) -> Results {
    let arrivals = &measured.arrivals;
    let rounds = arrivals.iter().flat_map(|result| &result.strategies);
    let notes = arrivals.iter().map(|result| format!("{}: {}.", result.arrival, result.about));
    let mut series: Vec<record::Series> = arrivals
        .iter()
        .flat_map(|result| result.strategies.iter().map(move |of| strategy(result, of)))
        .collect();
    // These series have no arrival pattern, so no plot and no table has them as a contender.
    let mut wake = record::Series::new("waking a thread", &[]);
    wake.add(&ONE_WAY, vec![measured.wake.one_way_ns]);
    wake.add(&CALL, vec![measured.wake.call_ns]);
    series.push(wake);
    for alone in arrivals.iter().filter_map(|result| result.bystander_alone.clone()) {
        let mut bystander = record::Series::new("bystander alone", &[]);
        bystander.add(&WORK, alone);
        series.push(bystander);
    }
    Results {
        experiment: "waits".to_owned(),
        rounds: rounds.map(|of| of.runs.len() as u32).max().unwrap_or(0),
        seconds: measured.began.elapsed().as_secs_f64(),
        notes: notes.collect(),
        series,
    }
}

/// Converts the runs of one strategy under one pattern.
fn strategy(result: &ArrivalResult, of: &Series) -> record::Series {
    let mut point = vec![(ARRIVAL, Value::from(result.arrival.as_str()))];
    if result.bystander_alone.is_some() {
        point.push((BESIDE, SECOND_PROCESS.into()));
    }
    let mut series = record::Series::new(&of.strategy, &point);
    series.threads = result.threads;
    series.cpus = result.pinned.map_or(Vec::new(), |pair| vec![pair.producer, pair.waiter]);
    series.oversubscribed =
        record::is_oversubscribed(result.threads, &series.cpus, slipring_machine::usable_cores());
    series.add(&EVENTS, of.runs.iter().map(|run| run.events as f64).collect());
    for (metric, figure) in COLUMNS {
        let values: Option<Vec<f64>> = of.runs.iter().map(|run| figure(&run.figures)).collect();
        if let Some(values) = values {
            series.add(&metric, values);
        }
    }
    let rounds = of.runs.iter().map(|run| run.curve.clone()).collect();
    let curves = Curves { unit: LATENCY.unit.to_owned(), rounds };
    series.curves.insert(LATENCY.name.to_owned(), curves);
    series
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use slipring_machine::CorePair;

    use super::*;
    use crate::lab::waits::measured::StrategyRun;
    use crate::lab::waits::wake::Wake;

    fn run(p50_ns: f64, waiter_share: Option<f64>) -> StrategyRun {
        let figures = Figures { p50_ns, waiter_share, ..Figures::default() };
        StrategyRun { events: 7, figures, curve: vec![(0.5, p50_ns), (1.0, 2.0 * p50_ns)] }
    }

    #[test]
    fn each_run_gives_a_value_and_a_curve() {
        let runs = vec![run(3.0, Some(0.5)), run(4.0, None)];
        let result = |arrival: &str, alone, pinned| ArrivalResult {
            arrival: arrival.to_owned(),
            about: "an event now and then".to_owned(),
            threads: 2,
            pinned,
            seconds: 1.0,
            bystander_alone: alone,
            strategies: vec![Series::new("blocking".to_owned(), runs.clone())],
        };
        let pair = Some(CorePair { producer: 3, waiter: 5 });
        let measured = Measured {
            pinned: pair,
            wake: Wake { times: 1, one_way_ns: 30.0, call_ns: 4.0 },
            began: Instant::now(),
            arrivals: vec![
                result("on-off", None, pair),
                result("beside", Some(vec![9.0; 2]), None),
            ],
        };
        let results = results(&measured);
        assert_eq!((results.experiment.as_str(), results.rounds), ("waits", 2));
        assert_eq!(results.notes[0], "on-off: an event now and then.");
        let of = |arrival: &str| results.find("blocking", &[(ARRIVAL, arrival.into())]).unwrap();
        let series = of("on-off");
        assert_eq!(
            (series.values("p50"), series.values("events")),
            (&[3.0, 4.0][..], &[7.0; 2][..])
        );
        assert_eq!((series.threads, &series.cpus[..]), (2, &[3, 5][..]));
        assert!(series.values("waiter CPU").is_empty(), "one run lacks it");
        assert_eq!(series.curves["latency"].rounds[1], [(0.5, 4.0), (1.0, 8.0)]);
        assert_eq!((series.at(BESIDE), of("beside").at(BESIDE).is_some()), (None, true));
        assert_eq!(results.find("waking a thread", &[]).unwrap().values("one way"), [30.0]);
        assert_eq!(results.find("bystander alone", &[]).unwrap().values("work"), [9.0, 9.0]);
    }
}
