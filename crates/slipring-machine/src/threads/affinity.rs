//! Binds threads to CPUs by means of the system's affinity masks.
//!
//! On systems other than Linux, [`pin`], [`unpin`] and [`bind`] do nothing, and [`bind_thread`]
//! fails.

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::thread;

use crate::description::cpu_set::CpuSet;

pub use system::{allowed_cpus, bind};

/// Returns how many threads of this process can run at the same time: the number of CPUs in its
/// affinity mask, or the quota of its control group, rounded down, if that is less.
///
/// ```
/// assert!(slipring_machine::usable_cores() >= 1);
/// ```
pub fn usable_cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Binds the calling thread, and threads that it starts, to one CPU. If the system refuses, nothing
/// changes; [`bind_thread`] reports a refusal.
///
/// ```
/// std::thread::scope(|threads| {
///     threads.spawn(|| {
///         slipring_machine::pin(0);
///         slipring_machine::unpin();
///     });
/// });
/// ```
pub fn pin(cpu: usize) {
    bind([cpu]);
}

/// Lets the calling thread, and threads that it starts, run on every CPU again.
///
/// Example: [`pin`].
pub fn unpin() {
    bind(0..MAX_CPUS);
}

/// Number of CPUs that a thread's affinity mask can name here: the size of the C library's mask.
pub(crate) const MAX_CPUS: usize = 1024;

/// Binds the calling thread, and threads that it starts meanwhile, to some CPUs until the returned
/// value is dropped. The drop gives the thread its old affinity mask back.
///
/// # Errors
/// The set is empty, the system refuses the mask, or the system is not Linux. On a system with more
/// than 1024 CPUs, every call is an error.
///
/// ```
/// use slipring_machine::{CpuSet, allowed_cpus, bind_thread};
///
/// if let Some(&first) = allowed_cpus().first() {
///     let bound = bind_thread(&CpuSet::from_iter([first]))?;
///     assert_eq!(allowed_cpus(), [first]);
///     drop(bound);
/// }
/// # Ok::<(), slipring_machine::BindError>(())
/// ```
pub fn bind_thread(cpus: &CpuSet) -> Result<BoundThread, BindError> {
    match system::replace_mask(cpus) {
        Ok(old) => Ok(BoundThread { old, of_one_thread: PhantomData }),
        Err(problem) => Err(BindError { cpus: cpus.clone(), problem }),
    }
}

/// A binding of the calling thread. The drop restores the mask that the thread had before.
#[derive(Debug)]
#[must_use = "the drop undoes the binding"]
pub struct BoundThread {
    /// Mask before the binding. `None` if the thread already had the requested mask. In that case
    /// the library does not set the mask: once a program has set a thread's mask, the thread stays
    /// limited to these CPUs even when its control group is granted more.
    old: Option<system::Mask>,
    /// A mask belongs to the thread that was bound, so the drop must run there.
    of_one_thread: PhantomData<*const ()>,
}

impl Drop for BoundThread {
    fn drop(&mut self) {
        self.old.iter().for_each(system::set_mask);
    }
}

/// The system did not bind the thread to the CPUs.
#[derive(Debug)]
pub struct BindError {
    cpus: CpuSet,
    problem: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.cpus.len() == 1 { "CPU" } else { "CPUs" };
        write!(
            f,
            "cannot bind this thread to {word} {}: {}; choose CPUs that are online and within the \
             process's affinity mask, which `slipring machine` shows",
            self.cpus, self.problem
        )
    }
}

// The text contains the system's error, so `source` returns none: a chain of sources would print it
// twice.
impl std::error::Error for BindError {}

#[cfg(target_os = "linux")]
mod system {
    use std::io;

    use rustix::thread;

    use crate::description::cpu_set::CpuSet;

    pub type Mask = thread::CpuSet;

    /// Binds the calling thread, and threads that it starts, to these CPUs. CPUs that the machine
    /// does not have are ignored; where no CPU is left or binding is not allowed, nothing changes.
    ///
    /// ```
    /// std::thread::spawn(|| slipring_machine::bind([0, 1])).join().unwrap();
    /// ```
    pub fn bind(cpus: impl IntoIterator<Item = usize>) {
        let mut mask = Mask::new();
        // `CpuSet` panics on a CPU beyond its size.
        cpus.into_iter().filter(|&cpu| cpu < Mask::MAX_CPU).for_each(|cpu| mask.set(cpu));
        set_mask(&mask);
    }

    /// Returns the CPUs that the calling thread may use, in order. Empty on systems other than
    /// Linux.
    ///
    /// ```
    /// for cpu in slipring_machine::allowed_cpus() {
    ///     println!("CPU {cpu}");
    /// }
    /// ```
    pub fn allowed_cpus() -> Vec<usize> {
        let mask = thread::sched_getaffinity(None).unwrap_or_default();
        (0..Mask::MAX_CPU).filter(|&cpu| mask.is_set(cpu)).collect()
    }

    /// Sets the mask of the calling thread. Returns the old mask, or `None` if it was the same.
    pub fn replace_mask(cpus: &CpuSet) -> io::Result<Option<Mask>> {
        let mut mask = Mask::new();
        for cpu in cpus.iter() {
            if cpu >= Mask::MAX_CPU {
                let text = format!("affinity masks name CPUs below {} only", Mask::MAX_CPU);
                return Err(io::Error::new(io::ErrorKind::Unsupported, text));
            }
            mask.set(cpu);
        }
        let old = thread::sched_getaffinity(None)?;
        if old == mask {
            return Ok(None);
        }
        thread::sched_setaffinity(None, &mask)?;
        Ok(Some(old))
    }

    /// Sets the mask of the calling thread, where the system allows it.
    pub fn set_mask(mask: &Mask) {
        let _ = thread::sched_setaffinity(None, mask);
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use crate::description::cpu_set::CpuSet;

    pub type Mask = ();

    /// Does nothing on this system.
    pub fn bind(_cpus: impl IntoIterator<Item = usize>) {}

    /// Returns no CPUs on this system.
    pub fn allowed_cpus() -> Vec<usize> {
        Vec::new()
    }

    pub fn replace_mask(_cpus: &CpuSet) -> io::Result<Option<Mask>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this system offers no affinity masks"))
    }

    pub fn set_mask(_mask: &Mask) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_binding_ends_with_its_value() {
        let before = allowed_cpus();
        let bound = bind_thread(&before[..1].iter().copied().collect()).unwrap();
        assert_eq!(allowed_cpus(), before[..1]);
        drop(bound);
        assert_eq!(allowed_cpus(), before);
    }

    #[test]
    fn a_refused_binding_names_the_cpu_and_changes_nothing() {
        let before = allowed_cpus();
        for cpu in [1000, 5000] {
            let error = bind_thread(&CpuSet::from_iter([cpu])).unwrap_err().to_string();
            assert!(error.contains(&format!("to CPU {cpu}: ")), "{error}");
            assert!(error.contains("slipring machine"), "{error}");
        }
        bind_thread(&CpuSet::new()).unwrap_err();
        assert_eq!(allowed_cpus(), before);
    }
}
