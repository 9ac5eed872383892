//! One producer and one consumer through queues and channels. Each is used through its non-blocking
//! calls, with a spin hint between two tries, because that is fastest if every thread has a core.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::mpsc;

use ringbuf::traits::{Consumer as _, Producer as _, Split as _};

use super::{Rounds, Sides, StreamSpec, ping_pong, run_stream};
use crate::work::{Check, Event};

/// A bounded queue.
pub trait Queue<E: Event> {
    /// The sending end.
    type Tx: Send;
    /// The receiving end.
    type Rx: Send;
    /// Makes a queue for `capacity` events.
    fn new(capacity: usize) -> (Self::Tx, Self::Rx);
    /// Sends an event, unless the queue is full.
    fn try_send(tx: &mut Self::Tx, event: E) -> bool;
    /// Receives an event, unless the queue is empty.
    fn try_receive(rx: &mut Self::Rx) -> Option<E>;
    /// Sends `len` events, numbered from `first`, through the queue's own batch call if it has one.
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        for number in first..first + len {
            send::<E, Self>(tx, E::make(number));
        }
    }
    /// Receives available events that were sent one by one, at most `max`, and calls `f` with each.
    /// Receives them one by one, too, unless a batch call is faster. Returns the number of events.
    #[inline(always)]
    fn receive_single(rx: &mut Self::Rx, max: u64, f: impl FnMut(&E)) -> u64 {
        receive_each::<E, Self>(rx, max, f)
    }
    /// Receives available events, at most `max`, and calls `f` with each. Uses the queue's own
    /// batch call if it has one. Returns the number of events.
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, max: u64, f: impl FnMut(&E)) -> u64 {
        receive_each::<E, Self>(rx, max, f)
    }
}

/// Receives available events one by one, at most `max`, and calls `f` with each. Returns the number
/// of events.
#[inline(always)]
pub fn receive_each<E: Event, Q: Queue<E> + ?Sized>(
    rx: &mut Q::Rx,
    max: u64,
    mut f: impl FnMut(&E),
) -> u64 {
    let mut had = 0;
    while had < max
        && let Some(event) = Q::try_receive(rx)
    {
        f(&event);
        had += 1;
    }
    had
}

/// Sends an event, and spins while the queue is full.
#[inline(always)]
pub fn send<E: Event, Q: Queue<E> + ?Sized>(tx: &mut Q::Tx, event: E) {
    while !Q::try_send(tx, event) {
        spin_loop();
    }
}

/// Measures a stream. Most queues' batch calls are used only for batches, because they are slower
/// for single events.
pub fn stream<E: Event, Q: Queue<E>>(spec: StreamSpec) -> f64 {
    let (mut tx, mut rx) = Q::new(spec.ring);
    if spec.batch == 1 {
        let send = move |number, _| send::<E, Q>(&mut tx, E::make(number));
        let receive = move |events, check: &mut Check| {
            drain(events, |max| Q::receive_single(&mut rx, max, |event| check.see(event)))
        };
        return run_stream(spec, Sides { send, close: || (), receive });
    }
    let send = move |first, len| Q::send_batch(&mut tx, first, len);
    let receive = move |events, check: &mut Check| {
        drain(events, |max| Q::receive_batch(&mut rx, max, |event| check.see(event)))
    };
    run_stream(spec, Sides { send, close: || (), receive })
}

/// Receives `events` events, and spins while the queue is empty.
#[inline(always)]
pub fn drain(events: u64, mut receive: impl FnMut(u64) -> u64) {
    let mut seen = 0;
    while seen < events {
        let had = receive(events - seen);
        seen += had;
        if had == 0 {
            spin_loop();
        }
    }
}

/// Measures round trips through two queues.
pub fn round_trip<Q: Queue<u64>>(rounds: Rounds) -> Vec<u64> {
    let ((mut tx, mut rx), (mut tx_back, mut rx_back)) = (Q::new(1024), Q::new(1024));
    fn receive<Q: Queue<u64>>(rx: &mut Q::Rx) -> u64 {
        loop {
            match Q::try_receive(rx) {
                Some(event) => return event,
                None => spin_loop(),
            }
        }
    }
    ping_pong(
        rounds,
        move || {
            for _ in 0..rounds.count {
                let number = receive::<Q>(&mut rx);
                send::<u64, Q>(&mut tx_back, number);
            }
        },
        move |number| {
            send::<u64, Q>(&mut tx, number);
            receive::<Q>(&mut rx_back)
        },
    )
}

