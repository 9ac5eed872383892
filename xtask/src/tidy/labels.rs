//! The labels of edges: each has both of its ends in the code, and an explanation in the protocol.
//!
//! The end of an edge is either a comment with the edge's label, or a function of the edge's own
//! module. That module lies in a module of edges.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, Visibility};

use super::file::File;
use crate::findings::Findings;
use crate::{
    house::{House, Reach, arrows::Arrows},
    layout,
};

/// An edge that is a module.
#[derive(Debug)]
pub struct Edge {
    /// The label: the module's name with `-` for `_`.
    label: String,
    /// The file of the module, relative to the library's source.
    file: String,
    /// The functions. The flag of each says whether other code calls it.
    ends: Vec<(String, bool)>,
    /// Whether a function both acquires and releases, and so is both ends by itself.
    is_both: bool,
}

/// Returns the edges of `house`: the inner modules of each module of edges. An inner module that
/// itself contains modules is a group of edges, not an edge.
pub fn edges(house: &House, arrows: &Arrows) -> Vec<Edge> {
    let mut found = Vec::new();
    for (outer, _) in house.modules.iter().enumerate().filter(|(_, one)| one.name == layout::EDGES)
    {
        let called: BTreeSet<(usize, &str)> = arrows
            .uses
            .iter()
            .filter(|one| house.is_within(one.to, outer) && !house.is_within(one.from, outer))
            .map(|one| (one.to, one.name.as_str()))
            .collect();
        let is_edge = |&at: &usize| {
            at != outer && house.is_within(at, outer) && house.modules[at].children.is_empty()
        };
        for at in (0..house.modules.len()).filter(is_edge) {
            let module = &house.modules[at];
            let ends = module.items.iter().filter_map(|item| match item {
                Item::Fn(item) if !matches!(item.vis, Visibility::Inherited) => {
                    let name = item.sig.ident.to_string();
                    let is_called = called.contains(&(at, name.as_str()));
                    Some((name, is_called))
                }
                _ => None,
            });
            let (label, file) = (module.name.replace('_', "-"), &house.files[module.file]);
            if module.reach != Reach::Private {
                let file = file.display().to_string();
                let ends = ends.collect();
                let is_both = module.items.iter().any(both_ends);
                found.push(Edge { label, file, ends, is_both });
            }
        }
    }
    found
}

/// Returns whether a function modifies a word with `AcqRel`.
fn both_ends(item: &Item) -> bool {
    fn any(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == "AcqRel",
            TokenTree::Group(group) => any(group.stream()),
            _ => false,
        })
    }
    matches!(item, Item::Fn(_)) && any(item.to_token_stream())
}

/// The places of one label.
#[derive(Default)]
struct Places {
    /// `file:line` of each comment that carries the label.
    code: Vec<String>,
    is_explained: bool,
}

/// Finds edges that have only one end, and ends that nothing calls. Also finds labels that the code
/// has and the protocol does not explain, and labels that the protocol explains and the code does
/// not have.
pub fn check(files: &[File], edges: &[Edge], found: &mut Findings) {
    let mut labels: BTreeMap<String, Places> = BTreeMap::new();
    for file in files.iter().filter(|file| file.path.starts_with(layout::SOURCE)) {
        if labels_in(&file.text).next().is_none() {
            continue;
        }
        let is_protocol = file.path == Path::new(layout::PROTOCOL);
        let text = match file.source(found) {
            Some(source) => source.comments(),
            None if is_protocol => &file.text,
            None => continue,
        };
        // The documentation of a module describes an edge, but does not count as one of the edge's
        // ends.
        let lines = text.lines().enumerate();
        for (number, line) in lines.filter(|(_, line)| !line.trim_start().starts_with("//!")) {
            for label in labels_in(line) {
                let places = labels.entry(label.to_owned()).or_default();
                if is_protocol {
                    places.is_explained = true;
                } else {
                    places.code.push(format!("{}:{}", file.path.display(), number + 1));
                }
            }
        }
    }
    let protocol = layout::PROTOCOL;
    for Edge { label, file, ends, is_both } in edges {
        let file = format!("{}/{file}", layout::SOURCE);
        // The functions of the edge are its ends. So no comment needs to carry the label, but
        // comments may.
        if !labels.remove(label).is_some_and(|places| places.is_explained) {
            found.errors.push(format!("{file}: SYNC[{label}] is not explained in {protocol}"));
        }
        if ends.len() + usize::from(*is_both) < 2 {
            found.errors.push(format!(
                "{file}: the edge {label} has fewer than two functions: each end is one"
            ));
        }
        for (end, _) in ends.iter().filter(|(_, is_called)| !is_called) {
            found.errors.push(format!(
                "{file}: no code outside of the edges and the tests calls `{end}` of {label}"
            ));
        }
    }
    for (label, Places { code, is_explained }) in labels {
        match code.as_slice() {
            [] => found
                .errors
                .push(format!("{protocol}: SYNC[{label}] is explained, but no code carries it")),
            [one] => found.errors.push(format!(
                "{one}: SYNC[{label}] stands at one end only: label the access that pairs with it"
            )),
            [first, ..] if !is_explained => {
                found.errors.push(format!("{first}: SYNC[{label}] is not explained in {protocol}"))
            }
            _ => {}
        }
    }
}

