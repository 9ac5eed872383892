//! A bounded queue with one lock and two conditions, on virtual cores.
//!
//! The algorithm is that of `contenders/blocking_queue.rs`, on the simulator's lock and conditions.
//! The fields behind the lock are plain memory, whose accesses the queue reports itself.

use slipring_coherence::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use slipring_coherence::{label, own_lines, read, write};

/// A first-in-first-out queue of fixed capacity, for virtual threads.
pub struct LockedQueue {
    items: Mutex<Items>,
    not_empty: Condvar,
    not_full: Condvar,
}

/// The items, and the threads that wait.
struct Items {
    /// Circular array, with an item in each of the `len` places from `head` on.
    places: Box<[u64]>,
    head: usize,
    len: usize,
    is_closed: bool,
    /// Number of threads that wait for an item and that no thread has woken yet.
    takers: usize,
    /// Number of threads that wait for a free place and that no thread has woken yet.
    putters: usize,
}

impl LockedQueue {
    /// Makes an empty queue on cache lines of its own.
    pub fn new(capacity: usize) -> Box<LockedQueue> {
        let queue = own_lines(|| {
            let places = vec![0; capacity].into_boxed_slice();
            let items = Items { places, head: 0, len: 0, is_closed: false, takers: 0, putters: 0 };
            Box::new(LockedQueue {
                items: Mutex::new(items),
                not_empty: Condvar::new(),
                not_full: Condvar::new(),
            })
        });
        label(&*queue, "the queue's lock and conditions");
        queue
    }

    /// Waits for a free place, and appends an item. Returns `false` if the queue is closed.
    #[track_caller]
    pub fn put(&self, item: u64) -> bool {
        let mut items = self.lock();
        while items.len == items.places.len() && !items.is_closed {
            items.putters += 1;
            items = wait(&self.not_full, items);
        }
        if items.is_closed {
            return false;
        }
        items.append(item);
        let wakes = take_one(&mut items.takers);
        drop(items);
        if wakes {
            self.not_empty.notify_one();
        }
        true
    }

    /// Waits until there is an item, and removes the oldest one. Returns `None` if the queue is
    /// empty and closed.
    #[track_caller]
    pub fn take(&self) -> Option<u64> {
        let mut items = self.lock();
        while items.len == 0 && !items.is_closed {
            items.takers += 1;
            items = wait(&self.not_empty, items);
        }
        let item = items.remove()?;
        let wakes = take_one(&mut items.putters);
        drop(items);
        if wakes {
            self.not_full.notify_one();
        }
        Some(item)
    }

    /// Closes the queue: `take` returns `None` once it is empty. Wakes all waiting threads.
    pub fn close(&self) {
        let mut items = self.lock();
        items.is_closed = true;
        (items.takers, items.putters) = (0, 0);
        drop(items);
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }

    /// Locks the items, and reports that the thread reads and changes their fields.
    #[track_caller]
    fn lock(&self) -> MutexGuard<'_, Items> {
        let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        write((&raw const *items).cast(), size_of::<Items>());
        items
    }
}

impl Items {
    fn append(&mut self, item: u64) {
        let tail = (self.head + self.len) % self.places.len();
        write((&raw const self.places[tail]).cast(), size_of::<u64>());
        self.places[tail] = item;
        self.len += 1;
    }

    fn remove(&mut self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let item = &self.places[self.head];
        read((&raw const *item).cast(), size_of::<u64>());
        let item = *item;
        self.head = (self.head + 1) % self.places.len();
        self.len -= 1;
        Some(item)
    }
}

#[track_caller]
fn wait<'a>(condition: &Condvar, items: MutexGuard<'a, Items>) -> MutexGuard<'a, Items> {
    let items = condition.wait(items).unwrap_or_else(PoisonError::into_inner);
    write((&raw const *items).cast(), size_of::<Items>());
    items
}

/// Removes one waiting thread from the count. Returns `true` if there was one, so that the caller
/// wakes it.
fn take_one(waiting: &mut usize) -> bool {
    let any = *waiting > 0;
    *waiting -= usize::from(any);
    any
}

#[cfg(test)]
mod tests {
    use slipring_coherence::sync::scope;
    use slipring_coherence::{Machine, Simulation};

    use super::*;

    #[test]
    fn two_consumers_get_each_item_once() {
        let machine = Machine::server("1x3".parse().unwrap());
        let taken = std::cell::RefCell::new(Vec::new());
        let body = || {
            let queue = LockedQueue::new(2);
            let take_all = || std::iter::from_fn(|| queue.take()).collect::<Vec<u64>>();
            scope(|scope| {
                let consumers = [(); 2].map(|()| scope.spawn(take_all));
                (0..100).for_each(|item| assert!(queue.put(item)));
                queue.close();
                assert!(!queue.put(100));
                taken.replace(consumers.map(|consumer| consumer.join().unwrap()).to_vec());
            });
        };
        Simulation::new(&machine).thread("producer", body).run().unwrap();
        let taken = taken.into_inner();
        assert!(taken.iter().all(|own| own.is_sorted() && !own.is_empty()), "{taken:?}");
        let mut all = taken.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..100));
    }

    /// No thread puts an item or closes the queue.
    #[test]
    fn a_deadlock_names_the_conditions_and_their_places() {
        let machine = Machine::server("1x2".parse().unwrap());
        let body = || _ = LockedQueue::new(2).take();
        let error = Simulation::new(&machine).thread("consumer", body).run().unwrap_err();
        let error = format!("{:#}", anyhow::Error::from(error).context("blocking queue"));
        assert!(error.starts_with("blocking queue: deadlock: at "), "{error}");
        for part in ["`consumer` on core 0 waits for a condition", "simulated/queue.rs:"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
