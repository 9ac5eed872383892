//! Queues as the edges of a graph: a sending half for producers, a receiving half for one consumer.
//!
//! If one half is dropped, the other half ends, too: once the receiver is dropped, each send fails;
//! once all senders are dropped, a receive fails as soon as the queue is empty. So if a thread
//! fails, its neighbours end as well, and no thread waits for one that has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};

use super::blocking_queue::BlockingQueue;

/// A kind of bounded queue.
pub trait Queue {
    type Sender<T: Send>: Send + Clone + Sender<T>;
    type Receiver<T: Send>: Send + Receive<T>;

    /// Makes an empty queue.
    fn bounded<T: Send>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>);
}

/// The sending half of a queue.
pub trait Sender<T> {
    /// Waits for a free place, and appends an item. It is an error if the receiver is gone.
    fn send(&self, item: T) -> Result<(), Disconnected>;
}

/// The receiving half of a queue.
pub trait Receive<T> {
    /// Waits until there is an item, and removes the oldest one. Returns `None` if the queue is
    /// empty and all senders are gone.
    fn receive(&self) -> Option<T>;
}

/// The error of a sender whose receiver is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disconnected;

/// The kind of [`BlockingQueue`].
#[derive(Debug)]
pub enum Blocking {}

impl Queue for Blocking {
    type Sender<T: Send> = BlockingSender<T>;
    type Receiver<T: Send> = BlockingReceiver<T>;

    fn bounded<T: Send>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        let queue = Arc::new(BlockingQueue::new(capacity));
        let senders = Arc::new(AtomicUsize::new(1));
        (BlockingSender { queue: queue.clone(), senders }, BlockingReceiver(queue))
    }
}

/// The sending half of a [`BlockingQueue`]. Dropping the last clone closes the queue.
#[derive(Debug)]
pub struct BlockingSender<T> {
    queue: Arc<BlockingQueue<T>>,
    /// Number of clones.
    senders: Arc<AtomicUsize>,
}

impl<T> Sender<T> for BlockingSender<T> {
    fn send(&self, item: T) -> Result<(), Disconnected> {
        self.queue.put(item).map_err(|_| Disconnected)
    }
}

impl<T> Clone for BlockingSender<T> {
    fn clone(&self) -> Self {
        self.senders.fetch_add(1, Ordering::Relaxed);
        Self { queue: self.queue.clone(), senders: self.senders.clone() }
    }
}

impl<T> Drop for BlockingSender<T> {
    fn drop(&mut self) {
        // The queue's lock orders the items. The count serves only to find the last clone.
        if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.queue.close();
        }
    }
}

/// The receiving half of a [`BlockingQueue`]. Its drop closes the queue.
#[derive(Debug)]
pub struct BlockingReceiver<T>(Arc<BlockingQueue<T>>);

impl<T> Receive<T> for BlockingReceiver<T> {
    fn receive(&self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for BlockingReceiver<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The kind of the standard library's bounded channel.
#[derive(Debug)]
pub enum StdChannel {}

impl Queue for StdChannel {
    type Sender<T: Send> = SyncSender<T>;
    type Receiver<T: Send> = Receiver<T>;

    fn bounded<T: Send>(capacity: usize) -> (Self::Sender<T>, Self::Receiver<T>) {
        mpsc::sync_channel(capacity)
    }
}

impl<T> Sender<T> for SyncSender<T> {
    fn send(&self, item: T) -> Result<(), Disconnected> {
        SyncSender::send(self, item).map_err(|_| Disconnected)
    }
}

impl<T> Receive<T> for Receiver<T> {
    fn receive(&self) -> Option<T> {
        self.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn both_ends_end_each_other<Q: Queue>() {
        let (tx, rx) = Q::bounded(2);
        let other = tx.clone();
        assert_eq!((tx.send(1), other.send(2)), (Ok(()), Ok(())));
        drop(tx);
        thread::scope(|scope| {
            let sending = scope.spawn(move || other.send(3));
            assert_eq!([1, 2, 3].map(Some), [(); 3].map(|()| rx.receive()));
            assert_eq!(sending.join().unwrap(), Ok(()));
        });
        assert_eq!(rx.receive(), None, "all senders are gone");
        let (tx, rx) = Q::bounded(1);
        assert_eq!(tx.send(1), Ok(()));
        thread::scope(|scope| {
            // The queue is full, so the send waits until the receiver is dropped, and then fails.
            let sending = scope.spawn(move || tx.send(2));
            drop(rx);
            assert_eq!(sending.join().unwrap(), Err(Disconnected));
        });
    }

    #[test]
    fn the_last_sender_ends_the_receiver_and_the_receiver_ends_all_senders() {
        both_ends_end_each_other::<Blocking>();
        both_ends_end_each_other::<StdChannel>();
    }
}