/// The `rtrb` crate.
pub struct Rtrb;

impl<E: Event> Queue<E> for Rtrb {
    type Tx = rtrb::Producer<E>;
    type Rx = rtrb::Consumer<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        rtrb::RingBuffer::new(capacity)
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        tx.push(event).is_ok()
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        rx.pop().ok()
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        loop {
            if let Ok(chunk) = tx.write_chunk_uninit(len as usize) {
                chunk.fill_from_iter((first..first + len).map(E::make));
                return;
            }
            spin_loop();
        }
    }
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, max: u64, mut f: impl FnMut(&E)) -> u64 {
        let Ok(chunk) = rx.read_chunk(rx.slots().min(max as usize)) else { return 0 };
        let (one, two) = chunk.as_slices();
        one.iter().chain(two).for_each(&mut f);
        let had = chunk.len() as u64;
        chunk.commit_all();
        had
    }
}

/// The `ringbuf` crate.
pub struct Ringbuf;

impl<E: Event> Queue<E> for Ringbuf {
    type Tx = ringbuf::HeapProd<E>;
    type Rx = ringbuf::HeapCons<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        ringbuf::HeapRb::new(capacity).split()
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        tx.try_push(event).is_ok()
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        rx.try_pop()
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, mut first: u64, len: u64) {
        let end = first + len;
        while first < end {
            let sent = tx.push_iter((first..end).map(E::make)) as u64;
            first += sent;
            if sent == 0 {
                spin_loop();
            }
        }
    }
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, max: u64, mut f: impl FnMut(&E)) -> u64 {
        let mut had = 0;
        for event in rx.pop_iter().take(max as usize) {
            f(&event);
            had += 1;
        }
        had
    }
}

/// The `yring` crate, whose ends touch shared words once for each batch. The consumer of batches
/// moves them to a vector, in portions as large as those of the crate's documentation.
pub struct Yring;

/// Number of events that the `yring` crate's consumer moves to its vector at once.
const YRING_PORTION: usize = 64;

impl<E: Event> Queue<E> for Yring {
    type Tx = yring::Producer<E>;
    type Rx = (yring::Consumer<E>, Vec<E>);
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        let (tx, rx) = yring::spsc(capacity);
        (tx, (rx, Vec::with_capacity(YRING_PORTION)))
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        tx.push_and_flush(event).is_ok()
    }
    #[inline(always)]
    fn try_receive((rx, _): &mut Self::Rx) -> Option<E> {
        rx.prefetch_and_pop()
    }
    #[inline(always)]
    fn receive_single((rx, _): &mut Self::Rx, max: u64, mut f: impl FnMut(&E)) -> u64 {
        // All events that are visible, and then one release, as in the crate's own benchmark.
        rx.prefetch();
        let mut had = 0;
        while had < max
            && let Some(event) = rx.pop()
        {
            f(&event);
            had += 1;
        }
        rx.release();
        had
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        for number in first..first + len {
            while tx.push(E::make(number)).is_err() {
                // The consumer frees no slot before it sees the events in the slots.
                tx.flush();
                spin_loop();
            }
        }
        tx.flush();
    }
    #[inline(always)]
    fn receive_batch((rx, events): &mut Self::Rx, max: u64, f: impl FnMut(&E)) -> u64 {
        rx.prefetch();
        events.clear();
        rx.pop_into(events, YRING_PORTION.min(max as usize));
        events.iter().for_each(f);
        // The slots are released behind the handler, as those of the other queues are, so that no
        // queue holds more events than the others.
        rx.release();
        events.len() as u64
    }
}

