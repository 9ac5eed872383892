//! Requests to a program in another language, and its answers. Each is one line.
//!
//! ```text
//! stream lmax ring=1024 events=600000 batch=1 steps=0 warm=30 warm_ms=400
//! ns 7.613 alone 0.000
//! ```
//!
//! An answer consists of pairs, each a metric and a number, or of the word `error` and a message.
//! `alone` is the program's own measurement of one core's work without a hand-over, in nanoseconds
//! per event.

use std::fmt;

use crate::contenders::StreamSpec;
use crate::measure::{Size, Values};

/// A kind of work with its parameters.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// A stream from a producer on core 0 to a consumer on core 1.
    Stream(StreamSpec),
    /// A stream whose handler does work for each event, and whose producer does none.
    Busy { ring: usize, events: u64, steps: u32 },
    /// A stream whose handler works and whose events come at the random times of [`Arrivals`].
    Open { ring: usize, arrivals: Arrivals, steps: u32 },
    /// Round trips through two rings of 1,024 events.
    RoundTrip { rounds: usize },
    /// Several threads on two cores. `steps` is the work of each producer before an event, and
    /// `handler_steps` the work of each stage on an event.
    Shape { form: Form, ring: usize, events: u64, steps: u32, handler_steps: u32 },
    /// A producer and two workers on two cores.
    Pool { ring: usize, events: u64, task: &'static str, steps: u32 },
}

/// Events of a Poisson process. Each program computes the times of the events by itself.
#[derive(Clone, Copy, Debug)]
pub struct Arrivals {
    /// Number of events.
    pub events: usize,
    /// Mean time between two events, in nanoseconds. The same number seeds the random times.
    pub gap: u32,
    /// Time of the last event, in nanoseconds since the schedule's start. A program that computes
    /// another time for the last event refuses the request.
    pub until: u64,
}

/// A graph of several threads.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// This number of stages in a row.
    Pipeline(usize),
    /// Three parallel stages.
    Multicast,
    /// Two parallel stages, and a stage behind both.
    Diamond,
    /// This number of producers, and one stage.
    FanIn(usize),
}

/// Limits of the untimed runs that precede the first timed run of a request. These runs give a
/// just-in-time compiler time to compile the code.
#[derive(Clone, Copy, Debug)]
pub struct WarmUp {
    /// Number of runs.
    runs: u32,
    /// Time after which no further run begins, in milliseconds.
    ms: u32,
}

impl WarmUp {
    /// Returns the limits for a measurement of this size.
    pub fn new(size: Size) -> Self {
        let (runs, ms) = size.pick((0, 0), (30, 400), (60, 1_000));
        WarmUp { runs, ms }
    }
}

/// A request to run one contender once.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The contender's name in its program.
    pub contender: &'static str,
    pub work: Work,
    pub warm_up: WarmUp,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Request { contender, work, warm_up } = self;
        match work {
            Work::Stream(StreamSpec { ring, events, batch, steps }) => write!(
                f,
                "stream {contender} ring={ring} events={events} batch={batch} steps={steps}"
            ),
            Work::Busy { ring, events, steps } => {
                write!(f, "busy {contender} ring={ring} events={events} steps={steps}")
            }
            Work::Open { ring, arrivals: Arrivals { events, gap, until }, steps } => write!(
                f,
                "open {contender} ring={ring} events={events} gap={gap} until={until} steps={steps}"
            ),
            Work::RoundTrip { rounds } => write!(f, "round-trip {contender} rounds={rounds}"),
            Work::Shape { form, ring, events, steps, handler_steps } => write!(
                f,
                "shape {contender} form={form} ring={ring} events={events} steps={steps} \
                 handler_steps={handler_steps}"
            ),
            Work::Pool { ring, events, task, steps } => {
                write!(f, "pool {contender} ring={ring} events={events} task={task} steps={steps}")
            }
        }?;
        write!(f, " warm={} warm_ms={}", warm_up.runs, warm_up.ms)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Form::Pipeline(stages) => write!(f, "pipeline stages={stages}"),
            Form::Multicast => f.write_str("multicast"),
            Form::Diamond => f.write_str("diamond"),
            Form::FanIn(producers) => write!(f, "fan-in producers={producers}"),
        }
    }
}

