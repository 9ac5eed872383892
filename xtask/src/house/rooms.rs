//! The rooms of the library, and the rule that names travel downwards only.

use std::{collections::BTreeSet, path::Path};

use super::{
    House,
    arrows::Arrows,
    circles::{self, Graph},
};
use crate::findings::Findings;

/// Whether a broken rule is an error; a warning otherwise.
const ENFORCED: bool = true;

/// Each room with the rooms that it may import, lowest first.
const ROOMS: [(&str, &[&str]); 15] = [
    ("guide", &[]),
    ("base", &[]),
    ("wait", &["base"]),
    ("errors", &["base"]),
    ("ring", &["base", "wait", "errors"]),
    ("promise", &["base", "wait", "errors", "ring"]),
    ("producer", &["base", "wait", "errors", "ring", "promise"]),
    ("consumer", &["base", "wait", "errors", "ring"]),
    ("observe", &["base", "wait", "errors", "ring"]),
    ("live", &["base", "wait", "errors", "ring", "producer", "consumer", "observe"]),
    (
        "adapters",
        &["base", "wait", "errors", "ring", "promise", "producer", "consumer", "observe", "live"],
    ),
    ("segment", &["base", "wait", "errors", "ring", "producer", "consumer", "live", "adapters"]),
    (
        "run",
        &["base", "wait", "errors", "ring", "producer", "consumer", "observe", "live", "adapters"],
    ),
    (
        "graph",
        &[
            "base", "wait", "errors", "ring", "producer", "consumer", "observe", "live",
            "adapters", "run",
        ],
    ),
    (
        "chain",
        &[
            "base", "wait", "errors", "ring", "promise", "producer", "consumer", "observe", "live",
            "adapters", "run", "graph",
        ],
    ),
];

/// The room above all others.
const ROOF: &str = "lib";

/// An arrow that the table of rooms does not allow.
#[derive(Debug, PartialEq, Eq)]
pub struct Upwards {
    /// The file that imports.
    pub from: usize,
    /// The file that defines.
    pub to: usize,
}

