use super::*;

/// FNV-1a of `order`, 0, 1 and 8, computed by another program.
const FINGERPRINT: u64 = 0x62fd_1a77_e923_11bc;

/// Number of random frames of each test.
const ROUNDS: usize = if cfg!(miri) { 20 } else { 400 };

/// Returns a header with random fields that do not contradict each other.
fn header(event_size: u32, count: u32) -> Header {
    let after = fastrand::u64(..u64::MAX / 2);
    Header {
        ring: Id::random(),
        epoch: Id::random(),
        incarnation: fastrand::u64(1..),
        writer: fastrand::u64(..),
        fingerprint: fastrand::u64(..),
        event_size,
        after,
        first: after + fastrand::u64(..3) * fastrand::u64(..1000),
        count,
        window: fastrand::u32(1..=256),
    }
}

/// Returns random events of `size` bytes each, or of random sizes if it is 0.
fn events(size: usize, count: u32) -> Vec<Vec<u8>> {
    let event = |_| {
        let length = if size == 0 { fastrand::usize(..40) } else { size };
        std::iter::repeat_with(|| fastrand::u8(..)).take(length).collect()
    };
    (0..count).map(event).collect()
}

/// Returns the bytes of a frame with these events.
fn frame(header: &Header, events: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    for event in events {
        if header.event_size == 0 {
            bytes.extend((event.len() as u32).to_le_bytes());
        }
        bytes.extend(event);
    }
    header.write(&mut bytes);
    bytes
}

/// Returns a random frame with events of one size or of varying sizes.
fn any_frame() -> (Header, Vec<Vec<u8>>, Vec<u8>) {
    let (size, count) = (fastrand::u32(..20) * fastrand::u32(..2), fastrand::u32(..12));
    let (header, events) = (header(size, count), events(size as usize, count));
    let bytes = frame(&header, &events);
    (header, events, bytes)
}

/// Writes `number` at offset `at`, and corrects the checksum.
fn forge(bytes: &mut [u8], at: usize, number: &[u8]) {
    bytes[at..at + number.len()].copy_from_slice(number);
    let (head, payload) = bytes.split_at(HEADER);
    let sum = checksum(head, payload);
    bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn events_of_one_size_and_of_varying_sizes_come_back() {
    for _ in 0..ROUNDS {
        let (header, events, bytes) = any_frame();
        let (read, payload) = Header::read(&bytes).unwrap();
        assert_eq!((read, payload), (header, &bytes[HEADER..]));
        let found: Vec<&[u8]> = Events::of(&read, payload).map(Result::unwrap).collect();
        assert_eq!(found, events);
    }
}

#[test]
fn the_numbers_lie_where_the_layout_says() {
    let header = Header {
        ring: Id([1; 16]),
        epoch: Id([2; 16]),
        incarnation: 3,
        writer: 4,
        fingerprint: 5,
        event_size: 2,
        after: 6,
        first: 7,
        count: 1,
        window: 10,
    };
    let bytes = frame(&header, &[vec![8, 9]]);
    assert_eq!(HEADER, 104);
    let mut expected = b"SLIPFRAM".to_vec();
    expected.extend([1, 0, 104, 0, 2, 0, 0, 0]);
    expected.extend([1; 16]);
    expected.extend([2; 16]);
    for number in 3u64..=7 {
        expected.extend(number.to_le_bytes());
    }
    expected.extend([1, 0, 0, 0, 2, 0, 0, 0]);
    assert_eq!(bytes[..CHECKSUM], expected);
    assert_eq!(CHECKSUM, 96);
    assert_eq!(bytes[100..], [10, 0, 0, 0, 8, 9]);
    let mut sum = crc32fast::Hasher::new();
    sum.update(&bytes[..96]);
    sum.update(&bytes[100..]);
    assert_eq!(bytes[96..100], sum.finalize().to_le_bytes());
}

#[test]
fn a_fingerprint_is_the_published_hash_of_name_version_and_size() {
    assert_eq!(fingerprint("order", 1, 8), FINGERPRINT);
    let others =
        [fingerprint("order", 2, 8), fingerprint("order", 1, 0), fingerprint("Order", 1, 8)];
    assert!(!others.contains(&FINGERPRINT));
}

#[test]
fn each_damaged_byte_is_found() {
    for _ in 0..ROUNDS / 20 {
        let (_, _, bytes) = any_frame();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= fastrand::u8(1..);
            let bad = Header::read(&damaged).unwrap_err();
            assert_eq!(bad == Bad::Foreign, at < MAGIC.len(), "{at}: {bad:?}");
        }
    }
}

