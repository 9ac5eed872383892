//! The parties of a model that are asleep, so that a twin says which of them its defect leaves
//! asleep: a deadlock for another reason is no catch.

use std::cell::RefCell;
use std::panic;
use std::sync::Once;

/// How the list begins in a twin's output.
pub(super) const ASLEEP: &str = "asleep for ever: ";

thread_local! {
    /// One name for each wait. The model checker runs all threads of a model on the thread of its
    /// test.
    static PARTIES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Takes its party off the list when it is dropped.
pub(crate) struct Asleep(String);

/// Lists a party as asleep: the name of a stage, or `producer`. The waits of `Control::wait_at`
/// list themselves; a model lists the sleep of its own tasks.
pub(crate) fn asleep(party: &str) -> Asleep {
    PARTIES.with_borrow_mut(|parties| parties.push(party.to_owned()));
    Asleep(party.to_owned())
}

impl Drop for Asleep {
    fn drop(&mut self) {
        PARTIES.with_borrow_mut(|parties| {
            let at = parties.iter().position(|party| *party == self.0).expect("it was listed");
            parties.swap_remove(at);
        });
    }
}

/// Has the first panic of this process print the list below its message. The panics after it come
/// from the unwinding.
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

/// Whether `output` lists these parties, in any order, and no other.
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
fn a_list_of_sleepers_is_compared() {
    let output = |parties: &str| format!("deadlock; threads = []\n{ASLEEP}{parties}\n");
    assert!(are_asleep(&output("s0"), &["s0"]) && are_asleep(&output("s1, s0"), &["s0", "s1"]));
    assert!(
        !are_asleep(&output("s1"), &["s0"])
            && !are_asleep(&output("s0, s1"), &["s0"])
            && !are_asleep(&output("s0"), &["s0", "s0"])
    );
    assert!(!are_asleep(&output(""), &["s0"]) && !are_asleep("deadlock; threads = []\n", &["s0"]));
}
