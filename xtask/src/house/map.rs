//! The map of a crate: rooms, floors, arrows, and the counts that a record compares.

use std::{collections::BTreeSet, fmt::Write as _};

use syn::{
    spanned::Spanned,
    visit::{self, Visit},
};

use super::{
    House,
    arrows::Arrows,
    circles::{self, Graph},
    crates::Crate,
    rooms::{self, Rooms},
};

/// Returns the map of a crate as text.
pub fn draw(krate: &Crate) -> String {
    let Crate { house, arrows, .. } = krate;
    let files = rooms::graph(house, arrows);
    let rooms = Rooms::of(house, &files);
    let mut text = String::new();
    rooms.draw(&mut text);
    let path = |at: usize| house.files[at].display();
    let _ = writeln!(text, "\narrows between files");
    for (from, to) in arrows.names.keys() {
        let names = rooms::names(arrows, *from, *to);
        let _ = writeln!(text, "  {} -> {}: {names}", path(*from), path(*to));
    }
    let upwards = if krate.is_library() { rooms::upwards(house, arrows) } else { Vec::new() };
    let _ = writeln!(text, "\narrows upwards");
    for arrow in &upwards {
        let names = rooms::names(arrows, arrow.from, arrow.to);
        let _ = writeln!(text, "  {} -> {}: {names}", path(arrow.from), path(arrow.to));
    }
    let groups = circles::circles(&files);
    let _ = writeln!(text, "\ncircles of files");
    for group in &groups {
        let all: Vec<String> = group.iter().map(|&file| path(file).to_string()).collect();
        let shortest = circles::shortest(&files, group);
        let _ = writeln!(text, "  {} files: {}", group.len(), all.join(", "));
        let _ = writeln!(text, "    shortest {}", rooms::circle(house, arrows, &shortest));
    }
    let _ = writeln!(text, "\ntypes with inherent methods in other files");
    for ((home, name), others) in arrows.scattered() {
        let others: Vec<String> = others.iter().map(|&file| path(file).to_string()).collect();
        let _ = writeln!(text, "  {name} of {}: {}", path(*home), others.join(", "));
    }
    let _ = writeln!(text, "\ncounts");
    for (what, count) in counts(house, arrows, &files, &rooms, &groups, upwards.len()) {
        let _ = writeln!(text, "  {what:<46} {count}");
    }
    text
}

/// Returns the counts, with their names.
fn counts(
    house: &House,
    arrows: &Arrows,
    files: &Graph,
    rooms: &Rooms,
    groups: &[Vec<usize>],
    upwards: usize,
) -> Vec<(&'static str, String)> {
    let in_circles: BTreeSet<usize> = groups.iter().flatten().copied().collect();
    let within = arrows
        .names
        .keys()
        .filter(|(from, to)| groups.iter().any(|group| group.contains(from) && group.contains(to)));
    let room_circles = circles::circles(&rooms.graph);
    let (function, lines) = longest(house, |longest| &longest.function);
    let (largest, methods) = longest(house, |longest| &longest.interface);
    vec![
        ("files", house.files.len().to_string()),
        ("files in no room of the table", rooms::homeless(house).len().to_string()),
        ("rooms (folders, or files beside them)", rooms.names.len().to_string()),
        ("floors of rooms", highest(&rooms.graph).to_string()),
        ("floors of files", highest(files).to_string()),
        ("arrows between rooms", rooms.graph.iter().map(BTreeSet::len).sum::<usize>().to_string()),
        ("arrows between files", arrows.names.len().to_string()),
        ("arrows upwards", upwards.to_string()),
        ("circles of files", groups.len().to_string()),
        ("files in circles", in_circles.len().to_string()),
        ("largest circle of files", groups.iter().map(Vec::len).max().unwrap_or(0).to_string()),
        ("arrows between files within circles", within.count().to_string()),
        ("rooms in circles", room_circles.iter().map(Vec::len).sum::<usize>().to_string()),
        ("types with inherent methods in other files", arrows.scattered().count().to_string()),
        ("longest function, in lines", format!("{lines} ({function})")),
        ("largest trait, in methods", format!("{methods} ({largest})")),
    ]
}

