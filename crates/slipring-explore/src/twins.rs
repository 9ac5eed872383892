//! The names of the weakened twins: wrong variants of single steps of the library.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Made by the build script from the library's sources.
const TWINS: &str = include_str!(concat!(env!("OUT_DIR"), "/twins.txt"));

/// A twin. It is written as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Twin {
    pub name: &'static str,
    /// Whether it weakens the ordering of an access, and nothing else. All accesses of the
    /// simulator are ordered as on x86, where such a twin is no defect.
    pub is_ordering: bool,
}

impl Serialize for Twin {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}

impl<'de> Deserialize<'de> for Twin {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Twin, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || D::Error::custom(format!("no twin has the name `{name}`"));
        all().find(|twin| twin.name == name).ok_or_else(unknown)
    }
}

impl fmt::Display for Twin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns all twins, by name.
pub fn all() -> impl Iterator<Item = Twin> {
    TWINS.lines().map(|line| match line.strip_suffix(" ordering") {
        Some(name) => Twin { name, is_ordering: true },
        None => Twin { name: line, is_ordering: false },
    })
}
