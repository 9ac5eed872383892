//! The user's description of the work, and the demands on a candidate.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use slipring_support::numbers;

/// A rate of events per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let (number, factor) = match text.char_indices().last() {
            Some((at, 'k')) => (&text[..at], 1e3),
            Some((at, 'M')) => (&text[..at], 1e6),
            _ => (text, 1.0),
        };
        let rate = number.parse::<f64>().ok().map(|rate| rate * factor);
        match rate {
            Some(rate) if (1.0..=1e8).contains(&rate) => Ok(Rate(rate)),
            _ => Err("state events per second from 1 to 100M, such as 5000, 200k or 1.5M".into()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} events/s", numbers::significant(self.0))
    }
}

/// A length of time on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let nanoseconds = match unit {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            _ => f64::NAN,
        };
        let time = number.parse::<f64>().ok().map(|number| number * nanoseconds);
        match time {
            Some(time) if (0.0..=60e9).contains(&time) => {
                Ok(Time(Duration::from_nanos(time.round() as u64)))
            }
            _ => {
                Err("state a time up to a minute with its unit, such as 300ns, 50us or 2ms".into())
            }
        }
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&numbers::duration(self.0))
    }
}

/// A limit of one percentile of the latencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyLimit {
    /// The percentile, from 0 to 100 exclusive.
    pub percentile: f64,
    pub limit: Time,
}

impl FromStr for LatencyLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<LatencyLimit, String> {
        let wrong = || "state a percentile and a time, such as p99:50us".to_owned();
        let (percentile, limit) = text.split_once(':').ok_or_else(wrong)?;
        let percentile = percentile.strip_prefix('p').and_then(|number| number.parse().ok());
        match percentile {
            Some(percentile) if (1.0..=99.99).contains(&percentile) => {
                Ok(LatencyLimit { percentile, limit: limit.parse()? })
            }
            _ => Err("state a percentile from p1 to p99.99, such as p99:50us".to_owned()),
        }
    }
}

impl fmt::Display for LatencyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} of at most {}", self.percentile, self.limit)
    }
}

/// Processor time that the stages may take, in cores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores(pub f64);

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        let cores = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
            None => text.parse().ok(),
        };
        match cores {
            Some(cores) if (0.001..=1024.0).contains(&cores) => Ok(Cores(cores)),
            _ => Err("state cores or a percentage of one core, such as 1.5 or 30%".to_owned()),
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cores", numbers::significant(self.0))
    }
}

/// The work, and the limits that a candidate has to keep.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Size of an event, in bytes.
    pub event_bytes: usize,
    pub rate: Rate,
    /// Work of one stage on one event.
    pub work: Duration,
    pub stages: usize,
    pub budget: Option<Cores>,
    pub latency: Option<LatencyLimit>,
}

/// The percentile that is optimised if the user limits none.
const DEFAULT_PERCENTILE: f64 = 99.0;

impl Demand {
    /// Returns the percentile that counts.
    pub fn percentile(&self) -> f64 {
        self.latency.map_or(DEFAULT_PERCENTILE, |latency| latency.percentile)
    }

    /// Returns the share of the time that one stage spends working.
    pub fn utilisation(&self) -> f64 {
        self.rate.0 * self.work.as_secs_f64()
    }

    /// Returns why no pipeline on this machine can meet the demand, whatever its settings. Only
    /// reasons that need no measurement are considered.
    pub fn impossible(&self, cores: usize) -> Option<String> {
        let Demand { rate, work, stages, budget, latency, .. } = self;
        let utilisation = self.utilisation();
        let work_text = numbers::duration(*work);
        if utilisation >= 1.0 {
            return Some(format!(
                "{rate} of {work_text} each keep a stage busy for {:.0} % of the time: split the \
                 work into more stages, or share it in a pool",
                utilisation * 100.0
            ));
        }
        let all = utilisation * *stages as f64;
        if all >= cores as f64 {
            return Some(format!(
                "the work alone takes {} cores, and there are {cores}",
                numbers::significant(all)
            ));
        }
        if let Some(budget) = budget.filter(|budget| all > budget.0) {
            return Some(format!(
                "the work alone takes {} cores, and the budget is {budget}",
                numbers::significant(all)
            ));
        }
        let least = *work * u32::try_from(*stages).unwrap_or(u32::MAX);
        if let Some(latency) = latency.filter(|latency| least >= latency.limit.0) {
            return Some(format!(
                "an event passes {stages} stages of {work_text}, which takes {} at least, and the \
                 limit is {latency}",
                numbers::duration(least)
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_times_limits_and_budgets_are_read_with_their_units() {
        assert_eq!("200k".parse(), Ok(Rate(200e3)));
        assert_eq!("1.5M".parse(), Ok(Rate(1.5e6)));
        assert_eq!("5000".parse(), Ok(Rate(5000.0)));
        assert_eq!("300ns".parse(), Ok(Time(Duration::from_nanos(300))));
        assert_eq!("1.5us".parse(), Ok(Time(Duration::from_nanos(1500))));
        assert_eq!("2ms".parse(), Ok(Time(Duration::from_millis(2))));
        let limit = LatencyLimit { percentile: 99.9, limit: Time(Duration::from_micros(50)) };
        assert_eq!("p99.9:50µs".parse(), Ok(limit));
        assert_eq!("30%".parse(), Ok(Cores(0.3)));
        assert_eq!("1.5".parse(), Ok(Cores(1.5)));
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_an_example() {
        for wrong in ["", "k", "0", "-5", "NaN", "inf", "1e300", "five", "2G", "é"] {
            assert!(wrong.parse::<Rate>().unwrap_err().contains("200k"), "{wrong}");
        }
        for wrong in ["", "5", "us", "-1us", "2h", "NaNus", "1e30s", "90s", "5é"] {
            assert!(wrong.parse::<Time>().unwrap_err().contains("50us"), "{wrong}");
        }
        for wrong in ["", "50us", "p99", "99:50us", "p0:1us", "p100:1us", "pé:1us", "pNaN:1us"] {
            assert!(wrong.parse::<LatencyLimit>().unwrap_err().contains("p99:50us"), "{wrong}");
        }
        for wrong in ["", "%", "0", "-1", "NaN", "1e9", "2 cores"] {
            assert!(wrong.parse::<Cores>().unwrap_err().contains("30%"), "{wrong}");
        }
    }

    fn demand() -> Demand {
        Demand {
            event_bytes: 64,
            rate: Rate(100e3),
            work: Duration::from_micros(1),
            stages: 2,
            budget: None,
            latency: None,
        }
    }

    #[test]
    fn what_no_setting_can_meet_is_known_before_the_measurement() {
        assert_eq!(demand().impossible(1), None);
        let reason = |demand: Demand, cores| demand.impossible(cores).unwrap();
        let busy = Demand { work: Duration::from_micros(12), ..demand() };
        assert!(reason(busy, 8).contains("120 %"));
        let wide = Demand { stages: 30, ..demand() };
        assert!(reason(wide, 2).contains("takes 3 cores, and there are 2"));
        let poor = Demand { budget: Some(Cores(0.1)), ..demand() };
        assert!(reason(poor, 2).contains("0.2 cores, and the budget is 0.1 cores"));
        let fast = Demand { latency: "p99:2us".parse().ok(), ..demand() };
        assert!(reason(fast, 2).contains("2µs at least"));
    }
}
