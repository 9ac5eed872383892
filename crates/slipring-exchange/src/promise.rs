//! Turns passed by promises: each promise is fulfilled once, and wakes the end that waits for it.
//!
//! The paper uses promises of C++. Here, one way uses promises of the crate `oneshot`, and another
//! way uses slipring's promises. Both make one new promise for each turn.

use std::io;
use std::time::Instant;

use crate::block::Turn;
use crate::ends::{PATIENCE, impatient};

/// The two halves of a promise whose value is the promise of the next turn.
pub trait Halves: Sized + Send {
    /// The half that fulfils the promise.
    type Own: Send;
    /// Makes a promise and returns its two halves: the one that waits and the one that fulfils.
    fn new() -> (Self, Self::Own);
    /// Fulfils a promise with the promise of the next turn. If the other end is gone, nothing waits
    /// for the promise; that is no error.
    fn keep(own: Self::Own, next: Self);
    /// Waits for the promise, at most until the deadline.
    fn wait(&mut self, deadline: Instant) -> Option<Self>;
}

/// A promise of the crate `oneshot`.
pub struct Oneshot(oneshot::Receiver<Oneshot>);

impl Halves for Oneshot {
    type Own = oneshot::Sender<Oneshot>;

    fn new() -> (Oneshot, Self::Own) {
        let (own, awaited) = oneshot::channel();
        (Oneshot(awaited), own)
    }

    fn keep(own: Self::Own, next: Oneshot) {
        let _ = own.send(next);
    }

    fn wait(&mut self, deadline: Instant) -> Option<Oneshot> {
        self.0.recv_deadline(deadline).ok()
    }
}

/// A promise of slipring.
pub struct Slipring(slipring::Awaited<Slipring>);

impl Halves for Slipring {
    type Own = slipring::Promise<Slipring>;

    fn new() -> (Slipring, Self::Own) {
        let (own, awaited) = slipring::promise();
        (Slipring(awaited), own)
    }

    fn keep(own: Self::Own, next: Slipring) {
        let _ = own.fulfil(next);
    }

    fn wait(&mut self, deadline: Instant) -> Option<Slipring> {
        self.0.wait_until(deadline).ok()
    }
}

/// One end's turns.
pub struct Promises<H: Halves> {
    awaited: H,
    own: Option<H::Own>,
}

/// Creates the turns of both ends. The writer has the first turn.
pub fn promises<H: Halves>() -> io::Result<(Promises<H>, Promises<H>)> {
    let ((freed, free), (filled, full)) = (H::new(), H::new());
    let mut reader = Promises { awaited: filled, own: Some(free) };
    // The first block is free.
    reader.pass()?;
    Ok((Promises { awaited: freed, own: Some(full) }, reader))
}

impl<H: Halves> Turn for Promises<H> {
    fn take(&mut self) -> io::Result<()> {
        let next = self.awaited.wait(Instant::now() + PATIENCE);
        self.awaited = next.ok_or_else(impatient)?;
        Ok(())
    }

    fn pass(&mut self) -> io::Result<()> {
        let (awaited, next) = H::new();
        let own = self.own.replace(next).ok_or_else(impatient)?;
        H::keep(own, awaited);
        Ok(())
    }
}
