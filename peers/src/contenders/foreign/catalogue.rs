//! The contenders in other languages, by the kind of work that they do.
//!
//! Each contender has two names: one in its own program, and one in tables, which adds the
//! language.

use super::java::library_version;
use super::request::{Form, Work};

/// A contender's name in its program, and its name in tables.
pub type Entry = (&'static str, String);

/// Whether a stream's producer holds a handle for one producer or for several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Producers {
    One,
    Several,
}

fn lmax(rest: &str) -> String {
    format!("LMAX Disruptor {}{rest}", library_version("lmax"))
}

fn questdb(rest: &str) -> String {
    format!("QuestDB {} RingQueue{rest}", library_version("questdb"))
}

fn jctools(queue: &str) -> String {
    format!("JCTools {} {queue}", library_version("jctools"))
}

fn agrona(queue: &str) -> String {
    format!("Agrona {} {queue}", library_version("agrona"))
}

/// Returns the contenders in Java for this kind of work.
pub fn java(work: &Work, producers: Producers) -> Vec<Entry> {
    match work {
        Work::Stream(_) | Work::Busy { .. } | Work::Open { .. } if producers == Producers::One => {
            vec![
                ("lmax", lmax("")),
                ("lmax-spinning", lmax(", producer spins")),
                ("questdb", questdb("")),
                ("jctools", jctools("SpscArrayQueue")),
                ("agrona-array", agrona("OneToOneConcurrentArrayQueue")),
                ("agrona-buffer", agrona("OneToOneRingBuffer")),
            ]
        }
        Work::Stream(_) | Work::Busy { .. } | Work::Open { .. } => vec![
            ("lmax-multi", lmax(", multi producer")),
            ("lmax-multi-spinning", lmax(", multi producer, producer spins")),
            ("questdb-multi", questdb(", MPSequence")),
            ("jctools-multi", jctools("MpscArrayQueue")),
            ("agrona-array-multi", agrona("ManyToOneConcurrentArrayQueue")),
            ("agrona-buffer-multi", agrona("ManyToOneRingBuffer")),
        ],
        Work::RoundTrip { .. } => vec![
            ("lmax", lmax("")),
            ("questdb", questdb("")),
            ("jctools", jctools("SpscArrayQueue")),
            ("agrona-array", agrona("OneToOneConcurrentArrayQueue")),
            ("agrona-buffer", agrona("OneToOneRingBuffer")),
        ],
        Work::Shape { form, .. } => {
            let mut all = vec![
                ("lmax-yielding", lmax(", yielding")),
                ("lmax-yielding-producer", lmax(", yielding, producer yields")),
                ("lmax-sleeping", lmax(", sleeping")),
                ("lmax-blocking", lmax(", blocking")),
            ];
            match form {
                Form::FanIn(_) => all.extend([
                    ("questdb-multi", questdb(", yielding")),
                    ("jctools-multi", jctools("MpscArrayQueue, yielding")),
                    ("agrona-array-multi", agrona("ManyToOneConcurrentArrayQueue, yielding")),
                    ("agrona-buffer-multi", agrona("ManyToOneRingBuffer, yielding")),
                ]),
                Form::Pipeline(_) => all.extend([
                    ("questdb", questdb(", yielding")),
                    ("jctools", jctools("SpscArrayQueue, yielding")),
                    ("agrona-array", agrona("OneToOneConcurrentArrayQueue, yielding")),
                    ("agrona-buffer", agrona("OneToOneRingBuffer, yielding")),
                ]),
                Form::Multicast | Form::Diamond => all.push(("questdb", questdb(", yielding"))),
            }
            if let Form::Pipeline(2) = form {
                let producers_thread = ", first stage on the producer's thread";
                all.extend([
                    ("lmax-two-threads", lmax(producers_thread)),
                    ("questdb-two-threads", questdb(producers_thread)),
                ]);
            }
            all
        }
        Work::Pool { .. } => {
            let pool = |wait| {
                format!("LMAX Disruptor {} WorkerPool, 3 threads, {wait}", library_version("lmax3"))
            };
            let mut all = vec![
                ("lmax3-yielding", pool("yielding")),
                ("lmax3-yielding-producer", pool("yielding, producer yields")),
                ("lmax3-sleeping", pool("sleeping")),
                ("lmax3-blocking", pool("blocking")),
            ];
            let queues = [
                ("questdb", "questdb-two-threads", questdb(", MCSequence")),
                ("jctools-spmc", "jctools-spmc-two-threads", jctools("SpmcArrayQueue")),
                ("jctools-mpmc", "jctools-mpmc-two-threads", jctools("MpmcArrayQueue")),
                (
                    "agrona-array-mpmc",
                    "agrona-array-mpmc-two-threads",
                    agrona("ManyToManyConcurrentArrayQueue"),
                ),
            ];
            for (three_threads, two_threads, name) in queues {
                all.push((three_threads, format!("{name}, 3 threads, yielding")));
                all.push((two_threads, format!("{name}, producer's thread working too")));
            }
            all
        }
    }
}

