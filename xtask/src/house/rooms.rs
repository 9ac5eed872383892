//! The rooms of a crate, and the rule that names travel downwards only.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    House,
    arrows::Arrows,
    circles::{self, Graph},
    crates::Crate,
};
use crate::findings::Findings;

/// Each room of the library with the rooms that it may import, lowest first.
const ROOMS: [(&str, &[&str]); 16] = [
    ("guide", &[]),
    ("base", &[]),
    ("errors", &["base"]),
    ("wait", &["base", "errors"]),
    ("ring", &["base", "wait", "errors"]),
    ("promise", &["base", "wait", "errors", "ring"]),
    ("producer", &["base", "wait", "errors", "ring", "promise"]),
    ("consumer", &["base", "wait", "errors", "ring"]),
    ("observe", &["base", "wait", "errors", "ring"]),
    ("live", &["base", "wait", "errors", "ring", "producer", "consumer", "observe"]),
    ("processes", &["base", "wait", "errors", "ring", "producer", "consumer"]),
    (
        "adapters",
        &[
            "base",
            "wait",
            "errors",
            "ring",
            "promise",
            "producer",
            "consumer",
            "observe",
            "live",
            "processes",
        ],
    ),
    (
        "segment",
        &[
            "base",
            "wait",
            "errors",
            "ring",
            "producer",
            "consumer",
            "live",
            "processes",
            "adapters",
        ],
    ),
    (
        "run",
        &[
            "base", "wait", "errors", "ring", "promise", "producer", "consumer", "observe", "live",
            "adapters",
        ],
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
pub const ROOF: &str = "lib";

/// An arrow that the table of rooms does not allow.
#[derive(Debug, PartialEq, Eq)]
pub struct Upwards {
    /// The file that imports.
    pub from: usize,
    /// The file that defines.
    pub to: usize,
}

/// Returns the room of a file: its folder, or the file itself if it lies in no folder.
pub fn room(file: &Path) -> String {
    let first = file.components().next().map(|part| part.as_os_str().to_string_lossy());
    first.unwrap_or_default().trim_end_matches(".rs").to_owned()
}

/// Returns the files of `house` that lie in no room.
pub fn homeless(house: &House) -> Vec<usize> {
    let known = |file: &usize| {
        let room = room(&house.files[*file]);
        room == ROOF || ROOMS.iter().any(|(name, _)| room == *name)
    };
    (0..house.files.len()).filter(|file| !known(file)).collect()
}

/// Returns the arrows that lead upwards or across between the rooms of the table.
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

/// Returns the files as a graph.
pub fn graph(house: &House, arrows: &Arrows) -> Graph {
    let mut graph = vec![BTreeSet::new(); house.files.len()];
    for &(from, to) in arrows.names.keys() {
        graph[from].insert(to);
    }
    graph
}

/// Finds arrows that lead upwards, circles of files or of rooms, and files that are in no room.
pub fn check(krate: &Crate, found: &mut Findings) {
    let Crate { folder, house, arrows } = krate;
    let path = |file: usize| house.files[file].display().to_string();
    if krate.is_library() {
        for file in homeless(house) {
            let path = path(file);
            let what = "lies in no room: move it, or add its room to the table in `house/rooms.rs`";
            found.breach(folder, "homeless", format!("{path} {what}"));
        }
        for Upwards { from, to } in upwards(house, arrows) {
            let (names, from, to) = (names(arrows, from, to), path(from), path(to));
            found.breach(folder, "upwards", format!("{from} imports {to} upwards: {names}"));
        }
    }
    let graph = graph(house, arrows);
    for group in circles::circles(&graph) {
        let circle = circle(house, arrows, &circles::shortest(&graph, &group));
        found.breach(folder, "circle", circle);
    }
    let rooms = Rooms::of(house, &graph);
    // A circle of rooms that are single files is a circle of files, which is reported above.
    let has_folder = |group: &Vec<usize>| group.iter().any(|&room| rooms.files[room] > 1);
    for group in circles::circles(&rooms.graph).into_iter().filter(has_folder) {
        let circle = circles::shortest(&rooms.graph, &group);
        let names: Vec<&str> = circle.iter().map(|&room| rooms.names[room].as_str()).collect();
        let message = format!("circle of rooms: {}", names.join(" -> "));
        found.breach(folder, "room circle", message);
    }
}

/// The rooms of a crate, as a graph.
pub struct Rooms {
    /// The names, sorted.
    pub names: Vec<String>,
    /// The number of files of each room.
    pub files: Vec<usize>,
    /// The arrows between rooms.
    pub graph: Graph,
    /// The number of arrows between the files of two rooms, or within one.
    pub weights: BTreeMap<(usize, usize), usize>,
}

impl Rooms {
    /// Returns the rooms of `house`, whose files form `graph`.
    pub fn of(house: &House, graph: &Graph) -> Self {
        let of: Vec<String> = house.files.iter().map(|file| room(file)).collect();
        let names: Vec<String> = of.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let at = |file: usize| names.binary_search(&of[file]).unwrap_or_default();
        let mut files = vec![0; names.len()];
        let mut rooms = vec![BTreeSet::new(); names.len()];
        let mut weights = BTreeMap::new();
        for (from, targets) in graph.iter().enumerate() {
            files[at(from)] += 1;
            for to in targets.iter().map(|&to| at(to)) {
                *weights.entry((at(from), to)).or_default() += 1;
                if to != at(from) {
                    rooms[at(from)].insert(to);
                }
            }
        }
        Self { names, files, graph: rooms, weights }
    }
}

/// Returns a circle in words, with the names on each arrow.
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

/// Returns the names on one arrow.
pub fn names(arrows: &Arrows, from: usize, to: usize) -> String {
    let names = arrows.names.get(&(from, to)).into_iter().flatten();
    names.map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{house::tests::house, layout};

    /// Returns the messages about a crate in `folder` with these files.
    fn errors(folder: &str, files: &[(&str, &str)]) -> Vec<String> {
        let house = house(files);
        let (folder, arrows) = (folder.to_owned(), Arrows::of(&house));
        let mut found = Findings::default();
        check(&Crate { folder, house, arrows }, &mut found);
        found.breaches.into_iter().map(|breach| breach.message).collect()
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
            errors(layout::LIBRARY, &files),
            ["ring/policy.rs imports consumer/position.rs upwards: Position, skip"]
        );
        assert!(errors("crates/other", &files).is_empty());
    }

    #[test]
    fn neighbours_do_not_know_each_other() {
        let across = [
            ("lib.rs", "mod producer; mod consumer; pub struct Top;"),
            ("producer.rs", "use crate::consumer::C;"),
            ("consumer.rs", "use crate::Top; pub struct C;"),
        ];
        let found = errors(layout::LIBRARY, &across);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("producer.rs imports consumer.rs upwards"));
        assert_eq!(found[1], "consumer.rs imports lib.rs upwards: Top");
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
        let circle = "circle of 3 files: base/a.rs imports base/b.rs: B; \
            base/b.rs imports base/c.rs: C, D; base/c.rs imports base/a.rs: A";
        assert_eq!(errors(layout::LIBRARY, &files), [circle]);
        let house = [("lib.rs", "mod attic;"), ("attic.rs", "")];
        assert!(errors(layout::LIBRARY, &house)[0].starts_with("attic.rs lies in no room"));
        assert!(errors(layout::LIBRARY, &[("lib.rs", "")]).is_empty());
    }

    #[test]
    fn rooms_of_any_crate_form_no_circle() {
        let files = [
            ("main.rs", "mod top; mod lab;"),
            ("top/mod.rs", "pub mod keys; mod view;"),
            ("top/keys.rs", "pub struct Keys;"),
            ("top/view.rs", "use crate::lab::Lab;"),
            ("lab.rs", "use crate::top::keys::Keys; pub struct Lab;"),
        ];
        let found = errors("crates/other", &files);
        assert_eq!(found, ["circle of rooms: lab -> top"]);
    }
}
