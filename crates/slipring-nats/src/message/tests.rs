use super::*;

fn header() -> Header {
    let after = fastrand::u64(..u64::MAX / 2);
    Header {
        ring: Id::random(),
        epoch: Id::random(),
        incarnation: fastrand::u64(1..),
        writer: fastrand::u64(..),
        fingerprint: fastrand::u64(..),
        event_size: 0,
        after,
        first: after + fastrand::u64(..100),
        count: 1,
        window: 1,
    }
}

fn payload() -> Vec<u8> {
    std::iter::repeat_with(|| fastrand::u8(..)).take(fastrand::usize(..60)).collect()
}

/// Returns a description with a correct checksum.
fn signed(text: &str, payload: &[u8]) -> String {
    format!("{text} {:08x}", checksum(text, payload))
}

#[test]
fn a_single_event_comes_back() {
    for _ in 0..200 {
        let (header, payload) = (header(), payload());
        let line = describe(&header, &payload);
        assert!(line.len() < 256 && !line.contains(char::is_control), "{line}");
        let (read, events) = read(Some(&line), &payload).unwrap();
        assert_eq!(read, header);
        let events: Vec<&[u8]> = events.map(Result::unwrap).collect();
        assert_eq!(events, [payload.as_slice()], "also if it has no bytes");
    }
    let begin = Header { count: 0, ..header() };
    let line = describe(&begin, b"");
    let (found, mut events) = read(Some(&line), b"").unwrap();
    assert!(found == begin && events.next().is_none());
}

#[test]
fn each_damaged_byte_of_a_description_or_an_event_is_found() {
    for _ in 0..20 {
        let (header, payload) = (header(), payload());
        let line = describe(&header, &payload);
        for at in 0..line.len() {
            let mut bytes = line.clone().into_bytes();
            bytes[at] = b' ' + (bytes[at] - b' ' + fastrand::u8(1..95)) % 95;
            let damaged = String::from_utf8(bytes).unwrap();
            // The checksum's digits may change their case.
            if damaged.eq_ignore_ascii_case(&line) && at >= line.len() - 8 {
                continue;
            }
            let bad = read(Some(&damaged), &payload).map(|_| ()).unwrap_err();
            assert!(matches!(bad, Bad::Damaged(_)), "{damaged}");
            assert!(read(Some(&line[..at]), &payload).is_err(), "{}", &line[..at]);
        }
        for at in 0..payload.len() {
            let mut damaged = payload.clone();
            damaged[at] ^= fastrand::u8(1..);
            assert!(read(Some(&line), &damaged).is_err());
            assert!(read(Some(&line), &payload[..at]).is_err());
        }
    }
}

#[test]
fn a_sign_is_no_digit_of_a_checksum_or_a_number() {
    let (header, mut payload) = (header(), payload());
    let line = loop {
        let line = describe(&header, &payload);
        if line.as_bytes()[line.len() - 8] == b'0' {
            break line;
        }
        payload = fastrand::u64(..).to_le_bytes().to_vec();
    };
    assert!(read(Some(&line), &payload).is_ok());
    let signed = format!("{}+{}", &line[..line.len() - 8], &line[line.len() - 7..]);
    assert!(read(Some(&signed), &payload).is_err(), "{signed}");
    assert!(format!("+{}", "0".repeat(31)).parse::<Id>().is_err());
}

#[test]
fn forged_descriptions_are_refused() {
    let (ring, other) = ("0".repeat(32), "1".repeat(32));
    let good = format!("1 {ring} {other} 1 {0:016x} {0:016x} 5 7 1", 9);
    assert_eq!(read(Some(&signed(&good, b"x")), b"x").unwrap().0.first, 7);
    for (from, to) in [
        ("1 0", "2 0"),       // another version
        (" 5 7 1", " 8 7 1"), // the hole ends before it begins
        (" 5 7 1", " 5 7 2"), // two events in one message
        (" 5 7 1", " 5 7 0"), // no event, and a payload
        (" 5 7 1", " 5 7 -1"),
        (" 5 7 1", " 5 7"),
        (" 5 7 1", " 5 7 1 1"),
        (" 5 7 1", " 5 18446744073709551615 1"), // no position behind it
        (" 5 7 1", " 5 18446744073709551616 1"),
        (" 5 7 1", "  5 7 1"),
    ] {
        let forged = good.replacen(from, to, 1);
        assert!(forged != good && read(Some(&signed(&forged, b"x")), b"x").is_err(), "{forged}");
    }
    for line in ["", " ", "1", "1 ", "\u{e9} 00000000", " 00000000"] {
        assert!(read(Some(line), b"").is_err(), "{line:?}");
    }
}

#[test]
fn random_descriptions_and_frames_are_refused() {
    for _ in 0..2000 {
        let length = fastrand::usize(..200);
        let text: String =
            std::iter::repeat_with(|| fastrand::char(' '..'~')).take(length).collect();
        assert!(read(Some(&text), b"").is_err());
        assert!(read(Some(&signed(&text, b"")), b"").is_err());
        assert!(matches!(read(None, text.as_bytes()), Err(Bad::Foreign)));
    }
}

#[test]
fn a_description_is_found_among_other_headers() {
    let block = "NATS/1.0\r\nSlipring-Position: 7\r\nX: Slipring: no\r\nsLIPRING:  1 2 3 \r\n\r\n";
    assert_eq!(description(block), Some("1 2 3"));
    assert_eq!(description("NATS/1.0\r\nSlipring-Position: 7\r\n\r\n"), None);
    assert_eq!(description(""), None);
}
