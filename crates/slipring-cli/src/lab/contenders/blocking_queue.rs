//! A bounded blocking queue: a circular array, one lock, and two conditions.
//!
//! The queue is built like Java's `ArrayBlockingQueue`, the queue that publications usually compare
//! with rings. Each operation takes the one lock, moves one item, and wakes at most one waiting
//! thread. The queue has no batches and no atomics, and does not spin.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A first-in-first-out queue of fixed capacity, for any number of producers and consumers.
#[derive(Debug)]
pub struct BlockingQueue<T> {
    items: Mutex<Items<T>>,
    not_empty: Condvar,
    not_full: Condvar,
}

/// The items, and the threads that wait.
#[derive(Debug)]
struct Items<T> {
    /// Circular array, with an item in each of the `len` places from `head` on.
    places: Box<[Option<T>]>,
    head: usize,
    len: usize,
    is_closed: bool,
    /// Number of threads that wait for an item and that no thread has woken yet.
    takers: usize,
    /// Number of threads that wait for a free place and that no thread has woken yet.
    putters: usize,
}

impl<T> BlockingQueue<T> {
    /// Makes an empty queue.
    ///
    /// # Panics
    ///
    /// If the capacity is 0.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a queue needs a place");
        let items = Items {
            places: (0..capacity).map(|_| None).collect(),
            head: 0,
            len: 0,
            is_closed: false,
            takers: 0,
            putters: 0,
        };
        Self { items: Mutex::new(items), not_empty: Condvar::new(), not_full: Condvar::new() }
    }

    /// Waits for a free place, and appends an item. Gives the item back if the queue is closed.
    pub fn put(&self, item: T) -> Result<(), T> {
        let mut items = self.lock();
        while items.len == items.places.len() && !items.is_closed {
            items.putters += 1;
            items = wait(&self.not_full, items);
        }
        if items.is_closed {
            return Err(item);
        }
        items.append(item);
        let wakes = take_one(&mut items.takers);
        drop(items);
        // The wake comes after the unlock, so that the woken thread finds the lock free. In Java a
        // signal under the lock has the same effect: it moves the thread to the queue of the lock.
        if wakes {
            self.not_empty.notify_one();
        }
        Ok(())
    }

    /// Waits until there is an item, and removes the oldest one. Returns `None` if the queue is
    /// empty and closed.
    pub fn take(&self) -> Option<T> {
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

    /// Closes the queue: `put` fails from now on, and `take` fails once the queue is empty. Wakes
    /// all waiting threads.
    pub fn close(&self) {
        let mut items = self.lock();
        items.is_closed = true;
        (items.takers, items.putters) = (0, 0);
        drop(items);
        self.not_empty.notify_all();
        self.not_full.notify_all();
    }

    /// Locks the items. A panic cannot leave them inconsistent, because no user code runs under
    /// the lock.
    fn lock(&self) -> MutexGuard<'_, Items<T>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Items<T> {
    fn append(&mut self, item: T) {
        let tail = wrap(self.head + self.len, self.places.len());
        self.places[tail] = Some(item);
        self.len += 1;
    }

    fn remove(&mut self) -> Option<T> {
        let item = self.places[self.head].take()?;
        self.head = wrap(self.head + 1, self.places.len());
        self.len -= 1;
        Some(item)
    }
}

/// Returns the array index of a position, which must be below twice the capacity.
fn wrap(position: usize, capacity: usize) -> usize {
    if position < capacity { position } else { position - capacity }
}

fn wait<'a, T>(condition: &Condvar, items: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condition.wait(items).unwrap_or_else(PoisonError::into_inner)
}