/// The room of a file: its folder, or the file itself where it lies in none.
pub fn room(file: &Path) -> String {
    let first = file.components().next().map(|part| part.as_os_str().to_string_lossy());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

/// The files of `house` that lie in no room.
pub fn homeless(house: &House) -> Vec<usize> {
    let known = |file: &usize| {
        let room = room(&house.files[*file]);
        room == ROOF || ROOMS.iter().any(|(name, _)| room == *name)
    };
    (0..house.files.len()).filter(|file| !known(file)).collect()
}

/// The arrows between rooms of the table that lead upwards or across.
pub fn upwards(house: &House, arrows: &Arrows) -> Vec<Upwards> {
    let allowed = |from: &str, to: &str| {
        from == to
            || from == ROOF
            || (to != ROOF
                && ROOMS.iter().find(|(name, _)| *name == from).is_none_or(|(_, below)| {
                    below.contains(&to) || !ROOMS.iter().any(|(name, _)| *name == to)
                }))
    };
    arrows
        .names
        .keys()
        .filter(|(from, to)| !allowed(&room(&house.files[*from]), &room(&house.files[*to])))
        .map(|&(from, to)| Upwards { from, to })
        .collect()
}

/// The files as a graph.
pub fn graph(house: &House, arrows: &Arrows) -> Graph {
    let mut graph = vec![BTreeSet::new(); house.files.len()];
    for &(from, to) in arrows.names.keys() {
        graph[from].insert(to);
    }
    graph
}

/// Finds arrows upwards, circles of files, and files in no room.
pub fn check(house: &House, arrows: &Arrows, found: &mut Findings) {
    rules(house, arrows, ENFORCED, found);
}

fn rules(house: &House, arrows: &Arrows, enforced: bool, found: &mut Findings) {
    let (homeless, upwards) = (homeless(house), upwards(house, arrows));
    let graph = graph(house, arrows);
    let circles = circles::circles(&graph);
    if !enforced {
        let files: usize = circles.iter().map(Vec::len).sum();
        if files + homeless.len() + upwards.len() > 0 {
            found.warnings.push(format!(
                "rooms: {files} files in circles, {} arrows upwards, {} files in no room",
                upwards.len(),
                homeless.len()
            ));
        }
        return;
    }
    for file in homeless {
        found.errors.push(format!(
            "{} lies in no room: move it, or add its room to the table in `house/rooms.rs`",
            house.files[file].display()
        ));
    }
    for Upwards { from, to } in upwards {
        found.errors.push(format!(
            "{} imports {} upwards: {}",
            house.files[from].display(),
            house.files[to].display(),
            names(arrows, from, to)
        ));
    }
    for group in circles {
        found.errors.push(circle(house, arrows, &circles::shortest(&graph, &group)));
    }
}

/// A circle in words, with the names on each arrow.
pub fn circle(house: &House, arrows: &Arrows, files: &[usize]) -> String {
    let mut text = format!("circle of {} files:", files.len());
    for (at, &from) in files.iter().enumerate() {
        let to = files[(at + 1) % files.len()];
        let separator = if at == 0 { " " } else { "; " };
        text += &format!(
            "{separator}{} imports {}: {}",
            house.files[from].display(),
            house.files[to].display(),
            names(arrows, from, to)
        );
    }
    text
}

/// The names on one arrow.
pub fn names(arrows: &Arrows, from: usize, to: usize) -> String {
    let names = arrows.names.get(&(from, to)).into_iter().flatten();
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::tests::house;

    fn errors(files: &[(&str, &str)], enforced: bool) -> Findings {
        let house = house(files);
        let mut found = Findings::default();
        rules(&house, &Arrows::of(&house), enforced, &mut found);
        found
    }

    #[test]
    fn each_room_imports_rooms_before_it() {
        for (at, (name, below)) in ROOMS.iter().enumerate() {
            for room in *below {
                assert!(ROOMS[..at].iter().any(|(earlier, _)| earlier == room), "{name}: {room}");
            }
        }
    }

    #[test]
    fn an_arrow_upwards_names_files_and_names() {
        let files = [
            ("lib.rs", "mod ring; mod consumer; pub use ring::policy::P;"),
            ("ring/mod.rs", "pub mod policy;"),
            ("ring/policy.rs", "use crate::consumer::{skip, Position}; pub struct P;"),
            ("consumer/mod.rs", "mod position; pub use position::*;"),
            ("consumer/position.rs", "pub fn skip() {} pub struct Position;"),
        ];
        assert_eq!(
            errors(&files, true).errors,
            ["ring/policy.rs imports consumer/position.rs upwards: Position, skip"]
        );
        let warned = errors(&files, false);
        assert_eq!(warned.errors.len(), 0);
        assert_eq!(
            warned.warnings,
            ["rooms: 0 files in circles, 1 arrows upwards, 0 files in no room"]
        );
    }

    #[test]
    fn neighbours_do_not_know_each_other() {
        let across = [
            ("lib.rs", "mod wait; mod errors; pub struct Top;"),
            ("wait.rs", "use crate::errors::E;"),
            ("errors.rs", "use crate::Top; pub struct E;"),
        ];
        let found = errors(&across, true).errors;
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("wait.rs imports errors.rs upwards"));
        assert_eq!(found[1], "errors.rs imports lib.rs upwards: Top");
    }

    #[test]
    fn a_circle_names_each_arrow() {
        let files = [
            ("lib.rs", "mod base;"),
            ("base/mod.rs", "mod a; mod b; mod c;"),
            ("base/a.rs", "use super::b::B; pub struct A;"),
            ("base/b.rs", "use super::c::{C, D}; pub struct B;"),
            ("base/c.rs", "use super::a::A; pub struct C; pub struct D;"),
        ];
        assert_eq!(
            errors(&files, true).errors,
            [
                "circle of 3 files: base/a.rs imports base/b.rs: B; base/b.rs imports base/c.rs: C, D; \
              base/c.rs imports base/a.rs: A"
            ]
        );
        let house = [("lib.rs", "mod attic;"), ("attic.rs", "")];
        assert!(errors(&house, true).errors[0].starts_with("attic.rs lies in no room"));
        assert!(errors(&[("lib.rs", "")], false).warnings.is_empty());
    }
}
