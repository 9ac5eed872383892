//! The texts of the simulated experiment, its figures, and the model's parameters.

use slipring_coherence::{Costs, Machine, Topology};

use super::super::super::experiment::About;
use super::super::super::figure::{Figure, PlotKind};
use super::super::super::machine::Model;
use super::super::about::{self as real, SORTS};
use super::contenders::{CAPACITY, SORT};

pub static ABOUT: About = About {
    name: "scaling-simulated",
    title: "Simulated: one producer and one to eleven consumers that sort integers",
    paragraph: "This is a simulation, and no measurement. The programs of `slipring lab scaling` \
        run on virtual cores, and each access costs what the state of its cache line makes it \
        cost. How often do lines move between cores, and how often between sockets? Which shape \
        does the time have over the number of consumers? A transfer is an access that has to get \
        a line, or the right to change it, from another core. Counts are repeatable. Virtual time \
        is shown relative to that of one consumer, and of one thread that does all the sorts \
        without passing them on; it is no speed. A core counts as busy while its thread does not \
        sleep. Packed threads fill a socket before the next, as in the study; spread threads \
        alternate between the sockets. The blocking queue is written by hand on the simulator's \
        lock and conditions; ring and pool are the library's own code. Each repetition has its own \
        seed, which varies the latencies.",
    drawing: real::ABOUT.drawing,
    source: real::SOURCE,
    figures: &[
        Figure {
            title: "Simulated: transfers by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines { x: "consumers", metric: "transfers", logarithmic: false },
        },
        Figure {
            title: "Simulated: transfers between sockets by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines {
                x: "consumers",
                metric: "transfers between sockets",
                logarithmic: false,
            },
        },
        Figure {
            title: "Simulated: read-modify-writes by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines {
                x: "consumers",
                metric: "read-modify-writes",
                logarithmic: false,
            },
        },
        Figure {
            title: "Simulated: relative time by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines { x: "consumers", metric: "relative time", logarithmic: true },
        },
        Figure {
            title: "Simulated: time against one thread by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines {
                x: "consumers",
                metric: "time against one thread",
                logarithmic: true,
            },
        },
        Figure {
            title: "Simulated: busy cores by consumers",
            panels: Some("sorts"),
            kind: PlotKind::Lines { x: "consumers", metric: "busy cores", logarithmic: false },
        },
    ],
};

/// Returns the differences from the study and from real cores, one sentence for each.
pub fn missing(events: [u64; SORTS.len()], topology: Topology, consumers: usize) -> Vec<String> {
    let [one, some, many] = events;
    let mut missing = vec![
        format!(
            "The study had 40 million events; a run here has {one} with 1 sort, {some} with 15, \
             and {many} with 300, after a few for each consumer that do not count. Ring and queue \
             hold {CAPACITY} events."
        ),
        format!("A sort takes {} ns of virtual time and moves no lines.", SORT.as_nanos()),
        "The model has no capacity of caches, no prefetching, no bandwidth and no preemption; \
         threads outside of the simulation do not exist."
            .to_owned(),
        "The pool on shared threads is left out, because the model has a core for each thread."
            .to_owned(),
        "The study's programs were written in Java. How its Disruptor waited is not known here; \
         ring and pool wait by the library's default strategy, which sleeps when a wait is long."
            .to_owned(),
    ];
    if topology.sockets() == 1 {
        missing.push("This topology has no second socket.".to_owned());
    } else if consumers < topology.cores() {
        missing.push(format!(
            "Packed threads stay on one socket, because {consumers} consumers and the producer \
             fit its {} cores.",
            topology.cores(),
        ));
    }
    missing
}

/// Returns the simulated machine with all parameters of the model.
pub fn model(machine: &Machine) -> Model {
    let Machine { name, topology, costs, jitter, seed: _ } = machine;
    let Costs {
        load,
        store,
        rmw,
        fence,
        pause,
        dirty_same,
        dirty_cross,
        clean_same,
        clean_cross,
        memory,
        occupancy,
        buffer,
        window,
        misses,
        speculates,
        clock,
        yields,
        futex_call,
        futex_wake,
        futex_wait,
        wake_latency,
        timer_lateness,
        membarrier,
        interrupt,
        spawn,
    } = costs;
    let time = |picos: &u64| format!("{} ns", *picos as f64 / 1_000.0);
    let parameters = [
        ("sockets", topology.sockets().to_string()),
        ("cores of each socket", topology.cores().to_string()),
        ("load of an own line", time(load)),
        ("store into the buffer", time(store)),
        ("read-modify-write of an own line", time(rmw)),
        ("fence", time(fence)),
        ("spin hint", time(pause)),
        ("changed line from a core of the socket", time(dirty_same)),
        ("changed line from another socket", time(dirty_cross)),
        ("clean line within the socket", time(clean_same)),
        ("clean line from another socket", time(clean_cross)),
        ("line from memory", time(memory)),
        ("occupancy of a clean line by a reader", time(occupancy)),
        ("entries of the store buffer", buffer.to_string()),
        ("accesses ahead of a load", window.to_string()),
        ("lines awaited at once", misses.to_string()),
        ("runs ahead of branches", if *speculates { "yes" } else { "no" }.to_owned()),
        ("reading the clock", time(clock)),
        ("yielding", time(yields)),
        ("futex call", time(futex_call)),
        ("waking a thread", time(futex_wake)),
        ("going to sleep", time(futex_wait)),
        ("latency of a wake-up", time(wake_latency)),
        ("lateness of a timer", time(timer_lateness)),
        ("membarrier", time(membarrier)),
        ("interrupt of each core by a membarrier", time(interrupt)),
        ("starting a thread", time(spawn)),
        ("a sort", format!("{} ns", SORT.as_nanos())),
        ("variation of transfers", format!("{jitter} %")),
    ];
    Model {
        name: name.clone(),
        cores: topology.total(),
        parameters: parameters.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_states_each_parameter_in_its_unit() {
        let model = model(&Machine::server("2x6".parse().unwrap()));
        assert_eq!((model.name.as_str(), model.cores), ("server 2x6", 12));
        let of = |name: &str| {
            let found = model.parameters.iter().find(|(of, _)| of == name);
            found.unwrap_or_else(|| panic!("{name}")).1.as_str()
        };
        assert_eq!(of("sockets"), "2");
        assert_eq!(of("store into the buffer"), "0.4 ns");
        assert_eq!(of("changed line from another socket"), "110 ns");
        assert_eq!(of("runs ahead of branches"), "yes");
    }

    #[test]
    fn a_missing_second_socket_is_named() {
        let missing = |topology: &str, consumers| {
            missing([1, 2, 3], topology.parse().unwrap(), consumers).split_off(5)
        };
        assert_eq!(missing("2x6", 11), [""; 0]);
        assert!(missing("1x12", 11)[0].contains("no second socket"));
        assert!(missing("2x6", 5)[0].contains("stay on one socket"));
        assert_eq!(missing("2x6", 6), [""; 0]);
    }
}
