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
    row(Batches(16), Filling, "1x2", [0.50, 0.52], [0.00, 0.01], [0.07, 0.09]),
    row(Contiguous(1), Paced, "1x2", [4.00, 4.02], [0.00, 0.01], [0.00, 0.01]),
    row(Contiguous(1), Draining, "1x2", [0.28, 0.30], [0.00, 0.01], [0.00, 0.01]),
    row(Contiguous(1), Filling, "1x2", [0.27, 0.33], [0.00, 0.01], [0.00, 0.01]),
    row(ContiguousBatches(16), Paced, "1x2", [0.37, 0.39], [0.00, 0.01], [0.12, 0.13]),
    row(ContiguousBatches(16), Draining, "1x2", [0.28, 0.30], [0.00, 0.01], [0.07, 0.09]),
    row(ContiguousBatches(16), Filling, "1x2", [0.28, 0.31], [0.00, 0.01], [0.07, 0.09]),
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
    row(Contiguous(5), Paced, "2x6", [12.03, 12.05], [0.00, 0.01], [0.00, 0.01]),
    // Several producers.
    row(Producers(1), Paced, "1x2", [2.00, 2.01], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(1), Draining, "1x2", [0.51, 0.53], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(2), Paced, "1x12", [3.01, 3.03], [1.00, 1.01], [0.00, 0.01]),
    row(Producers(2), Draining, "1x12", [2.10, 2.33], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(3), Paced, "1x12", [2.99, 3.04], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(3), Draining, "1x12", [2.11, 2.35], [0.99, 1.14], [0.00, 0.01]),
    row(Producers(5), Paced, "1x12", [2.88, 3.15], [1.00, 1.02], [0.15, 0.16]),
    row(Producers(5), Draining, "1x12", [2.34, 2.37], [1.03, 1.05], [0.01, 0.02]),
    row(Producers(8), Paced, "1x12", [3.09, 3.11], [1.02, 1.04], [0.02, 0.04]),
    row(Producers(8), Draining, "1x12", [2.43, 2.46], [1.04, 1.06], [0.01, 0.02]),
    row(Producers(11), Paced, "2x6", [2.58, 2.82], [1.04, 1.07], [0.24, 0.30]),
    row(Producers(11), Draining, "2x6", [2.34, 2.61], [1.06, 1.09], [0.00, 0.02]),
    row(Producers(31), Paced, "2x16", [3.46, 3.48], [1.28, 1.29], [0.49, 0.51]),
    row(Producers(31), Draining, "2x16", [2.95, 3.22], [1.28, 1.30], [0.00, 0.02]),
    row(Producers(48), Paced, "4x16", [4.12, 4.14], [1.45, 1.47], [0.00, 0.01]),
    row(Producers(48), Draining, "4x16", [1.21, 1.25], [1.23, 1.25], [0.00, 0.01]),
    row(Producers(1), Filling, "1x2", [1.00, 1.02], [0.99, 1.01], [0.00, 0.01]),
    row(Producers(2), Filling, "1x12", [1.02, 1.04], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(5), Filling, "1x12", [1.61, 1.99], [1.01, 1.13], [0.02, 0.06]),
    row(Producers(11), Filling, "2x6", [2.13, 2.44], [1.03, 1.15], [0.08, 0.14]),
    row(Producers(48), Filling, "4x16", [2.73, 2.97], [1.48, 1.51], [0.00, 0.01]),
    row(ProducersOfBatches(2), Draining, "1x12", [0.60, 0.68], [0.06, 0.08], [0.06, 0.08]),
    row(ProducersOfBatches(11), Draining, "2x6", [0.56, 0.58], [0.09, 0.11], [0.06, 0.08]),
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
    row(Pool(11), Draining, "2x6", [1.08, 1.23], [0.07, 0.12], [0.00, 0.01]),
    row(Pool(31), Paced, "2x16", [5.89, 5.91], [1.03, 1.05], [0.00, 0.01]),
    row(Pool(31), Draining, "2x16", [143.08, 155.57], [27.07, 29.14], [0.00, 0.01]),
    row(Pool(48), Paced, "4x16", [6.32, 6.33], [1.08, 1.10], [0.00, 0.01]),
    row(Pool(48), Draining, "4x16", [229.37, 248.62], [45.87, 46.15], [0.00, 0.01]),
    row(Pool(3), Filling, "1x12", [1.13, 1.16], [0.08, 0.10], [0.00, 0.01]),
    row(Pool(11), Filling, "2x6", [4.65, 6.27], [1.04, 1.26], [0.00, 0.01]),
    row(WidePool(3), Paced, "1x12", [4.02, 4.04], [0.99, 1.01], [0.00, 0.01]),
    row(WidePool(11), Paced, "2x6", [4.58, 4.60], [1.00, 1.02], [0.00, 0.01]),
    row(WidePool(48), Paced, "4x16", [6.61, 6.63], [1.09, 1.11], [0.00, 0.01]),
    row(AdaptivePool(2), Paced, "1x12", [4.01, 4.03], [1.00, 1.01], [0.00, 0.01]),
    row(AdaptivePool(3), Paced, "1x12", [4.74, 4.76], [1.00, 1.01], [0.00, 0.01]),
    row(AdaptivePool(5), Paced, "1x12", [5.44, 5.45], [0.99, 1.01], [1.99, 2.01]),
    row(AdaptivePool(11), Paced, "2x6", [5.83, 6.98], [1.01, 1.04], [2.00, 2.02]),
    row(AdaptivePool(31), Paced, "2x16", [6.47, 7.16], [1.15, 1.17], [2.04, 2.05]),
    row(AdaptivePool(48), Paced, "4x16", [8.02, 8.89], [1.27, 1.29], [2.07, 2.09]),
    row(AdaptivePool(3), Draining, "1x12", [0.67, 0.69], [0.01, 0.03], [0.00, 0.01]),
    row(AdaptivePool(11), Draining, "2x6", [1.08, 1.24], [0.08, 0.12], [0.00, 0.09]),
    // Shards and taps.
    row(Shards(2), Paced, "2x6", [6.01, 6.03], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(2), Draining, "2x6", [1.01, 1.02], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(5), Paced, "2x6", [11.99, 12.01], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(5), Draining, "2x6", [1.99, 2.20], [0.00, 0.01], [0.00, 0.01]),
    row(Shards(11), Paced, "2x6", [21.99, 22.17], [0.00, 0.01], [0.00, 0.01]),
    row(WaitingShards(5), Paced, "2x6", [12.03, 12.05], [0.00, 0.01], [0.00, 0.01]),
    row(Tap(0), Paced, "2x6", [2.00, 2.02], [0.00, 0.01], [0.99, 1.01]),
    row(Tap(0), Draining, "2x6", [0.52, 0.54], [0.01, 0.02], [1.01, 1.02]),
    row(Tap(1), Paced, "2x6", [5.01, 5.03], [0.00, 0.02], [0.99, 1.01]),
    row(Tap(1), Draining, "2x6", [1.01, 1.13], [0.01, 0.02], [1.01, 1.02]),
    row(Tap(8), Paced, "2x6", [19.05, 19.12], [0.04, 0.06], [1.00, 1.01]),
    row(Tap(8), Draining, "2x6", [4.89, 10.03], [0.00, 0.04], [1.00, 1.03]),
    // Lines and diamonds.
    row(Line(2), Paced, "1x12", [7.99, 8.01], [0.00, 0.01], [0.00, 0.01]),
    row(Line(2), Draining, "1x12", [1.15, 1.17], [0.00, 0.01], [0.00, 0.01]),
    row(Line(2), Filling, "1x12", [1.10, 1.13], [0.00, 0.01], [0.00, 0.01]),
    row(Line(5), Paced, "1x12", [23.96, 24.01], [0.00, 0.01], [0.00, 0.01]),
    row(Line(5), Draining, "1x12", [2.25, 2.28], [0.00, 0.01], [0.00, 0.01]),
    row(Line(5), Filling, "1x12", [2.09, 2.35], [0.00, 0.01], [0.00, 0.01]),
    row(Line(11), Paced, "2x6", [42.87, 47.48], [0.00, 0.01], [0.00, 0.01]),
    row(Line(11), Draining, "2x6", [5.27, 6.65], [0.00, 0.01], [0.00, 0.01]),
    row(Line(11), Filling, "2x6", [4.21, 4.62], [0.00, 0.01], [0.00, 0.01]),
    row(Diamond, Paced, "1x12", [10.99, 11.01], [0.00, 0.01], [0.00, 0.01]),
    row(Diamond, Draining, "1x12", [1.20, 1.35], [0.00, 0.01], [0.00, 0.01]),
    row(Diamond, Filling, "1x12", [1.08, 1.20], [0.00, 0.01], [0.00, 0.01]),
    row(Threads(1), Paced, "1x12", [2.85, 2.88], [18.71, 18.79], [0.00, 0.01]),
    row(Threads(2), Paced, "1x12", [2.85, 2.88], [18.72, 18.79], [0.00, 0.01]),
    row(Threads(2), Draining, "1x12", [0.86, 1.14], [8.27, 8.96], [0.00, 0.01]),
    row(Threads(3), Paced, "1x12", [14.54, 15.67], [12.03, 13.08], [0.00, 0.01]),
    row(Threads(5), Paced, "1x12", [25.98, 28.33], [13.67, 14.81], [0.00, 0.01]),
    // Sleeping threads, tasks and requests.
    row(Sleeping, Paced, "1x2", [9.00, 9.02], [9.99, 10.01], [2.99, 3.01]),
    row(SleepingAdaptively, Paced, "1x2", [9.00, 9.02], [9.99, 10.01], [2.99, 3.01]),
    row(Tasks, Paced, "1x2", [3.48, 4.14], [2.92, 3.26], [1.40, 1.43]),
    row(Tasks, Draining, "1x2", [0.56, 0.59], [0.07, 0.09], [0.01, 0.02]),
    row(Tasks, Filling, "1x2", [0.63, 0.65], [0.11, 0.13], [1.00, 1.02]),
    row(Requests, Paced, "1x2", [5.62, 5.63], [0.99, 1.01], [0.00, 0.01]),
    // Processes.
    row(Segment, Paced, "1x2", [2.00, 2.02], [0.00, 0.01], [0.00, 0.01]),
    row(Segment, Draining, "1x2", [0.52, 0.54], [0.00, 0.01], [0.00, 0.01]),
    row(Segment, Filling, "1x2", [0.49, 0.52], [0.00, 0.01], [0.00, 0.01]),
    row(SegmentProducers(2), Paced, "1x12", [6.00, 6.03], [1.99, 2.01], [0.00, 0.01]),
    row(SegmentProducers(2), Draining, "1x12", [2.15, 3.12], [1.31, 1.61], [0.00, 0.01]),
    row(SegmentProducers(5), Paced, "1x12", [6.06, 6.09], [2.01, 2.03], [0.06, 0.08]),
    row(SegmentProducers(5), Draining, "1x12", [5.10, 7.43], [2.07, 2.70], [0.01, 0.05]),
    row(SegmentProducers(11), Paced, "2x6", [39.43, 42.86], [10.34, 11.17], [0.30, 0.35]),
    row(SegmentProducers(11), Draining, "2x6", [13.02, 16.88], [4.17, 5.45], [0.00, 0.05]),
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
    check_those(|shape| matches!(shape, Segment | SegmentProducers(_)));
}