/// Removes one waiting thread from the count. Returns `true` if there was one, so that the caller
/// wakes it.
///
/// If no thread waits, a signal costs nothing in Java, while the standard library's
/// `Condvar::notify_one` always makes a system call on Linux. The count avoids that call. After a
/// spurious wake the count is too high, so one call is made needlessly, but no wake is lost.
fn take_one(waiting: &mut usize) -> bool {
    let any = *waiting > 0;
    *waiting -= usize::from(any);
    any
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    /// Waits until `is_reached` accepts the queue's state. The state includes the numbers of
    /// waiting threads.
    fn await_waiters<T>(queue: &BlockingQueue<T>, is_reached: impl Fn(&Items<T>) -> bool) {
        let patience = Instant::now() + Duration::from_secs(60);
        while !is_reached(&queue.lock()) {
            assert!(Instant::now() < patience, "no thread waits");
            thread::yield_now();
        }
    }

    #[test]
    fn items_come_in_order_over_many_laps() {
        let queue = BlockingQueue::new(3);
        for lap in 0..10 {
            for item in 0..3 {
                assert_eq!(queue.put(10 * lap + item), Ok(()));
            }
            for item in 0..3 {
                assert_eq!(queue.take(), Some(10 * lap + item));
            }
            // This pair moves the place at which the next lap begins.
            assert_eq!((queue.put(-1), queue.take()), (Ok(()), Some(-1)));
        }
    }

    #[test]
    fn a_full_queue_makes_the_producer_wait() {
        let queue = BlockingQueue::new(2);
        assert_eq!((queue.put(0), queue.put(1)), (Ok(()), Ok(())));
        thread::scope(|scope| {
            let putting = scope.spawn(|| queue.put(2));
            await_waiters(&queue, |items| items.putters == 1);
            assert_eq!(queue.lock().len, 2);
            assert_eq!(queue.take(), Some(0));
            assert_eq!(putting.join().unwrap(), Ok(()));
        });
        assert_eq!((queue.take(), queue.take()), (Some(1), Some(2)));
    }

    #[test]
    fn an_empty_queue_makes_the_consumer_wait() {
        let queue = BlockingQueue::new(2);
        thread::scope(|scope| {
            let taking = scope.spawn(|| queue.take());
            await_waiters(&queue, |items| items.takers == 1);
            assert_eq!(queue.put(7), Ok(()));
            assert_eq!(taking.join().unwrap(), Some(7));
        });
    }

    #[test]
    fn close_wakes_all_consumers() {
        let queue = BlockingQueue::<u64>::new(2);
        thread::scope(|scope| {
            let taking = [(); 3].map(|()| scope.spawn(|| queue.take()));
            await_waiters(&queue, |items| items.takers == 3);
            queue.close();
            for taking in taking {
                assert_eq!(taking.join().unwrap(), None);
            }
        });
    }

    #[test]
    fn close_wakes_all_producers_and_what_was_put_before_is_taken() {
        let queue = BlockingQueue::new(1);
        assert_eq!(queue.put(0), Ok(()));
        thread::scope(|scope| {
            let queue = &queue;
            let putting = [1, 2, 3].map(|item| scope.spawn(move || (queue.put(item), item)));
            await_waiters(queue, |items| items.putters == 3);
            queue.close();
            for putting in putting {
                let (refused, item) = putting.join().unwrap();
                assert_eq!(refused, Err(item));
            }
        });
        assert_eq!((queue.take(), queue.take()), (Some(0), None));
    }

    #[test]
    fn several_producers_and_consumers_move_each_item_once_and_in_its_producers_order() {
        const EACH: u64 = 2_000;
        let queue = BlockingQueue::new(4);
        let taken: Vec<Vec<(u64, u64)>> = thread::scope(|scope| {
            let queue = &queue;
            let taking = [(); 3].map(|()| {
                scope.spawn(move || std::iter::from_fn(|| queue.take()).collect::<Vec<_>>())
            });
            let putting = [0, 1, 2].map(|producer| {
                scope.spawn(move || {
                    (0..EACH).for_each(|number| assert_eq!(queue.put((producer, number)), Ok(())));
                })
            });
            for putting in putting {
                putting.join().unwrap();
            }
            queue.close();
            taking.map(|taking| taking.join().unwrap()).into()
        });
        for producer in 0..3 {
            for seen in &taken {
                let own: Vec<_> = seen.iter().filter(|item| item.0 == producer).collect();
                assert!(own.is_sorted(), "producer {producer} was overtaken by itself");
            }
        }
        let mut all: Vec<_> = taken.concat();
        all.sort_unstable();
        let put: Vec<_> = (0..3).flat_map(|of| (0..EACH).map(move |number| (of, number))).collect();
        assert_eq!(all, put);
    }
}
