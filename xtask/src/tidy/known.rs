//! The lists of known exceptions: one file per crate in `xtask/known`, which only shrink.
//!
//! A line is `rule: subject`, or `rule: subject (N)` if the rule is broken N times there. A breach
//! that no line covers is an error, and so is a line whose breaches are gone. `cargo xtask tidy
//! --update` lowers numbers and removes lines. It adds none.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use crate::findings::{Breach, Findings};

/// The folder of the lists.
const FOLDER: &str = "xtask/known";

/// The number of breaches of each rule and subject.
type Counts = BTreeMap<(String, String), usize>;

/// The lists of known exceptions, by the crate's folder.
#[derive(Debug, Default)]
pub struct Known(BTreeMap<String, Counts>);

impl Known {
    /// Reads the lists of `crates` below `root`. A file of no crate is an error.
    pub fn read(root: &Path, crates: &[&str], found: &mut Findings) -> io::Result<Self> {
        let mut known = Self::default();
        let mut files = BTreeSet::new();
        for krate in crates {
            let file = file(krate);
            if let Ok(text) = fs::read_to_string(root.join(&file)) {
                known.0.insert((*krate).to_owned(), parse(&text).map_err(io::Error::other)?);
            }
            files.insert(file);
        }
        for entry in fs::read_dir(root.join(FOLDER)).into_iter().flatten() {
            let path = Path::new(FOLDER).join(entry?.file_name());
            if !files.contains(&path) {
                found.errors.push(format!("{}: there is no such crate", path.display()));
            }
        }
        Ok(known)
    }

    /// Turns the breaches that no list has into errors, and the breaches that a list has into
    /// notes.
    pub fn settle(&self, found: &mut Findings) {
        let breaches = std::mem::take(&mut found.breaches);
        let counts = count(&breaches);
        let none = Counts::new();
        let mut told = BTreeSet::new();
        for Breach { krate, rule, subject, message } in &breaches {
            let key = ((*rule).to_owned(), subject.clone());
            let known = self.0.get(krate).and_then(|list| list.get(&key)).copied().unwrap_or(0);
            let now = counts[krate][&key];
            if now <= known {
                continue;
            }
            if told.insert(message) {
                found.errors.push(format!("{rule}: {krate}: {message}"));
            }
            if known > 0 && told.insert(subject) {
                let list = file(krate);
                found.errors.push(format!("{}: {subject}: {now}, not {known}", list.display()));
            }
        }
        for (krate, list) in &self.0 {
            let mut total = BTreeMap::<&str, usize>::new();
            let path = file(krate);
            for (key @ (rule, subject), known) in list {
                let now = counts.get(krate).unwrap_or(&none).get(key).copied().unwrap_or(0);
                *total.entry(rule).or_default() += now.min(*known);
                let shrink = "run `cargo xtask tidy --update`";
                if now == 0 {
                    let gone = format!("{}: `{rule}: {subject}` is gone", path.display());
                    found.errors.push(format!("{gone}: {shrink}"));
                } else if now < *known {
                    let fewer = format!("{}: `{rule}: {subject}` is {now}", path.display());
                    found.warnings.push(format!("{fewer}, not {known}: {shrink}"));
                }
            }
            let total: Vec<String> =
                total.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
            found.notes.push(format!("known in {krate}: {}", total.join(", ")));
        }
    }

    /// Rewrites the lists below `root` without the breaches that are gone.
    pub fn shrink(&self, root: &Path, breaches: &[Breach]) -> io::Result<()> {
        let counts = count(breaches);
        for (krate, list) in &self.0 {
            let now = counts.get(krate);
            let kept: Counts = list
                .iter()
                .filter_map(|(key, &known)| {
                    let now = now.and_then(|now| now.get(key)).copied()?;
                    Some((key.clone(), now.min(known)))
                })
                .collect();
            let path = root.join(file(krate));
            if kept.is_empty() {
                fs::remove_file(path)?;
            } else if kept != *list {
                fs::write(path, print(&kept))?;
            }
        }
        Ok(())
    }
}

