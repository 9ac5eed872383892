//! The recommendation as a Rust program to paste.

use std::fmt::Write as _;

use super::candidate::{Candidate, Layout, StagePlacement, Threads};
use super::demand::Demand;

/// Crates that the program needs beside `slipring`.
pub fn crates(candidate: &Candidate) -> Vec<&'static str> {
    match candidate.place {
        StagePlacement::System => vec!["slipring"],
        StagePlacement::Named(_) => vec!["slipring", "slipring-machine"],
    }
}

/// Returns a program that builds a pipeline with the candidate's settings. It compiles and runs;
/// users replace the event and the work with their own.
pub fn program(candidate: &Candidate, demand: &Demand) -> String {
    let Candidate { wait, threads, place, capacity, layout, batch } = candidate;
    let mut text = String::new();
    let mut line = |line: &str| text.push_str(&format!("{line}\n"));
    line("use slipring::Wait;");
    if let StagePlacement::Named(_) = place {
        line("use slipring_machine::{Machine, Placement};");
    }
    line("");
    line("/// Put your own fields here.");
    line("#[derive(Clone, Copy)]");
    line("struct Event {");
    line(&format!("    bytes: [u8; {}],", demand.event_bytes));
    line("}");
    line("");
    line("fn main() -> Result<(), Box<dyn std::error::Error>> {");
    line(&format!("    let wait: Wait = \"{wait}\".parse()?;"));
    if let StagePlacement::Named(name) = place {
        line(&format!("    let placement: Placement = \"{name}\".parse()?;"));
    }
    line(&format!(
        "    let chain = slipring::ring({capacity}, || Event {{ bytes: [0; {}] }})",
        demand.event_bytes
    ));
    if *layout == Layout::Contiguous {
        line("        .contiguous()");
    }
    let mut options = "        .wait(wait)".to_owned();
    if let Threads::Shared(count) = threads {
        let _ = write!(options, "\n        .threads({count})");
    }
    if let StagePlacement::Named(_) = place {
        options.push_str("\n        .placement(Machine::this()?.at(placement))");
    }
    line(&format!("{options};"));
    let limit = batch.map_or(String::new(), |events| format!(".max_batch({events})"));
    line("    let (mut tx, pipeline) = chain");
    for stage in 1..demand.stages {
        line(&format!("        .update(\"stage-{stage}\", |event, _| work(event)){limit}"));
    }
    let last = demand.stages;
    line(&format!("        .read(\"stage-{last}\", |event, _| finish(event)){limit}"));
    line("        .spawn()?;");
    if let StagePlacement::Named(_) = place {
        line("    let bound = pipeline.bind_thread(slipring::stages::PRODUCER)?;");
    }
    line("    for number in 0..1000_u64 {");
    line("        tx.publish(|event| event.bytes.fill(number as u8))?;");
    line("    }");
    line("    tx.close();");
    if let StagePlacement::Named(_) = place {
        line("    drop(bound);");
    }
    line("    println!(\"{}\", pipeline.join()?);");
    line("    Ok(())");
    line("}");
    if demand.stages > 1 {
        line("");
        line("/// Put the work of the earlier stages here.");
        line("fn work(event: &mut Event) {");
        line("    event.bytes[0] = event.bytes[0].wrapping_add(1);");
        line("}");
    }
    line("");
    line("/// Put the work of the last stage here.");
    line("fn finish(event: &Event) {");
    line("    std::hint::black_box(event.bytes);");
    line("}");
    text
}
