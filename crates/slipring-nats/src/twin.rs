//! The twins of this crate: wrong variants of single steps, which the simulation must find.

/// Runs the right half. The simulation runs the wrong half while it has planted the twin.
///
/// ```ignore
/// let messages = twin!("begin-alone": last.window.max(1) => 1);
/// ```
#[cfg(not(test))]
macro_rules! twin {
    ($name:literal: $right:expr => $wrong:expr) => {
        $right
    };
}

#[cfg(test)]
macro_rules! twin {
    ($name:literal: $right:expr => $wrong:expr) => {
        if $crate::twin::is_planted($name) { $wrong } else { $right }
    };
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::RefCell<Option<String>> = const { std::cell::RefCell::new(None) };
}

/// Plants a twin on this thread, or none.
#[cfg(test)]
pub fn plant(twin: Option<String>) {
    PLANTED.set(twin);
}

/// Returns whether the twin is planted on this thread.
#[cfg(test)]
pub fn is_planted(twin: &str) -> bool {
    PLANTED.with_borrow(|planted| planted.as_deref() == Some(twin))
}
