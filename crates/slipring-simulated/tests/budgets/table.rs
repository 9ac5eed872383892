//! The table of budgets: for each row the range of transfers, read-modify-writes and fences that an
//! event may cost.
//!
//! A row is replaced by what a run prints; see `main.rs`.

use crate::measure::{Draining, Filling, Paced, Row, check, row};
use crate::shapes::Shape::{self, *};

pub const ROWS: &[Row] = &[
    // One producer: publications one by one, in batches, contiguous.
    row(Readers(1), Paced, "1x2", [2.00, 2.02], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(1), Draining, "1x2", [0.52, 0.54], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(1), Filling, "1x2", [0.49, 0.52], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(1), Paced, "4x16", [2.00, 2.02], [0.00, 0.01], [0.00, 0.01]),
    row(Spinning(1), Paced, "1x2", [2.00, 2.02], [0.00, 0.01], [0.00, 0.01]),
    row(Spinning(1), Draining, "1x2", [0.52, 0.54], [0.00, 0.01], [0.00, 0.01]),
    row(Spinning(1), Filling, "1x2", [0.49, 0.52], [0.00, 0.01], [0.00, 0.01]),
    row(Batches(16), Paced, "1x2", [0.50, 0.52], [0.00, 0.01], [0.12, 0.13]),
    row(Batches(16), Draining, "1x2", [0.52, 0.54], [0.00, 0.01], [0.07, 0.09]),
    row(Batches(16), Filling, "1x2", [0.48, 0.56], [0.00, 0.01], [0.07, 0.09]),
    row(Contiguous(1), Paced, "1x2", [4.00, 4.02], [0.00, 0.01], [0.00, 0.01]),
    row(Contiguous(1), Draining, "1x2", [0.28, 0.30], [0.00, 0.01], [0.00, 0.01]),
    row(Contiguous(1), Filling, "1x2", [0.29, 0.32], [0.00, 0.01], [0.00, 0.01]),
    row(ContiguousBatches(16), Paced, "1x2", [0.37, 0.39], [0.00, 0.01], [0.12, 0.13]),
    row(ContiguousBatches(16), Draining, "1x2", [0.28, 0.30], [0.00, 0.01], [0.07, 0.09]),
    row(ContiguousBatches(16), Filling, "1x2", [0.29, 0.31], [0.00, 0.01], [0.07, 0.09]),
    // Readers beside each other.
    row(Readers(2), Paced, "1x12", [3.01, 3.03], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(5), Paced, "1x12", [6.03, 6.05], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(5), Draining, "1x12", [1.64, 1.67], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(5), Filling, "1x12", [1.45, 1.60], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(11), Paced, "1x12", [12.08, 12.09], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(11), Paced, "2x6", [12.08, 12.09], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(11), Draining, "2x6", [3.33, 3.35], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(11), Filling, "2x6", [2.94, 3.29], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(31), Paced, "2x16", [32.23, 32.25], [0.00, 0.01], [0.00, 0.01]),
    row(Spinning(63), Paced, "4x16", [64.48, 64.50], [0.00, 0.01], [0.00, 0.01]),
    row(Spinning(11), Paced, "2x6", [12.08, 12.11], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(63), Paced, "4x16", [64.48, 64.50], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(11), Paced, "2x6 spread", [12.08, 12.09], [0.00, 0.01], [0.00, 0.01]),
    row(Readers(11), Draining, "2x6 spread", [3.33, 3.36], [0.00, 0.01], [0.00, 0.01]),
    row(Contiguous(5), Paced, "2x6", [12.03, 12.05], [0.00, 0.01], [0.00, 0.01]),
    // Several producers.
    row(Producers(1), Paced, "1x2", [2.00, 2.01], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(1), Draining, "1x2", [0.52, 0.54], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(2), Paced, "1x12", [3.01, 3.03], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(2), Draining, "1x12", [2.24, 2.29], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(3), Paced, "1x12", [2.89, 3.15], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(3), Draining, "1x12", [2.30, 2.33], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(5), Paced, "1x12", [2.88, 3.15], [0.99, 1.01], [0.15, 0.16]),
    row(Producers(5), Draining, "1x12", [2.35, 2.38], [0.99, 1.02], [0.01, 0.02]),
    row(Producers(8), Paced, "1x12", [3.06, 3.08], [0.99, 1.01], [0.02, 0.04]),
    row(Producers(8), Draining, "1x12", [2.38, 2.41], [0.99, 1.03], [0.01, 0.02]),
    row(Producers(11), Paced, "2x6", [2.54, 2.80], [0.99, 1.02], [0.26, 0.28]),
    row(Producers(11), Draining, "2x6", [2.34, 2.56], [0.99, 1.01], [0.01, 0.02]),
    row(Producers(31), Paced, "2x16", [2.85, 2.88], [0.99, 1.01], [0.50, 0.52]),
    row(Producers(31), Draining, "2x16", [2.54, 2.56], [0.97, 1.01], [0.01, 0.02]),
    row(Producers(48), Paced, "4x16", [3.06, 3.09], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(48), Draining, "4x16", [0.89, 1.01], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(1), Filling, "1x2", [1.00, 1.02], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(2), Filling, "1x12", [1.02, 1.03], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(5), Filling, "1x12", [1.61, 2.02], [0.99, 1.10], [0.02, 0.06]),
    row(Producers(11), Filling, "2x6", [1.84, 2.48], [0.98, 1.10], [0.08, 0.15]),
    row(Producers(48), Filling, "4x16", [1.97, 2.20], [1.11, 1.13], [0.00, 0.01]),
    row(Producers(11), Paced, "2x6 spread", [2.55, 2.82], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(11), Draining, "2x6 spread", [2.22, 2.52], [0.96, 1.06], [0.00, 0.01]),
    row(ProducersOfBatches(2), Draining, "1x12", [0.64, 0.66], [0.06, 0.08], [0.06, 0.08]),
    row(ProducersOfBatches(11), Draining, "2x6", [0.53, 0.55], [0.06, 0.07], [0.06, 0.08]),
    // Pools.
    row(Pool(1), Paced, "1x2", [2.01, 2.03], [0.99, 1.01], [0.00, 0.01]),
    row(Pool(1), Draining, "1x2", [0.53, 0.61], [0.00, 0.02], [0.00, 0.01]),
    row(Pool(2), Paced, "1x12", [4.01, 4.03], [1.00, 1.01], [0.00, 0.01]),
    row(Pool(2), Draining, "1x12", [0.62, 0.63], [0.01, 0.03], [0.00, 0.01]),
    row(Pool(3), Paced, "1x12", [4.77, 4.79], [0.99, 1.01], [0.00, 0.01]),
    row(Pool(3), Draining, "1x12", [0.67, 0.69], [0.01, 0.03], [0.00, 0.01]),
    row(Pool(5), Paced, "1x12", [5.31, 5.32], [0.99, 1.01], [0.00, 0.01]),
    row(Pool(5), Draining, "1x12", [0.80, 0.82], [0.03, 0.05], [0.00, 0.01]),
    row(Pool(11), Paced, "2x6", [5.42, 5.44], [1.00, 1.02], [0.00, 0.01]),
    row(Pool(11), Draining, "2x6", [1.08, 1.21], [0.08, 0.11], [0.00, 0.01]),
    row(Pool(31), Paced, "2x16", [5.89, 5.91], [1.03, 1.05], [0.00, 0.01]),
    row(Pool(31), Draining, "2x16", [2.08, 2.87], [0.28, 0.43], [0.00, 0.01]),
    row(Pool(48), Paced, "4x16", [6.32, 6.33], [1.08, 1.10], [0.00, 0.01]),
    row(Pool(48), Draining, "4x16", [18.01, 20.34], [3.18, 3.58], [0.00, 0.01]),
    row(Pool(3), Filling, "1x12", [1.00, 1.02], [0.07, 0.08], [0.00, 0.01]),
    row(Pool(11), Filling, "2x6", [2.62, 2.96], [0.45, 0.57], [0.00, 0.01]),
    row(WidePool(3), Paced, "1x12", [3.98, 4.04], [0.99, 1.01], [0.00, 0.01]),
    row(WidePool(11), Paced, "2x6", [4.56, 4.59], [1.00, 1.02], [0.00, 0.01]),
    row(WidePool(48), Paced, "4x16", [6.61, 6.63], [1.08, 1.10], [0.00, 0.01]),
    row(AdaptivePool(2), Paced, "1x12", [4.01, 4.03], [1.00, 1.01], [0.00, 0.01]),
    row(AdaptivePool(3), Paced, "1x12", [4.74, 4.76], [1.00, 1.01], [0.00, 0.01]),
    row(AdaptivePool(5), Paced, "1x12", [5.44, 5.45], [0.99, 1.01], [1.99, 2.01]),
    row(AdaptivePool(11), Paced, "2x6", [5.88, 6.67], [0.97, 1.09], [1.93, 2.11]),
    row(AdaptivePool(31), Paced, "2x16", [6.95, 6.98], [1.15, 1.16], [2.04, 2.05]),
    row(AdaptivePool(48), Paced, "4x16", [8.00, 8.77], [1.26, 1.28], [2.06, 2.09]),
    row(AdaptivePool(3), Draining, "1x12", [0.67, 0.69], [0.01, 0.03], [0.00, 0.01]),
    row(AdaptivePool(11), Draining, "2x6", [1.10, 1.25], [0.08, 0.12], [0.01, 0.08]),
    row(Pool(31), Filling, "2x16", [8.01, 9.28], [1.67, 1.91], [0.00, 0.01]),
    row(AdaptivePool(31), Draining, "2x16", [2.98, 4.20], [0.40, 0.56], [0.78, 1.14]),
    row(AdaptivePool(48), Draining, "4x16", [19.87, 33.46], [3.41, 5.38], [0.46, 4.34]),
    row(Pool(11), Paced, "2x6 spread", [5.41, 5.43], [1.00, 1.02], [0.00, 0.01]),
    row(Pool(31), Draining, "2x16 spread", [2.11, 2.84], [0.28, 0.40], [0.00, 0.01]),
    row(AdaptivePool(11), Paced, "2x6 spread", [5.74, 6.78], [0.98, 1.13], [1.93, 2.12]),
    // Shards and taps.
    row(Shards(2), Paced, "2x6", [6.01, 6.03], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(2), Draining, "2x6", [1.01, 1.02], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(5), Paced, "2x6", [11.99, 12.01], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(5), Draining, "2x6", [2.10, 2.14], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(11), Paced, "2x6", [21.26, 22.88], [0.00, 0.01], [0.00, 0.01]),
    row(WaitingShards(5), Paced, "2x6", [12.03, 12.05], [0.00, 0.01], [0.00, 0.01]),
    row(Tap(0), Paced, "2x6", [2.00, 2.02], [0.00, 0.01], [0.99, 1.01]),
    row(Tap(0), Draining, "2x6", [0.52, 0.54], [0.01, 0.02], [1.01, 1.02]),
    row(Tap(1), Paced, "2x6", [5.01, 5.03], [0.00, 0.02], [0.99, 1.01]),
    row(Tap(1), Draining, "2x6", [1.06, 1.10], [0.01, 0.02], [1.01, 1.02]),
    row(Tap(8), Paced, "2x6", [19.05, 19.12], [0.04, 0.06], [1.00, 1.01]),
    row(Tap(8), Draining, "2x6", [5.15, 11.19], [0.00, 0.04], [0.99, 1.02]),
    // Lines and diamonds.
    row(Line(2), Paced, "1x12", [7.99, 8.01], [0.00, 0.01], [0.00, 0.01]),
    row(Line(2), Draining, "1x12", [1.15, 1.17], [0.00, 0.01], [0.00, 0.01]),
    row(Line(2), Filling, "1x12", [1.11, 1.13], [0.00, 0.01], [0.00, 0.01]),
    row(Line(5), Paced, "1x12", [23.95, 24.00], [0.00, 0.01], [0.00, 0.01]),
    row(Line(5), Draining, "1x12", [2.24, 2.26], [0.00, 0.01], [0.00, 0.01]),
    row(Line(5), Filling, "1x12", [2.18, 2.39], [0.00, 0.01], [0.00, 0.01]),
    row(Line(11), Paced, "2x6", [42.54, 46.75], [0.00, 0.01], [0.00, 0.01]),
    row(Line(11), Draining, "2x6", [5.54, 6.66], [0.00, 0.01], [0.00, 0.01]),
    row(Line(11), Filling, "2x6", [4.61, 5.14], [0.00, 0.01], [0.00, 0.01]),
    row(Diamond, Paced, "1x12", [10.99, 11.01], [0.00, 0.01], [0.00, 0.01]),
    row(Diamond, Draining, "1x12", [1.24, 1.26], [0.00, 0.01], [0.00, 0.01]),
    row(Diamond, Filling, "1x12", [1.18, 1.21], [0.00, 0.01], [0.00, 0.01]),
    row(Threads(1), Paced, "1x12", [2.85, 2.88], [18.70, 18.79], [0.00, 0.01]),
    row(Threads(2), Paced, "1x12", [2.86, 2.89], [18.69, 18.78], [0.00, 0.01]),
    row(Threads(2), Draining, "1x12", [0.82, 1.07], [8.59, 8.69], [0.00, 0.01]),
    row(Threads(3), Paced, "1x12", [14.49, 15.73], [11.97, 13.12], [0.00, 0.01]),
    row(Threads(5), Paced, "1x12", [26.04, 28.32], [13.64, 14.69], [0.00, 0.01]),
    // Sleeping threads, tasks and requests.
    row(Sleeping, Paced, "1x2", [9.00, 9.02], [9.99, 10.01], [2.99, 3.01]),
    row(SleepingAdaptively, Paced, "1x2", [9.00, 9.02], [9.99, 10.01], [2.99, 3.01]),
    row(Tasks, Paced, "1x2", [3.54, 4.14], [2.93, 3.26], [1.40, 1.43]),
    row(Tasks, Draining, "1x2", [0.56, 0.59], [0.07, 0.09], [0.01, 0.02]),
    row(Tasks, Filling, "1x2", [0.62, 0.65], [0.11, 0.13], [1.00, 1.02]),
    row(Requests, Paced, "1x2", [5.62, 5.63], [0.99, 1.01], [0.00, 0.01]),
    // Processes.
    row(Segment, Paced, "1x2", [2.00, 2.02], [0.00, 0.01], [0.00, 0.01]),
    row(Segment, Draining, "1x2", [0.52, 0.54], [0.00, 0.01], [0.00, 0.01]),
    row(Segment, Filling, "1x2", [0.47, 0.54], [0.00, 0.01], [0.00, 0.01]),
    row(SegmentProducers(2), Paced, "1x12", [6.00, 6.03], [1.99, 2.01], [0.00, 0.01]),
    row(SegmentProducers(2), Draining, "1x12", [0.88, 1.18], [1.01, 1.14], [0.00, 0.01]),
    row(SegmentProducers(5), Paced, "1x12", [5.87, 6.39], [1.92, 2.11], [0.15, 0.16]),
    row(SegmentProducers(5), Draining, "1x12", [1.70, 2.08], [1.13, 1.28], [0.01, 0.02]),
    row(SegmentProducers(11), Paced, "2x6", [16.53, 18.73], [4.68, 5.28], [0.26, 0.36]),
    row(SegmentProducers(11), Draining, "2x6", [2.02, 2.50], [1.17, 1.37], [0.00, 0.02]),
    row(SegmentProducers(11), Filling, "2x6", [1.30, 2.10], [1.04, 1.27], [0.15, 0.26]),
    row(SegmentProducers(11), Draining, "2x6 spread", [2.00, 2.49], [1.15, 1.34], [0.01, 0.02]),
    row(SegmentPool(1), Paced, "1x2", [2.01, 2.03], [1.99, 2.01], [0.00, 0.01]),
    row(SegmentPool(1), Draining, "1x2", [0.58, 0.60], [0.01, 0.02], [0.00, 0.01]),
    row(SegmentPool(3), Paced, "1x12", [14.63, 14.69], [3.35, 3.38], [0.00, 0.01]),
    row(SegmentPool(3), Draining, "1x12", [0.73, 0.76], [0.04, 0.06], [0.00, 0.01]),
    // In one of eight seeds, a worker sleeps in the warm-up, and from then on the workers sleep and
    // wake each other in turn.
    row(SegmentPool(11), Paced, "2x6", [11.03, 12.16], [3.05, 3.37], [0.00, 0.01]).or(
        [36.15, 39.48],
        [4.36, 4.56],
        [2.19, 2.43],
    ),
    row(SegmentPool(11), Draining, "2x6", [1.54, 1.84], [0.17, 0.24], [0.00, 0.01]),
    row(SegmentPool(31), Draining, "2x16", [4.70, 6.30], [0.77, 1.02], [0.00, 0.01]),
];