/// Returns the lists that would name all of `breaches`, each behind its path.
pub fn lists(breaches: &[Breach]) -> String {
    let list = |(krate, counts): (&String, &Counts)| {
        format!("{}\n{}\n", file(krate).display(), print(counts))
    };
    count(breaches).iter().map(list).collect()
}

/// Returns the list of the crate in the folder `krate`.
fn file(krate: &str) -> PathBuf {
    let name = krate.strip_prefix("crates/").unwrap_or(krate).replace('/', "-");
    Path::new(FOLDER).join(format!("{name}.txt"))
}

/// Counts the breaches of each crate.
fn count(breaches: &[Breach]) -> BTreeMap<String, Counts> {
    let mut counts = BTreeMap::<String, Counts>::new();
    for Breach { krate, rule, subject, .. } in breaches {
        let key = ((*rule).to_owned(), subject.clone());
        *counts.entry(krate.clone()).or_default().entry(key).or_default() += 1;
    }
    counts
}

/// Reads a list.
fn parse(text: &str) -> Result<Counts, String> {
    let line = |line: &str| {
        let (rule, rest) = line.split_once(": ")?;
        let counted = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once(" ("));
        let counted = counted.and_then(|(subject, count)| Some((subject, count.parse().ok()?)));
        let (subject, count) = counted.unwrap_or((rest, 1));
        Some(((rule.to_owned(), subject.to_owned()), count))
    };
    text.lines().map(|l| line(l).ok_or_else(|| format!("`{l}` is no `rule: subject`"))).collect()
}

/// Writes a list.
fn print(counts: &Counts) -> String {
    let line = |((rule, subject), count): (&(String, String), &usize)| match count {
        1 => format!("{rule}: {subject}\n"),
        _ => format!("{rule}: {subject} ({count})\n"),
    };
    counts.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(list: &str, breaches: &[(&'static str, &str)]) -> Findings {
        let known = Known([("crates/a".to_owned(), parse(list).unwrap())].into());
        let mut found = Findings::default();
        for (rule, subject) in breaches {
            found.breach("crates/a", rule, *subject, format!("{subject} is broken"));
        }
        known.settle(&mut found);
        found
    }

    #[test]
    fn a_list_excuses_what_it_names() {
        let found = settled(
            "circle: b.rs\nordering: c.rs (2)\n",
            &[("circle", "b.rs"), ("ordering", "c.rs"), ("ordering", "c.rs")],
        );
        assert_eq!(found.errors, [""; 0]);
        assert_eq!(found.notes, ["known in crates/a: circle 1, ordering 2"]);
    }

    #[test]
    fn a_list_only_shrinks() {
        let found = settled("circle: b.rs\n", &[("circle", "c.rs")]);
        assert_eq!(found.errors.len(), 2, "{:?}", found.errors);
        assert_eq!(found.errors[0], "circle: crates/a: c.rs is broken");
        assert!(found.errors[1].contains("`circle: b.rs` is gone"));
        let found = settled("ordering: b.rs\n", &[("ordering", "b.rs"), ("ordering", "b.rs")]);
        assert_eq!(found.errors.len(), 2, "{:?}", found.errors);
        assert!(found.errors[1].ends_with("b.rs: 2, not 1"));
        let found = settled("ordering: b.rs (3)\n", &[("ordering", "b.rs")]);
        assert!(found.errors.is_empty() && found.warnings[0].contains("is 1, not 3"));
    }

    #[test]
    fn a_list_is_written_as_it_is_read() {
        let list = "circle: a.rs\nmodel: a.rs -> b (c)\nordering: b.rs (12)\n";
        assert_eq!(print(&parse(list).unwrap()), list);
        assert!(parse("nonsense").is_err());
        assert_eq!(file("peers/nats"), Path::new("xtask/known/peers-nats.txt"));
    }
}
