//! A clock that threads share, and sleeps that end when they are due.

use std::time::{Duration, Instant};

pub use system::set_fine_timer;

/// A clock that threads share: nanoseconds since its start.
///
/// ```
/// let clock = slipring_machine::Clock::start();
/// let soon = clock.ns() + 1_000;
/// assert!(clock.spin_until(soon) >= soon);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
    timer: system::Timer,
}

impl Clock {
    /// Starts a clock at zero.
    ///
    /// Example: [`Clock`].
    pub fn start() -> Self {
        Self { origin: Instant::now(), timer: system::Timer::start() }
    }

    /// Returns the nanoseconds since the start.
    ///
    /// Example: [`Clock`].
    pub fn ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Spins until the clock shows `at` nanoseconds or more, and returns the clock's time then.
    ///
    /// The loop leaves out the processor's spin hint: a hint makes the steps coarser, and some
    /// hypervisors take the core from a thread that hints for long.
    ///
    /// Example: [`Clock`].
    pub fn spin_until(&self, at: u64) -> u64 {
        loop {
            let now = self.ns();
            if now >= at {
                return now;
            }
        }
    }

    /// Sleeps until the clock shows `at` nanoseconds, as exactly as the system can, and returns the
    /// clock's time then.
    ///
    /// ```
    /// let clock = slipring_machine::Clock::start();
    /// assert!(clock.sleep_until(1_000) >= 1_000);
    /// ```
    pub fn sleep_until(&self, at: u64) -> u64 {
        let now = self.ns();
        if now >= at {
            return now;
        }
        self.timer.sleep_until(at, Duration::from_nanos(at - now));
        self.ns()
    }

    /// Measures how long reading a clock takes, in nanoseconds: the shortest of nine tries, because
    /// an interrupt only makes a try longer.
    ///
    /// ```
    /// assert!(slipring_machine::Clock::cost() > 0.0);
    /// ```
    pub fn cost() -> f64 {
        const READINGS: u32 = 1000;
        let tries = (0..9).map(|_| {
            let clock = Self::start();
            for _ in 0..READINGS {
                std::hint::black_box(clock.ns());
            }
            clock.ns()
        });
        tries.min().unwrap_or(0) as f64 / f64::from(READINGS)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::num::NonZeroU64;
    use std::time::Duration;

    use rustix::thread;
    use rustix::time::{self, Timespec};

    /// The start of a clock, in the time of the system's timers.
    #[derive(Clone, Copy, Debug)]
    pub struct Timer(Timespec);

    impl Timer {
        pub fn start() -> Self {
            Self(time::clock_gettime(time::ClockId::Monotonic))
        }

        /// Sleeps until `at` nanoseconds after the start.
        pub fn sleep_until(self, at: u64, _left: Duration) {
            let at = Timespec::try_from(Duration::from_nanos(at)).ok();
            if let Some(at) = at.and_then(|at| self.0.checked_add(at)) {
                // A signal ends the sleep early.
                let _ = thread::clock_nanosleep_absolute(thread::ClockId::Monotonic, &at);
            }
        }
    }

    /// Makes the calling thread's sleeps end on time. By default, Linux may end them up to 50 µs
    /// late. Does nothing on other systems.
    ///
    /// ```
    /// slipring_machine::set_fine_timer();
    /// ```
    pub fn set_fine_timer() {
        let _ = thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::time::Duration;

    /// This timer needs no state: it tells the system the length of each sleep rather than its end.
    #[derive(Clone, Copy, Debug)]
    pub struct Timer;

    impl Timer {
        pub fn start() -> Self {
            Self
        }

        pub fn sleep_until(self, _at: u64, left: Duration) {
            std::thread::sleep(left);
        }
    }

    /// Does nothing on this system.
    pub fn set_fine_timer() {}
}
