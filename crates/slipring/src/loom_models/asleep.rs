//! Keeps a list of the parties (stages and producers) that sleep in a model. A test that expects a
//! deadlock names the parties that must be asleep. The test passes only if the model ends in a
//! deadlock and exactly the named parties are asleep.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

/// Text before the list of sleeping parties in a twin's output.
pub(super) const ASLEEP: &str = "asleep for ever: ";

thread_local! {
    /// Names of the stages and producers that sleep; a name stands in the list once per thread that
    /// sleeps under that name. All threads of one model share one list, because loom runs these
    /// threads on a single thread of the system.
    static PARTIES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A party's entry in [`PARTIES`]. The drop of the `Asleep` removes the entry.
pub(crate) struct Asleep(String);

/// Lists `party` (a stage's name, or `producer`) as asleep. `Control::wait_at` calls `asleep` for
/// each of its waits; a model calls `asleep` for a sleeping task.
pub(crate) fn asleep(party: &str) -> Asleep {
    PARTIES.with_borrow_mut(|parties| parties.push(party.to_owned()));
    Asleep(party.to_owned())
}

impl Drop for Asleep {
    fn drop(&mut self) {
        PARTIES.with_borrow_mut(|parties| {
            let at = parties.iter().position(|party| *party == self.0).expect("a listed party");
            parties.swap_remove(at);
        });
    }
}

/// Installs a panic hook, which prints the list of sleeping parties after this process's first
/// panic message. The panic hook prints no list after a later panic message, because a later panic
/// is only a consequence of the first panic.
pub(super) fn print_at_a_panic() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        usual(info);
        static FIRST: Once = Once::new();
        FIRST.call_once(|| {
            PARTIES.with_borrow(|parties| eprintln!("{ASLEEP}{}", parties.join(", ")))
        });
    }));
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
