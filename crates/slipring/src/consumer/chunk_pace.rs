//! The lengths of a worker's chunks. A worker learns from the clock how many events of its pool it
//! handles in about [`CHUNK_TIME`].

use std::time::{Duration, Instant};

use crate::base::sync::now;

/// Target time for handling one chunk. Taking, timing and releasing a chunk takes about 200 ns,
/// which is less than two percent of the target. The target is short enough that the workers of a
/// pool finish a burst at about the same time.
const CHUNK_TIME: Duration = Duration::from_micros(16);
/// Largest length of a chunk, in events.
const MAX_CHUNK: u64 = 256;

/// The pace of one worker: the length of its next chunk, and the times of its last ones.
pub(crate) struct ChunkPace {
    /// Length of the next chunk, in events, as learned from earlier chunks.
    len: u64,
    /// Upper bound of `len`. All workers together hold at most half of the ring.
    longest: u64,
    /// Caller's limit on the length of a chunk, in events.
    limit: u64,
    /// Whether the worker reads the clock.
    timed: bool,
    /// Start time and length, in events, of the current chunk; `None` if the chunk is not timed.
    begun: Option<(Instant, u64)>,
    /// The clock's reading at the end of the last chunk, if the next chunk begins at that time.
    ended: Option<Instant>,
}

impl ChunkPace {
    /// Creates the pace of one of `workers` workers, in a ring of `capacity` slots. If `timed` is
    /// `false`, the worker reads no clock, and its chunks keep their length.
    pub(crate) fn new(capacity: u64, workers: u64, timed: bool) -> ChunkPace {
        ChunkPace {
            len: if cfg!(slipring_loom) { 2 } else { 1 }.min(capacity),
            longest: MAX_CHUNK.min(capacity / (2 * workers)).max(1),
            limit: u64::MAX,
            timed,
            begun: None,
            ended: None,
        }
    }

    /// Returns the length of the next chunk, in events, if that many are available.
    #[inline(always)]
    pub(crate) fn len(&self) -> u64 {
        self.len.min(self.limit).max(1)
    }

    /// Limits the length of the next chunks to `max` events.
    #[inline(always)]
    pub(crate) fn limit(&mut self, max: u64) {
        self.limit = max;
    }

    /// Starts the timing of a chunk of `len` events. If the chunk directly follows another one, the
    /// clock's reading at the end of that chunk serves as the start time.
    #[inline(always)]
    pub(crate) fn begin(&mut self, len: u64) {
        self.begun = self.timed.then(|| (self.ended.take().unwrap_or_else(now), len));
    }

    /// Notes that the next chunk does not begin at the end of the last one: the worker has found
    /// nothing, has lost time to another worker, or its thread has done other work.
    #[inline(always)]
    pub(crate) fn pause(&mut self) {
        self.ended = None;
    }

    /// Stops the timing of the current chunk, from whose time nothing can be learned.
    pub(crate) fn give_up(&mut self) {
        (self.begun, self.ended) = (None, None);
    }

    /// Ends a chunk, and adapts the length of the next one. Returns the clock's reading, if the
    /// chunk was timed.
    #[inline(always)]
    pub(crate) fn end(&mut self) -> Option<Instant> {
        self.begun.is_some().then(|| {
            let now = now();
            self.end_at(now);
            now
        })
    }

    fn end_at(&mut self, now: Instant) {
        self.ended = Some(now);
        if let Some((begun, len)) = self.begun.take() {
            let took = now.saturating_duration_since(begun);
            let nanos = (took.as_nanos() as u64 / len).max(1);
            let ideal = CHUNK_TIME.as_nanos() as u64 / nanos;
            // One chunk changes the length at most by a factor of two, because an interruption of
            // the thread may have lengthened the measured time.
            self.len = ideal.clamp(self.len.div_ceil(2), self.len * 2).clamp(1, self.longest);
        }
    }
}

#[cfg(all(test, not(slipring_loom)))]
mod tests {
    use super::*;

    const WORKERS: u64 = 2;

    /// Handles `chunks` chunks, each event of which takes `nanos` nanoseconds. Returns the lengths
    /// of the chunks.
    fn lengths(pace: &mut ChunkPace, chunks: usize, nanos: u64) -> Vec<u64> {
        let handle = |_| {
            let len = pace.len();
            pace.begin(len);
            let (begun, _) = pace.begun.expect("a timed chunk");
            pace.end_at(begun + Duration::from_nanos(len * nanos));
            len
        };
        (0..chunks).map(handle).collect()
    }

    #[test]
    fn chunks_grow_to_the_target_time() {
        let mut pace = ChunkPace::new(1 << 12, WORKERS, true);
        assert_eq!(lengths(&mut pace, 7, 1_000), [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(lengths(&mut pace, 6, 10), [16, 32, 64, 128, 256, 256], "at most 256");
        // Slower events shorten the chunks again, down to one event.
        assert_eq!(lengths(&mut pace, 5, 4_000), [256, 128, 64, 32, 16]);
        assert_eq!(lengths(&mut pace, 5, 1_000_000), [8, 4, 2, 1, 1]);
    }

    #[test]
    fn an_interruption_halves_the_length_once() {
        let mut pace = ChunkPace::new(1 << 12, WORKERS, true);
        lengths(&mut pace, 6, 1_000);
        assert_eq!(lengths(&mut pace, 1, 10_000_000), [16]);
        assert_eq!(lengths(&mut pace, 3, 1_000), [8, 16, 16]);
    }

    #[test]
    fn workers_share_half_of_a_small_ring() {
        let mut pace = ChunkPace::new(16, WORKERS, true);
        assert_eq!(lengths(&mut pace, 5, 1), [1, 2, 4, 4, 4]);
        let mut pace = ChunkPace::new(1, WORKERS, true);
        assert_eq!(lengths(&mut pace, 3, 1), [1, 1, 1]);
    }

    #[test]
    fn a_caller_limits_chunks() {
        let mut pace = ChunkPace::new(1 << 12, WORKERS, true);
        lengths(&mut pace, 6, 1_000);
        pace.limit(3);
        assert_eq!(pace.len(), 3);
        pace.limit(0);
        assert_eq!(pace.len(), 1);
    }

    #[test]
    fn a_chunk_begins_where_the_last_one_ended() {
        let mut pace = ChunkPace::new(1 << 12, WORKERS, true);
        let later = Instant::now() + Duration::from_secs(1);
        pace.begin(1);
        pace.end_at(later);
        pace.begin(1);
        assert_eq!(pace.begun, Some((later, 1)));
        pace.end_at(later);
        pace.pause();
        pace.begin(1);
        assert!(pace.begun < Some((later, 1)));
        pace.give_up();
        assert_eq!(pace.end(), None);
    }

    #[test]
    fn an_untimed_worker_reads_no_clock() {
        let mut pace = ChunkPace::new(1 << 12, WORKERS, false);
        pace.begin(1);
        assert_eq!((pace.begun, pace.end(), pace.len()), (None, None, 1));
    }
}
