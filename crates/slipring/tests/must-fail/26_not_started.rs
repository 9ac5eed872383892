//@ writes: declare stages, and forget to start them
//@ warns: unused `slipring::Chain` that must be used
//@ warns: a chain does nothing before it is started: call `feed`, `run` or `spawn`
//@ do: `feed`, `run` or `spawn`
fn main() {
    slipring::ring(8, || 0u64).read("print", |value, _| println!("{value}"));
}
