//! Ordering mutation: each run weakens one Acquire, Release or fence of the library, or exchanges
//! two statements, and runs the tests that could notice.
//!
//! The run is hand-made: no mutation tool knows the orderings of atomics. The models judge a
//! mutant; where no model sees the change, other tests do ([`sites::Asked`]). A mutant that no test
//! kills shows an edge that no test checks, and needs an explanation in
//! `crates/slipring/mutants.allow` ([`allow`]).

pub mod allow;
mod judge;
mod order;
pub mod sites;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use self::{
    allow::Allowed,
    judge::{Judge, Verdict},
    sites::{Asked, Mutant},
};
use crate::{
    layout::LIBRARY,
    say::say,
    steps::{Step, Trouble},
};

/// The selection of mutants and the places of the report.
#[derive(Debug, Default)]
pub struct Options {
    /// Texts of which a mutant's path or function must contain one; without any, all mutants are
    /// judged.
    pub only: Vec<String>,
    /// Whether to print the mutants without judging them.
    pub list: bool,
    /// The file of a second copy of the report.
    pub output: Option<PathBuf>,
    /// Time limit of a test, in seconds; a multiple of its usual time by default.
    pub limit: Option<u64>,
}

/// A mutant with its verdict.
struct Judged<'a> {
    mutant: Mutant,
    verdict: Verdict,
    took: Duration,
    explained: Option<&'a Allowed>,
}

/// Judges all mutants. Fails if a mutant survives and has no explanation.
pub fn run(step: &mut Step, options: &Options) -> Result<(), Trouble> {
    let started = Instant::now();
    let library = step.root.join(LIBRARY);
    let mut mutants = sites::find(&library.join("src"))?;
    let is_chosen = |mutant: &Mutant, part: &String| {
        mutant.file.to_string_lossy().contains(part.as_str()) || mutant.function.contains(part)
    };
    if let Some(unknown) =
        options.only.iter().find(|part| !mutants.iter().any(|mutant| is_chosen(mutant, part)))
    {
        let text = format!("no mutant's file or function contains `{unknown}` (`--only`)");
        return Err(Trouble::Failed(text));
    }
    let whole = options.only.is_empty();
    mutants.retain(|mutant| whole || options.only.iter().any(|part| is_chosen(mutant, part)));
    if options.list {
        mutants.iter().for_each(|mutant| say!("{}", described(mutant)));
        say!("{} mutants", mutants.len());
        return Ok(());
    }
    let allowed = match fs::read_to_string(library.join("mutants.allow")) {
        Ok(text) => {
            allow::parse(&text).map_err(|error| format!("{LIBRARY}/mutants.allow: {error}"))?
        }
        Err(_) => Vec::new(),
    };
    if mutants.is_empty() {
        return Err(Trouble::Failed("no mutant was found".to_owned()));
    }
    // If an output cannot be written, the run fails here, and not after hours of judging.
    if let Some(output) = &options.output {
        let opened = fs::OpenOptions::new().append(true).create(true).open(output);
        opened.map_err(|error| format!("cannot write to {}: {error}", output.display()))?;
    }
    let asked: BTreeSet<Asked> = mutants.iter().flat_map(|mutant| mutant.asked).copied().collect();
    let asked: Vec<Asked> = asked.into_iter().collect();
    let mut judge = Judge::new(
        &step.root,
        &step.scratch("mutants"),
        &asked,
        options.limit.map(Duration::from_secs),
    )?;
    say!("{} mutants", mutants.len());
    let mut judged = Vec::new();
    let count = mutants.len();
    for (index, mutant) in mutants.into_iter().enumerate() {
        let began = Instant::now();
        let verdict = judge.judge(&mutant)?;
        let explained = allowed.iter().find(|allowed| allowed.fits(&mutant));
        let one = Judged { mutant, verdict, took: began.elapsed(), explained };
        let mark = if one.is_open() { "  <-- NOT EXPLAINED" } else { "" };
        say!(
            "[{:>3}/{count}] {}: {} ({:.1?}){mark}",
            index + 1,
            described(&one.mutant),
            one.verdict,
            one.took
        );
        judged.push(one);
    }
    let warnings = stale(&allowed, &judged, whole);
    let report = report(&judged, &warnings, judge.tests(), started.elapsed());
    // The report is printed even if a file cannot be written.
    let mut unsaved = Vec::new();
    for path in [Some(&step.scratch("mutants").join("report.txt")), options.output.as_ref()]
        .into_iter()
        .flatten()
    {
        unsaved.extend(
            fs::write(path, &report)
                .err()
                .map(|error| format!("cannot write to {}: {error}", path.display())),
        );
    }
    say!("\n{report}");
    let open: Vec<String> = judged
        .iter()
        .filter(|one| one.is_open())
        .map(|one| format!("{}: {}", described(&one.mutant), one.verdict))
        .collect();
    let message =
        format!("{} mutants live and are not explained in {LIBRARY}/mutants.allow:", open.len());
    let troubles = if open.is_empty() { unsaved } else { [unsaved, vec![message], open].concat() };
    if troubles.is_empty() { Ok(()) } else { Err(troubles.join("\n").into()) }
}

