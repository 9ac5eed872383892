//! The operations that a run counts, and their number for each event.
//!
//! - I1: `for_each_count!` is the one list of the counts, so that a sum leaves none out.

/// Calls the macro `$with` with the names of all counts.
macro_rules! for_each_count {
    ($with:ident) => {
        $with!(
            loads stores rmws fences fetched_same fetched_cross owned_same owned_cross cold pauses
            yields sleeps wakes membarriers
        );
    };
}

/// The number of operations of a core, of all cores, or on a line.
///
/// A *transfer* is an access that had to get a line, or the right to change it, from another core.
/// A line that no core has yet is *cold*: its first access costs a visit to memory, and is no
/// transfer.
///
/// ```
/// use slipring_coherence::Counts;
///
/// let counts = Counts { fetched_same: 20, owned_cross: 4, rmws: 10, ..Counts::default() };
/// assert_eq!((counts.transfers(), counts.cross()), (24, 4));
/// assert_eq!(counts.per_event(10).rmws, 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loads, by lines: a read of 100 bytes is two or three.
    pub loads: u64,
    /// Stores, by lines.
    pub stores: u64,
    /// Read-modify-writes, those that failed and sequentially consistent stores included.
    pub rmws: u64,
    /// Sequentially consistent fences, those of membarriers included.
    pub fences: u64,
    /// Loads that copied a line from a core of the socket, or its last-level cache.
    pub fetched_same: u64,
    /// Loads that copied a line from another socket.
    pub fetched_cross: u64,
    /// Stores and read-modify-writes that took a line within the socket.
    pub owned_same: u64,
    /// Stores and read-modify-writes that took a line from, or invalidated it in, another socket.
    pub owned_cross: u64,
    /// First accesses to a line.
    pub cold: u64,
    /// Spin hints.
    pub pauses: u64,
    /// Yields to the system.
    pub yields: u64,
    /// Sleeps: futex, lock, condition, park, join and timer.
    pub sleeps: u64,
    /// Threads woken.
    pub wakes: u64,
    /// Membarriers issued.
    pub membarriers: u64,
    /// Virtual picoseconds that the core waited for.
    pub waited: Waited,
}

/// For what a core waited, in virtual picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    /// For lines.
    pub lines: u64,
    /// For a free entry of the store buffer.
    pub buffer: u64,
    /// For the store buffer to drain, at fences and read-modify-writes.
    pub drain: u64,
    /// Asleep.
    pub asleep: u64,
}

/// [`Counts`] divided by a number of events.
///
/// ```
/// use slipring_coherence::Counts;
///
/// let counts = Counts { fetched_cross: 5, fences: 10, ..Counts::default() };
/// let event = counts.per_event(10);
/// assert_eq!((event.transfers, event.cross, event.fences), (0.5, 0.5, 1.0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PerEvent {
    /// Transfers, within and between sockets.
    pub transfers: f64,
    /// Transfers between sockets.
    pub cross: f64,
    /// Lines that no core had.
    pub cold: f64,
    /// Loads.
    pub loads: f64,
    /// Stores.
    pub stores: f64,
    /// Read-modify-writes.
    pub rmws: f64,
    /// Sequentially consistent fences.
    pub fences: f64,
    /// Spin hints.
    pub pauses: f64,
    /// Yields.
    pub yields: f64,
    /// Sleeps.
    pub sleeps: f64,
    /// Threads woken.
    pub wakes: f64,
    /// Membarriers.
    pub membarriers: f64,
}

impl Counts {
    /// Returns the number of transfers, within and between sockets.
    ///
    /// Example: [`Counts`].
    pub fn transfers(&self) -> u64 {
        self.fetched_same + self.fetched_cross + self.owned_same + self.owned_cross
    }

    /// Returns the number of transfers between sockets.
    ///
    /// Example: [`Counts`].
    pub fn cross(&self) -> u64 {
        self.fetched_cross + self.owned_cross
    }

    /// Returns the number of loads, stores and read-modify-writes.
    ///
    /// Example: [`Counts`].
    pub fn accesses(&self) -> u64 {
        self.loads + self.stores + self.rmws
    }

    /// Divides the counts by a number of events.
    ///
    /// ```
    /// use slipring_coherence::Counts;
    ///
    /// assert_eq!(Counts { loads: 3, ..Counts::default() }.per_event(2).loads, 1.5);
    /// ```
    ///
    /// # Panics
    ///
    /// If there are no events.
    pub fn per_event(&self, events: u64) -> PerEvent {
        assert!(events > 0, "counts of no events have no quotient");
        let each = |count: u64| count as f64 / events as f64;
        PerEvent {
            transfers: each(self.transfers()),
            cross: each(self.cross()),
            cold: each(self.cold),
            loads: each(self.loads),
            stores: each(self.stores),
            rmws: each(self.rmws),
            fences: each(self.fences),
            pauses: each(self.pauses),
            yields: each(self.yields),
            sleeps: each(self.sleeps),
            wakes: each(self.wakes),
            membarriers: each(self.membarriers),
        }
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        macro_rules! add {
            ($($count:ident)*) => {
                $(self.$count += other.$count;)*
            };
        }
        for_each_count!(add);
        self.waited.lines += other.waited.lines;
        self.waited.buffer += other.waited.buffer;
        self.waited.drain += other.waited.drain;
        self.waited.asleep += other.waited.asleep;
    }

    /// Returns each count with its name, in the order of a report.
    pub(crate) fn named(&self) -> Vec<(&'static str, u64)> {
        let mut all = Vec::new();
        macro_rules! name {
            ($($count:ident)*) => {
                $(all.push((stringify!($count), self.$count));)*
            };
        }
        for_each_count!(name);
        all
    }
}
