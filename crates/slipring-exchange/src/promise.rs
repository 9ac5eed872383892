//! Turns by promises: each is kept once, and wakes the end that waits for it.

use std::io;

use oneshot::{Receiver, Sender, channel};

use crate::block::Turn;
use crate::{PATIENCE, impatient};

/// A kept promise brings the one that is kept next.
struct Kept(Receiver<Kept>);

/// One end's turns.
pub struct Promises {
    awaited: Receiver<Kept>,
    own: Option<Sender<Kept>>,
}

/// Makes the turns of the writer, which has the first turn, and of the reader.
pub fn promises() -> io::Result<(Promises, Promises)> {
    let ((free, freed), (full, filled)) = (channel(), channel());
    let mut reader = Promises { awaited: filled, own: Some(free) };
    // The first block is free.
    reader.pass()?;
    Ok((Promises { awaited: freed, own: Some(full) }, reader))
}

impl Turn for Promises {
    fn take(&mut self) -> io::Result<()> {
        let Ok(Kept(next)) = self.awaited.recv_timeout(PATIENCE) else { return Err(impatient()) };
        self.awaited = next;
        Ok(())
    }

    fn pass(&mut self) -> io::Result<()> {
        let (sender, receiver) = channel();
        let Some(own) = self.own.replace(sender) else { return Err(impatient()) };
        // An end that has gone awaits nothing.
        let _ = own.send(Kept(receiver));
        Ok(())
    }
}