/// Returns the contenders in Java that go through memory which other processes can share.
pub fn java_between_processes() -> Vec<Entry> {
    vec![("aeron", format!("Aeron {} IPC, in one process", library_version("aeron")))]
}

/// Returns the contenders in C++ for this kind of work.
pub fn cpp(work: &Work, producers: Producers) -> Vec<Entry> {
    let concurrent = ("concurrent", "moodycamel ConcurrentQueue".to_owned());
    match work {
        Work::Stream(_) | Work::Busy { .. } | Work::Open { .. }
            if producers == Producers::Several =>
        {
            vec![concurrent]
        }
        Work::Stream(_) | Work::Busy { .. } | Work::Open { .. } | Work::RoundTrip { .. } => vec![
            ("boost", "Boost spsc_queue".to_owned()),
            ("rigtorp", "rigtorp SPSCQueue".to_owned()),
            ("reader-writer", "moodycamel ReaderWriterQueue".to_owned()),
            ("circular", "moodycamel BlockingReaderWriterCircularBuffer".to_owned()),
            concurrent,
        ],
        Work::Shape { form: Form::FanIn(_), .. } => vec![
            ("concurrent", "moodycamel ConcurrentQueue, yielding".to_owned()),
            ("concurrent-blocking", "moodycamel BlockingConcurrentQueue, blocking".to_owned()),
        ],
        Work::Shape { form: Form::Pipeline(_), .. } => vec![
            ("boost", "Boost spsc_queue, yielding".to_owned()),
            ("rigtorp", "rigtorp SPSCQueue, yielding".to_owned()),
            ("reader-writer", "moodycamel ReaderWriterQueue, yielding".to_owned()),
            (
                "circular-blocking",
                "moodycamel BlockingReaderWriterCircularBuffer, blocking".to_owned(),
            ),
            ("concurrent", "moodycamel ConcurrentQueue, yielding".to_owned()),
        ],
        Work::Shape { form: Form::Multicast | Form::Diamond, .. } => Vec::new(),
        Work::Pool { .. } => vec![
            ("concurrent", "moodycamel ConcurrentQueue, 3 threads, yielding".to_owned()),
            (
                "concurrent-two-threads",
                "moodycamel ConcurrentQueue, producer's thread working too".to_owned(),
            ),
            (
                "concurrent-blocking",
                "moodycamel BlockingConcurrentQueue, 3 threads, blocking".to_owned(),
            ),
        ],
    }
}

/// Returns whether the contender sleeps in the system or parks its producer. A run of such a
/// contender has fewer events, so that it lasts as long as the others.
pub fn is_slow(contender: &str) -> bool {
    matches!(
        contender,
        "lmax-yielding"
            | "lmax-sleeping"
            | "lmax-blocking"
            | "circular-blocking"
            | "lmax3-yielding"
            | "lmax3-sleeping"
            | "lmax3-blocking"
            | "concurrent-blocking"
    )
}
