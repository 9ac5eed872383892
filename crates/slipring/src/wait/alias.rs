//! Prints strategies and their parameters as aliases, such as `adaptive:25%`, and parses these
//! aliases.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::built_in::{ASLEEP, AWAKE, Wait};
use crate::errors::{FORMS, UnknownWait};

/// Units of time in aliases, with their lengths in nanoseconds, the longest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];

/// A duration that prints as a whole number of the longest unit that divides it.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The number of nanoseconds saturates only for durations beyond 500 years.
        let nanos = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        let divides = |&&(_, length): &&(&str, u64)| nanos.is_multiple_of(length) && nanos != 0;
        match UNITS.iter().find(divides) {
            Some((unit, length)) => write!(f, "{}{unit}", nanos / length),
            None => write!(f, "{nanos}ns"),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut windows = |name: &str, awake: &Duration, asleep: &Duration| match (*awake, *asleep)
        {
            (AWAKE, ASLEEP) => f.write_str(name),
            (awake, asleep) => write!(f, "{name}:{},{}", Time(awake), Time(asleep)),
        };
        match self {
            Wait::BusySpin => f.write_str("busy-spin"),
            Wait::Yielding { spins: 100 } => f.write_str("yielding"),
            Wait::Yielding { spins } => write!(f, "yielding:{spins}"),
            Wait::Sleeping { spins: 100, yields: 100, pause } if *pause == AWAKE => {
                f.write_str("sleeping")
            }
            Wait::Sleeping { spins, yields, pause } => {
                write!(f, "sleeping:{spins},{yields},{}", Time(*pause))
            }
            Wait::Blocking => f.write_str("blocking"),
            Wait::PhasedBackoff { spin, yields, fallback } => {
                write!(f, "phased-backoff:{},{},{fallback}", Time(*spin), Time(*yields))
            }
            Wait::AlternatingYieldBlock { yields, block } => {
                windows("alternating-yield-block", yields, block)
            }
            Wait::AlternatingSpinBlock { spin, block } => {
                windows("alternating-spin-block", spin, block)
            }
            Wait::AlternatingYieldSleep { yields, sleep } => {
                windows("alternating-yield-sleep", yields, sleep)
            }
            Wait::AlternatingSpinSleep { spin, sleep } => {
                windows("alternating-spin-sleep", spin, sleep)
            }
            Wait::Adaptive { budget: None | Some(100..) } => f.write_str("adaptive"),
            Wait::Adaptive { budget: Some(percent) } => write!(f, "adaptive:{}%", percent.max(&1)),
            Wait::Timeout { after, wait } => write!(f, "timeout:{},{wait}", Time(*after)),
            Wait::Custom(strategy) => f.write_str(&strategy.alias()),
        }
    }
}

impl FromStr for Wait {
    type Err = UnknownWait;
    fn from_str(alias: &str) -> Result<Wait, UnknownWait> {
        parse(alias, 0)
    }
}

/// Maximum nesting depth of an alias that the parser accepts. Without a limit, parsing a long alias
/// would overflow the stack.
const DEPTH: usize = 4;

fn parse(alias: &str, depth: usize) -> Result<Wait, UnknownWait> {
    let (name, parameters) =
        alias.split_once(':').map_or((alias, None), |(name, parameters)| (name, Some(parameters)));
    let form = FORMS.iter().find(|(known, _)| *known == name);
    let wait = form.and_then(|_| match parameters {
        None => {
            Wait::all().into_iter().find(|wait| wait.to_string().split(':').next() == Some(name))
        }
        Some(_) if depth > DEPTH => None,
        Some(parameters) => with_parameters(name, parameters, depth + 1),
    });
    wait.ok_or_else(|| UnknownWait { given: alias.into(), form: form.map(|(_, form)| *form) })
}