/// Returns the labels in a line of text: `SYNC[this]`.
pub fn labels_in(line: &str) -> impl Iterator<Item = &str> {
    line.split("SYNC[").skip(1).filter_map(|rest| rest.split_once(']').map(|(label, _)| label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{house, tidy::file::tests::file};

    #[test]
    fn edges_need_both_ends_and_an_explanation() {
        let found = |code: &str, protocol: &str| {
            let mut found = Findings::default();
            let files = [file("crates/slipring/src/a.rs", code), file(layout::PROTOCOL, protocol)];
            check(&files, &[], &mut found);
            found.errors.join("\n")
        };
        let both = "fn f() {// SYNC[a]: with b\nx();\n// SYNC[a]: with c\n}";
        assert_eq!(found(both, "SYNC[a] is enough because ..."), "");
        assert!(found("// SYNC[a]\n", "SYNC[a]").contains("one end only"));
        assert!(found("//! I1: SYNC[a]\nuse x; // SYNC[a]\n", "SYNC[a]").contains("one end only"));
        assert!(found("// SYNC[a]\n// SYNC[a]\n", "").contains("not explained"));
        assert!(found("", "SYNC[a]").contains("no code carries it"));
        let quoted = "const X: &str = \"SYNC[a]\"; // SYNC[b]\n// SYNC[b]";
        assert!(found(quoted, "SYNC[b]").is_empty());
    }

    /// Returns the errors of a library with these edges, and this use of them.
    fn of_edges(edges: &str, user: &str, protocol: &str) -> Vec<String> {
        let house = house::tests::house(&[
            ("lib.rs", "mod base; mod ring;"),
            ("base.rs", "pub mod edge;"),
            ("base/edge.rs", edges),
            ("ring.rs", user),
        ]);
        let mut found = Findings::default();
        let files = [file(layout::PROTOCOL, protocol)];
        check(&files, &self::edges(&house, &Arrows::of(&house)), &mut found);
        found.errors
    }

    #[test]
    fn both_functions_of_an_edge_are_called() {
        let edge =
            "pub mod slot_seen { pub fn publish() {} pub fn look() { helper() } fn helper() {} }";
        let both = "use crate::base::edge; fn f() { edge::slot_seen::publish(); \
                    twin!(\"x\": edge::slot_seen::look() => ()); }";
        assert!(of_edges(edge, both, "SYNC[slot-seen]").is_empty());
        let one = "use crate::base::edge::slot_seen; fn f() { slot_seen::publish(); } \
                   #[cfg(test)] fn g() { slot_seen::look(); }";
        let errors = of_edges(edge, one, "SYNC[slot-seen]");
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("calls `look` of slot-seen"), "{errors:?}");
        let wrong = "use crate::base::edge::slot_seen; fn f() { slot_seen::publish(); \
                     twin!(\"x\": () => slot_seen::look()); }";
        assert_eq!(of_edges(edge, wrong, "SYNC[slot-seen]").len(), 1, "a wrong half is no call");
        let grouped = format!("mod group {{ {edge} }} pub use group::slot_seen;");
        assert!(of_edges(&grouped, both, "SYNC[slot-seen]").is_empty());
        assert_eq!(of_edges(&grouped, one, "SYNC[slot-seen]").len(), 1);
        assert!(of_edges(edge, both, "")[0].contains("not explained"));
        assert!(of_edges("", "", "SYNC[slot-seen]")[0].contains("no code carries it"));
        let short = "pub mod slot_seen { pub fn publish() {} } mod private { pub fn x() {} }";
        let user = "fn f() { crate::base::edge::slot_seen::publish() }";
        let errors = of_edges(short, user, "SYNC[slot-seen]");
        let both = short.replace("{}", "{ twin!(\"x\": a.swap(1, AcqRel) => ()) }");
        assert!(of_edges(&both, user, "SYNC[slot-seen]").is_empty());
        assert!(errors.len() == 1 && errors[0].contains("fewer than two functions"), "{errors:?}");
    }
}