fn highest(graph: &Graph) -> usize {
    circles::floors(graph).into_iter().max().unwrap_or(0)
}

impl Rooms {
    fn draw(&self, text: &mut String) {
        let floors = circles::floors(&self.graph);
        let _ = writeln!(text, "rooms, highest first, with the arrows to other rooms");
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        order.sort_by_key(|&room| (std::cmp::Reverse(floors[room]), &self.names[room]));
        for room in order {
            let below: Vec<String> = self.graph[room]
                .iter()
                .map(|&to| format!("{} {}", self.names[to], self.weights[&(room, to)]))
                .collect();
            let (floor, name, files) = (floors[room], &self.names[room], self.files[room]);
            let within = self.weights.get(&(room, room)).unwrap_or(&0);
            let _ = writeln!(
                text,
                "  floor {floor:>2}  {name:<12} files {files:>2}  within {within:>3}  -> {}",
                below.join(", ")
            );
        }
    }
}

/// The longest function and the largest trait of one file, each with its name and size.
#[derive(Default)]
struct Longest {
    owner: Option<String>,
    function: (String, usize),
    interface: (String, usize),
}

impl Longest {
    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let end = block.brace_token.span.close().end().line;
        let lines = end + 1 - signature.fn_token.span().start().line;
        if lines > self.function.1 {
            let owner = self.owner.iter().map(|owner| format!("{owner}::")).collect::<String>();
            self.function = (format!("{owner}{}", signature.ident), lines);
        }
    }
}

impl<'ast> Visit<'ast> for Longest {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.owner = crate::source::type_name(&item.self_ty);
        visit::visit_item_impl(self, item);
        self.owner = None;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let methods =
            item.items.iter().filter(|item| matches!(item, syn::TraitItem::Fn(_))).count();
        if methods > self.interface.1 {
            self.interface = (item.ident.to_string(), methods);
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// Returns the largest of all modules, with its file.
fn longest(house: &House, of: impl Fn(&Longest) -> &(String, usize)) -> (String, usize) {
    let per_module = house.modules.iter().map(|module| {
        let mut longest = Longest::default();
        module.items.iter().for_each(|item| longest.visit_item(item));
        let (name, size) = of(&longest);
        (format!("{}: {name}", house.files[module.file].display()), *size)
    });
    per_module.max_by_key(|(_, size)| *size).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{house::tests::house, layout};

    #[test]
    fn the_map_counts() {
        let house = house(&[
            ("lib.rs", "mod base; mod ring; pub use ring::R;"),
            ("base/mod.rs", "pub mod a; pub mod b;"),
            ("base/a.rs", "use super::b::B; pub struct A;"),
            ("base/b.rs", "use super::a::A; pub struct B;"),
            (
                "ring.rs",
                "use crate::base::{a::A, b::B}; pub struct R; impl R {\n/// Doc.\nfn f() {\n\n}\n}
                 impl A {} trait T { fn a(); fn b() {} const C: u8; } #[cfg(test)] fn long() {\n\n\n\n}",
            ),
        ]);
        let (folder, arrows) = (layout::LIBRARY.to_owned(), Arrows::of(&house));
        let map = draw(&Crate { folder, house, arrows });
        let count = |what: &str| {
            let line = map.lines().rev().find(|line| line.trim_start().starts_with(what));
            line.unwrap_or_else(|| panic!("{what}:\n{map}"))
                .rsplit_once("  ")
                .unwrap()
                .1
                .trim()
                .to_owned()
        };
        assert_eq!(count("files  "), "5");
        assert_eq!(count("rooms (folders"), "3");
        assert_eq!((count("floors of rooms"), count("floors of files")), ("2".into(), "2".into()));
        assert_eq!(count("arrows between rooms"), "1");
        assert_eq!(count("arrows between files  "), "4");
        assert_eq!(
            (count("circles of files  "), count("files in circles")),
            ("1".into(), "2".into())
        );
        assert_eq!(count("arrows between files within"), "2");
        assert_eq!(count("types with"), "1");
        assert_eq!(count("longest function"), "3 (ring.rs: R::f)");
        assert_eq!(count("largest trait"), "2 (ring.rs: T)");
        assert!(map.contains("floor  2  ring         files  1  within   0  -> base 2"), "{map}");
    }
}