/// Checks the rows of some shapes.
fn check_those(of: impl Fn(Shape) -> bool) {
    let rows: Vec<Row> = ROWS.iter().filter(|row| of(row.shape)).copied().collect();
    assert!(!rows.is_empty());
    check(&rows);
}

#[test]
fn one_producer() {
    check_those(|shape| {
        matches!(
            shape,
            Readers(1) | Spinning(1) | Batches(_) | Contiguous(1) | ContiguousBatches(_)
        )
    });
}

#[test]
fn readers() {
    check_those(|shape| matches!(shape, Readers(2..) | Spinning(2..) | Contiguous(2..)));
}

#[test]
fn several_producers() {
    check_those(|shape| matches!(shape, Producers(_) | ProducersOfBatches(_)));
}

#[test]
fn pools() {
    check_those(|shape| matches!(shape, Pool(_) | WidePool(_) | AdaptivePool(_)));
}

#[test]
fn shards_and_taps() {
    check_those(|shape| matches!(shape, Shards(_) | WaitingShards(_) | Tap(_)));
}

#[test]
fn lines_and_diamonds() {
    check_those(|shape| matches!(shape, Line(_) | Diamond | Threads(_)));
}

#[test]
fn sleeping_threads_tasks_and_requests() {
    check_those(|shape| matches!(shape, Sleeping | SleepingAdaptively | Tasks | Requests));
}

#[test]
fn processes() {
    check_those(|shape| matches!(shape, Segment | SegmentProducers(_) | SegmentPool(_)));
}
