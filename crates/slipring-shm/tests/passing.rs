//! Tests of producers of blocks, messages and copies that wait until stages have passed. The tests
//! of `deaths.rs` wait with producers that lend.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]

mod common;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use common::{Name, Role, listen, play, say, until, value, watched};
use slipring::errors::{PassError, WaitError};
use slipring_shm::{Builder, Contents, OnDeath, Segment, blocks::Blocks, messages::Messages};

#[test]
fn plays_a_role() {
    let _watched = watched();
    play(&[("blocks", role::<Blocks>), ("messages", role::<Messages>), ("copies", role::<u64>)]);
}

/// Takes the stage `PLACE`, and reads nothing.
fn role<C: Contents>() {
    let segment = Segment::<C>::open(value("NAME")).unwrap();
    // SAFETY: only this test knows the segment.
    let me = unsafe { segment.attach().unwrap() };
    let _reader = me.reader(&value("PLACE")).unwrap();
    say("taken");
    listen();
}

fn staged<C: Contents>(builder: Builder<C>) -> Segment<C> {
    let builder = builder.capacity(16).reader("first").on_death(OnDeath::Tell);
    builder.reader("last").after(["first"]).on_death(OnDeath::Tell).build().unwrap()
}

/// Polls a future to its end.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_millis(20)
}

