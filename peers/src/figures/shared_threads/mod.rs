//! Compares stages that share threads with a thread for each stage, and with one thread for all.
//!
//! - [`shapes`]: pipelines and fan-outs, whose producer only publishes.
//! - [`open`]: a pipeline whose events arrive at random times.
//!
//! All threads of a run are bound to two cores, and none is pinned to one of them. So
//! `Threads::Auto` finds two cores.

pub mod open;
pub mod shapes;

use slipring::{Chain, Wait, placement::Threads};

use crate::measure::Size;

/// The configuration of a chain.
#[derive(Clone, Debug)]
struct Config {
    /// Whether the stages share as many threads as there are cores. Otherwise each stage has its
    /// own thread.
    shared: bool,
    /// Wait strategy of stages and producers.
    wait: Wait,
}

impl Config {
    /// Returns the configurations that are compared. Threads that spin keep the cores from the
    /// other threads, so such runs take long. Only [`Size::Full`] includes a busy spin.
    fn all(size: Size) -> Vec<Config> {
        let shared = [Wait::ADAPTIVE, Wait::YIELDING, Wait::Blocking];
        let shared = shared.into_iter().map(|wait| Config { shared: true, wait });
        let each = Wait::all().into_iter().rev().map(|wait| Config { shared: false, wait });
        let each = each.filter(|config| size == Size::Full || !config.is_busy_spin());
        shared.chain(each).collect()
    }

    /// Returns whether a waiting thread never gives up its core.
    fn is_busy_spin(&self) -> bool {
        matches!(self.wait, Wait::BusySpin)
    }

    /// Returns the contender's name.
    fn name(&self) -> String {
        let threads = if self.shared { "shared threads" } else { "a thread each" };
        format!("slipring, {threads}, {}", self.wait)
    }

    /// Returns a chain without stages.
    fn chain<'env>(&self, capacity: usize) -> Chain<'env, u64> {
        let chain = slipring::ring(capacity, || 0u64).wait(self.wait.clone());
        if self.shared { chain.threads(Threads::Auto) } else { chain }
    }
}
