//! Ctrl-C during a measurement: the first ends it after the current repetition, and the finished
//! results are saved; a second ends the program at once.

use anyhow::Result;

use crate::base::exit;

pub use system::{requested, watch};

/// Fails if the user has asked to end the measurement.
pub fn check() -> Result<()> {
    if requested() { Err(exit::interrupted("interrupted: nothing was saved")) } else { Ok(()) }
}

#[cfg(unix)]
mod system {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, OnceLock};

    use anyhow::Context as _;
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag;

    use super::Result;
    use crate::base::exit::INTERRUPTED;

    static REQUESTED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

    /// Watches for the signals from now on.
    pub fn watch() -> Result<()> {
        let requested = REQUESTED.get_or_init(Arc::default);
        for signal in [SIGINT, SIGTERM] {
            // The order matters: a signal first checks the flag and then sets it, so that only a
            // second signal ends the program at once.
            flag::register_conditional_shutdown(signal, INTERRUPTED.into(), requested.clone())
                .and_then(|_| flag::register(signal, requested.clone()))
                .context("cannot watch for Ctrl-C")?;
        }
        Ok(())
    }

    /// Returns whether the user has asked to end the measurement.
    pub fn requested() -> bool {
        REQUESTED.get().is_some_and(|requested| requested.load(Ordering::Relaxed))
    }
}

#[cfg(not(unix))]
mod system {
    use super::Result;

    /// Does nothing on this system: Ctrl-C ends the program.
    pub fn watch() -> Result<()> {
        Ok(())
    }

    /// Returns `false`: this system reports no request.
    pub fn requested() -> bool {
        false
    }
}
