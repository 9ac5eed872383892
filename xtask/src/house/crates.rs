//! The crates whose structure the checks know.

use std::{io, path::Path};

use super::{House, ROOTS, arrows::Arrows};
use crate::{layout, workspace};

/// A crate with its modules and their arrows.
pub struct Crate {
    /// The folder of the package, relative to the checkout's root.
    pub folder: String,
    /// The modules.
    pub house: House,
    /// The arrows between them.
    pub arrows: Arrows,
}

impl Crate {
    /// Reads the crate in `folder` of the checkout at `root`.
    pub fn read(root: &Path, folder: &str) -> io::Result<Self> {
        let house = House::read(&root.join(folder).join("src"))
            .map_err(|error| io::Error::other(format!("{folder}: {error}")))?;
        let arrows = Arrows::of(&house);
        Ok(Self { folder: folder.to_owned(), house, arrows })
    }

    /// Reads all crates of the checkout at `root`, the library first.
    pub fn all(root: &Path) -> io::Result<Vec<Self>> {
        folders(root).iter().map(|folder| Self::read(root, folder)).collect()
    }

    /// Returns whether the crate is the library.
    pub fn is_library(&self) -> bool {
        self.folder == layout::LIBRARY
    }

    /// Returns whether users of the project call the crate's public functions.
    pub fn is_for_users(&self) -> bool {
        self.folder.starts_with("crates/")
            && self.house.files.first().is_some_and(|root| root == Path::new(ROOTS[0]))
            && !layout::INTERNAL.contains(&self.folder.as_str())
    }

    /// Returns the path of a file of the crate, relative to the checkout's root.
    pub fn path(&self, file: usize) -> String {
        format!("{}/src/{}", self.folder, self.house.files[file].display())
    }
}

/// Returns the folders of all crates: the members of the workspace, and the workspaces beside it
/// that measure it.
fn folders(root: &Path) -> Vec<String> {
    let beside = layout::BESIDE.iter().map(|folder| (*folder).to_owned());
    let has_source = |folder: &String| {
        ROOTS.iter().any(|file| root.join(folder).join("src").join(file).is_file())
    };
    workspace::members(root).into_iter().chain(beside).filter(has_source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_crates_are_found() {
        let folders = folders(&workspace::root());
        assert_eq!(folders[0], layout::LIBRARY);
        for folder in ["crates/slipring-cli", "examples", "peers", "peers/nats", "xtask"] {
            assert!(folders.iter().any(|one| one == folder), "{folder}: {folders:?}");
        }
    }
}
