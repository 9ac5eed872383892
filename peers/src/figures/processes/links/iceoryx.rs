//! iceoryx2 with its publish and subscribe. Its publisher waits while the subscriber's buffer is
//! full, so that no sample is lost.
//!
//! Invariants
//! - I1: events are arrays of words, without pointers and destructors. They have one layout in all
//!   processes of a run, because these run the same program.
//! - I2: every word of a sample is written before the sample is sent.

use std::fmt::Debug;
use std::hint::spin_loop;
use std::time::Duration;

use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::BackpressureAction;
use iceoryx2::port::backpressure_strategy::BackpressureStrategy;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{
    FileName, IceoryxSend, LogLevel, Path as IceoryxPath, SemanticString, SignalHandlingMode,
    ZeroCopySend, set_log_level,
};
use iceoryx2::service::builder::publish_subscribe::Builder;
use iceoryx2::service::ipc::Service;
use iceoryx2::service::port_factory::event;

use crate::figures::processes::ends::Link;
use crate::figures::processes::task::{RoleResult, Task, iceoryx_prefix};
use crate::work::{Check, Event, Words};

// SAFETY: the words have one layout in all processes (I1).
unsafe impl<const WORDS: usize> ZeroCopySend for Words<WORDS> {}

/// Makes a node whose files lie in the run's folder or have the run's prefix.
pub fn node(task: &Task) -> RoleResult<Node<Service>> {
    set_log_level(LogLevel::Error);
    let mut config = Config::default();
    let root = task.folder.join("iceoryx2");
    config.global.set_root_path(&IceoryxPath::new(root.to_string_lossy().as_bytes())?);
    config.global.prefix = FileName::new(iceoryx_prefix(&task.folder).as_bytes())?;
    let node = NodeBuilder::new().config(&config);
    Ok(node.signal_handling_mode(SignalHandlingMode::Disabled).create::<Service>()?)
}

/// Declares the service `name` of a run, whose subscriber has room for `samples`.
fn declare<P: IceoryxSend + Debug + ?Sized>(
    node: &Node<Service>,
    name: &str,
    samples: usize,
) -> RoleResult<Builder<P, (), Service>> {
    let service = node.service_builder(&name.try_into()?).publish_subscribe::<P>();
    Ok(service
        .enable_safe_overflow(false)
        .history_size(0)
        .subscriber_max_buffer_size(samples)
        .subscriber_max_borrowed_samples(1)
        .max_publishers(1)
        .max_subscribers(1))
}

/// A port, with the node that it belongs to.
pub struct Port<P> {
    port: P,
    _node: Node<Service>,
}

/// A sample for each event.
pub struct Samples;

impl<E: Event + Debug + ZeroCopySend> Link<E> for Samples {
    type Tx = Port<Publisher<Service, E, ()>>;
    type Rx = Port<Subscriber<Service, E, ()>>;
    /// Does nothing: the end that comes first makes the service, and the other end opens it.
    fn make(_task: &Task, _name: &str) -> RoleResult<()> {
        Ok(())
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        let (node, ring) = (node(task)?, task.work.ring());
        let service = declare::<E>(&node, name, ring)?.open_or_create()?;
        let port = service
            .publisher_builder()
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .max_loaned_samples(ring + 1);
        let port = port.create()?;
        // The loans touch the pages of all samples that the ring can hold.
        let mut loans = Vec::new();
        for _ in 0..ring + 1 {
            let mut loan = port.loan_uninit()?;
            E::init(loan.payload_mut(), 0);
            loans.push(loan);
        }
        drop(loans);
        Ok(Port { port, _node: node })
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        let node = node(task)?;
        let service = declare::<E>(&node, name, task.work.ring())?.open_or_create()?;
        let port = service.subscriber_builder().create()?;
        Ok(Port { port, _node: node })
    }
    /// A subscriber finds its publisher when it is polled.
    fn connect(rx: &mut Self::Rx) {
        assert!(!rx.port.has_samples().expect("the connection holds"));
    }
    #[inline(always)]
    fn send(tx: &mut Self::Tx, number: u64) {
        let mut sample = tx.port.loan_uninit().expect("a sample is free");
        E::init(sample.payload_mut(), number);
        // SAFETY: `init` has written every word of the sample (I2).
        let sample = unsafe { sample.assume_init() };
        assert_eq!(sample.send().expect("the sample is sent"), 1, "a sample without a receiver");
    }
    fn stream(rx: &mut Self::Rx, events: u64, check: &mut Check) {
        while check.seen() < events {
            match rx.port.receive().expect("the connection holds") {
                Some(sample) => check.see(sample.payload()),
                None => spin_loop(),
            }
        }
    }
    #[inline(always)]
    fn receive(rx: &mut Self::Rx) -> u64 {
        loop {
            match rx.port.receive().expect("the connection holds") {
                Some(sample) => return sample.payload().number(),
                None => spin_loop(),
            }
        }
    }
}

/// Each publication is one sample, which holds a slice of events. The ring holds as many events as
/// other rings.
pub struct Slices;

