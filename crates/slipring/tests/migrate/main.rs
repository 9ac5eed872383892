//! The guarantees that users of the LMAX Disruptor, of QuestDB's queues and of channels rely on, in
//! slipring: one test for each row of `src/MIGRATING.md`.
//!
//! Every graph and every other wait here has a deadline. No test asserts a duration.

mod channels;
#[path = "../common/mod.rs"]
mod common;
mod lmax_graphs;
mod lmax_handlers;
mod lmax_producing;
mod lmax_waiting;
mod questdb;
mod running_members;
mod running_positions;
mod running_stages;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Instant;
use std::{fs, thread};

use common::LIMIT;
use slipring::{
    Chain, Error, Graph, Producer, Reader,
    errors::{BuildError, ErrorKind},
    markers::{Interleaved, Many},
};

/// Declares a graph of numbers.
fn graph(capacity: usize) -> Graph<'static, u64> {
    Graph::new(capacity, || 0).deadline(LIMIT)
}

/// Declares a graph of numbers with many producers.
fn shared(capacity: usize) -> Graph<'static, u64, Interleaved, Many> {
    graph(capacity).shared()
}

/// Declares a chain of numbers.
fn chain<'env>(capacity: usize) -> Chain<'env, u64> {
    slipring::ring(capacity, || 0).deadline(LIMIT)
}

/// Builds a graph with one producer, and one reader named `r`.
fn pair(capacity: usize) -> (Producer<u64>, Reader<u64>) {
    let graph = graph(capacity);
    let key = graph.reader("r");
    let ring = graph.build().unwrap();
    (ring.producer(), ring.reader(key))
}

/// Asserts that the build failed, and returns its error.
fn build_error<T: Debug>(build: Result<T, Error>) -> BuildError {
    match build.unwrap_err().kind() {
        ErrorKind::Build(error) => error.clone(),
        other => panic!("{other:?}"),
    }
}

/// Polls `condition` until it holds. After [`LIMIT`], panics with `name`.
fn until(name: &str, mut condition: impl FnMut() -> bool) {
    let patience = Patience::new();
    while !condition() {
        patience.pause(name);
    }
}

/// The deadline of a loop of attempts.
struct Patience(Instant);

impl Patience {
    fn new() -> Self {
        Patience(Instant::now() + LIMIT)
    }

    fn pause(&self, name: &str) {
        assert!(Instant::now() < self.0, "did not happen: {name}");
        thread::yield_now();
    }
}

/// Returns whether the values are `0..len`, each once, in any order.
fn each_once(mut values: Vec<u64>, len: u64) -> bool {
    values.sort_unstable();
    values.into_iter().eq(0..len)
}

/// Every number in a table refers to a note below it, and every note is referred to.
#[test]
fn the_tables_refer_to_each_note_below_them() {
    let _watched = crate::common::watched();
    for section in include_str!("../../src/MIGRATING.md").split("\n## ").skip(1) {
        let rows = section.lines().filter(|line| line.starts_with("| "));
        let differs = rows
            .filter_map(|row| row.split('|').nth(4))
            .flat_map(|cell| cell.split([';', ',']))
            .map(str::trim);
        let referred: BTreeSet<usize> = differs.filter_map(|word| word.parse().ok()).collect();
        let notes = section.lines().filter_map(|line| line.split_once(". ")?.0.parse().ok());
        assert!(
            referred.iter().copied().eq(notes.clone()),
            "referred to: {referred:?}; notes: {:?}",
            notes.collect::<Vec<_>>()
        );
    }
}

/// Every test of this folder is in the table, and the table names only tests.
#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_table_names_every_test() {
    let _watched = crate::common::watched();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/migrate");
    let mut tests = BTreeSet::new();
    for file in fs::read_dir(folder).unwrap() {
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
        let ["", guarantee, there, here, _, test, ""] = cells[..] else {
            panic!("not five cells: {row}")
        };
        assert!(
            [guarantee, there, here].iter().all(|cell| !cell.is_empty()),
            "an empty cell: {row}"
        );
        assert!(!test.is_empty(), "no test: {row}");
        named.extend(test.split(", ").map(|name| name.replace(' ', "_")));
    }
    assert!(tests == named, "tests: {tests:#?}\ntable: {named:#?}");
}
