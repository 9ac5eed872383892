//! Single decisions, also those that the model does not reach: streams that lost messages.

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
    Tail { last_sequence: 40, last: Some(last) }
}

fn begun() -> Begun {
    Begun { ring: Id([1; 16]), incarnation: 2, acknowledged: 100, sent: 130, sequence: 39 }
}

const NEW: Start = Start::New { at: None };

fn surviving(released: u64, accepts_loss: bool) -> Start {
    Start::Surviving { released, accepts_loss }
}

#[test]
fn an_unused_stream_begins_where_the_user_says() {
    let unused = Tail { last_sequence: 0, last: None };
    let point = begin(&unused, &US, NEW).unwrap();
    assert_eq!((point.next, point.incarnation, point.messages), (0, 1, 1));
    assert_eq!(begin(&unused, &US, Start::New { at: Some(9) }).unwrap().next, 9);
    assert_eq!(begin(&unused, &US, surviving(5, false)).unwrap().next, 5);
}

#[test]
fn an_emptied_stream_tells_no_position_and_no_window() {
    let emptied = Tail { last_sequence: 40, last: None };
    for start in [NEW, surviving(5, false)] {
        assert!(matches!(begin(&emptied, &US, start), Err(Error::Emptied { last_sequence: 40 })));
    }
    for start in [Start::New { at: Some(5) }, surviving(5, true)] {
        let point = begin(&emptied, &US, start).unwrap();
        assert_eq!((point.expected, point.next, point.messages), (40, 5, MAX_WINDOW));
    }
    assert!(matches!(resume(&emptied, &US, &begun()), Err(Error::Emptied { .. })));
    // Nothing was appended since the last acknowledgement.
    let point = resume(&emptied, &US, &Begun { sequence: 40, ..begun() }).unwrap();
    assert_eq!((point.expected, point.next, point.incarnation), (40, 100, 2));
}

#[test]
fn a_sink_begins_with_as_many_messages_as_the_one_before_has_in_flight() {
    let point = begin(&tail(message(8, 4, 90, 10)), &US, NEW).unwrap();
    assert_eq!((point.expected, point.next, point.incarnation, point.messages), (40, 100, 5, 5));
}

#[test]
fn a_surviving_ring_goes_on_behind_the_stream_or_says_what_is_lost() {
    let last = tail(message(8, 4, 90, 10));
    assert_eq!(begin(&last, &US, surviving(95, false)).unwrap().next, 100);
    assert_eq!(begin(&last, &US, surviving(100, false)).unwrap().next, 100);
    let lost = begin(&last, &US, surviving(103, false));
    assert!(matches!(lost, Err(Error::LostAcknowledged { acknowledged: 102, found: 100 })));
    let hole = begin(&last, &US, surviving(103, true)).unwrap();
    assert_eq!((hole.after, hole.next), (100, 103));
    let other = tail(Header { epoch: Id([2; 16]), ..message(8, 4, 90, 10) });
    let wrong = begin(&other, &US, surviving(95, false));
    assert!(matches!(wrong, Err(Error::WrongEpoch { ring: 95, stream: 100 })));
    // A ring that was made behind the stream's end, and whose sink has not begun yet.
    assert_eq!(begin(&other, &US, surviving(100, false)).unwrap().next, 100);
}

#[test]
fn a_sink_in_doubt_goes_on_behind_its_own_last_message() {
    let point = resume(&tail(message(7, 2, 110, 10)), &US, &begun()).unwrap();
    assert_eq!((point.expected, point.next), (40, 120));
}

#[test]
fn a_sink_in_doubt_ends_by_the_name_of_what_happened() {
    let ends = |last: Header| resume(&tail(last), &US, &begun()).unwrap_err();
    let lost = Error::LostAcknowledged { acknowledged: 99, found: 90 };
    for (last, expected) in [
        (message(8, 3, 120, 0), Error::Fenced { ours: 2, theirs: 3 }),
        (message(8, 2, 120, 0), Error::Fenced { ours: 2, theirs: 2 }),
        (message(7, 2, 80, 10), lost),
        (message(8, 1, 90, 5), Error::LostAcknowledged { acknowledged: 99, found: 95 }),
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

/// Between servers, a leader that was replaced answers with what it knew for some seconds.
#[test]
fn a_loss_counts_when_it_was_told_often_enough() {
    let told = |in_cluster| {
        let mut losses = Losses::default();
        (1..=20).find(|_| losses.are_sure(in_cluster))
    };
    assert_eq!(told(false), Some(9));
    assert_eq!(told(true), None, "all at once");
    for (error, is_excused) in [
        (Error::LostAcknowledged { acknowledged: 9, found: 5 }, true),
        (Error::Emptied { last_sequence: 9 }, true),
        (Error::NoStream { stream: "ORDERS".into() }, true),
        (Error::WrongEpoch { ring: 10, stream: 5 }, true),
        (Error::WrongEpoch { ring: 5, stream: 10 }, false),
        (Error::Fenced { ours: 1, theirs: 2 }, false),
    ] {
        assert_eq!(Losses::default().excuse(&error, false), is_excused, "{error}");
    }
}