impl Link<u64> for Slices {
    type Tx = Port<Publisher<Service, [u64], ()>>;
    type Rx = Port<Subscriber<Service, [u64], ()>>;
    fn make(_task: &Task, _name: &str) -> RoleResult<()> {
        Ok(())
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        let (node, batch) = (node(task)?, task.work.batch());
        let samples = task.work.ring().div_ceil(batch);
        let service = declare::<[u64]>(&node, name, samples)?.open_or_create()?;
        let port = service
            .publisher_builder()
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .max_loaned_samples(samples + 1)
            .initial_max_slice_len(batch);
        let port = port.create()?;
        let loans: Result<Vec<_>, _> = (0..samples + 1).map(|_| port.loan_slice(batch)).collect();
        drop(loans?);
        Ok(Port { port, _node: node })
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        let node = node(task)?;
        let samples = task.work.ring().div_ceil(task.work.batch());
        let service = declare::<[u64]>(&node, name, samples)?.open_or_create()?;
        let port = service.subscriber_builder().create()?;
        Ok(Port { port, _node: node })
    }
    /// A subscriber finds its publisher when it is polled.
    fn connect(rx: &mut Self::Rx) {
        assert!(!rx.port.has_samples().expect("the connection holds"));
    }
    fn send(tx: &mut Self::Tx, number: u64) {
        Self::send_batch(tx, number, 1);
    }
    #[inline(always)]
    fn send_batch(tx: &mut Self::Tx, first: u64, len: u64) {
        let sample = tx.port.loan_slice_uninit(len as usize).expect("a sample is free");
        let sample = sample.write_from_fn(|index| first + index as u64);
        assert_eq!(sample.send().expect("the sample is sent"), 1, "a sample without a receiver");
    }
    fn stream(rx: &mut Self::Rx, events: u64, check: &mut Check) {
        while check.seen() < events {
            match rx.port.receive().expect("the connection holds") {
                Some(sample) => sample.payload().iter().for_each(|event| check.see(event)),
                None => spin_loop(),
            }
        }
    }
    fn receive(_rx: &mut Self::Rx) -> u64 {
        unreachable!("slices serve streams only")
    }
}

/// A sample for each event, and a notification that wakes a sleeping reader.
pub struct Notified;

fn event(node: &Node<Service>, name: &str) -> RoleResult<event::PortFactory<Service>> {
    let name = format!("{name} notified");
    Ok(node.service_builder(&name.as_str().try_into()?).event().open_or_create()?)
}

impl Link<u64> for Notified {
    type Tx = (<Samples as Link<u64>>::Tx, Notifier<Service>);
    type Rx = (<Samples as Link<u64>>::Rx, Listener<Service>);
    fn make(_task: &Task, _name: &str) -> RoleResult<()> {
        Ok(())
    }
    fn tx(task: &Task, name: &str) -> RoleResult<Self::Tx> {
        let tx = <Samples as Link<u64>>::tx(task, name)?;
        let notifier = event(&tx._node, name)?.notifier_builder().create()?;
        Ok((tx, notifier))
    }
    fn rx(task: &Task, name: &str) -> RoleResult<Self::Rx> {
        let rx = <Samples as Link<u64>>::rx(task, name)?;
        let listener = event(&rx._node, name)?.listener_builder().create()?;
        Ok((rx, listener))
    }
    fn connect(rx: &mut Self::Rx) {
        <Samples as Link<u64>>::connect(&mut rx.0);
    }
    fn send(tx: &mut Self::Tx, number: u64) {
        <Samples as Link<u64>>::send(&mut tx.0, number);
        tx.1.notify().expect("the notification is sent");
    }
    fn stream(rx: &mut Self::Rx, events: u64, check: &mut Check) {
        Self::each(rx, events as usize, |number| check.see(&number));
    }
    fn receive(rx: &mut Self::Rx) -> u64 {
        loop {
            match rx.0.port.receive().expect("the connection holds") {
                Some(sample) => return *sample.payload(),
                None => {
                    rx.1.blocking_wait(|_| {}).expect("the listener waits");
                }
            }
        }
    }
}

/// Makes a publisher that gives up a sample if the subscriber's buffer stays full for `patience`.
pub fn impatient(task: &Task, patience: Duration) -> RoleResult<Port<Publisher<Service, u64, ()>>> {
    let node = node(task)?;
    let service = declare::<u64>(&node, "there", task.work.ring())?.open_or_create()?;
    let port = service.publisher_builder().set_backpressure_handler(move |full| {
        if full.elapsed_time < patience {
            BackpressureAction::Retry
        } else {
            BackpressureAction::DiscardDataAndFail
        }
    });
    let port = port.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create()?;
    Ok(Port { port, _node: node })
}

impl Port<Publisher<Service, u64, ()>> {
    /// Sends an event. Returns whether it was delivered.
    pub fn try_send(&self, number: u64) -> bool {
        self.port.send_copy(number).is_ok_and(|receivers| receivers == 1)
    }
}