/// Implements a queue without batch calls.
macro_rules! queue {
    (
        $(#[$doc:meta])* $name:ident, $tx:ty, $rx:ty, $new:expr,
        |$to:ident, $event:ident| $send:expr, |$from:ident| $receive:expr
    ) => {
        $(#[$doc])*
        pub struct $name;
        impl<E: Event> Queue<E> for $name {
            type Tx = $tx;
            type Rx = $rx;
            fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
                #[allow(clippy::redundant_closure_call)]
                $new(capacity)
            }
            #[inline(always)]
            fn try_send($to: &mut Self::Tx, $event: E) -> bool {
                $send
            }
            #[inline(always)]
            fn try_receive($from: &mut Self::Rx) -> Option<E> {
                $receive
            }
        }
    };
}

queue!(
    /// The `crossbeam-channel` crate.
    Crossbeam, crossbeam_channel::Sender<E>, crossbeam_channel::Receiver<E>,
    crossbeam_channel::bounded,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The array queue of the `crossbeam-queue` crate.
    Array, Arc<crossbeam_queue::ArrayQueue<E>>, Arc<crossbeam_queue::ArrayQueue<E>>,
    |capacity| {
        let queue = Arc::new(crossbeam_queue::ArrayQueue::new(capacity));
        (queue.clone(), queue)
    },
    |tx, event| tx.push(event).is_ok(), |rx| rx.pop()
);
queue!(
    /// The `kanal` crate.
    Kanal, kanal::Sender<E>, kanal::Receiver<E>, kanal::bounded,
    |tx, event| tx.try_send(event).expect("the channel is open"),
    |rx| rx.try_recv().expect("the channel is open")
);
queue!(
    /// The `crossfire` crate's channel for one sender and one receiver.
    Crossfire, crossfire::Tx<crossfire::spsc::Array<E>>, crossfire::Rx<crossfire::spsc::Array<E>>,
    crossfire::spsc::bounded_blocking,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The `crossfire` crate's channel for several senders and several receivers.
    CrossfireShared,
    crossfire::MTx<crossfire::mpmc::Array<E>>, crossfire::MRx<crossfire::mpmc::Array<E>>,
    crossfire::mpmc::bounded_blocking,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The `crossfire` crate's channel for several senders and one receiver.
    CrossfireMany,
    crossfire::MTx<crossfire::mpsc::Array<E>>, crossfire::Rx<crossfire::mpsc::Array<E>>,
    crossfire::mpsc::bounded_blocking,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The `omango` crate's queue for one sender and one receiver. See
    /// [`rejected`](super::rejected) for events that own memory.
    Omango, omango::queue::spsc::BSender<E>, omango::queue::spsc::BReceiver<E>,
    |capacity| omango::queue::spsc::bounded(capacity as u32),
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The `omango` crate's queue for several senders and several receivers.
    OmangoMany, omango::queue::mpmc::BSender<E>, omango::queue::mpmc::BReceiver<E>,
    |capacity| omango::queue::mpmc::bounded(capacity as u32),
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The `flume` crate.
    Flume, flume::Sender<E>, flume::Receiver<E>, flume::bounded,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The standard library's bounded channel.
    Std, mpsc::SyncSender<E>, mpsc::Receiver<E>, mpsc::sync_channel,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);

/// A queue with blocking calls.
pub trait Blocking: Queue<u64> {
    /// Sends an event; blocks while the queue is full.
    fn send(tx: &mut Self::Tx, event: u64);
    /// Receives an event; blocks while the queue is empty. Returns `None` once the last sender is
    /// dropped and the queue is empty.
    fn receive(rx: &mut Self::Rx) -> Option<u64>;
}

/// Implements [`Blocking`] for channels, all of which call these functions `send` and `recv`.
macro_rules! blocking {
    ($($queue:ident),*) => {$(
        impl Blocking for $queue {
            #[inline(always)]
            fn send(tx: &mut Self::Tx, event: u64) {
                tx.send(event).expect("the receiver is open");
            }
            #[inline(always)]
            fn receive(rx: &mut Self::Rx) -> Option<u64> {
                rx.recv().ok()
            }
        }
    )*};
}

blocking!(Crossbeam, Kanal, CrossfireMany, CrossfireShared, Flume, Std);
