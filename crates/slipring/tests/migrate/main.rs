//! What users of the LMAX Disruptor and of QuestDB's queues rely on, said in slipring: one test for
//! each row of `src/MIGRATING.md`.
//!
//! Every graph here has a deadline, and so has every other wait: nothing can hang, and nothing
//! asserts how long it took.

#[path = "../common/mod.rs"]
mod common;
mod lmax;
mod questdb;
mod running;

use std::collections::BTreeSet;
use std::time::Instant;
use std::{fs, thread};

use common::LIMIT;
use slipring::{Chain, Graph, Interleaved, Many, Producer, Reader};

/// A graph of numbers.
fn graph(capacity: usize) -> Graph<u64> {
    Graph::new(capacity, || 0).deadline(LIMIT)
}

/// A graph of numbers with many producers.
fn shared(capacity: usize) -> Graph<u64, Interleaved, Many> {
    graph(capacity).shared()
}

/// A chain of numbers.
fn chain<'env>(capacity: usize) -> Chain<'env, u64> {
    slipring::ring(capacity, || 0).deadline(LIMIT)
}

/// One producer, and one reader named `r`.
fn pair(capacity: usize) -> (Producer<u64>, Reader<u64>) {
    let graph = graph(capacity);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(key))
}

/// Looks until it is so.
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let patience = Patience::new();
    while !so() {
        patience.pause(what);
    }
}

/// Bounds a loop that tries again and again.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Patience(Instant::now() + LIMIT)
    }

    fn pause(&self, what: &str) {
        assert!(Instant::now() < self.0, "waited in vain: {what}");
        thread::yield_now();
    }
}

/// Whether the values are `0..len`, each once, in any order.
fn each_once(mut values: Vec<u64>, len: u64) -> bool {
    values.sort_unstable();
    values.into_iter().eq(0..len)
}

/// Every number in a table is a note below it, and every note is asked for.
#[test]
fn the_notes_are_below_their_tables() {
    let _watched = crate::common::watched();
    for section in include_str!("../../src/MIGRATING.md").split("\n## ").skip(1) {
        let rows = section.lines().filter(|line| line.starts_with("| "));
        let differs = rows
            .filter_map(|row| row.split('|').nth(4))
            .flat_map(|cell| cell.split([';', ',']))
            .map(str::trim);
        let asked: BTreeSet<usize> = differs.filter_map(|word| word.parse().ok()).collect();
        let notes = section.lines().filter_map(|line| line.split_once(". ")?.0.parse().ok());
        assert!(
            asked.iter().copied().eq(notes.clone()),
            "asked for: {asked:?}; there: {:?}",
            notes.collect::<Vec<_>>()
        );
    }
}

/// Every test is in the table, and whatever the table names is a test.
#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_table_names_every_test() {
    let _watched = crate::common::watched();
    let here = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrate");
    let mut tests = BTreeSet::new();
    for file in fs::read_dir(here).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        if !path.ends_with("main.rs") {
            let names = text
                .split("#[test]\n")
                .skip(1)
                .map(|rest| rest.split_once("fn ").unwrap().1.split_once('(').unwrap().0);
            tests.extend(names.map(str::to_owned));
        }
    }
    let table = include_str!("../../src/MIGRATING.md");
    let rows = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| What you rely on"));
    let mut named = BTreeSet::new();
    for row in rows.filter(|row| !row.starts_with("| **")) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let ["", what, theirs, ours, _, test, ""] = cells[..] else {
            panic!("not five cells: {row}")
        };
        assert!([what, theirs, ours].iter().all(|cell| !cell.is_empty()), "an empty cell: {row}");
        let names = test
            .split(", ")
            .map(|name| name.strip_prefix('`').and_then(|name| name.strip_suffix('`')));
        named.extend(names.map(|name| name.unwrap_or_else(|| panic!("no test: {row}"))));
    }
    assert!(
        tests.iter().map(String::as_str).eq(named.iter().copied()),
        "tests: {tests:#?}\ntable: {named:#?}"
    );
}
