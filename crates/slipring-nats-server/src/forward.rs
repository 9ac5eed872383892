//! The threads of a proxied connection: for each direction a reader and a writer, with a queue
//! between them.
//!
//! Sockets are read and written without the lock of the [`SharedState`]. A cut removes the
//! connection from [`State::open`] and shuts down its sockets, which ends every read and write. The
//! threads of the connection end when they no longer find it in [`State::open`].

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Instant,
};

use crate::{
    proxy_state::{DirectionState, SharedState, State},
    traffic::Direction,
};

/// Bytes of one read.
const CHUNK: usize = 64 * 1024;
/// Queue length, in bytes, above which the reader that fills the queue waits.
const QUEUE: u64 = 4 << 20;
/// The same limit while the direction is held, in bytes.
const HELD: u64 = 256 << 20;

/// Starts the threads of a connection.
pub(crate) fn forward(
    id: u64,
    client: &Arc<TcpStream>,
    server: &Arc<TcpStream>,
    shared: &Arc<SharedState>,
) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for direction in Direction::BOTH {
        let (source, sink) = match direction {
            Direction::ToServer => (client.clone(), server.clone()),
            Direction::ToClient => (server.clone(), client.clone()),
        };
        let (reader, writer) = (shared.clone(), shared.clone());
        let read = move || read(&reader, id, direction, &source);
        let write = move || write(&writer, id, direction, &sink);
        threads.push(thread::Builder::new().name("proxy-read".to_owned()).spawn(read)?);
        threads.push(thread::Builder::new().name("proxy-write".to_owned()).spawn(write)?);
    }
    Ok(threads)
}

/// Reads into the queue until the sender closes the connection or the proxy cuts it.
fn read(shared: &SharedState, id: u64, direction: Direction, mut source: &TcpStream) {
    let mut buffer = vec![0; CHUNK];
    let index = direction.index();
    loop {
        let mut state = shared.state();
        loop {
            let limit = if state.directions[index].hold { HELD } else { QUEUE };
            match state.open.get(&id) {
                None => return,
                Some(open) if open.queues[index].bytes < limit => break,
                Some(_) => state = shared.wait(state, None),
            }
        }
        drop(state);
        let read = source.read(&mut buffer);
        let mut state = shared.state();
        let State { directions, open, .. } = &mut *state;
        let Some(queue) = open.get_mut(&id).map(|open| &mut open.queues[index]) else { return };
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => {
                queue.ended = true;
                shared.changed.notify_all();
                return;
            }
            Ok(length) if directions[index].swallow => directions[index].swallowed += length as u64,
            Ok(_) if queue.broken => {}
            Ok(length) => {
                queue.chunks.push_back((Instant::now(), buffer[..length].to_vec()));
                queue.bytes += length as u64;
            }
        }
        shared.changed.notify_all();
    }
}

/// A writer's next step.
enum Next {
    /// Write the first `passing` bytes. If `cut`, all connections are cut afterwards.
    Chunk { bytes: Vec<u8>, passing: usize, cut: bool },
    /// Forward the end.
    End,
    /// End, because the connection was cut.
    Cut,
}

/// Writes from the queue until the sender's end is forwarded, or the proxy cuts the connection.
fn write(shared: &SharedState, id: u64, direction: Direction, mut sink: &TcpStream) {
    let index = direction.index();
    loop {
        match next(shared, id, index) {
            Next::Cut => return,
            Next::End => {
                let _ = sink.shutdown(Shutdown::Write);
                let mut state = shared.state();
                if let Some(open) = state.open.get_mut(&id) {
                    open.queues[index].done = true;
                    if open.queues.iter().all(|queue| queue.done) {
                        state.open.remove(&id);
                    }
                }
                shared.changed.notify_all();
                return;
            }
            Next::Chunk { bytes, passing, cut } => {
                let written = sink.write_all(&bytes[..passing]);
                let mut state = shared.state();
                if written.is_ok() {
                    state.directions[index].passed += passing as u64;
                }
                if cut {
                    state.cut();
                } else if written.is_err() && direction == Direction::ToServer {
                    state.close(id);
                } else if let Some(open) = state.open.get_mut(&id) {
                    let queue = &mut open.queues[index];
                    queue.bytes -= bytes.len() as u64;
                    if written.is_err() {
                        // The client is gone. The server's side stays open, because bytes that the
                        // client has sent before may still be held.
                        (queue.broken, queue.bytes) = (true, 0);
                        queue.chunks.clear();
                    }
                }
                shared.changed.notify_all();
            }
        }
    }
}

/// Waits for a writer's next step.
fn next(shared: &SharedState, id: u64, index: usize) -> Next {
    let mut state = shared.state();
    loop {
        let State { directions, open, delay, .. } = &mut *state;
        let Some(queue) = open.get_mut(&id).map(|open| &mut open.queues[index]) else {
            return Next::Cut;
        };
        let faults = &mut directions[index];
        let mut limit = None;
        if !faults.hold {
            match queue.chunks.pop_front() {
                None if queue.ended => return Next::End,
                None => {}
                Some((arrived, bytes)) => {
                    let left = delay.saturating_sub(arrived.elapsed());
                    if left.is_zero() {
                        let (passing, cut) = passing(faults, bytes.len());
                        return Next::Chunk { bytes, passing, cut };
                    }
                    queue.chunks.push_front((arrived, bytes));
                    limit = Some(left);
                }
            }
        }
        state = shared.wait(state, limit);
    }
}

/// Returns how many of `length` bytes may pass, and whether all connections are cut after these
/// bytes have passed.
fn passing(faults: &mut DirectionState, length: usize) -> (usize, bool) {
    let Some(left) = faults.cut_after else { return (length, false) };
    let passing = usize::try_from(left).unwrap_or(usize::MAX).min(length);
    let left = left - passing as u64;
    faults.cut_after = (left > 0).then_some(left);
    (passing, left == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_comes_once_behind_its_bytes() {
        let mut faults = DirectionState { cut_after: Some(10), ..DirectionState::default() };
        assert_eq!(passing(&mut faults, 4), (4, false));
        assert_eq!(passing(&mut faults, 7), (6, true));
        assert_eq!(passing(&mut faults, 7), (7, false));
        faults.cut_after = Some(0);
        assert_eq!(passing(&mut faults, 7), (0, true));
        faults.cut_after = Some(3);
        assert_eq!(passing(&mut faults, 3), (3, true), "it does not wait for a further byte");
    }
}