#[test]
fn a_frame_that_is_cut_or_goes_on_is_refused() {
    for _ in 0..ROUNDS / 20 {
        let (_, _, mut bytes) = any_frame();
        for length in 0..bytes.len() {
            let bad = Header::read(&bytes[..length]).unwrap_err();
            assert_eq!(bad == Bad::Foreign, length < HEADER, "{length}: {bad:?}");
        }
        bytes.push(fastrand::u8(..));
        assert!(matches!(Header::read(&bytes), Err(Bad::Damaged(_))));
    }
}

/// The checksum protects only against accidents. So a reader stays within the payload, whatever a
/// frame with a correct checksum says.
#[test]
fn forged_numbers_lead_nowhere_beyond_the_payload() {
    let fields = [8, 10, 12, 72, 76, 80, 84, 88, 92];
    for round in 0..ROUNDS * 20 {
        let (_, _, mut bytes) = any_frame();
        let number = match round % 4 {
            0 => fastrand::u32(..8),
            1 => u32::MAX - fastrand::u32(..8),
            2 => bytes.len() as u32 - HEADER as u32,
            _ => fastrand::u32(..),
        };
        let at = fields[fastrand::usize(..fields.len())];
        forge(&mut bytes, at, &number.to_le_bytes());
        let Ok((header, payload)) = Header::read(&bytes) else { continue };
        assert!(header.after <= header.first && header.first <= header.end());
        let (mut length, mut count) = (0, 0);
        for event in Events::of(&header, payload) {
            length += event.map_or(0, <[u8]>::len);
            count += 1;
        }
        assert!(length <= payload.len() && count <= header.count as usize);
    }
}

#[test]
fn forged_lengths_of_events_are_refused() {
    for _ in 0..ROUNDS {
        let count = fastrand::u32(1..8);
        let (header, events) = (header(0, count), events(0, count));
        let mut bytes = frame(&header, &events);
        // A random event gets another length.
        let victim = fastrand::usize(..events.len());
        let before: usize = events[..victim].iter().map(|event| LENGTH + event.len()).sum();
        let length =
            events[victim].len() as u32 ^ fastrand::u32(1..=u32::MAX >> fastrand::u8(..32));
        forge(&mut bytes, HEADER + before, &length.to_le_bytes());
        let (read, payload) = Header::read(&bytes).unwrap();
        let found: Vec<_> = Events::of(&read, payload).collect();
        assert!(found.len() <= count as usize);
        let all: usize = found.iter().flatten().map(|event| LENGTH + event.len()).sum();
        let whole = found.iter().all(Result::is_ok);
        // A wrong length may divide the payload into other events, with the same count and total
        // length. Only the checksum can detect that.
        assert!(!whole || all == payload.len(), "{found:?}");
    }
}

#[test]
fn forged_counts_and_positions_are_refused() {
    let (header, events) = (header(4, 3), events(4, 3));
    let forged = |at: usize, number: &[u8]| {
        let mut bytes = frame(&header, &events);
        forge(&mut bytes, at, number);
        Header::read(&bytes).map(|_| ()).unwrap_err()
    };
    let payload = Bad::Damaged("its payload does not have the events that it names");
    for count in [0u32, 2, 4, u32::MAX] {
        assert_eq!(forged(88, &count.to_le_bytes()), payload, "{count}");
    }
    for size in [1u32, 3, 5, u32::MAX] {
        assert_eq!(forged(12, &size.to_le_bytes()), payload, "{size}");
    }
    let order = Bad::Damaged("its positions are out of order");
    assert_eq!(forged(72, &(header.first + 1).to_le_bytes()), order);
    assert_eq!(forged(80, &(u64::MAX - 2).to_le_bytes()), order);
    let sink = Bad::Damaged("no sink has its incarnation and window");
    assert_eq!(forged(48, &u64::MAX.to_le_bytes()), sink);
    for window in [MAX_WINDOW + 1, u32::MAX] {
        assert_eq!(forged(100, &window.to_le_bytes()), sink);
    }
    let version = Bad::Damaged("it has a version that this program cannot read");
    assert_eq!(forged(8, &2u16.to_le_bytes()), version);
    assert_eq!(forged(10, &112u16.to_le_bytes()), version);
}

#[test]
fn numbers_of_rings_are_read_as_they_are_shown() {
    for _ in 0..ROUNDS {
        let id = Id::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().len(), 32);
    }
    for text in ["", "12", &"g".repeat(32), &"1".repeat(33)] {
        assert!(text.parse::<Id>().is_err(), "{text}");
    }
}