impl Judged<'_> {
    /// Returns whether the mutant needs a test or an explanation. An exchange that the compiler
    /// refuses needs neither.
    fn is_open(&self) -> bool {
        let refused =
            self.mutant.exchanges() && matches!(self.verdict, Verdict::DoesNotBuild { .. });
        !self.verdict.is_killed() && !refused && self.explained.is_none()
    }
}

/// Returns the place, the labels and the change of a mutant.
fn described(mutant: &Mutant) -> String {
    let Mutant { file, line, function, labels, mutation, .. } = mutant;
    let labels: String = labels.iter().map(|label| format!(" SYNC[{label}]")).collect();
    format!("{}:{line} {function}{labels} {mutation}", file.display())
}

/// Returns the explanations that fit no living mutant.
fn stale(allowed: &[Allowed], judged: &[Judged<'_>], whole: bool) -> Vec<String> {
    let mut warnings = Vec::new();
    for allowed in allowed {
        let fitting: Vec<&Judged<'_>> =
            judged.iter().filter(|one| allowed.fits(&one.mutant)).collect();
        let killed = fitting.iter().filter(|one| one.verdict.is_killed()).count();
        let trouble = match (fitting.len(), killed) {
            (0, _) if whole => "fits no mutant".to_owned(),
            (0, _) | (_, 0) => continue,
            (all, killed) if all == killed => "explains a mutant that is killed now".to_owned(),
            (all, killed) => format!(
                "fits {all} mutants, {killed} of them killed: choose one by the text of its line"
            ),
        };
        warnings.push(format!("mutants.allow:{}: `{}` {trouble}", allowed.line, allowed.key));
    }
    warnings
}

/// Returns the table, with totals.
fn report(judged: &[Judged<'_>], warnings: &[String], tests: usize, took: Duration) -> String {
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    let mut table = String::from("verdict         seconds  mutant\n");
    for Judged { mutant, verdict, took, explained } in judged {
        *totals.entry(verdict.name()).or_default() += 1;
        let _ = writeln!(
            table,
            "{:<14} {:>8.1}  {}",
            verdict.name(),
            took.as_secs_f64(),
            described(mutant)
        );
        match (verdict, explained) {
            (Verdict::Killed { by }, _) => _ = writeln!(table, "{:26}by {by}", ""),
            (_, Some(allowed)) => _ = writeln!(table, "{:26}explained: {}", "", allowed.reason),
            (Verdict::DoesNotBuild { error }, None) => _ = writeln!(table, "{:26}{error}", ""),
            (_, None) => _ = writeln!(table, "{:26}NOT EXPLAINED: `{}`", "", mutant.text),
        }
    }
    for warning in warnings {
        let _ = writeln!(table, "warning: {warning}");
    }
    let totals: Vec<String> =
        totals.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let open = judged.iter().filter(|one| one.is_open()).count();
    let _ = writeln!(
        table,
        "{} mutants judged by {tests} tests in {:.0} s: {}; {open} not explained",
        judged.len(),
        took.as_secs_f64(),
        totals.join(", ")
    );
    table
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::Source;

    #[test]
    fn open_mutants_and_stale_explanations_are_found() {
        let source = Source::parse(
            "fn f() { a.load(Acquire); b.load(Acquire); }\nfn g() { a.store(1, Release); }",
        )
        .unwrap();
        let mutants = sites::mutants(Path::new("a.rs"), &source, &Default::default());
        let mutants: Vec<Mutant> =
            mutants.into_iter().filter(|mutant| !mutant.exchanges()).collect();
        let text = "a.rs: f: Acquire->Relaxed — r\na.rs: g: Release->Relaxed — r\na.rs: h: Release->Relaxed — r";
        let allowed = allow::parse(text).unwrap();
        let killed = || Verdict::Killed { by: "a model".to_owned() };
        let mut judged: Vec<Judged<'_>> = mutants
            .into_iter()
            .zip([killed(), Verdict::Survived, killed()])
            .map(|(mutant, verdict)| Judged {
                mutant,
                verdict,
                took: Duration::ZERO,
                explained: None,
            })
            .collect();
        assert_eq!(judged.iter().filter(|one| one.is_open()).count(), 1);
        judged[1].explained = Some(&allowed[0]);
        assert!(!judged[1].is_open());
        let pair = sites::mutants(
            Path::new("a.rs"),
            &Source::parse("fn f() { a.store(1, Relaxed); fence(SeqCst); }").unwrap(),
            &Default::default(),
        );
        let open = |verdict| {
            Judged { mutant: pair[0].clone(), verdict, took: Duration::ZERO, explained: None }
                .is_open()
        };
        assert!(
            pair[0].exchanges()
                && open(Verdict::Survived)
                && !open(Verdict::DoesNotBuild { error: String::new() })
        );
        let warnings = stale(&allowed, &judged, true);
        assert_eq!(warnings.len(), 3);
        assert!(warnings[0].contains("fits 2 mutants, 1 of them killed"));
        assert!(warnings[1].contains("killed now") && warnings[2].contains("fits no mutant"));
        assert_eq!(stale(&allowed, &judged, false).len(), 2);
        let report = report(&judged, &warnings, 7, Duration::from_secs(3));
        assert!(report.ends_with(
            "3 mutants judged by 7 tests in 3 s: 2 killed, 1 survived; 0 not explained\n"
        ));
    }
}
