//! Compares the parties (stages and producers) that a deadlock leaves asleep with the parties that
//! a test names. The test passes only if the model ends in a deadlock, and exactly the named
//! parties are asleep.

use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::model_hooks::sleeping_parties;

/// Text before the list of sleeping parties in a twin's output.
pub(super) const ASLEEP: &str = "asleep for ever: ";

/// Installs a panic hook, which prints the message of this process's first panic, and then the
/// sleeping parties. Later panics are only consequences of the first, and are not printed: a panic
/// during the unwinding prints its stack, which takes more of a model thread's small stack than may
/// be left. The thread that overflows is ended inside the hook, and the process then hangs at its
/// end.
pub(super) fn print_at_a_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            static LATER: AtomicBool = AtomicBool::new(false);
            if !LATER.swap(true, Ordering::Relaxed) {
                usual(info);
                eprintln!("{ASLEEP}{}", sleeping_parties().join(", "));
            }
        }));
    });
}

/// Returns whether `output` lists exactly the `expected` parties, in any order.
pub(super) fn are_asleep(output: &str, expected: &[&str]) -> bool {
    let mut parties: Vec<&str> = output
        .lines()
        .find_map(|line| line.strip_prefix(ASLEEP))
        .unwrap_or_default()
        .split(", ")
        .collect();
    let mut expected = expected.to_vec();
    parties.sort_unstable();
    expected.sort_unstable();
    parties == expected
}

#[test]
fn a_list_of_sleepers_matches_in_any_order_and_with_its_counts() {
    let output = |parties: &str| format!("deadlock; threads = []\n{ASLEEP}{parties}\n");
    assert!(are_asleep(&output("s0"), &["s0"]) && are_asleep(&output("s1, s0"), &["s0", "s1"]));
    assert!(
        !are_asleep(&output("s1"), &["s0"])
            && !are_asleep(&output("s0, s1"), &["s0"])
            && !are_asleep(&output("s0"), &["s0", "s0"])
    );
    assert!(!are_asleep(&output(""), &["s0"]) && !are_asleep("deadlock; threads = []\n", &["s0"]));
}
