//! The durations from which the virtual clocks are made, and where each figure comes from.
//!
//! - I1: A machine runs only after [`Costs::validate`]. All costs that end a loop in virtual time
//!   are above zero, and none is so long that sums of them could overflow.
//!
//! Durations decide which core comes first, and with it how often a line moves. They are plausible,
//! no more: only two figures of a real machine were measured for this model. Counts that depend on
//! them are asserted over several seeds, and a virtual duration is never a speed.

use thiserror::Error;

/// How long each operation takes, in picoseconds, and how far a core runs ahead.
///
/// Sources: *\[M\]* means the order of magnitude of the latencies that D. Molka and others measured
/// on two sockets ("Memory Performance and Cache Coherency Effects on an Intel Nehalem
/// Multiprocessor System", PACT 2009), for the server; *\[V\]* a measurement on a virtual machine
/// with two cores, for [`two_vcpus`](Costs::two_vcpus); *\[E\]* an estimate: the order of magnitude
/// is right.
///
/// ```
/// use slipring_coherence::Costs;
///
/// let mut costs = Costs::server();
/// costs.pause = 0;
/// let error = costs.validate().unwrap_err();
/// assert!(error.to_string().contains("`pause`"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// A load that finds its line in the core's cache \[E\].
    pub load: u64,
    /// A store into the store buffer \[E\].
    pub store: u64,
    /// A read-modify-write of a line that the core owns: 20 cycles of 2.67 GHz \[E\], \[V\].
    pub rmw: u64,
    /// A sequentially consistent fence, apart from the stores that it waits for: 33 cycles \[E\].
    pub fence: u64,
    /// A spin hint: 10 cycles before Skylake \[E\], \[V\].
    pub pause: u64,
    /// The transfer of a line that another core of the socket has changed, or the invalidation of
    /// the copies there \[M\], \[V\].
    pub dirty_same: u64,
    /// The same between sockets \[M\].
    pub dirty_cross: u64,
    /// A copy of a line that is clean in a cache of the socket \[M\], \[E\].
    pub clean_same: u64,
    /// A copy of a line that is clean in a cache of another socket only \[M\].
    pub clean_cross: u64,
    /// A line that no cache has \[M\].
    pub memory: u64,
    /// How long a clean line is busy for one reader; 0: it serves any number at once \[E\].
    pub occupancy: u64,
    /// Entries of the store buffer. A Nehalem has 32.
    pub buffer: u64,
    /// Number of accesses that a core runs ahead of a load that waits for its line \[E\].
    pub window: u64,
    /// Number of loads that may wait for lines at once. A Nehalem has 10 line fill buffers.
    pub misses: u64,
    /// Whether a core runs ahead of loads that decide a branch, outside of loops with a spin hint.
    pub speculates: bool,
    /// Reading the clock \[E\].
    pub clock: u64,
    /// Yielding to the system when no other thread waits for the core \[E\].
    pub yields: u64,
    /// The part of a futex call that each caller pays \[E\].
    pub futex_call: u64,
    /// Waking one thread, for the waker \[E\].
    pub futex_wake: u64,
    /// Going to sleep, for the sleeper \[E\].
    pub futex_wait: u64,
    /// From the wake-up until the woken thread runs \[E\], \[V\].
    pub wake_latency: u64,
    /// How much later than its deadline a timer ends a sleep: Linux' slack \[E\].
    pub timer_lateness: u64,
    /// A membarrier, apart from the stores that it waits for \[E\].
    pub membarrier: u64,
    /// The interrupt of a membarrier, for each of the other cores \[E\].
    pub interrupt: u64,
    /// Starting a thread, for the starter \[E\].
    pub spawn: u64,
}

/// The longest cost: a virtual second.
const LONGEST: u64 = 1_000_000_000_000;

/// A cost that the model cannot run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CostsError {
    /// A cost is zero that has to pass, or a resource of a core that it needs one of.
    #[error("the cost `{0}` is zero: the model needs at least 1")]
    Zero(&'static str),
    /// A cost is longer than a virtual second.
    #[error("the cost `{0}` is {1}: the model takes at most {LONGEST} (a second in picoseconds)")]
    TooLong(&'static str, u64),
}

impl Costs {
    /// Returns the costs of a server of two sockets with six cores each, as of 2010: the machine of
    /// the measurements that the Disruptor's readers know. One socket or four differ only in who is
    /// how far.
    ///
    /// ```
    /// # use slipring_coherence::Costs;
    /// assert_eq!(Costs::server().validate(), Ok(()));
    /// ```
    pub fn server() -> Costs {
        Costs {
            load: 1_000,
            store: 400,
            rmw: 7_500,
            fence: 12_500,
            pause: 4_000,
            dirty_same: 40_000,
            dirty_cross: 110_000,
            clean_same: 18_000,
            clean_cross: 110_000,
            memory: 65_000,
            occupancy: 4_000,
            buffer: 32,
            window: 16,
            misses: 10,
            speculates: true,
            clock: 25_000,
            yields: 400_000,
            futex_call: 150_000,
            futex_wake: 1_500_000,
            futex_wait: 700_000,
            wake_latency: 4_000_000,
            timer_lateness: 50_000_000,
            membarrier: 2_000_000,
            interrupt: 1_000_000,
            spawn: 15_000_000,
        }
    }

    /// Returns the costs of a cloud machine with two cores. The transfer, the spin hint, the
    /// read-modify-write and the wake-up were measured on one; the rest is estimated.
    ///
    /// ```
    /// # use slipring_coherence::Costs;
    /// assert!(Costs::two_vcpus().pause > Costs::server().pause);
    /// ```
    pub fn two_vcpus() -> Costs {
        Costs {
            load: 500,
            store: 300,
            rmw: 2_000,
            fence: 2_000,
            pause: 24_600,
            dirty_same: 25_000,
            clean_same: 15_000,
            memory: 90_000,
            buffer: 64,
            window: 40,
            misses: 20,
            clock: 23_300,
            yields: 490_000,
            futex_call: 350_000,
            ..Costs::server()
        }
    }

    /// Returns whether the model can run with these costs.
    ///
    /// ```
    /// use slipring_coherence::{Costs, CostsError};
    ///
    /// let costs = Costs { memory: 0, ..Costs::server() };
    /// assert_eq!(costs.validate(), Err(CostsError::Zero("memory")));
    /// ```
    ///
    /// # Errors
    ///
    /// Names the first cost that is zero, or longer than a second. `occupancy`, `window`,
    /// `timer_lateness` and `interrupt` may be zero.
    pub fn validate(&self) -> Result<(), CostsError> {
        macro_rules! check {
            (above_zero: $($above:ident)*; any: $($any:ident)*) => {
                $(if self.$above == 0 {
                    return Err(CostsError::Zero(stringify!($above)));
                })*
                $(if self.$above > LONGEST {
                    return Err(CostsError::TooLong(stringify!($above), self.$above));
                })*
                $(if self.$any > LONGEST {
                    return Err(CostsError::TooLong(stringify!($any), self.$any));
                })*
            };
        }
        check!(
            above_zero: load store rmw fence pause dirty_same dirty_cross clean_same clean_cross
                memory buffer misses clock yields futex_call futex_wake futex_wait wake_latency
                membarrier spawn;
            any: occupancy window timer_lateness interrupt
        );
        Ok(())
    }
}
