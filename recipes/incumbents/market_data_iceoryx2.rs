//! Market data between processes on iceoryx2: the incumbent beside `market_data.rs`.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use iceoryx2::port::update_connections::UpdateConnections as _;
use iceoryx2::prelude::*;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Service =
    iceoryx2::service::port_factory::publish_subscribe::PortFactory<ipc::Service, Quote, ()>;

#[derive(Debug, Clone, Copy, ZeroCopySend)]
#[repr(C)]
struct Quote {
    symbol: u64,
    price: u64,
    is_last: bool,
}

const SYMBOLS: u64 = 5;

fn service(node: &Node<ipc::Service>, name: &str) -> Result<Service> {
    let builder = node.service_builder(&name.try_into()?).publish_subscribe::<Quote>();
    Ok(builder.subscriber_max_buffer_size(256).enable_safe_overflow(true).open_or_create()?)
}

fn screen(name: &str) -> Result<()> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let subscriber = service(&node, name)?.subscriber_builder().create()?;
    let mut newest = BTreeMap::new();
    loop {
        while let Some(quote) = subscriber.receive()? {
            if quote.is_last {
                newest.iter().for_each(|(symbol, price)| println!("symbol {symbol}: {price}"));
                return Ok(());
            }
            newest.insert(quote.symbol, quote.price);
        }
        node.wait(Duration::from_millis(1))?;
    }
}

fn main() -> Result<()> {
    if let Some(name) = std::env::args().nth(1) {
        return screen(&name);
    }
    let name = format!("market-data-{}", std::process::id());
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = service(&node, &name)?;
    let publisher = service.publisher_builder().create()?;
    let mut screen = Command::new(std::env::current_exe()?).arg(&name).spawn()?;
    while service.dynamic_config().number_of_subscribers() == 0 {
        node.wait(Duration::from_millis(1))?;
    }
    publisher.update_connections()?;
    for price in 0..100_000 {
        let quote = Quote { symbol: price % SYMBOLS, price, is_last: false };
        publisher.loan_uninit()?.write_payload(quote).send()?;
    }
    publisher.loan_uninit()?.write_payload(Quote { symbol: 0, price: 0, is_last: true }).send()?;
    if !screen.wait()?.success() {
        return Err("the screen failed".into());
    }
    Ok(())
}
