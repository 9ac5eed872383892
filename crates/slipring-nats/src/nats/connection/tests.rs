use super::*;

#[test]
fn attempts_to_connect_come_less_and_less_often() {
    assert_eq!((reconnect_delay(0), reconnect_delay(1)), (Duration::ZERO, Duration::ZERO));
    let mut least = Duration::from_millis(50);
    for attempt in 2..100 {
        let delays: Vec<Duration> =
            std::iter::repeat_with(|| reconnect_delay(attempt)).take(50).collect();
        let (shortest, longest) = (*delays.iter().min().unwrap(), *delays.iter().max().unwrap());
        assert!(shortest >= least && longest <= Duration::from_secs(3), "{attempt}: {delays:?}");
        // Without its random part, each delay is twice the previous one, up to two seconds.
        least = (least * 2).min(Duration::from_secs(2)).max(least);
        assert!(longest > shortest, "clients come at different times");
    }
}

#[test]
fn files_without_the_expected_block_are_refused() {
    let file = std::env::temp_dir().join(format!("slipring-nats-pem-{:016x}", fastrand::u64(..)));
    let check = || check_pem(&file, "PRIVATE KEY", "Server::client_certificate");
    assert!(check().unwrap_err().to_string().contains("cannot be read"));
    for (text, fits) in [
        ("", false),
        ("-----BEGIN CERTIFICATE-----", false),
        ("-----BEGIN PRIVATE KEY-----", true),
        ("-----BEGIN EC PRIVATE KEY-----", true),
    ] {
        std::fs::write(&file, text).unwrap();
        assert_eq!(check().is_ok(), fits, "{text}");
    }
    std::fs::remove_file(&file).unwrap();
}
