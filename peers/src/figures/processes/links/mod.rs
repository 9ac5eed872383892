//! The links: how events get from one process to another.

pub mod iceoryx;
pub mod kernel;
pub mod ours;
mod raw;

use super::ends::{Ends, Kilobyte, Megabyte};

/// Returns the functions of the link `name` for events of `bytes` bytes.
pub fn ends(name: &str, bytes: usize) -> Option<Ends> {
    /// Lists links that carry events of every size, and links that carry only words.
    macro_rules! table {
        ($($all:literal: $link:ident;)* words: $($words:literal: $of_words:ty;)*) => {
            match (name, bytes) {
                $(($all, 8) => Ends::of::<u64, $link>(),
                ($all, 1024) => Ends::of::<Kilobyte, $link>(),
                ($all, 1_048_576) => Ends::of::<Megabyte, $link>(),)*
                $(($words, 8) => Ends::of::<u64, $of_words>(),)*
                _ => return None,
            }
        };
    }
    use iceoryx::{Notified, Samples, Slices};
    use kernel::{Pipe, Socket};
    use ours::{Heap, Spinning};
    use raw::{Futex, Ring, Word};
    Some(table! {
        "slipring": Spinning;
        "heap": Heap;
        "ring": Ring;
        "iceoryx2": Samples;
        "pipe": Pipe;
        "socket": Socket;
        words:
        "slipring blocking": ours::Blocking;
        "polling": ours::Polling;
        "polling on the heap": ours::PollingOnHeap;
        "several": ours::Several;
        "several on the heap": ours::SeveralOnHeap;
        "word": Word;
        "futex": Futex;
        "iceoryx2 slices": Slices;
        "iceoryx2 notified": Notified;
    })
}
