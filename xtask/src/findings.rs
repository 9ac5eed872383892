//! The findings of a check.

/// The outcome of the check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Broken rules.
    pub errors: Vec<String>,
    /// Rules that are nearly broken.
    pub warnings: Vec<String>,
    /// Counts for the reader.
    pub notes: Vec<String>,
    /// Breaches of the rules that have lists of known exceptions.
    pub breaches: Vec<Breach>,
}

/// A breach of a rule in one crate. It is an error unless the crate's list of known exceptions has
/// it.
#[derive(Debug, Clone)]
pub struct Breach {
    /// The folder of the crate.
    pub krate: String,
    /// The name of the rule.
    pub rule: &'static str,
    /// The breach's name in the list: a file, an arrow or an item, without line numbers.
    pub subject: String,
    /// The explanation for the reader.
    pub message: String,
}

impl Findings {
    /// Reports a breach of `rule` in the crate whose folder is `krate`.
    pub fn breach(
        &mut self,
        krate: &str,
        rule: &'static str,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) {
        let (krate, subject, message) = (krate.to_owned(), subject.into(), message.into());
        self.breaches.push(Breach { krate, rule, subject, message });
    }
}