fn with_parameters(name: &str, parameters: &str, depth: usize) -> Option<Wait> {
    let mut parts = parameters.splitn(3, ',');
    let mut next = || parts.next();
    let wait = match name {
        "yielding" => Wait::Yielding { spins: next()?.parse().ok()? },
        "sleeping" => Wait::Sleeping {
            spins: next()?.parse().ok()?,
            yields: next()?.parse().ok()?,
            pause: time(next()?)?,
        },
        "phased-backoff" => Wait::PhasedBackoff {
            spin: time(next()?)?,
            yields: time(next()?)?,
            fallback: Arc::new(parse(next()?, depth).ok()?),
        },
        "alternating-yield-block" => {
            Wait::AlternatingYieldBlock { yields: time(next()?)?, block: time(next()?)? }
        }
        "alternating-spin-block" => {
            Wait::AlternatingSpinBlock { spin: time(next()?)?, block: time(next()?)? }
        }
        "alternating-yield-sleep" => {
            Wait::AlternatingYieldSleep { yields: time(next()?)?, sleep: time(next()?)? }
        }
        "alternating-spin-sleep" => {
            Wait::AlternatingSpinSleep { spin: time(next()?)?, sleep: time(next()?)? }
        }
        "adaptive" => {
            let percent = next()?.strip_suffix('%')?.parse().ok()?;
            Wait::Adaptive {
                budget: Some(percent).filter(|percent| (1..=100).contains(percent)).map(Some)?,
            }
        }
        "timeout" => {
            let (after, wait) = parameters.split_once(',')?;
            return Some(Wait::Timeout {
                after: time(after)?,
                wait: Arc::new(parse(wait, depth).ok()?),
            });
        }
        _ => return None,
    };
    next().is_none().then_some(wait)
}

fn time(text: &str) -> Option<Duration> {
    let text = text.replace('µ', "u");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*length).map(Duration::from_nanos)
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_alias_parses_to_its_strategy() {
        let mut aliases: Vec<String> = Wait::all().iter().map(Wait::to_string).collect();
        aliases.extend(
            [
                "yielding:7",
                "sleeping:0,1,3ms",
                "phased-backoff:1us,5us,sleeping:1,2,3us",
                "phased-backoff:1us,5us,phased-backoff:1s,0ns,alternating-yield-sleep",
                "alternating-yield-block:1ns,200us",
                "adaptive:1%",
                "adaptive:25%",
                "timeout:10ms,timeout:20ms,adaptive:5%",
                "timeout:1s,sleeping:1,2,3us",
            ]
            .map(String::from),
        );
        for alias in aliases {
            let wait: Wait = alias.parse().unwrap();
            assert_eq!(wait.to_string(), alias);
            assert_eq!(format!("{wait:?}"), format!("{:?}", alias.parse::<Wait>().unwrap()));
        }
        let same =
            |one: &str, other: &str| assert_eq!(one.parse::<Wait>().unwrap().to_string(), other);
        same("adaptive:100%", "adaptive");
        same("alternating-spin-block:50µs,200000ns", "alternating-spin-block");
        same("sleeping:100,100,50us", "sleeping");
        same("phased-backoff", "phased-backoff:10us,100us,blocking");
    }

    #[test]
    fn the_error_of_an_unknown_alias_says_what_to_write() {
        let error = |alias: &str| alias.parse::<Wait>().unwrap_err().to_string();
        let all = error("naps");
        assert!(all.starts_with("`naps` is not a wait strategy: choose one of busy-spin, yielding, sleeping, blocking, phased-backoff"), "{all}");
        for (name, _) in FORMS {
            assert!(all.contains(name), "{name}");
        }
        let deep = "timeout:1s,".repeat(200_000) + "blocking";
        assert!(deep.parse::<Wait>().is_err());
        for bad in [
            "busy-spin:1",
            "blocking:",
            "yielding:",
            "yielding:-1",
            "yielding:1,2",
            "sleeping:1,2",
            "sleeping:1,2,3",
            "sleeping:1,2,3us,4",
            "phased-backoff:1us,2us",
            "phased-backoff:1us,2us,naps",
            "alternating-yield-block:50us",
            "alternating-spin-sleep:50us,200",
            "alternating-spin-sleep:us,200us",
            "alternating-spin-sleep:99999999999999999999s,200us",
            "alternating-spin-sleep:18446744073709551615s,1us",
            "adaptive:0%",
            "adaptive:101%",
            "adaptive:25",
            "timeout",
            "timeout:10ms",
            "timeout:blocking,10ms",
        ] {
            let error = error(bad);
            assert!(error.contains("write `") && error.contains(bad), "{error}");
        }
    }
}
