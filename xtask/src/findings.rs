//! What a check finds.

/// The outcome of the check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Broken rules.
    pub errors: Vec<String>,
    /// Rules that are nearly broken.
    pub warnings: Vec<String>,
    /// Counts for the reader.
    pub notes: Vec<String>,
}
