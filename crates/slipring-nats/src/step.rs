//! Named steps of a sink and a source, at which tests kill the process. Without the feature
//! `steps`, a step compiles to nothing.

#[cfg(feature = "steps")]
static HOOK: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// Sets the function that is called at each step of this process. Only the first call has an
/// effect.
///
/// ```
/// slipring_nats::on_each_step(|step| println!("{step}"));
/// ```
#[cfg(feature = "steps")]
pub fn on_each_step(hook: fn(&'static str)) {
    let _ = HOOK.set(hook);
}

/// Calls the hook if one is set.
#[cfg(feature = "steps")]
pub(crate) fn reached(name: &'static str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// Marks a step.
macro_rules! step {
    ($name:literal) => {
        #[cfg(feature = "steps")]
        $crate::step::reached($name);
    };
}
