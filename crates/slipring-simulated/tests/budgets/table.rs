//! The table of budgets: for each row the range of transfers, read-modify-writes and fences that an
//! event may cost.
//!
//! A row is replaced by what a run prints; see `main.rs`.

use crate::measure::{Draining, Filling, Paced, Row, check, row};
use crate::shapes::Shape::{self, *};

pub const ROWS: &[Row] = &[
    // One producer: publications one by one, in batches, contiguous.
    row(Readers(1), Paced, "1x2", [2.00, 2.02], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(1), Draining, "1x2", [0.54, 0.56], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(1), Filling, "1x2", [0.52, 0.53], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(1), Paced, "4x16", [2.00, 2.02], [0.00, 0.02], [0.00, 0.01]),
    row(Spinning(1), Paced, "1x2", [2.00, 2.02], [0.00, 0.02], [0.00, 0.01]),
    row(Spinning(1), Draining, "1x2", [0.54, 0.56], [0.00, 0.02], [0.00, 0.01]),
    row(Spinning(1), Filling, "1x2", [0.51, 0.53], [0.00, 0.02], [0.00, 0.01]),
    row(Batches(16), Paced, "1x2", [0.50, 0.52], [0.00, 0.02], [0.12, 0.13]),
    row(Batches(16), Draining, "1x2", [0.55, 0.57], [0.00, 0.02], [0.07, 0.09]),
    row(Batches(16), Filling, "1x2", [0.51, 0.53], [0.00, 0.02], [0.07, 0.09]),
    row(Contiguous(1), Paced, "1x2", [4.00, 4.02], [0.00, 0.02], [0.00, 0.01]),
    row(Contiguous(1), Draining, "1x2", [0.30, 0.32], [0.00, 0.02], [0.00, 0.01]),
    row(Contiguous(1), Filling, "1x2", [0.29, 0.32], [0.00, 0.02], [0.00, 0.01]),
    row(ContiguousBatches(16), Paced, "1x2", [0.38, 0.40], [0.00, 0.02], [0.12, 0.13]),
    row(ContiguousBatches(16), Draining, "1x2", [0.30, 0.31], [0.00, 0.02], [0.07, 0.09]),
    row(ContiguousBatches(16), Filling, "1x2", [0.28, 0.34], [0.00, 0.02], [0.07, 0.09]),
    // Readers beside each other.
    row(Readers(2), Paced, "1x12", [3.01, 3.03], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(5), Paced, "1x12", [6.04, 6.06], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(5), Draining, "1x12", [1.75, 1.77], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(5), Filling, "1x12", [1.59, 1.62], [0.00, 0.02], [0.00, 0.01]),
    row(Readers(11), Paced, "1x12", [12.11, 12.13], [0.01, 0.03], [0.00, 0.01]),
    row(Readers(11), Paced, "2x6", [12.11, 12.13], [0.01, 0.03], [0.00, 0.01]),
    row(Readers(11), Draining, "2x6", [3.80, 3.82], [0.01, 0.03], [0.00, 0.01]),
    row(Readers(11), Filling, "2x6", [3.22, 3.62], [0.02, 0.09], [0.99, 1.01]),
    row(Readers(31), Paced, "2x16", [32.42, 32.44], [0.08, 0.09], [0.00, 0.01]),
    row(Spinning(63), Paced, "4x16", [65.23, 65.25], [0.29, 0.31], [0.00, 0.01]),
    row(Spinning(11), Paced, "2x6", [12.11, 12.15], [0.01, 0.03], [0.00, 0.01]),
    row(Readers(63), Paced, "4x16", [424.70, 424.88], [304.86, 305.55], [60.00, 60.02]),
    row(Contiguous(5), Paced, "2x6", [12.04, 12.06], [0.00, 0.02], [0.00, 0.01]),
    // Several producers.
    row(Producers(1), Paced, "1x2", [2.00, 2.02], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(1), Draining, "1x2", [0.54, 0.56], [1.06, 1.08], [0.00, 0.01]),
    row(Producers(2), Paced, "1x12", [3.01, 3.03], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(2), Draining, "1x12", [2.19, 2.43], [1.13, 1.15], [0.00, 0.01]),
    row(Producers(3), Paced, "1x12", [2.90, 3.15], [1.01, 1.02], [0.00, 0.01]),
    row(Producers(3), Draining, "1x12", [2.21, 2.47], [1.16, 1.30], [0.00, 0.01]),
    row(Producers(5), Paced, "1x12", [2.88, 3.16], [1.01, 1.03], [0.15, 0.16]),
    row(Producers(5), Draining, "1x12", [2.36, 2.59], [1.28, 1.41], [0.01, 0.03]),
    row(Producers(8), Paced, "1x12", [3.10, 3.12], [1.03, 1.05], [0.02, 0.04]),
    row(Producers(8), Draining, "1x12", [2.52, 2.76], [1.46, 1.49], [0.01, 0.03]),
    row(Producers(11), Paced, "2x6", [2.61, 2.93], [1.06, 1.09], [0.26, 0.28]),
    row(Producers(11), Draining, "2x6", [2.54, 3.10], [1.20, 1.68], [0.01, 0.03]),
    row(Producers(31), Paced, "2x16", [3.49, 3.51], [1.31, 1.33], [0.46, 0.53]),
    row(Producers(31), Draining, "2x16", [3.15, 3.72], [1.42, 1.79], [0.01, 0.03]),
    row(Producers(48), Paced, "4x16", [4.13, 4.17], [1.49, 1.51], [0.00, 0.01]),
    row(Producers(48), Draining, "4x16", [1.19, 1.32], [1.26, 1.28], [0.00, 0.01]),
    row(Producers(1), Filling, "1x2", [1.00, 1.02], [1.00, 1.02], [0.00, 0.01]),
    row(Producers(2), Filling, "1x12", [1.02, 1.04], [1.01, 1.03], [0.00, 0.01]),
    row(Producers(5), Filling, "1x12", [1.61, 2.00], [1.02, 1.14], [0.02, 0.06]),
    row(Producers(11), Filling, "2x6", [2.13, 2.45], [1.05, 1.17], [0.08, 0.14]),
    row(Producers(48), Filling, "4x16", [2.69, 2.96], [1.47, 1.63], [0.00, 0.01]),
    row(ProducersOfBatches(2), Draining, "1x12", [0.61, 0.70], [0.09, 0.11], [0.06, 0.08]),
    row(ProducersOfBatches(11), Draining, "2x6", [0.61, 0.63], [0.11, 0.14], [0.06, 0.08]),
    // Pools.
    row(Pool(1), Paced, "1x2", [2.01, 2.03], [1.00, 1.02], [0.00, 0.01]),
    row(Pool(1), Draining, "1x2", [0.55, 0.64], [0.01, 0.03], [0.00, 0.01]),
    row(Pool(2), Paced, "1x12", [6.05, 6.07], [2.01, 2.02], [0.00, 0.01]),
    row(Pool(2), Draining, "1x12", [0.65, 0.67], [0.02, 0.04], [0.00, 0.01]),
    row(Pool(3), Paced, "1x12", [9.44, 9.51], [3.00, 3.02], [0.00, 0.01]),
    row(Pool(3), Draining, "1x12", [0.72, 0.74], [0.04, 0.05], [0.00, 0.01]),
    row(Pool(5), Paced, "1x12", [16.21, 17.66], [4.60, 4.64], [0.00, 0.01]),
    row(Pool(5), Draining, "1x12", [0.87, 0.89], [0.06, 0.08], [0.00, 0.01]),
    row(Pool(11), Paced, "2x6", [7.01, 11.15], [2.28, 3.77], [0.00, 0.01]),
    row(Pool(11), Draining, "2x6", [1.43, 1.63], [0.17, 0.23], [0.00, 0.01]),
    row(Pool(31), Paced, "2x16", [26.60, 30.10], [7.68, 8.68], [0.00, 0.01]),
    row(Pool(31), Draining, "2x16", [197.95, 198.06], [46.71, 46.84], [0.00, 0.01]),
    row(Pool(48), Paced, "4x16", [71.22, 150.79], [23.33, 40.08], [0.00, 0.01]),
    row(Pool(48), Draining, "4x16", [358.95, 361.74], [94.60, 94.81], [0.00, 0.01]),
    row(Pool(3), Filling, "1x12", [1.22, 1.41], [0.15, 0.24], [0.00, 0.01]),
    row(Pool(11), Filling, "2x6", [6.33, 7.43], [1.33, 1.66], [0.00, 0.01]),
    row(WidePool(3), Paced, "1x12", [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    row(WidePool(11), Paced, "2x6", [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    row(WidePool(48), Paced, "4x16", [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    row(AdaptivePool(3), Paced, "1x12", [9.48, 9.53], [3.00, 3.02], [0.00, 0.01]),
    row(AdaptivePool(11), Paced, "2x6", [8.63, 30.68], [2.67, 6.22], [0.00, 4.54]),
    row(AdaptivePool(48), Paced, "4x16", [320.70, 346.61], [225.23, 243.25], [44.02, 47.49]),
    row(AdaptivePool(3), Draining, "1x12", [0.67, 0.76], [0.04, 0.05], [0.00, 0.01]),
    row(AdaptivePool(11), Draining, "2x6", [1.43, 3.49], [0.18, 0.57], [0.00, 0.03]),
    // Shards and taps.
    row(Shards(2), Paced, "2x6", [6.01, 6.03], [0.00, 0.02], [0.00, 0.01]),
    row(Shards(2), Draining, "2x6", [1.07, 1.09], [0.00, 0.02], [0.00, 0.01]),
    row(Shards(5), Paced, "2x6", [12.01, 12.03], [0.01, 0.03], [0.00, 0.01]),
    row(Shards(5), Draining, "2x6", [2.20, 2.22], [0.01, 0.03], [0.00, 0.01]),
    row(Shards(11), Paced, "2x6", [22.06, 22.23], [0.05, 0.07], [0.00, 0.01]),
    row(Tap(0), Paced, "2x6", [2.00, 2.02], [0.00, 0.02], [1.00, 1.01]),
    row(Tap(0), Draining, "2x6", [0.54, 0.57], [0.01, 0.03], [1.01, 1.03]),
    row(Tap(1), Paced, "2x6", [5.01, 5.03], [0.01, 0.03], [1.00, 1.01]),
    row(Tap(1), Draining, "2x6", [1.10, 1.13], [0.08, 0.10], [1.01, 1.03]),
    row(Tap(8), Paced, "2x6", [19.11, 19.18], [0.09, 0.11], [1.00, 1.01]),
    row(Tap(8), Draining, "2x6", [5.34, 8.12], [0.04, 0.14], [1.00, 1.02]),
    // Lines and diamonds.
    row(Line(2), Paced, "1x12", [8.00, 8.02], [0.00, 0.02], [0.00, 0.01]),
    row(Line(2), Draining, "1x12", [1.24, 1.26], [0.00, 0.02], [0.00, 0.01]),
    row(Line(2), Filling, "1x12", [1.12, 1.24], [0.00, 0.02], [0.00, 0.01]),
    row(Line(5), Paced, "1x12", [23.98, 24.03], [0.00, 0.02], [0.00, 0.01]),
    row(Line(5), Draining, "1x12", [2.42, 2.44], [0.00, 0.02], [0.00, 0.01]),
    row(Line(5), Filling, "1x12", [2.27, 2.51], [0.00, 0.02], [0.00, 0.01]),
    row(Line(11), Paced, "2x6", [43.49, 47.80], [0.01, 0.03], [0.00, 0.01]),
    row(Line(11), Draining, "2x6", [6.16, 7.28], [0.01, 0.03], [0.00, 0.01]),
    row(Line(11), Filling, "2x6", [5.00, 5.55], [0.01, 0.03], [0.00, 0.01]),
    row(Diamond, Paced, "1x12", [11.00, 11.02], [0.00, 0.02], [0.00, 0.01]),
    row(Diamond, Draining, "1x12", [1.29, 1.45], [0.00, 0.02], [0.00, 0.01]),
    row(Diamond, Filling, "1x12", [1.19, 1.22], [0.00, 0.02], [0.00, 0.01]),
    row(Threads(1), Paced, "1x12", [2.87, 2.89], [18.76, 18.84], [0.00, 0.01]),
    row(Threads(2), Paced, "1x12", [2.91, 2.95], [18.78, 18.85], [0.00, 0.01]),
    row(Threads(2), Draining, "1x12", [0.95, 1.21], [9.54, 9.65], [0.00, 0.01]),
    row(Threads(3), Paced, "1x12", [14.63, 15.76], [12.11, 13.16], [0.00, 0.01]),
    row(Threads(5), Paced, "1x12", [26.14, 28.49], [13.79, 14.89], [0.00, 0.01]),
    // Sleeping threads, tasks and requests.
    row(Sleeping, Paced, "1x2", [11.05, 11.07], [11.05, 11.07], [3.00, 3.02]),
    row(SleepingAdaptively, Paced, "1x2", [11.05, 11.07], [11.05, 11.07], [3.00, 3.02]),
    row(Tasks, Paced, "1x2", [3.49, 4.14], [3.13, 3.50], [1.40, 1.43]),
    row(Tasks, Draining, "1x2", [0.58, 0.61], [0.09, 0.10], [0.01, 0.03]),
    row(Tasks, Filling, "1x2", [0.60, 0.68], [0.10, 0.15], [1.00, 1.02]),
    row(Requests, Paced, "1x2", [5.62, 5.64], [1.00, 1.02], [0.00, 0.02]),
    // Processes.
    row(Segment, Paced, "1x2", [2.00, 2.02], [0.00, 0.02], [0.00, 0.01]),
    row(Segment, Draining, "1x2", [0.54, 0.56], [0.00, 0.02], [0.00, 0.01]),
    row(Segment, Filling, "1x2", [0.51, 0.53], [0.00, 0.02], [0.00, 0.01]),
    row(SegmentProducers(2), Paced, "1x12", [6.01, 6.04], [2.01, 2.03], [0.00, 0.01]),
    row(SegmentProducers(2), Draining, "1x12", [2.23, 3.31], [1.43, 1.77], [0.00, 0.01]),
    row(SegmentProducers(5), Paced, "1x12", [6.06, 6.10], [2.02, 2.05], [0.07, 0.09]),
    row(SegmentProducers(5), Draining, "1x12", [5.45, 7.37], [2.18, 2.70], [0.01, 0.06]),
    row(SegmentProducers(11), Paced, "2x6", [38.64, 42.65], [10.16, 11.19], [0.30, 0.36]),
    row(SegmentProducers(11), Draining, "2x6", [12.52, 18.01], [4.19, 5.77], [0.00, 0.03]),
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
    check_those(|shape| matches!(shape, Shards(_) | Tap(_)));
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
