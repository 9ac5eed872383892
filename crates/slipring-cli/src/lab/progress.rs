//! The progress bar of every measurement.

use indicatif::{ProgressBar, ProgressStyle};

/// Makes a progress bar, which is visible on a terminal only. It moves between runs, because a bar
/// that ticks on its own thread would disturb the measurement. `total` is in milliseconds or in
/// runs.
pub fn bar(total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:24} {percent:>3} %, {eta} left: {wide_msg}");
    ProgressBar::new(total).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
