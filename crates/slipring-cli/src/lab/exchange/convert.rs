//! The results in the form that all experiments have in common.

use indicatif::BinaryBytes;

use super::about::{BYTES, LATENCY, READ, SETTING, ns};
use super::figures::Figures;
use super::measure::Execution;
use super::measured::{Measured, Series};
use crate::lab::metric::{Better, Metric, Value};
use crate::lab::record::{self, Curves, Results};

const BLOCKS: Metric = Metric { name: "blocks", unit: "blocks", better: Better::Neither };

/// A metric, and the function that reads its figure from an execution.
type Column = (Metric, fn(&Execution) -> f64);

/// Every figure of an execution.
const COLUMNS: [Column; 9] = [
    (READ, |of| of.read.mean_ns),
    (ns("read p50"), |of| of.read.p50_ns),
    (ns("read p99"), |of| of.read.p99_ns),
    (ns("read max"), |of| of.read.max_ns),
    (LATENCY, |of| of.latency.mean_ns),
    (ns("latency p50"), |of| of.latency.p50_ns),
    (ns("latency p99"), |of| of.latency.p99_ns),
    (ns("latency max"), |of| of.latency.max_ns),
    (BLOCKS, |of| of.blocks as f64),
];

/// Converts all results. Only the complete rounds are counted, because every series has these.
pub fn results(measured: &Measured) -> Results {
    let counts = measured.series.iter().map(|series| series.executions.len() as u32);
    let cold = BinaryBytes(measured.cold_bytes as u64);
    Results {
        experiment: "exchange".to_owned(),
        rounds: counts.min().unwrap_or(0),
        seconds: measured.began.elapsed().as_secs_f64(),
        notes: vec![format!("Each end works through {cold} of memory to make its caches cold.")],
        series: measured.series.iter().map(setup).collect(),
    }
}

/// Converts the executions of one setup.
fn setup(of: &Series) -> record::Series {
    let point = [(SETTING, Value::Text(of.setting())), (BYTES, of.bytes.into())];
    let mut series = record::Series::new(&of.way, &point);
    let ends = if of.way == "one-thread" { 1 } else { 2 };
    let cores = [of.placement.writer, of.placement.reader];
    series.threads = ends;
    series.cpus = cores.into_iter().take(ends).flatten().collect();
    series.oversubscribed =
        record::is_oversubscribed(ends, &series.cpus, slipring_machine::usable_cores());
    for (metric, figure) in COLUMNS {
        series.add(&metric, of.executions.iter().map(figure).collect());
    }
    let mut curves = |metric: &Metric, times: fn(&Execution) -> &Figures| {
        let rounds = of.executions.iter().map(|execution| times(execution).curve.clone()).collect();
        let curves = Curves { unit: metric.unit.to_owned(), rounds };
        series.curves.insert(metric.name.to_owned(), curves);
    };
    curves(&READ, |execution| &execution.read);
    curves(&LATENCY, |execution| &execution.latency);
    series
}

#[cfg(test)]
mod tests {
    use slipring_exchange::Way;

    use super::*;
    use crate::lab::exchange::plan::{Amount, Plan};
    use crate::lab::size::Size;

    #[test]
    fn each_execution_gives_a_value_and_two_curves() {
        let plan =
            Plan { ways: vec![Way::OneThread, Way::File], amount: Amount::alone(Size::Smoke) };
        let mut measured = plan.begin();
        for series in &mut measured.series {
            series.executions = [1.0, 2.0, 3.0]
                .map(|ns| Execution {
                    blocks: 4,
                    read: Figures::of(vec![ns; 4]),
                    latency: Figures::of(vec![10.0 * ns; 4]),
                })
                .to_vec();
        }
        // The third round was not complete.
        measured.series[1].executions.truncate(2);
        assert_eq!(results(&measured).rounds, 2);
        measured.keep_rounds(2);
        let results = results(&measured);
        assert_eq!(results.contenders(), ["one-thread", "file"]);
        for series in &results.series {
            assert_eq!(series.values("read"), [1.0, 2.0]);
            assert_eq!(
                (series.values("latency p99"), series.values("blocks")),
                (&[10.0, 20.0][..], &[4.0; 2][..])
            );
            assert_eq!(series.curves["latency"].rounds[1][0], (0.01, 20.0));
        }
        let settings = results.values_of(SETTING);
        for caches in ["warm", "cold"] {
            assert!(settings.iter().any(|setting| setting.to_string().ends_with(caches)));
        }
        assert_eq!(results.find("file", &[(BYTES, 4096_u64.into())]).unwrap().threads, 2);
    }
}
