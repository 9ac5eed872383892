//! Dead letters: a stage that fails puts its event aside, with the error and the position, and the
//! rest goes on.
//!
//! ```text
//!   feed ──> parse ──> sum
//!              └── fails: dead letters
//! ```
//!
//! It prints:
//!
//! ```text
//! dead letter 7: "7x", invalid digit found in string
//! dead letter 32: "32x", invalid digit found in string
//! dead letter 57: "57x", invalid digit found in string
//! dead letter 82: "82x", invalid digit found in string
//! sum 4772
//! ```

use slipring::OnFault;
use slipring::faults::Marks;

#[derive(Default)]
struct Message {
    text: String,
    value: u64,
}

fn main() -> Result<(), slipring::Error> {
    let (mut dead, mut sum, marks) = (Vec::new(), 0, Marks::new());
    slipring::ring(64, Message::default)
        .update("parse", |message, _| {
            message.value = message.text.parse()?;
            slipring::ok()
        })
        .on_error_with(|failed| {
            let text = failed.event().map(|message| message.text.clone());
            dead.push((failed.seq(), text, failed.error().to_string()));
            OnFault::skip()
        })
        .marks(&marks)
        .read("sum", |message, at| {
            if !marks.skipped(at.seq) {
                sum += message.value
            }
        })
        .feed(0..100, |message, n| {
            message.text = if n % 25 == 7 { format!("{n}x") } else { n.to_string() };
        })?;
    for (seq, text, error) in dead {
        println!("dead letter {}: {:?}, {error}", seq.unwrap(), text.unwrap());
    }
    println!("sum {sum}");
    Ok(())
}
