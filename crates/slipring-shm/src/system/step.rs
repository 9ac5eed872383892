//! Named steps in the code that makes, attaches, recovers and removes, at which tests stop or kill
//! a process.
//!
//! Invariants
//! - I1: without the feature `steps`, a step compiles to no code.

#[cfg(feature = "steps")]
static HOOK: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// Registers `hook`. From now on, this process calls it at each step. Only the first registration
/// counts.
#[cfg(feature = "steps")]
pub fn on_each_step(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}

/// Calls the hook, if the process has one.
#[cfg(feature = "steps")]
pub(crate) fn reached(name: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// Marks a step (I1).
macro_rules! step {
    ($name:literal) => {
        #[cfg(feature = "steps")]
        $crate::system::step::reached($name);
    };
}
