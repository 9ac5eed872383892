//! The simulated machine: its sockets and cores, which core a thread gets, and its costs.
//!
//! - I1: A topology has at least one core and at most 64, so that a word with a bit for each core
//!   describes who has a line.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::costs::Costs;

/// The most cores that a simulated machine can have.
pub const MOST_CORES: usize = 64;

/// The sockets of a machine, and the number of cores in each.
///
/// ```
/// use slipring_coherence::Topology;
///
/// let topology: Topology = "2x6".parse()?;
/// assert_eq!((topology.sockets(), topology.cores(), topology.total()), (2, 6, 12));
/// assert_eq!(topology, Topology::new(2, 6)?);
/// # Ok::<(), slipring_coherence::TopologyError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    sockets: usize,
    cores: usize,
}

/// Why a [`Topology`] cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The text does not consist of two numbers with an `x` between them.
    #[error("`{0}` is not a topology: write sockets x cores of each socket, such as 2x6")]
    NotATopology(String),
    /// A socket without cores, or no socket.
    #[error("the topology {sockets}x{cores} has no cores: both numbers have to be at least 1")]
    Empty {
        /// Number of sockets.
        sockets: usize,
        /// Cores of each socket.
        cores: usize,
    },
    /// More cores than the simulator takes.
    #[error(
        "the topology {sockets}x{cores} has more cores than the {MOST_CORES} that the simulator takes"
    )]
    TooLarge {
        /// Number of sockets.
        sockets: usize,
        /// Cores of each socket.
        cores: usize,
    },
}

impl Topology {
    /// Returns the topology of `sockets` sockets with `cores` cores each.
    ///
    /// ```
    /// # use slipring_coherence::Topology;
    /// assert_eq!(Topology::new(4, 8)?.total(), 32);
    /// # Ok::<(), slipring_coherence::TopologyError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If a number is 0, or if there are more than 64 cores in all.
    pub fn new(sockets: usize, cores: usize) -> Result<Topology, TopologyError> {
        match sockets.checked_mul(cores) {
            Some(0) => Err(TopologyError::Empty { sockets, cores }),
            Some(1..=MOST_CORES) => Ok(Topology { sockets, cores }),
            _ => Err(TopologyError::TooLarge { sockets, cores }),
        }
    }

    /// Number of sockets.
    ///
    /// Example: [`Topology`].
    pub fn sockets(&self) -> usize {
        self.sockets
    }

    /// Number of cores of each socket.
    ///
    /// Example: [`Topology`].
    pub fn cores(&self) -> usize {
        self.cores
    }

    /// Number of cores in all sockets.
    ///
    /// Example: [`Topology`].
    pub fn total(&self) -> usize {
        self.sockets * self.cores
    }

    /// Returns the socket of each core, in the order in which threads get the cores.
    pub(crate) fn sockets_of_cores(&self, placement: Placement) -> Vec<u8> {
        let socket = |core: usize| match placement {
            Placement::Packed => core / self.cores,
            Placement::Spread => core % self.sockets,
        };
        // I1: a socket's number is below 64.
        (0..self.total()).map(|core| socket(core) as u8).collect()
    }
}

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let number = |digits: &str| digits.trim().parse().ok();
        let numbers = text
            .split_once('x')
            .and_then(|(sockets, cores)| Some((number(sockets)?, number(cores)?)));
        let (sockets, cores) =
            numbers.ok_or_else(|| TopologyError::NotATopology(text.to_owned()))?;
        Topology::new(sockets, cores)
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.sockets, self.cores)
    }
}

/// The order in which threads get the cores of a machine.
///
/// ```
/// use slipring_coherence::{Machine, Placement, Simulation, sync};
///
/// # #[global_allocator]
/// # static LINES: slipring_coherence::Lines = slipring_coherence::Lines;
/// let word = sync::AtomicU64::new(0);
/// let cross = |placement| {
///     let machine = Machine::server("2x6".parse().unwrap());
///     let mut simulation = Simulation::new(&machine).place(placement);
///     for name in ["left", "right"] {
///         simulation = simulation.thread(name, || {
///             for _ in 0..10 {
///                 word.fetch_add(1, sync::Ordering::Relaxed);
///             }
///         });
///     }
///     simulation.run().unwrap().counts().cross()
/// };
/// assert_eq!(cross(Placement::Packed), 0);
/// assert!(cross(Placement::Spread) > 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Fill a socket before the next.
    #[default]
    Packed,
    /// Alternate between the sockets.
    Spread,
}

/// A machine to simulate.
///
/// ```
/// use slipring_coherence::Machine;
///
/// let mut machine = Machine::server("2x6".parse()?);
/// machine.jitter = 20;
/// machine.seed = 7;
/// assert_eq!(machine.topology.total(), 12);
/// # Ok::<(), slipring_coherence::TopologyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Name in reports.
    pub name: String,
    /// Sockets and cores.
    pub topology: Topology,
    /// Duration of each operation.
    pub costs: Costs,
    /// How far the latency of a transfer varies by chance, in percent of it, in both directions.
    /// With 0 the seed has no influence.
    pub jitter: u64,
    /// Seed of the variation.
    pub seed: u64,
}

impl Machine {
    /// Returns a server with [`Costs::server`], and no jitter.
    ///
    /// ```
    /// # use slipring_coherence::{Machine, Topology};
    /// assert_eq!(Machine::server(Topology::new(2, 6)?).name, "server 2x6");
    /// # Ok::<(), slipring_coherence::TopologyError>(())
    /// ```
    pub fn server(topology: Topology) -> Machine {
        let name = format!("server {topology}");
        Machine { name, topology, costs: Costs::server(), jitter: 0, seed: 1 }
    }

    /// Returns a virtual machine of two cores with [`Costs::two_vcpus`], and no jitter.
    ///
    /// ```
    /// # use slipring_coherence::Machine;
    /// assert_eq!(Machine::two_vcpus().topology.total(), 2);
    /// ```
    pub fn two_vcpus() -> Machine {
        Machine {
            name: "two vCPUs".to_owned(),
            topology: Topology { sockets: 1, cores: 2 },
            costs: Costs::two_vcpus(),
            jitter: 0,
            seed: 1,
        }
    }
}
