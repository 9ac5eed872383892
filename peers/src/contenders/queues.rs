//! One producer and one consumer through queues and channels: each with its non-blocking calls and a spin hint between two tries, the
//! quickest way where every thread has a core of its own.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use ringbuf::traits::{Consumer as _, Producer as _, Split as _};

use super::{Both, Pair, both, ping_pong};
use crate::work::Event;

/// A bounded queue.
pub trait Queue<E: Event> {
    /// The sending end.
    type Tx: Send;
    /// The receiving end.
    type Rx: Send;
    /// A queue for so many events.
    fn new(capacity: usize) -> (Self::Tx, Self::Rx);
    /// Sends unless it is full.
    fn try_send(tx: &mut Self::Tx, event: E) -> bool;
    /// Receives what is there.
    fn try_receive(rx: &mut Self::Rx) -> Option<E>;
    /// Sends several; by the queue's own call for that, where it has one.
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        for number in first..first + len {
            send::<E, Self>(tx, E::make(number));
        }
    }
    /// Hands what is there to `f`, at most `most`; by the queue's own call for that, where it has one.
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, most: u64, mut f: impl FnMut(&E)) -> u64 {
        let mut had = 0;
        while had < most
            && let Some(event) = Self::try_receive(rx)
        {
            f(&event);
            had += 1;
        }
        had
    }
}

#[inline(always)]
fn send<E: Event, Q: Queue<E> + ?Sized>(tx: &mut Q::Tx, event: E) {
    while !Q::try_send(tx, event) {
        spin_loop();
    }
}

/// See [`Pair`].
pub fn stream<E: Event, Q: Queue<E>>(pair: Pair) -> f64 {
    let (mut tx, mut rx) = Q::new(pair.ring);
    let receive = move |events, check: &mut crate::work::Check| {
        let mut seen = 0;
        while seen < events {
            let had = Q::receive_batch(&mut rx, events - seen, |event| check.see(event));
            seen += had;
            if had == 0 {
                spin_loop();
            }
        }
    };
    if pair.batch == 1 {
        return both(pair, Both { send: move |number, _| send::<E, Q>(&mut tx, E::make(number)), close: || (), receive });
    }
    both(pair, Both { send: move |first, len| Q::send_batch(&mut tx, first, len), close: || (), receive })
}

/// There and back through two queues.
pub fn round_trip<Q: Queue<u64>>(rounds: usize) -> Vec<u64> {
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
            for _ in 0..rounds {
                let number = receive::<Q>(&mut rx);
                send::<u64, Q>(&mut tx_back, number);
            }
        },
        move |number| {
            let begin = Instant::now();
            send::<u64, Q>(&mut tx, number);
            let answer = receive::<Q>(&mut rx_back);
            (begin.elapsed(), answer)
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
}

/// [`Rtrb`], whose consumer takes what is there as a chunk: for batches only, because it costs a stream of single events more.
pub struct RtrbChunks;

impl<E: Event> Queue<E> for RtrbChunks {
    type Tx = rtrb::Producer<E>;
    type Rx = rtrb::Consumer<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        rtrb::RingBuffer::new(capacity)
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        <Rtrb as Queue<E>>::try_send(tx, event)
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        <Rtrb as Queue<E>>::try_receive(rx)
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        <Rtrb as Queue<E>>::send_batch(tx, first, len)
    }
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, most: u64, mut f: impl FnMut(&E)) -> u64 {
        let Ok(chunk) = rx.read_chunk(rx.slots().min(most as usize)) else { return 0 };
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
}

/// [`Ringbuf`], whose consumer takes what is there at once; see [`RtrbChunks`].
pub struct RingbufBatches;

impl<E: Event> Queue<E> for RingbufBatches {
    type Tx = ringbuf::HeapProd<E>;
    type Rx = ringbuf::HeapCons<E>;
    fn new(capacity: usize) -> (Self::Tx, Self::Rx) {
        <Ringbuf as Queue<E>>::new(capacity)
    }
    #[inline(always)]
    fn try_send(tx: &mut Self::Tx, event: E) -> bool {
        <Ringbuf as Queue<E>>::try_send(tx, event)
    }
    #[inline(always)]
    fn try_receive(rx: &mut Self::Rx) -> Option<E> {
        <Ringbuf as Queue<E>>::try_receive(rx)
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        <Ringbuf as Queue<E>>::send_batch(tx, first, len)
    }
    #[inline(always)]
    fn receive_batch(rx: &mut Self::Rx, most: u64, mut f: impl FnMut(&E)) -> u64 {
        let mut had = 0;
        for event in rx.pop_iter().take(most as usize) {
            f(&event);
            had += 1;
        }
        had
    }
}

/// A queue that is nothing but these two calls.
macro_rules! queue {
    ($(#[$doc:meta])* $name:ident, $tx:ty, $rx:ty, $new:expr, |$to:ident, $event:ident| $send:expr, |$from:ident| $receive:expr) => {
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
    Crossbeam, crossbeam_channel::Sender<E>, crossbeam_channel::Receiver<E>, crossbeam_channel::bounded,
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
    |tx, event| tx.try_send(event).expect("the channel is open"), |rx| rx.try_recv().expect("the channel is open")
);
queue!(
    /// The `crossfire` crate, its channel for one sender and one receiver.
    Crossfire, crossfire::Tx<crossfire::spsc::Array<E>>, crossfire::Rx<crossfire::spsc::Array<E>>, crossfire::spsc::bounded_blocking,
    |tx, event| tx.try_send(event).is_ok(), |rx| rx.try_recv().ok()
);
queue!(
    /// The `crossfire` crate, its channel for several senders and receivers.
    CrossfireShared, crossfire::MTx<crossfire::mpmc::Array<E>>, crossfire::MRx<crossfire::mpmc::Array<E>>, crossfire::mpmc::bounded_blocking,
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
