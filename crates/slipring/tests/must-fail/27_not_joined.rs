//@ writes: spawn a chain, and forget the join
//@ warns: unused `Pipeline`
//@ warns: if the program ends before the stages do, the events that they have not handled are
//@     lost: join the pipeline, or let `join_on_drop` do it
//@ do: `join`, or `join_on_drop`
fn main() {
    slipring::ring(8, || 0u64).read("print", |value, _| println!("{value}")).spawn().unwrap();
}
