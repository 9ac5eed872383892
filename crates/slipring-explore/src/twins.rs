//! The names of the weakened twins: wrong variants of single steps of the library.

/// Made by the build script from the library's sources.
const TWINS: &str = include_str!(concat!(env!("OUT_DIR"), "/twins.txt"));

/// A twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    pub name: &'static str,
    /// Whether it weakens the ordering of an access, and nothing else. All accesses of the
    /// simulator are ordered as on x86, where such a twin is no defect.
    pub is_ordering: bool,
}

/// Returns all twins, by name.
pub fn all() -> impl Iterator<Item = Twin> {
    TWINS.lines().map(|line| match line.strip_suffix(" ordering") {
        Some(name) => Twin { name, is_ordering: true },
        None => Twin { name: line, is_ordering: false },
    })
}
