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
    /// Breaches of the rules that hold in each crate.
    pub breaches: Vec<Breach>,
}

/// A breach of a rule.
#[derive(Debug)]
pub struct Breach {
    /// The folder of the crate, or another place that the rule speaks of.
    pub place: String,
    /// The name of the rule.
    pub rule: &'static str,
    /// The explanation for the reader.
    pub message: String,
}

impl Findings {
    /// Reports a breach of `rule` in a place.
    pub fn breach(&mut self, place: &str, rule: &'static str, message: String) {
        self.breaches.push(Breach { place: place.to_owned(), rule, message });
    }

    /// Turns the breaches into errors.
    pub fn settle(&mut self) {
        let error = |Breach { place, rule, message }| format!("{rule}: {place}: {message}");
        self.errors.extend(self.breaches.drain(..).map(error));
    }
}
