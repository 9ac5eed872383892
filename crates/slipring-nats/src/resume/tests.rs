//! Single decisions, including those that the model does not reach.

use super::*;

const US: Party = Party { epoch: Id([1; 16]), writer: 7, fingerprint: 3 };

fn message(writer: u64, incarnation: u64, first: u64, count: u32) -> Header {
    Header {
        ring: Id([1; 16]),
        epoch: Id([1; 16]),
        incarnation,
        writer,
        fingerprint: 3,
        event_size: 8,
        after: first,
        first,
        count,
        window: 5,
    }
}

fn tail(last: Header) -> Tail {
    Tail { last_sequence: 40, last: Some((40, last)) }
}

/// The end of a stream that has lost its last messages.
fn cut(last: Header, sequence: u64) -> Tail {
    Tail { last_sequence: 40, last: Some((sequence, last)) }
}

fn begun() -> Begun {
    Begun { ring: Id([1; 16]), incarnation: 2, acknowledged: 100, sent: 130, sequence: 39 }
}

/// The number of a journal that begins.
const NUMBER: Id = Id([3; 16]);
const NEW: Start =
    Start { survives: false, at: None, accepts_loss: false, journal: None, number: NUMBER };

fn at(seq: u64) -> Start {
    Start { at: Some(seq), ..NEW }
}

fn surviving(released: u64, accepts_loss: bool) -> Start {
    Start { survives: true, at: Some(released), accepts_loss, ..NEW }
}

#[test]
fn an_unused_stream_begins_where_the_user_says() {
    let unused = Tail { last_sequence: 0, last: None };
    let point = begin(&unused, &US, &NEW).unwrap();
    assert_eq!((point.next, point.incarnation, point.messages), (0, 1, 1));
    assert_eq!(begin(&unused, &US, &at(9)).unwrap().next, 9);
    assert_eq!(begin(&unused, &US, &surviving(5, false)).unwrap().next, 5);
}

#[test]
fn an_emptied_stream_tells_no_position_and_no_window() {
    let emptied = Tail { last_sequence: 40, last: None };
    for start in [NEW, surviving(5, false)] {
        assert!(matches!(begin(&emptied, &US, &start), Err(Error::Emptied { last_sequence: 40 })));
    }
    for start in [at(5), surviving(5, true)] {
        let point = begin(&emptied, &US, &start).unwrap();
        assert_eq!((point.expected, point.next, point.messages), (40, 5, MAX_WINDOW));
        // The incarnation rises as if each lost message had begun a sink.
        assert_eq!((point.incarnation, point.ring), (41, NUMBER));
    }
    assert!(matches!(resume(&emptied, &US, &begun()), Err(Error::Emptied { .. })));
    // The stream was recreated.
    let anew = Tail { last_sequence: 0, last: None };
    assert!(matches!(
        resume(&anew, &US, &begun()),
        Err(Error::LostAcknowledged { acknowledged: Some(99), found: 0, gone: None })
    ));
    // Nothing was appended since the last acknowledgement.
    let point = resume(&emptied, &US, &Begun { sequence: 40, ..begun() }).unwrap();
    assert_eq!((point.expected, point.next, point.incarnation), (40, 100, 2));
}

#[test]
fn a_sink_begins_with_as_many_messages_as_the_one_before_has_in_flight() {
    let point = begin(&tail(message(8, 4, 90, 10)), &US, &NEW).unwrap();
    assert_eq!((point.expected, point.next, point.incarnation, point.messages), (40, 100, 5, 5));
}

#[test]
fn a_surviving_ring_goes_on_behind_the_stream_or_says_what_is_lost() {
    let last = tail(message(8, 4, 90, 10));
    assert_eq!(begin(&last, &US, &surviving(95, false)).unwrap().next, 100);
    assert_eq!(begin(&last, &US, &surviving(100, false)).unwrap().next, 100);
    let lost = begin(&last, &US, &surviving(103, false));
    assert!(matches!(
        lost,
        Err(Error::LostAcknowledged { acknowledged: Some(102), found: 100, gone: None })
    ));
    let hole = begin(&last, &US, &surviving(103, true)).unwrap();
    assert_eq!((hole.after, hole.next), (100, 103));
    let other = tail(Header { epoch: Id([2; 16]), ..message(8, 4, 90, 10) });
    let wrong = begin(&other, &US, &surviving(95, false));
    assert!(matches!(wrong, Err(Error::WrongEpoch { ring: 95, stream: 100 })));
    // The ring was made at the stream's end, and its sink has not begun yet.
    assert_eq!(begin(&other, &US, &surviving(100, false)).unwrap().next, 100);
}