/// An answer to a request.
#[derive(Debug, PartialEq)]
pub struct Answer {
    values: Values,
    /// The program's own measurement of one core's work without a hand-over, in nanoseconds per
    /// event.
    alone: f64,
}

impl Answer {
    /// Parses an answer. The error is the program's own message, or says what is wrong with the
    /// answer.
    pub fn parse(line: &str) -> Result<Self, String> {
        if let Some(message) = line.strip_prefix("error") {
            return Err(message.trim().to_owned());
        }
        let (mut values, mut alone) = (Values::new(), 0.0);
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.chunks(2) {
            let unknown = || format!("it gave the unknown answer `{line}`");
            let &[metric, number] = pair else { return Err(unknown()) };
            let number: f64 = number.parse().map_err(|_| unknown())?;
            match metric {
                "ns" => values.push(("ns", number)),
                "p50" => values.push(("p50", number)),
                "p90" => values.push(("p90", number)),
                "p99" => values.push(("p99", number)),
                "alone" => alone = number,
                _ => return Err(unknown()),
            }
        }
        if values.is_empty() {
            Err("it gave an empty answer".to_owned())
        } else {
            Ok(Answer { values, alone })
        }
    }

    /// Returns the values by metric. With `overhead`, the program's own measurement of the work is
    /// subtracted from `ns`, because the same steps may take a different time in each language.
    pub fn values(self, overhead: bool) -> Values {
        let above = if overhead { self.alone } else { 0.0 };
        let value = |(metric, value)| (metric, if metric == "ns" { value - above } else { value });
        self.values.into_iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(work: Work) -> String {
        Request { contender: "c", work, warm_up: WarmUp::new(Size::Smoke) }.to_string()
    }

    #[test]
    fn a_request_is_one_line_of_words() {
        let spec = StreamSpec { ring: 8, events: 100, batch: 10, steps: 3 };
        assert_eq!(
            line(Work::Stream(spec)),
            "stream c ring=8 events=100 batch=10 steps=3 warm=0 warm_ms=0"
        );
        assert_eq!(
            line(Work::Shape {
                form: Form::FanIn(3),
                ring: 8,
                events: 90,
                steps: 0,
                handler_steps: 4
            }),
            "shape c form=fan-in producers=3 ring=8 events=90 steps=0 handler_steps=4 \
             warm=0 warm_ms=0"
        );
        assert_eq!(
            line(Work::Pool { ring: 8, events: 90, task: "empty", steps: 0 }),
            "pool c ring=8 events=90 task=empty steps=0 warm=0 warm_ms=0"
        );
        assert_eq!(line(Work::RoundTrip { rounds: 5 }), "round-trip c rounds=5 warm=0 warm_ms=0");
        assert_eq!(
            line(Work::Busy { ring: 64, events: 7, steps: 2 }),
            "busy c ring=64 events=7 steps=2 warm=0 warm_ms=0"
        );
        let arrivals = Arrivals { events: 7, gap: 320, until: 2400 };
        assert_eq!(
            line(Work::Open { ring: 64, arrivals, steps: 2 }),
            "open c ring=64 events=7 gap=320 until=2400 steps=2 warm=0 warm_ms=0"
        );
    }

    #[test]
    fn the_overhead_is_above_the_programs_own_work() {
        let answer = || Answer::parse("ns 17.5 alone 10.0").unwrap();
        assert_eq!(answer().values(true), [("ns", 7.5)]);
        assert_eq!(answer().values(false), [("ns", 17.5)]);
        let latency = Answer::parse("p50 120 p90 200 p99 400\n").unwrap();
        assert_eq!(latency.values(true), [("p50", 120.0), ("p90", 200.0), ("p99", 400.0)]);
    }

    #[test]
    fn an_error_and_a_wrong_answer_are_errors() {
        assert_eq!(Answer::parse("error events lost"), Err("events lost".to_owned()));
        for wrong in ["", "ns", "ns fast", "speed 3", "ns 3 p50", "alone 3"] {
            assert!(Answer::parse(wrong).is_err(), "{wrong}");
        }
    }
}