/// Makes the tests for one kind of contents. `$publish` publishes, and returns the position.
/// `$read` handles and releases all that a stage has, and returns whether there was anything.
macro_rules! tests {
    (
        $kind:ident,
        $create:expr,
        $attach:expr,
        |$publisher:ident| $publish:expr,
        |$reader:ident| $read:expr
    ) => {
        mod $kind {
            use super::*;

            /// The calls return once the stage has read, and not before.
            #[test]
            fn stages_that_read_pass() {
                let _watched = watched();
                let (name, attach) = (Name::new(), $attach);
                let me = attach(&staged($create(&name)));
                let mut $publisher = me.producer().unwrap();
                let (mut first, mut last) = (me.reader("first").unwrap(), me.reader("last").unwrap());
                $publisher.flush().unwrap(); // nothing was published
                for round in 0..20 {
                    let seq: u64 = (0..3).map(|_| $publish).last().unwrap();
                    let tx = &mut $publisher;
                    let is_late = |result, of: &str| {
                        assert!(matches!(&result, Err(PassError::TimedOut(stage)) if &**stage == of));
                    };
                    is_late(tx.wait_for_by("first", seq, Instant::now()), "first");
                    is_late(tx.flush_by(soon()), "last");
                    let mut context = Context::from_waker(Waker::noop());
                    let pending = pin!(tx.wait_for_async("last", seq)).poll(&mut context);
                    assert!(pending.is_pending());
                    let $reader = &mut first;
                    until(|| $read);
                    std::thread::scope(|scope| {
                        scope.spawn(|| {
                            let $reader = &mut last;
                            until(|| $read);
                        });
                        tx.wait_for("first", seq).unwrap();
                        match round % 4 {
                            0 => tx.wait_for("last", seq).unwrap(),
                            1 => block_on(tx.wait_for_async("last", seq)).unwrap(),
                            2 => tx.flush().unwrap(),
                            _ => block_on(tx.flush_async()).unwrap(),
                        }
                    });
                    tx.wait_for_by("last", seq, Instant::now()).unwrap();
                    tx.flush_by(Instant::now()).unwrap();
                }
                let seq = $publish;
                let unknown = $publisher.wait_for("jornal", seq).unwrap_err();
                assert!(unknown.to_string().contains("`first`, `last`"), "{unknown}");
                let itself = $publisher.wait_for("first", seq + 64);
                assert!(matches!(itself, Err(PassError::Wait(WaitError::WaitsForItself(_)))));
            }

            /// A producer that waits hears of the death of the stage, and of a stage before it.
            #[test]
            fn a_waiting_producer_hears_of_a_death() {
                let _watched = watched();
                for (as_task, place) in [(false, "first"), (false, "last"), (true, "first")] {
                    let (name, attach) = (Name::new(), $attach);
                    let me = attach(&staged($create(&name)));
                    let mut $publisher = me.producer().unwrap();
                    let values = [("NAME", name.0.as_str()), ("PLACE", place)];
                    let mut victim = Role::start(stringify!($kind), &values);
                    assert_eq!(victim.hear(), "taken");
                    let pid = victim.pid();
                    let other = if place == "first" { "last" } else { "first" };
                    let mut other = me.reader(other).unwrap();
                    let seq: u64 = $publish;
                    let waits = std::thread::spawn(move || {
                        let result = match as_task {
                            true => block_on($publisher.flush_async()),
                            false => $publisher.wait_for("last", seq),
                        };
                        (result.unwrap_err(), $publisher)
                    });
                    if place == "last" {
                        let $reader = &mut other;
                        until(|| $read);
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    victim.kill();
                    let (error, mut $publisher) = waits.join().unwrap();
                    assert!(
                        matches!(&error, PassError::Wait(WaitError::PeerDead(dead))
                            if dead.pid == pid && &*dead.stage == place),
                        "{as_task}, {place}: {error:?}"
                    );
                    // A successor takes the place, and handles what is there.
                    let mut successor = me.reader(place).unwrap();
                    let $reader = &mut successor;
                    until(|| $read);
                    if place == "first" {
                        let $reader = &mut other;
                        until(|| $read);
                    }
                    $publisher.flush().unwrap();
                }
            }
        }
    };
}

/// Attaches, and lends events.
fn attach<C: Contents>(segment: &Segment<C>) -> slipring_shm::Attached<C> {
    // SAFETY: only this test knows the segment.
    unsafe { segment.attach().unwrap() }
}

tests!(
    blocks,
    |name: &Name| Segment::<Blocks>::create(&name.0).block(24, 8),
    attach::<Blocks>,
    |tx| tx.publish(|block| block.fill(7)).unwrap(),
    |rx| rx.poll(8, |_, _| ()).unwrap() != 0
);
tests!(
    messages,
    |name: &Name| Segment::<Messages>::create(&name.0).type_name("text", 1),
    attach::<Messages>,
    |tx| tx.publish(1, &[7; 100]).unwrap(),
    |rx| rx.poll(|_| ()).unwrap() != 0
);
tests!(
    copies,
    |name: &Name| Segment::<u64>::create(&name.0),
    |segment: &Segment<u64>| segment.attach_copies().unwrap(),
    |tx| tx.publish(&7).unwrap(),
    |rx| {
        let read = rx.try_read_batch(&mut [0; 8]).is_ok();
        rx.release();
        read
    }
);

/// A position behind the end of a closed ring is never published, and a halt ends a wait.
#[test]
fn a_ring_that_ends_ends_the_wait() {
    let _watched = watched();
    let names = [Name::new(), Name::new()];
    let [closed, halted] = [0, 1].map(|n| {
        let builder = Segment::<u64>::create(&names[n].0).producers(2);
        staged(builder).attach_copies().unwrap()
    });
    let mut one = closed.shared_producer().unwrap();
    let mut other = closed.shared_producer().unwrap();
    let seq = one.publish(&1).unwrap();
    one.close_all();
    let mut first = closed.reader("first").unwrap();
    assert_eq!(first.for_each(|_, _| ()).unwrap(), 1);
    other.wait_for("first", seq).unwrap();
    let beyond = other.wait_for("first", seq + 1);
    assert!(matches!(beyond, Err(PassError::NotPublished { end: 1, .. })), "{beyond:?}");

    let one = halted.shared_producer().unwrap();
    let mut other = halted.shared_producer().unwrap();
    other.publish(&1).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| other.flush());
        std::thread::sleep(Duration::from_millis(20));
        one.halt();
        let ended = waits.join().unwrap();
        assert!(matches!(ended, Err(PassError::Wait(WaitError::Halted))), "{ended:?}");
    });
}