#[test]
fn a_sink_in_doubt_goes_on_behind_its_own_last_message() {
    let point = resume(&tail(message(7, 2, 110, 10)), &US, &begun()).unwrap();
    assert_eq!((point.expected, point.next), (40, 120));
}

#[test]
fn a_sink_may_have_begun_anew_before_it_knows() {
    let again = message(7, 3, 100, 0);
    let point = resume(&tail(again), &US, &begun()).unwrap();
    assert_eq!((point.next, point.incarnation), (100, 3));
    // The sink's own begin messages are gone, and the server does not know that.
    let lost = resume(&tail(message(7, 2, 90, 10)), &US, &Begun { incarnation: 3, ..begun() });
    assert!(matches!(lost, Err(Error::LostAcknowledged { acknowledged: None, found: 100, .. })));
    let next = anew(&point, 5);
    assert_eq!((next.expected, next.next, next.incarnation, next.messages), (40, 100, 4, 5));
}

#[test]
fn a_sink_in_doubt_ends_by_the_name_of_what_happened() {
    let ends = |last: Header| resume(&tail(last), &US, &begun()).unwrap_err();
    let lost = |found| Error::LostAcknowledged { acknowledged: Some(99), found, gone: None };
    for (last, expected) in [
        (message(8, 3, 120, 0), Error::Fenced { ours: 2, theirs: 3 }),
        (message(8, 2, 120, 0), Error::Fenced { ours: 2, theirs: 2 }),
        (message(7, 2, 80, 10), lost(90)),
        (message(8, 1, 90, 5), lost(95)),
        (message(7, 2, 130, 10), Error::WrongEpoch { ring: 130, stream: 140 }),
        (
            Header { ring: Id([9; 16]), ..message(8, 3, 120, 0) },
            Error::WrongEpoch { ring: 100, stream: 120 },
        ),
        (
            Header { fingerprint: 4, ..message(7, 2, 110, 0) },
            Error::WrongType { ours: 3, theirs: 4 },
        ),
    ] {
        assert_eq!(ends(last).to_string(), expected.to_string());
    }
}

/// The lost end may have had events of this journal, or of a sink that is alive.
#[test]
fn a_sink_that_begins_names_an_end_that_is_gone() {
    let tail = cut(message(8, 4, 90, 10), 38);
    let lost = |start| match begin(&tail, &US, &start) {
        Err(Error::LostAcknowledged { acknowledged, found: 100, gone: Some((39, 40)) }) => {
            acknowledged
        }
        other => panic!("{other:?}"),
    };
    for start in [NEW, at(90), surviving(90, false), surviving(100, false)] {
        assert_eq!(lost(start), None, "{start:?}");
    }
    for start in [at(120), surviving(120, false)] {
        assert_eq!(lost(start), Some(119), "{start:?}");
    }
    assert!(!has_begun(&tail, &Party { writer: 8, ..US }, &begin_at(4)));
}

fn begin_at(incarnation: u64) -> Point {
    let (expected, after, next, ring, messages) = (30, 100, 100, Id([1; 16]), 5);
    Point { expected, after, next, ring, incarnation, messages }
}

#[test]
fn a_sink_that_accepts_the_loss_of_the_end_goes_on_under_another_number() {
    let (old, own) = (Id([9; 16]), NUMBER);
    let tail = cut(Header { ring: old, ..message(8, 4, 90, 10) }, 38);
    let says = |at, journal| Start { at, journal, accepts_loss: true, ..NEW };
    for (start, next, ring) in [
        (says(None, None), 100, own),
        (says(Some(120), None), 120, own),
        (says(Some(120), Some(old)), 120, old),
        (says(Some(100), None), 100, old),
        (at(100), 100, old),
        // The user's position lies before the end, so some events lie at or behind it.
        (says(Some(99), Some(old)), 100, own),
        (says(None, Some(old)), 100, own),
        // Another ring may have written the lost messages, even where an existing ring continues.
        (surviving(120, true), 120, own),
        (surviving(100, true), 100, own),
        (Start { journal: Some(old), ..surviving(120, true) }, 120, old),
    ] {
        let point = begin(&tail, &US, &start).unwrap();
        assert_eq!((point.after, point.next, point.ring), (100, next, ring), "{start:?}");
        let begins = (point.expected, point.incarnation, point.messages);
        assert_eq!(begins, (40, 7, MAX_WINDOW), "two sinks more may have begun");
    }
}

