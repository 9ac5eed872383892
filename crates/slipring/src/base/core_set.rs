//! Sets of cores, and the question how many threads can have a core of their own at the same time.
//!
//! Invariants
//! - I1: a set has room for the cores 0 to [`CoreSet::ROOM`] - 1, as the system call has that fills
//!   it. Where a machine has more cores, the call fails, and callers count cores without sets.

use std::iter::successors;

/// Number of words of a set.
const WORDS: usize = 16;

/// A set of cores, by the numbers by which the system knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CoreSet([u64; WORDS]);

impl CoreSet {
    /// Number of cores for which a set has room.
    pub(crate) const ROOM: usize = 64 * WORDS;

    /// Returns the number of cores in the set.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns the cores of the set.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, &word)| {
            // Each step clears the lowest bit that is left.
            let bits = successors(Some(word), |left| left.checked_sub(1).map(|below| left & below));
            let bits = bits.take_while(|&left| left != 0);
            bits.map(move |left| 64 * index + left.trailing_zeros() as usize)
        })
    }

    /// Returns the set's core if it contains only one.
    pub(crate) fn only(&self) -> Option<usize> {
        let mut cores = self.iter();
        cores.next().filter(|_| cores.next().is_none())
    }
}

/// Collects cores; leaves out those for which a set has no room (I1).
impl FromIterator<usize> for CoreSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cores: I) -> CoreSet {
        let mut set = CoreSet::default();
        for core in cores.into_iter().filter(|&core| core < CoreSet::ROOM) {
            set.0[core / 64] |= 1 << (core % 64);
        }
        set
    }
}

/// Assigns cores to threads, so that as many threads as possible have a core of their own: a
/// maximum matching, found by augmenting paths. Allocates nothing.
pub(crate) struct Assignment {
    /// The thread that has each core, or [`NONE`].
    owners: [u32; CoreSet::ROOM],
}

/// Stands for no thread.
const NONE: u32 = u32::MAX;

impl Assignment {
    pub(crate) fn new() -> Assignment {
        Assignment { owners: [NONE; CoreSet::ROOM] }
    }

    /// Adds a thread. `allowed` returns the cores that each of the threads may use. Returns whether
    /// all threads that had a core still have one, and the new thread has one, too. If not, nothing
    /// changes.
    pub(crate) fn add(&mut self, new: u32, allowed: impl Fn(u32) -> CoreSet) -> bool {
        // The thread from which the search has reached each core.
        let mut reached = [NONE; CoreSet::ROOM];
        // The threads that the search has yet to visit: the new one, and owners of reached cores.
        let mut open = [NONE; CoreSet::ROOM];
        open[0] = new;
        let mut len = 1;
        while len > 0 {
            len -= 1;
            let thread = open[len];
            for core in allowed(thread).iter() {
                if reached[core] != NONE {
                    continue;
                }
                reached[core] = thread;
                if self.owners[core] == NONE {
                    self.move_along(core, new, &reached);
                    return true;
                }
                open[len] = self.owners[core];
                len += 1;
            }
        }
        false
    }

    /// Gives a free core to the thread from which the search has reached it, the core that this
    /// thread had to the thread before that, and so on, up to the new thread.
    fn move_along(&mut self, mut free: usize, new: u32, reached: &[u32; CoreSet::ROOM]) {
        loop {
            let thread = reached[free];
            let had = self.owners.iter().position(|&owner| owner == thread);
            self.owners[free] = thread;
            match had {
                Some(core) if thread != new => free = core,
                _ => return,
            }
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    fn set(cores: &[usize]) -> CoreSet {
        cores.iter().copied().collect()
    }

    fn contains(set: &CoreSet, core: usize) -> bool {
        set.iter().any(|contained| contained == core)
    }

    #[test]
    fn a_set_holds_what_was_put_in() {
        let some = set(&[0, 63, 64, 1023, 1024]);
        assert_eq!(some.iter().collect::<Vec<_>>(), [0, 63, 64, 1023]);
        assert_eq!((some.count(), some.only(), contains(&some, 62)), (4, None, false));
        assert_eq!((set(&[65]).only(), set(&[]).only()), (Some(65), None));
    }

    /// Returns how many of the threads have a core, in the order in which they were added.
    fn served(threads: &[&[usize]]) -> Vec<bool> {
        let mut assignment = Assignment::new();
        let allowed = |thread| set(threads[thread as usize]);
        (0..threads.len() as u32).map(|thread| assignment.add(thread, allowed)).collect()
    }

    #[test]
    fn a_thread_gives_way_to_one_that_has_no_other_core() {
        assert_eq!(served(&[&[0, 1, 2], &[0, 1], &[0]]), [true, true, true]);
        assert_eq!(served(&[&[0, 1], &[0], &[1]]), [true, true, false]);
        assert_eq!(served(&[&[0], &[0], &[1, 2, 3]]), [true, false, true]);
        assert_eq!(served(&[&[], &[5]]), [false, true]);
    }

    /// The threads that have a core are as many as an exhaustive search finds.
    #[test]
    fn as_many_threads_as_possible_have_a_core() {
        fn most(threads: &[CoreSet], taken: CoreSet) -> usize {
            let Some((first, rest)) = threads.split_first() else { return 0 };
            let free = first.iter().filter(|&core| !contains(&taken, core));
            let with = free.map(|core| 1 + most(rest, taken.iter().chain([core]).collect()));
            with.max().unwrap_or(0).max(most(rest, taken))
        }
        let mut random = 7u64;
        for _ in 0..300 {
            let threads: Vec<CoreSet> = (0..5)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (0..5).filter(|core| random >> (40 + core) & 1 == 1).collect()
                })
                .collect();
            let mut assignment = Assignment::new();
            let allowed = |thread| threads[thread as usize];
            let served = (0..5).filter(|&thread| assignment.add(thread, allowed)).count();
            assert_eq!(served, most(&threads, CoreSet::default()), "{threads:?}");
        }
    }
}
