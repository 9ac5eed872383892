//! How much an experiment measures.

use std::fmt;

/// How much an experiment measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// A run of a few seconds, which checks that everything works. Its figures mean nothing.
    Smoke,
    /// A few minutes.
    Quick,
    /// The amount for published records.
    Full,
}

impl Size {
    /// Returns the argument that belongs to the size.
    pub fn pick<T>(self, smoke: T, quick: T, full: T) -> T {
        match self {
            Self::Smoke => smoke,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.pick("smoke", "quick", "full"))
    }
}

/// The arguments that choose how much is measured.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub struct Sizes {
    /// Check in seconds that everything works; the figures mean nothing
    #[arg(long)]
    smoke: bool,
    /// Measure for a few minutes (the default)
    #[arg(long)]
    quick: bool,
    /// Measure longer, as for published records
    #[arg(long)]
    full: bool,
}

impl Sizes {
    /// Returns the chosen amount.
    pub fn size(&self) -> Size {
        match self {
            Self { smoke: true, .. } => Size::Smoke,
            Self { full: true, .. } => Size::Full,
            _ => Size::Quick,
        }
    }
}
