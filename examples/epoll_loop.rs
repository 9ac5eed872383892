//! An event loop on one thread: one `epoll` set with two rings, whose descriptors come from
//! `slipring-eventfd`, and a timer. Linux only.
//!
//! ```text
//!   orders (thread)  ── ring ── eventfd ──┐
//!   signals (thread) ── ring ── eventfd ──┼── epoll ── the loop
//!                             timerfd   ──┘
//! ```
//!
//! The loop polls a ring after its descriptor was signalled. It takes a bounded number of events at
//! a time, so that no ring starves the other ring or the timer, and sleeps when both rings are
//! empty. While the loop is busy, publishers make no system call: they signal a descriptor only if
//! it is armed, and the loop arms it only before it sleeps.
//!
//! `cargo run --release --example epoll_loop` runs it; `-- --help` describes its arguments.

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{self, Write as _};
    use std::thread;
    use std::time::Duration;

    use anyhow::{Result, bail, ensure};
    use clap::Parser;
    use comfy_table::{CellAlignment, Table, presets};
    use indicatif::HumanCount;
    use rustix::buffer::spare_capacity;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use rustix::fd::OwnedFd;
    use rustix::io::{Errno, retry_on_intr};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use slipring::{Producer, Reader, errors::WaitError};
    use slipring_eventfd::EventFd;

    /// Two rings and a timer in one event loop
    #[derive(Parser)]
    pub struct Args {
        /// Publish N events on each ring
        #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(..=4_000_000_000))]
        count: u64,
        /// Publish 5000 events only, to check that it works
        #[arg(long)]
        smoke: bool,
    }

    /// The timer's number in the epoll set; the rings have their indices.
    const TIMER: u64 = 2;
    /// Maximum number of events that the loop takes from a ring before it polls the other one.
    const TURN: usize = 256;
    /// Period of the timer.
    const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    /// Minimum number of ticks before the loop ends.
    const TICKS: u64 = 3;
    /// Time limit for one wait of the loop. The timer ticks long before the limit.
    const LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

    /// State of one ring in the loop: its reader, its descriptor, and counts.
    struct Source {
        name: &'static str,
        events: Reader<u64>,
        ready: EventFd,
        /// Whether the ring may have events, because of a signal or because the last turn found
        /// events.
        poll: bool,
        /// Whether the producer may still publish.
        open: bool,
        /// Number of events so far.
        count: u64,
        sum: u64,
        /// Number of signals of the descriptor.
        wakes: u64,
    }

    impl Source {
        fn new(name: &'static str, events: Reader<u64>) -> Result<Source> {
            Ok(Source {
                name,
                events,
                ready: EventFd::new()?,
                poll: true,
                open: true,
                count: 0,
                sum: 0,
                wakes: 0,
            })
        }

        /// Handles at most [`TURN`] events; arms the descriptor if there are none.
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
                Ok(0) => self.poll = self.ready.arm(&mut self.events),
                Ok(_) => {}
                // A closed and drained ring always counts as ready, so arming it would return
                // `true` for ever.
                Err(WaitError::Closed) => (self.poll, self.open) = (false, false),
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

    /// Returns the number of ticks since the previous call.
    fn ticks(timer: &OwnedFd) -> Result<u64> {
        let mut count = [0; 8];
        match retry_on_intr(|| rustix::io::read(timer, &mut count)) {
            Ok(_) => Ok(u64::from_ne_bytes(count)),
            Err(Errno::AGAIN) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Publishes with pauses, in which the loop sleeps.
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

        // `println!` would panic where the reader has closed the pipe (`| head`).
        let mut out = io::stdout().lock();
        let (mut readable, mut ticked, mut sleeps) = (Vec::with_capacity(8), 0, 0_u64);
        while ticked < TICKS || sources.iter().any(|source| source.open) {
            for source in sources.iter_mut().filter(|source| source.poll) {
                source.turn()?;
            }
            // The loop sleeps only if both rings are empty and armed.
            let busy = sources.iter().any(|source| source.poll);
            let limit = if busy { &NOW } else { &LIMIT };
            retry_on_intr(|| epoll::wait(&epoll, spare_capacity(&mut readable), Some(limit)))?;
            ensure!(
                busy || !readable.is_empty(),
                "no event for {} seconds, although the timer ticks",
                LIMIT.tv_sec
            );
            sleeps += u64::from(!busy);
            for event in readable.drain(..) {
                match event.data.u64() {
                    TIMER => {
                        ticked += ticks(&timer)?;
                        // A real program would send a heartbeat or check timeouts here.
                        if ticked <= TICKS {
                            writeln!(
                                out,
                                "tick {ticked}: {} orders, {} signals so far",
                                HumanCount(sources[0].count),
                                HumanCount(sources[1].count)
                            )?;
                        }
                    }
                    number => {
                        // The descriptor is cleared before the poll in the next round: the other
                        // order could lose a signal.
                        let source = &mut sources[number as usize];
                        source.wakes += u64::from(source.ready.clear()?);
                        source.poll = source.open;
                    }
                }
            }
        }

        for publisher in publishers {
            publisher.join().expect("a publisher panicked")?;
        }
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(["ring", "events", "sum", "wakes"]);
        for source in &sources {
            let numbers = [source.count, source.sum, source.wakes];
            let numbers = numbers.map(|number| HumanCount(number).to_string());
            table.add_row([vec![source.name.to_owned()], numbers.into()].concat());
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        writeln!(out, "\n{table}\n")?;
        writeln!(out, "the loop slept {} times; {ticked} ticks", HumanCount(sleeps))?;
        for source in &sources {
            let sum = (0..count).sum::<u64>();
            ensure!(
                source.count == count,
                "{}: {count} events were published and {} arrived",
                source.name,
                source.count
            );
            ensure!(
                source.sum == sum,
                "{}: the sum is {} instead of {sum}",
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
    writeln!(std::io::stdout(), "epoll_loop needs epoll, timerfd and eventfd, which only Linux has")
}
