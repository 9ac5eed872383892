//! What the work goes through.
