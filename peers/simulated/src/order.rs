//! The comparison of the simulator with two real cores: which pairs of contenders does it put in
//! the right order?
//!
//! - I1: Only pairs count whose real times differ by [`CLEAR`]. Noise decides the others.

use std::fmt::Write as _;

use peers_unchanged::{Build, Spec};
use slipring_coherence::{Machine, Placement};

use crate::tables::{count, unicast};

/// The ratio from which on the real order of two contenders is clear.
const CLEAR: f64 = 1.5;

/// A contender's time on real cores, and in the simulator.
struct Compared<'a> {
    name: &'a str,
    real: f64,
    simulated: f64,
}

/// Reads the real time of a contender from the lines that [`measure`](crate::real::measure) wrote.
fn real_time(real: &str, spec: Spec, name: &str) -> Option<f64> {
    // The instrumented library is the same as the real one.
    let name = name.strip_suffix(", instrumented").unwrap_or(name);
    let of_line = |line: &str| {
        let mut fields = line.split('\t');
        let (capacity, of, time) = (fields.next()?, fields.next()?, fields.next()?);
        (capacity.parse() == Ok(spec.capacity) && of == name).then(|| time.parse().ok())?
    };
    real.lines().find_map(of_line)
}

/// Returns the text of the comparison. Times are multiples of the least of their column: they have
/// no other meaning.
///
/// # Errors
///
/// If a run fails, or `real` has no times.
pub fn compare(contenders: &[(&str, Build)], real: &str, events: u64) -> Result<String, String> {
    let mut text = String::new();
    for spec in unicast(events) {
        let mut all = Vec::new();
        for (name, build) in contenders {
            let Some(real) = real_time(real, spec, name) else { continue };
            let machine = Machine::two_vcpus();
            let counted = count(&machine, Placement::Packed, spec, *build, 1);
            let counted = counted.map_err(|error| format!("{name}: {error}"))?;
            let simulated = counted.map(|counted| counted.nanos);
            all.extend(simulated.map(|simulated| Compared { name, real, simulated }));
        }
        if all.is_empty() {
            return Err("the file has no times; `real` writes one".to_owned());
        }
        all.sort_by(|a, b| a.real.total_cmp(&b.real));
        let least = |of: fn(&Compared) -> f64| all.iter().map(of).fold(f64::INFINITY, f64::min);
        let (least_real, least_simulated) = (least(|one| one.real), least(|one| one.simulated));
        let _ =
            writeln!(text, "\n| capacity {} | real | *simulated* |\n|---|---|---|", spec.capacity);
        for Compared { name, real, simulated } in &all {
            let (real, simulated) = (real / least_real, simulated / least_simulated);
            let _ = writeln!(text, "| {name} | {real:.1} | {simulated:.1} |");
        }
        let (right, wrong) = pairs(&all);
        let _ = writeln!(text, "\nRight: {right} of {} clear pairs.", right + wrong.len());
        for (faster, slower) in wrong {
            let _ = writeln!(text, "- wrong: {faster} is faster than {slower}");
        }
    }
    Ok(text)
}

/// Returns the number of clear pairs in the right order, and the pairs in the wrong one, the faster
/// first. `all` is sorted by real times.
fn pairs<'a>(all: &[Compared<'a>]) -> (usize, Vec<(&'a str, &'a str)>) {
    let (mut right, mut wrong) = (0, Vec::new());
    for (at, faster) in all.iter().enumerate() {
        for slower in all[at + 1..].iter().filter(|slower| slower.real >= CLEAR * faster.real) {
            if faster.simulated < slower.simulated {
                right += 1;
            } else {
                wrong.push((faster.name, slower.name));
            }
        }
    }
    (right, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clear_pairs_are_judged() {
        let one = |name, real, simulated| Compared { name, real, simulated };
        let all = [one("a", 1.0, 5.0), one("b", 1.4, 4.0), one("c", 2.0, 4.5), one("d", 9.0, 6.0)];
        // The pairs a and b, b and c are not clear.
        assert_eq!(pairs(&all), (3, vec![("a", "c")]));
    }

    #[test]
    fn real_times_are_found_by_capacity_and_name() {
        let spec = unicast(10)[1];
        let real = "64\tslipring\t3.00\n1024\trtrb\t2.00\n1024\tslipring\t4.50\n";
        assert_eq!(real_time(real, spec, "slipring, instrumented"), Some(4.5));
        assert_eq!(real_time(real, spec, "other"), None);
    }
}
