//! The contenders in other languages, by the kind of work that they do.
//!
//! Each has the name that a program knows it by, and the name that tables show, to which the
//! language is added.

use super::java::library_version;
use super::request::{Form, Work};

/// The program's name of a contender, and the tables' name.
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

/// Returns the contenders in Java that do some work.
pub fn java(work: &Work, producers: Producers) -> Vec<Entry> {
    match work {
        Work::Stream(_) | Work::Busy { .. } if producers == Producers::One => vec![
            ("lmax", lmax("")),
            ("lmax-spinning", lmax(", producer spins")),
            ("questdb", questdb("")),
            ("jctools", jctools("SpscArrayQueue")),
            ("agrona-array", agrona("OneToOneConcurrentArrayQueue")),
            ("agrona-buffer", agrona("OneToOneRingBuffer")),
        ],
        Work::Stream(_) | Work::Busy { .. } => vec![
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
            if let Form::FanIn(_) = form {
                all.extend([
                    ("questdb-multi", questdb(", yielding")),
                    ("jctools-multi", jctools("MpscArrayQueue, yielding")),
                    ("agrona-array-multi", agrona("ManyToOneConcurrentArrayQueue, yielding")),
                    ("agrona-buffer-multi", agrona("ManyToOneRingBuffer, yielding")),
                ]);
            } else {
                all.push(("questdb", questdb(", yielding")));
            }
            all
        }
        Work::Pool { .. } => {
            let pool = |wait| {
                format!("LMAX Disruptor {} WorkerPool, 3 threads, {wait}", library_version("lmax3"))
            };
            vec![
                ("lmax3-yielding", pool("yielding")),
                ("lmax3-sleeping", pool("sleeping")),
                ("lmax3-blocking", pool("blocking")),
                ("questdb", questdb(", MCSequence, 3 threads, yielding")),
            ]
        }
    }
}

/// Returns the contenders in C++ that do some work.
pub fn cpp(work: &Work, producers: Producers) -> Vec<Entry> {
    let concurrent = ("concurrent", "moodycamel ConcurrentQueue".to_owned());
    match work {
        Work::Stream(_) | Work::Busy { .. } if producers == Producers::Several => vec![concurrent],
        Work::Stream(_) | Work::Busy { .. } | Work::RoundTrip { .. } => vec![
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
        Work::Shape { .. } | Work::Pool { .. } => Vec::new(),
    }
}

/// Returns whether the contender waits in the system, or parks its producer, so that a run of the
/// same length has fewer events.
pub fn is_slow(contender: &str) -> bool {
    matches!(
        contender,
        "lmax-yielding"
            | "lmax-sleeping"
            | "lmax-blocking"
            | "lmax3-yielding"
            | "lmax3-sleeping"
            | "lmax3-blocking"
            | "concurrent-blocking"
    )
}
