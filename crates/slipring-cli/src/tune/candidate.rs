//! The settings of a pipeline that are compared, and the alternatives of each.

use std::fmt;

/// One combination of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Name of the wait strategy, as [`slipring::Wait`] reads it.
    pub wait: String,
    pub threads: Threads,
    pub place: StagePlacement,
    /// Number of slots.
    pub capacity: usize,
    pub layout: Layout,
    /// Largest number of events that a stage handles before a release; `None` if the library
    /// decides.
    pub batch: Option<usize>,
}

/// The threads of the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// A thread for each stage.
    Own,
    /// This number of threads, which all stages share.
    Shared(usize),
}

/// The layout of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Interleaved,
    Contiguous,
}

/// The placement of the threads.
#[derive(Clone, Debug, PartialEq)]
pub enum StagePlacement {
    /// The system places the threads.
    System,
    /// The placement with this name places the threads.
    Named(String),
}

/// The setting of a candidate that one step of the search changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// The wait strategy and the threads, together: the cost of a strategy depends on how many
    /// threads wait.
    WaitAndThreads,
    Placement,
    Capacity,
    Layout,
    Batch,
}

impl Setting {
    /// All settings, in the order in which they are chosen.
    pub const ALL: [Setting; 5] = [
        Setting::WaitAndThreads,
        Setting::Placement,
        Setting::Capacity,
        Setting::Layout,
        Setting::Batch,
    ];

    /// Returns a candidate's value of this setting.
    pub fn of(self, candidate: &Candidate) -> String {
        match self {
            Setting::WaitAndThreads => format!("{}, {}", candidate.wait, candidate.threads),
            Setting::Placement => candidate.place.to_string(),
            Setting::Capacity => format!("{} slots", candidate.capacity),
            Setting::Layout => candidate.layout.to_string(),
            Setting::Batch => match candidate.batch {
                None => "batches as they come".to_owned(),
                Some(1) => "a release for each event".to_owned(),
                Some(events) => format!("batches of {events} at most"),
            },
        }
    }
}

/// The values that a setting can have, the default first.
#[derive(Clone, Debug)]
pub struct Alternatives {
    /// Names of wait strategies.
    pub waits: Vec<String>,
    pub threads: Vec<Threads>,
    /// Names of the placements that the machine allows, for each choice of threads.
    pub places: Vec<(Threads, Vec<String>)>,
    pub capacities: Vec<usize>,
    pub layouts: Vec<Layout>,
    pub batches: Vec<Option<usize>>,
}

impl Alternatives {
    /// Returns the alternatives that are worth a measurement on a machine with this number of
    /// cores. `places` returns the names of the placements that the machine allows for the given
    /// threads.
    pub fn new(
        stages: usize,
        cores: usize,
        places: impl Fn(Threads) -> Vec<String>,
    ) -> Alternatives {
        let aliases = ["adaptive", "adaptive:25%", "blocking", "sleeping", "yielding", "busy-spin"];
        let waits = aliases.map(str::to_owned).to_vec();
        let most = cores.min(stages);
        let shared = (1..=most).filter(|&count| stages > 1 && (count == 1 || count == most));
        let threads: Vec<Threads> =
            std::iter::once(Threads::Own).chain(shared.map(Threads::Shared)).collect();
        Alternatives {
            waits,
            places: threads.iter().map(|&threads| (threads, places(threads))).collect(),
            threads,
            capacities: vec![1024, 64, 16_384],
            layouts: vec![Layout::Interleaved, Layout::Contiguous],
            batches: vec![None, Some(16), Some(1)],
        }
    }

    /// Returns the candidate with the default of each setting.
    pub fn default_candidate(&self) -> Candidate {
        Candidate {
            wait: self.waits.first().cloned().unwrap_or_default(),
            threads: self.threads.first().copied().unwrap_or(Threads::Own),
            place: StagePlacement::System,
            capacity: self.capacities.first().copied().unwrap_or(1024),
            layout: Layout::Interleaved,
            batch: None,
        }
    }

    /// Returns a variant of `current` for each value of one setting, the default first.
    pub fn variants(&self, setting: Setting, current: &Candidate) -> Vec<Candidate> {
        let current = || current.clone();
        match setting {
            Setting::WaitAndThreads => {
                let with = |threads: Threads| {
                    self.waits.iter().map(move |wait| Candidate {
                        wait: wait.clone(),
                        threads,
                        ..current()
                    })
                };
                self.threads.iter().copied().flat_map(with).collect()
            }
            Setting::Placement => {
                let current = current();
                let own = self.places.iter().find(|(threads, _)| *threads == current.threads);
                let named = own.into_iter().flat_map(|(_, names)| names.iter().cloned());
                let places =
                    std::iter::once(StagePlacement::System).chain(named.map(StagePlacement::Named));
                places.map(|place| Candidate { place, ..current.clone() }).collect()
            }
            Setting::Capacity => {
                let with = |&capacity: &usize| Candidate { capacity, ..current() };
                self.capacities.iter().map(with).collect()
            }
            Setting::Layout => {
                let with = |&layout: &Layout| Candidate { layout, ..current() };
                self.layouts.iter().map(with).collect()
            }
            Setting::Batch => {
                let with = |&batch: &Option<usize>| Candidate { batch, ..current() };
                self.batches.iter().map(with).collect()
            }
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Own => f.write_str("a thread for each stage"),
            Threads::Shared(1) => f.write_str("one thread for all stages"),
            Threads::Shared(count) => write!(f, "{count} shared threads"),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Interleaved => "stamps inside the slots",
            Layout::Contiguous => "contiguous events",
        })
    }
}

impl fmt::Display for StagePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StagePlacement::System => f.write_str("threads where the system puts them"),
            StagePlacement::Named(name) => write!(f, "threads by the placement {name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alternative_has_a_text_of_its_own_and_the_default_comes_first() {
        let alternatives = Alternatives::new(3, 4, |_| vec!["same-node".to_owned()]);
        let default = alternatives.default_candidate();
        for setting in Setting::ALL {
            let variants = alternatives.variants(setting, &default);
            assert_eq!(variants[0], default, "{setting:?}");
            let mut texts: Vec<String> = variants.iter().map(|of| setting.of(of)).collect();
            texts.sort();
            texts.dedup();
            assert_eq!(texts.len(), variants.len(), "{setting:?}: {texts:?}");
        }
    }

    #[test]
    fn one_stage_has_no_threads_to_share() {
        let threads = |stages, cores| Alternatives::new(stages, cores, |_| Vec::new()).threads;
        assert_eq!(threads(1, 8), [Threads::Own]);
        assert_eq!(threads(6, 2), [Threads::Own, Threads::Shared(1), Threads::Shared(2)]);
        assert_eq!(threads(6, 1), [Threads::Own, Threads::Shared(1)]);
    }

    #[test]
    fn placements_are_those_of_the_chosen_threads() {
        let places = |threads| match threads {
            Threads::Own => Vec::new(),
            Threads::Shared(count) => vec![format!("place of {count}")],
        };
        let alternatives = Alternatives::new(3, 2, places);
        let default = alternatives.default_candidate();
        assert_eq!(alternatives.variants(Setting::Placement, &default).len(), 1);
        let shared = Candidate { threads: Threads::Shared(2), ..default };
        let variants = alternatives.variants(Setting::Placement, &shared);
        let places: Vec<&StagePlacement> = variants.iter().map(|of| &of.place).collect();
        assert_eq!(
            places,
            [&StagePlacement::System, &StagePlacement::Named("place of 2".to_owned())]
        );
    }
}
