//! Events and handlers that borrow locals, and a ring that feeds a ring.

use slipring::{At, faults::Fault, stages::ReadHandler};
#[derive(Default)]
struct Count {
    events: u64,
    batches: u64,
    log: Vec<&'static str>,
}
impl<E> ReadHandler<E> for Count {
    fn start(&mut self) -> Result<(), Fault> {
        self.log.push("start");
        Ok(())
    }
    fn event(&mut self, _: &E, _: At) -> Result<(), Fault> {
        self.events += 1;
        Ok(())
    }
    fn batch_end(&mut self, _: u64) -> Result<(), Fault> {
        self.batches += 1;
        Ok(())
    }
    fn stop(&mut self) -> Result<(), Fault> {
        self.log.push("stop");
        Ok(())
    }
}
#[test]
fn events_and_handlers_may_borrow_locals() -> Result<(), Box<dyn std::error::Error>> {
    let _watched = crate::common::watched();
    let text = String::from("alpha\nbeta\ngamma");
    let mut count = Count::default();
    let mut longest = "";
    // `E` is `&'text str`: the ring holds references to the local text.
    slipring::ring(8, || "")
        .fan_out(|x| {
            x.read("longest", |line, _| {
                if line.len() > longest.len() {
                    longest = line
                }
            })
            .branch(|b| b.read_with("count", &mut count))
        })
        .feed(text.lines(), |slot, line| *slot = line)?;
    assert_eq!((longest, count.events, &count.log[..]), ("alpha", 3, &["start", "stop"][..]));
    // A stage publishes into another ring.
    let mut sum = 0;
    slipring::ring(8, || 0u64).read("sum", |v, _| sum += v).run(|second| {
        slipring::ring(8, || 0u64)
            .read(
                "even",
                |v, _| if v % 2 == 0 { second.publish(|s| *s = *v).map(drop) } else { Ok(()) },
            )
            .feed(0..100, |s, i| *s = i)?;
        Ok(())
    })?;
    assert_eq!(sum, 2450);
    Ok(())
}
