//! One thread, one `epoll`: two rings, which come in as descriptors through `slipring-eventfd`, and
//! a timer. Linux only.
//!
//! ```text
//!   orders (thread)  ── ring ── eventfd ──┐
//!   signals (thread) ── ring ── eventfd ──┼── epoll ── the loop
//!                             timerfd   ──┘
//! ```
//!
//! The loop looks at a ring when its descriptor says so, takes a bounded number of events so that
//! no ring hides the other or the timer, and sleeps when all are empty. While it is busy the
//! publishers make no system call for it: a descriptor is written to only when the loop was about
//! to sleep.
//!
//! `cargo run --release --example epoll_loop` runs it, `-- --help` behind that tells of its
//! arguments.

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, Write as _};
    use std::thread;
    use std::time::Duration;

    use anyhow::{Result, bail, ensure};
    use clap::Parser;
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::fd::OwnedFd;
    use rustix::io::{Errno, retry_on_intr};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use slipring::{Producer, Reader, WaitError};
    use slipring_eventfd::EventFd;

    /// Two rings and a timer in one event loop.
    #[derive(Parser)]
    pub struct Args {
        /// How many events each ring carries.
        #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(..=4_000_000_000))]
        count: u64,
        /// Send 5000 events only, to see that it works.
        #[arg(long)]
        smoke: bool,
    }

    /// What the descriptors are known by in the epoll set: the rings by their places, and the
    /// timer.
    const TIMER: u64 = 2;
    /// So many events are taken from a ring before the other one has its turn.
    const TURN: usize = 256;
    /// The timer's period.
    const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    /// The loop goes on until the timer has ticked so often, too.
    const TICKS: u64 = 3;
    /// If nothing happens for so long, not even a tick, something is broken.
    const LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// A ring, as the loop sees it.
    struct Source {
        name: &'static str,
        events: Reader<u64>,
        ready: EventFd,
        /// There may be more: it was signalled, or it was not empty when its turn was over.
        look: bool,
        open: bool,
        count: u64,
        sum: u64,
        wakes: u64,
    }

    impl Source {
        fn new(name: &'static str, events: Reader<u64>) -> Result<Source> {
            Ok(Source {
                name,
                events,
                ready: EventFd::new()?,
                look: true,
                open: true,
                count: 0,
                sum: 0,
                wakes: 0,
            })
        }

        /// A turn of at most so many events, and the arming when there are no more.
        fn turn(&mut self) -> Result<()> {
            let (mut next, mut in_order) = (self.count, true);
            let taken = self.events.poll(TURN, |&value, _| {
                in_order &= value == next;
                next += 1;
                self.sum += value;
            });
            ensure!(in_order, "{}: events {} to {next} came out of order", self.name, self.count);
            self.count = next;
            match taken {
                Ok(0) => self.look = self.ready.arm(&mut self.events),
                Ok(_) => {}
                // Nothing will come any more. To arm it would say `true` every time.
                Err(WaitError::Closed) => (self.look, self.open) = (false, false),
                Err(other) => bail!("{}: {other}", self.name),
            }
            Ok(())
        }
    }

    fn timer() -> Result<OwnedFd> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        timerfd_settime(
            &timer,
            TimerfdTimerFlags::empty(),
            &Itimerspec { it_interval: TICK, it_value: TICK },
        )?;
        Ok(timer)
    }

    /// How often the timer has ticked since the last time.
    fn ticks(timer: &OwnedFd) -> Result<u64> {
        let mut count = [0; 8];
        match retry_on_intr(|| rustix::io::read(timer, &mut count)) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Publishes with a pause now and then, so that the loop has a reason to sleep.
    fn publish(mut tx: Producer<u64>, count: u64, pause_after: u64) -> Result<(), WaitError> {
        for i in 0..count {
            tx.publish(|slot| *slot = i)?;
            if (i + 1) % pause_after == 0 {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    pub fn run() -> Result<()> {
        let args = Args::parse();
        let count = if args.smoke { 5000 } else { args.count };
        let (orders, orders_rx) = slipring::unicast(1024, || 0u64)?;
        let (signals, signals_rx) = slipring::unicast(64, || 0u64)?;
        let publishers = [
            thread::spawn(move || publish(orders, count, count / 20 + 1)),
            thread::spawn(move || publish(signals, count, count / 7 + 1)),
        ];

        let mut sources = [Source::new("orders", orders_rx)?, Source::new("signals", signals_rx)?];
        let timer = timer()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, source) in sources.iter().enumerate() {
            epoll::add(&epoll, &source.ready, EventData::new_u64(number as u64), EventFlags::IN)?;
        }
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;

        // Not `println!`, which panics where the reader has gone (`| head`).
        let mut out = io::stdout().lock();
        let (mut readable, mut ticked, mut sleeps) = (Vec::with_capacity(8), 0, 0_u64);
        while ticked < TICKS || sources.iter().any(|source| source.open) {
            for source in sources.iter_mut().filter(|source| source.look) {
                source.turn()?;
            }
            // While a ring has more, the others are only asked after; else the loop sleeps.
            let busy = sources.iter().any(|source| source.look);
            let limit = if busy { &NOW } else { &LIMIT };
            retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut readable), Some(limit)))?;
            ensure!(
                busy || !readable.is_empty(),
                "nothing happened for {} seconds, and the timer should have ticked",
                LIMIT.tv_sec
            );
            sleeps += u64::from(!busy);
            for event in readable.drain(..) {
                match event.data.u64() {
                    TIMER => {
                        ticked += ticks(&timer)?;
                        // A ledger line, a heartbeat, a timeout: here a line for the first few
                        // ticks.
                        if ticked <= TICKS {
                            writeln!(
                                out,
                                "tick {ticked}: {} orders, {} signals so far",
                                sources[0].count, sources[1].count
                            )?;
                        }
                    }
                    number => {
                        // Clear first, then look: in the next round, before it is armed again.
                        let source = &mut sources[number as usize];
                        source.wakes += u64::from(source.ready.clear()?);
                        source.look = source.open;
                    }
                }
            }
        }

        for publisher in publishers {
            publisher.join().expect("a publisher panicked")?;
        }
        writeln!(out, "\n{:<8} {:>10} {:>16} {:>8}", "ring", "events", "sum", "wakes")?;
        for source in &sources {
            writeln!(
                out,
                "{:<8} {:>10} {:>16} {:>8}",
                source.name, source.count, source.sum, source.wakes
            )?;
        }
        writeln!(out, "{sleeps} times there was nothing to do but wait; {ticked} ticks")?;
        for source in &sources {
            let sum = (0..count).sum::<u64>();
            ensure!(
                source.count == count,
                "{}: {count} events were sent and {} came",
                source.name,
                source.count
            );
            ensure!(
                source.sum == sum,
                "{}: the sum is {}, where it is {sum}",
                source.name,
                source.sum
            );
        }
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    linux::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::io::Result<()> {
    use std::io::Write as _;
    writeln!(
        std::io::stdout(),
        "epoll_loop: this example needs epoll, timerfd and eventfd, which only Linux has"
    )
}
