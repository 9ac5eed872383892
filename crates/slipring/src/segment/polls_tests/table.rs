//! Compares the table of PROTOCOL.md, "Calls that do not wait", with the sources and with the
//! tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::rows::*;
use crate::processes::markers::Seated;
use crate::producer::Single;

/// The handles of rings between processes.
const HANDLES: [&str; 18] = [
    "Awaited",
    "BlockConsumer",
    "BlockProducer",
    "Conflator",
    "Consumer",
    "CopyingConsumer",
    "CopyingProducer",
    "MessageConsumer",
    "MessageProducer",
    "Producer",
    "Promise",
    "RawBlockConsumer",
    "RawBlockProducer",
    "RawConsumer",
    "RawProducer",
    "SegmentRequest",
    "Selector",
    "Waitable",
];

/// Calls of the table's first column that are tested elsewhere: in `promises.rs` of `slipring-shm`,
/// whose tests kill real processes.
const ELSEWHERE: [(&str, &str); 4] = [
    ("Awaited", "try_take"),
    ("Awaited", "wait_for"),
    ("Awaited", "wait_until"),
    ("SegmentRequest", "poll"),
];

type Calls = BTreeSet<(String, String)>;

fn in_crates(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

/// Returns the calls of each column of PROTOCOL.md's table.
fn table() -> [Calls; 3] {
    let text = fs::read_to_string(in_crates("slipring/src/PROTOCOL.md")).unwrap();
    let (_, section) = text.split_once("### Calls that do not wait").expect("the section");
    let section = section.split("\n#").next().unwrap();
    let mut columns = [const { BTreeSet::new() }; 3];
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<Vec<&str>> = row
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.split('`').skip(1).step_by(2).collect())
            .collect();
        for (column, calls) in columns.iter_mut().zip(&cells[1..]) {
            column.extend(calls.iter().map(|call| (cells[0][0].into(), (*call).into())));
        }
    }
    columns
}

/// Adds the public functions of a file's handles.
fn public_calls(text: &str, calls: &mut Calls) {
    let mut handle = None;
    for line in text.lines() {
        if let Some(of) = line.strip_prefix("passes!(") {
            let passes = include_str!("../passes.rs").lines().map(str::trim);
            for name in passes.filter_map(|line| line.strip_prefix("pub fn ")) {
                let (handle, name) = (of.split('<').next(), name.split('(').next());
                calls.insert((handle.unwrap().into(), name.unwrap().into()));
            }
        }
        if line.starts_with("impl") || line.starts_with("pub trait ") {
            let name = |name: &&&str| {
                let named = |end: &str| line.contains(&format!(" {name}{end}"));
                named("<") || named(" {") || named(": ")
            };
            let is_own = !line.contains(" for ");
            handle = HANDLES.iter().find(name).filter(|_| is_own);
        }
        let declared = match handle {
            Some(&"Waitable") => line.strip_prefix("    fn "),
            _ => line.strip_prefix("    pub fn ").or(line.strip_prefix("    pub unsafe fn ")),
        };
        if let (Some(handle), Some(rest)) = (handle, declared) {
            let name = rest.split(['(', '<']).next().unwrap();
            calls.insert(((*handle).into(), name.into()));
        }
    }
}

fn read_sources(folder: &Path, calls: &mut Calls) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Promises within one process are left out, because they do not depend on another process.
        if path.ends_with("src/promise") {
            continue;
        }
        if path.is_dir() {
            read_sources(&path, calls);
        } else if path.extension().is_some_and(|it| it == "rs") {
            public_calls(&fs::read_to_string(&path).unwrap(), calls);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn the_table_of_calls_has_each_public_call_of_each_handle() {
    let _watched = crate::watchdog::watched();
    let mut calls = Calls::new();
    read_sources(&in_crates("slipring/src"), &mut calls);
    read_sources(&in_crates("slipring-shm/src"), &mut calls);
    let handles: BTreeSet<_> = calls.iter().map(|(handle, _)| handle.as_str()).collect();
    assert_eq!(handles, BTreeSet::from(HANDLES));
    let mut listed = BTreeMap::new();
    for (column, calls) in table().into_iter().enumerate() {
        for call in calls {
            assert_eq!(listed.insert(call.clone(), column), None, "{call:?} stands twice");
        }
    }
    let listed: Calls = listed.into_keys().collect();
    let missing: Vec<_> = calls.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&calls).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "PROTOCOL.md, \"Calls that do not wait\": not there: {missing:?}; no such call: {gone:?}"
    );
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn each_call_of_the_table_that_may_be_refused_is_tested() {
    let _watched = crate::watchdog::watched();
    fn names<H>(rows: Vec<Row<H>>) -> impl Iterator<Item = (&'static str, &'static str)> {
        rows.into_iter().map(|(handle, call, ..)| (handle, call))
    }
    let tested = names(producers::<Single>())
        .chain(names(block_producers::<Single>()))
        .chain(names(message_producers::<Single>()))
        .chain(names(copying_producers::<Single>()))
        .chain(names(consumers::<Seated>()))
        .chain(names(block_consumers::<Seated>()))
        .chain(names(message_consumers::<Seated>()))
        .chain(names(copying_consumers::<Seated>()))
        .chain(ELSEWHERE);
    let mut tested: Calls =
        tested.map(|(handle, call)| (handle.to_owned(), call.to_owned())).collect();
    if cfg!(not(feature = "stream")) {
        let calls = ["into_stream", "into_chunks_within"];
        tested.extend(calls.map(|call| ("Consumer".into(), call.into())));
    }
    assert_eq!(tested, table()[0]);
}