#[test]
fn a_position_that_the_user_has_noted_tells_a_loss() {
    let last = tail(message(8, 4, 90, 10));
    assert_eq!(begin(&last, &US, &at(99)).unwrap().next, 100);
    let lost = begin(&last, &US, &at(103));
    assert!(matches!(
        lost,
        Err(Error::LostAcknowledged { acknowledged: Some(102), found: 100, gone: None })
    ));
    let accepted = begin(&last, &US, &Start { accepts_loss: true, ..at(103) }).unwrap();
    assert_eq!((accepted.after, accepted.next, accepted.ring), (100, 103, NUMBER));
}

#[test]
fn a_journal_has_the_number_that_the_user_names() {
    let number = Some(Id([5; 16]));
    let unused = Tail { last_sequence: 0, last: None };
    let emptied = Tail { last_sequence: 40, last: None };
    for tail in [unused, emptied] {
        let point = begin(&tail, &US, &Start { journal: number, ..at(5) }).unwrap();
        assert_eq!(point.ring, Id([5; 16]));
        // The number alone does not say which positions had events under it.
        begin(&tail, &US, &Start { journal: number, ..NEW }).unwrap_err();
        // The ring exists already, but may not have been the last to write to the stream. So the
        // journal gets a new number.
        let start = Start { accepts_loss: true, ..surviving(5, true) };
        assert_eq!(begin(&tail, &US, &start).unwrap().ring, NUMBER);
    }
    for start in [NEW, at(100), surviving(100, false)] {
        let last = tail(message(8, 4, 90, 10));
        let other = begin(&last, &US, &Start { journal: number, ..start });
        assert!(matches!(other, Err(Error::OtherJournal { .. })), "{start:?}");
        begin(&last, &US, &Start { journal: Some(Id([1; 16])), ..start }).unwrap();
    }
}

#[test]
fn a_sink_in_doubt_names_an_end_that_is_gone_unless_it_knows_what_was_there() {
    // Nothing was appended since the last acknowledgement.
    let as_left = Begun { sequence: 40, ..begun() };
    for last in [message(7, 2, 90, 10), message(8, 1, 90, 10)] {
        let point = resume(&cut(last, 38), &US, &as_left).unwrap();
        assert_eq!((point.expected, point.next, point.incarnation), (40, 100, 2));
    }
    for (last, begun, expected) in [
        (message(7, 2, 85, 10), as_left, Some(99)),
        (message(7, 2, 85, 10), begun(), Some(99)),
        // The lost messages were the sink's own frames in flight, another sink's, or both.
        (message(7, 2, 110, 10), begun(), None),
        (message(8, 1, 90, 10), begun(), None),
    ] {
        let Err(Error::LostAcknowledged { acknowledged, gone, .. }) =
            resume(&cut(last, 38), &US, &begun)
        else {
            panic!("{last:?}")
        };
        assert_eq!((acknowledged, gone), (expected, Some((39, 40))), "{last:?}");
    }
    let fenced = resume(&cut(message(8, 3, 110, 0), 38), &US, &begun());
    assert!(matches!(fenced, Err(Error::Fenced { .. })));
}

/// In a cluster, a replaced leader keeps answering from its old state for some seconds.
#[test]
fn a_loss_counts_when_it_was_told_often_enough() {
    let told = |in_cluster| {
        let mut losses = Losses::default();
        (1..=20).find(|_| losses.are_sure(in_cluster))
    };
    assert_eq!(told(false), Some(9));
    assert_eq!(told(true), None, "all at once");
    for (error, is_excused) in [
        (Error::LostAcknowledged { acknowledged: Some(9), found: 5, gone: None }, true),
        (Error::Emptied { last_sequence: 9 }, true),
        (Error::NoStream { stream: "ORDERS".into() }, true),
        (Error::WrongEpoch { ring: 10, stream: 5 }, true),
        (Error::WrongEpoch { ring: 5, stream: 10 }, false),
        (Error::Fenced { ours: 1, theirs: 2 }, false),
    ] {
        assert_eq!(Losses::default().excuse(&error, false), is_excused, "{error}");
    }
}
