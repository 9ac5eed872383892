//! Each twin is found by a case of `twins.jsonl`, or `TWINS.md` says why no seed finds it, or it
//! weakens nothing but an ordering.

use std::collections::BTreeSet;

const TWINS: &str = include_str!(concat!(env!("OUT_DIR"), "/twins.txt"));
const CASES: &str = include_str!("../twins.jsonl");
const PAGE: &str = include_str!("../TWINS.md");

#[test]
fn each_twin_is_found_or_explained() {
    let name = |line: &'static str| Some(line.strip_prefix("{\"twin\":\"")?.split_once('"')?.0);
    let found: BTreeSet<&str> = CASES.lines().filter_map(name).collect();
    let row = |line: &'static str| Some(line.strip_prefix("| `")?.split_once('`')?.0);
    let explained: BTreeSet<&str> = PAGE.lines().filter_map(row).collect();
    let orderings: BTreeSet<&str> =
        TWINS.lines().filter_map(|line| line.strip_suffix(" ordering")).collect();
    let others: BTreeSet<&str> = TWINS.lines().filter(|line| !line.contains(' ')).collect();
    let known = |name: &&&str| found.contains(**name) || explained.contains(**name);
    let missing: Vec<_> = others.iter().filter(|name| !known(name)).collect();
    assert!(missing.is_empty(), "neither found nor explained: {missing:?}");
    let both: Vec<_> = found.intersection(&explained).collect();
    assert!(both.is_empty(), "found, and explained all the same: {both:?}");
    let gone = |name: &&&str| !others.contains(**name) && !orderings.contains(**name);
    let gone: Vec<_> = found.union(&explained).filter(gone).collect();
    assert!(gone.is_empty(), "no longer twins: {gone:?}");
}
