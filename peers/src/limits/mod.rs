//! Hand-made limits.
