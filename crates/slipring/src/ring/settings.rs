//! The options of a ring. Graphs and chains offer the same options through the macro
//! [`ring_options!`].

use std::time::Duration;

use crate::base::panics::Contained;
use crate::ring::memory::Pages;
use crate::wait::Wait;

/// The options that a ring is built with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Number of slots.
    pub(crate) capacity: usize,
    /// Position of the first event.
    pub(crate) start: u64,
    /// Waiting strategy of each stage and producer without a strategy of its own.
    pub(crate) wait: Contained<Wait>,
    /// Waiting strategy of the producers; `None` if they use the strategy `wait`.
    pub(crate) producer_wait: Option<Contained<Wait>>,
    /// Whether several producers may publish at the same time.
    pub(crate) many_producers: bool,
    /// Time from the build until all waits end; `None` if the graph has no deadline.
    pub(crate) deadline: Option<Duration>,
    /// Whether the stages' loops and the pools read the clock, to adapt the lengths of batches and
    /// chunks. In a ring that does not read the clock, the same calls always have the same outcome.
    pub(crate) timed: bool,
    /// Whether a single producer that stamps its publications also stores its cursor. Reports show
    /// the cursor.
    pub(crate) publish_cursor: bool,
    /// Latency sampling interval, in events.
    pub(crate) sample_every: Option<u64>,
    /// Pages of the slots.
    pub(crate) pages: Pages,
    /// Whether the ring may take more memory than is available.
    pub(crate) overcommit: bool,
    /// Number of cores of the graph's placement; `None` if it has no placement.
    pub(crate) placed: Option<usize>,
}

impl Settings {
    /// Returns the defaults for a ring of `capacity` slots.
    pub(crate) fn new(capacity: usize) -> Settings {
        Settings {
            capacity,
            start: 0,
            wait: Contained::new(Wait::default()),
            producer_wait: None,
            many_producers: false,
            deadline: None,
            timed: !cfg!(slipring_loom),
            publish_cursor: false,
            sample_every: None,
            pages: Pages::Ordinary,
            overcommit: false,
            placed: None,
        }
    }

    /// Asks for huge pages under the slots.
    pub(crate) fn ask_for_huge_pages(&mut self) {
        self.pages = Pages::Huge;
    }

    /// Returns the strategy of producers.
    pub(crate) fn producer_wait(&self) -> &Wait {
        self.producer_wait.as_deref().unwrap_or(&self.wait)
    }
}

/// Defines the methods by which chains and graphs set the options of a ring. The type that uses the
/// macro has a method `settings_mut`. The arguments of the macro are a documentation example for
/// each option.
macro_rules! ring_options {
    (
        $(#[$wait:meta])* wait;
        $(#[$producer_wait:meta])* producer_wait;
        $(#[$first_seq:meta])* first_seq;
        $(#[$deadline:meta])* deadline;
        $(#[$sample_latency:meta])* sample_latency;
        $(#[$huge_pages:meta])* huge_pages;
        $(#[$allow_overcommit:meta])* allow_overcommit;
    ) => {
        /// Sets how stages wait for events, and how producers wait for room. Default:
        /// [`Wait::ADAPTIVE`].
        ///
        /// A stage can have a strategy of its own ([`Chain::stage_wait`](crate::Chain::stage_wait),
        /// [`Key::wait`](crate::stages::Key::wait)). The method `producer_wait` gives the producers
        /// a strategy of their own.
        ///
        $(#[$wait])*
        #[doc(alias = "WaitStrategy")]
        pub fn wait(mut self, wait: Wait) -> Self {
            self.settings_mut().wait = Contained::new(wait);
            self
        }

        /// Sets how producers wait for room. By default, producers use the strategy that `wait`
        /// sets.
        ///
        $(#[$producer_wait])*
        pub fn producer_wait(mut self, wait: Wait) -> Self {
            self.settings_mut().producer_wait = Some(Contained::new(wait));
            self
        }

        /// Sets the position of the first event. Default: 0. Positions wrap at 2^64.
        ///
        $(#[$first_seq])*
        pub fn first_seq(mut self, seq: u64) -> Self {
            self.settings_mut().start = seq;
            self
        }

        /// Sets the duration from the build to the deadline, at which every wait of the library
        /// ends. If a wait lasts until the deadline, the graph fails with an error that names the
        /// waiting stage or producer.
        ///
        /// When the deadline passes, the library does not interrupt user code and wakes no task. A
        /// waiting task gets the deadline's error at its next poll.
        ///
        $(#[$deadline])*
        pub fn deadline(mut self, after: Duration) -> Self {
            self.settings_mut().deadline = Some(after);
            self
        }

        /// Sets the latency sampling interval, in events. The library rounds `every` up to a power
        /// of two. The latency ([`StageReport::latency`](crate::reports::StageReport::latency)) is
        /// the time from an event's publication to its release by each stage.
        ///
        /// A sampled event costs its producer, and each stage, one reading of the clock.
        ///
        $(#[$sample_latency])*
        pub fn sample_latency(mut self, every: u64) -> Self {
            self.settings_mut().sample_every = Some(every);
            self
        }

        /// Asks the system for huge pages under the slots. Large rings then need fewer entries in
        /// the processor's address-translation cache (TLB), and the build touches fewer pages.
        ///
        /// The slots begin on a multiple of 2 MiB and take whole multiples of 2 MiB of memory. On
        /// Linux, the ring asks for transparent huge pages (`MADV_HUGEPAGE`, madvise(2)). The
        /// system grants them where `/sys/kernel/mm/transparent_hugepage/enabled` says `madvise` or
        /// `always` and memory is not fragmented; otherwise, and on other systems, the ring has
        /// ordinary pages. `AnonHugePages` in `/proc/self/smaps` shows how much the system granted.
        ///
        /// Huge pages suit rings of many megabytes; with them, a small ring only wastes memory. The
        /// build can take several times as long, because the system clears huge pages, and may have
        /// to make room for them. For 256 MiB in a virtual machine, the build took 41 to 609 ms
        /// with huge pages, and 113 to 166 ms without (`records/2026-11-26-lab`). `slipring lab
        /// placements` measures both builds on your machine.
        ///
        $(#[$huge_pages])*
        pub fn huge_pages(mut self) -> Self {
            self.settings_mut().ask_for_huge_pages();
            self
        }

        /// Lets the build take more memory than is available. Otherwise such a build fails with
        /// [`BuildError::MemoryShortage`](crate::errors::BuildError::MemoryShortage) before it
        /// allocates anything.
        ///
        /// If the memory is not available, the system swaps, or ends this program or others. Use
        /// the call if you know more than the system: for example, that memory becomes free soon,
        /// or that the ring may use swap.
        ///
        $(#[$allow_overcommit])*
        pub fn allow_overcommit(mut self) -> Self {
            self.settings_mut().overcommit = true;
            self
        }
    };
}

pub(crate) use ring_options;
