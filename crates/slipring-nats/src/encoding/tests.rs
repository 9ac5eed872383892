use super::*;

#[test]
fn plain_events_come_back() {
    let (mut encoding, mut decoding) = (Encoding::plain("n", 1), Decoding::plain("n", 1));
    for _ in 0..100 {
        let (number, mut bytes, mut slot) = (fastrand::u64(..), vec![1], 0);
        encoding.append(&number, &mut bytes);
        decoding.decode(&bytes[1..], &mut slot).unwrap();
        assert_eq!((slot, bytes.len()), (number, 9));
    }
    assert_eq!((encoding.size(), encoding.is_messages()), (Some(8), false));
}

#[test]
fn bytes_of_another_size_are_no_plain_event() {
    let mut decoding = Decoding::<u32>::plain("n", 1);
    for length in [0, 3, 5, 8] {
        let mut slot = 7;
        let why = decoding.decode(&vec![0; length], &mut slot).unwrap_err();
        assert!(slot == 7 && why.contains(&length.to_string()) && why.contains('4'), "{why}");
    }
}

#[test]
fn a_fingerprint_tells_names_versions_and_sizes_apart() {
    let plain = Encoding::<u64>::plain("n", 1);
    let others = [
        Encoding::<u64>::plain("m", 1).fingerprint(),
        Encoding::<u64>::plain("n", 2).fingerprint(),
        Encoding::<u32>::plain("n", 1).fingerprint(),
        Encoding::<u64>::by("n", 1, |_, _| ()).fingerprint(),
    ];
    assert!(!others.contains(&plain.fingerprint()));
    assert_eq!(plain.fingerprint(), Decoding::<u64>::plain("n", 1).fingerprint());
    let by = Decoding::<String>::by("n", 1, |_, _| Ok(()));
    assert_eq!(others[3], by.fingerprint(), "the type in memory does not matter");
    let messages = Encoding::<u64>::messages("n", 1, |_| String::new(), |_, _| ());
    assert_eq!(others[3], messages.fingerprint(), "nor does the shape of the messages");
}
