//! The number of threads that the stages of a chain or graph share.

use crate::base::sync::available_cores;
use crate::errors::BuildError;
use crate::ring::spec::{Delivery, StageSpec, ThreadChoice};

/// Number of threads that the stages of a chain or graph share: see
/// [`Chain::threads`](crate::Chain::threads).
///
/// ```
/// use slipring::placement::Threads;
/// assert_eq!(Threads::from(2), Threads::Count(2));
/// let mut sum = 0;
/// slipring::ring(64, || 0u64)
///     .threads(Threads::Auto)
///     .read("sum", |value, _| sum += value)
///     .feed(1..=3, |slot, i| *slot = i)?;
/// assert_eq!(sum, 6);
/// # Ok::<(), slipring::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Threads {
    /// As many threads as there are cores that this process may use
    /// ([`std::thread::available_parallelism`]). The process's affinity mask limits this number
    /// and, on Linux, so does the quota of its control group. A placement does not change the
    /// number: the build asks it for the places of these threads afterwards.
    Auto,
    /// This number of threads, at least 1.
    Count(usize),
}

impl From<usize> for Threads {
    fn from(count: usize) -> Threads {
        Threads::Count(count)
    }
}

/// Returns the name of one of the threads that all stages share.
pub(crate) fn shared_thread_name(number: usize) -> String {
    format!("stages-{number}")
}

/// Work of the calling thread while the stages run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The calling thread produces, and runs stages while it waits for room or for the end.
    Helps,
    /// The call returns, and the stages continue to run.
    Leaves,
}

/// The threads of an executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedThreads {
    /// Number of threads to start.
    pub(crate) started: usize,
    /// Whether the calling thread also runs the stages.
    pub(crate) caller: bool,
}

impl SharedThreads {
    /// Returns the number of threads that run the stages.
    pub(crate) fn count(self) -> usize {
        self.started + usize::from(self.caller)
    }
}

impl Threads {
    /// Chooses the shared threads, and assigns to them the stages that have no thread of their own.
    pub(crate) fn share(
        self,
        specs: &mut [StageSpec],
        caller: Caller,
    ) -> Result<SharedThreads, BuildError> {
        let count = match self {
            Threads::Auto => available_cores(),
            Threads::Count(0) => {
                let problem = "`threads(0)` leaves the stages without a thread: state at least 1, \
                               or `Threads::Auto` for as many as there are cores";
                return Err(BuildError::Declaration { problem: problem.to_owned() });
            }
            Threads::Count(count) => count,
        };
        let shares = |spec: &&mut StageSpec| {
            let is_tap = matches!(spec.delivery, Delivery::Tap(_));
            spec.thread == ThreadChoice::Own && !spec.policy.user_loop && !is_tap
        };
        // If a pool has too many workers, the build reports the error.
        let runners = specs.iter_mut().filter(shares).map(|spec| spec.delivery.len());
        let runners = runners.fold(0, usize::saturating_add);
        let count = count.min(runners);
        // At least one started thread always runs stages, even if the calling thread is busy
        // otherwise.
        let shared = match caller {
            Caller::Helps if count > 1 => SharedThreads { started: count - 1, caller: true },
            _ => SharedThreads { started: count, caller: false },
        };
        let choice = ThreadChoice::Shared(shared.started);
        specs.iter_mut().filter(shares).for_each(|spec| spec.thread = choice.clone());
        Ok(shared)
    }
}
