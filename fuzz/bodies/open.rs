//! A file whose bytes are damaged is inspected, opened, attached to and used. Each call may fail.
//!
//! An input is a list of changes to a sound segment, so most inputs get past the first checks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use slipring_shm::parts::layout::{HEAD, Head, Header, SCHEMA_AT, STAGES_AT};
use slipring_shm::{Attached, Segment, summaries::Eviction};

/// Longest file that is mapped, in bytes.
const LONGEST: u64 = 1 << 22;

/// Reads an input byte by byte; zeros follow its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }
}

/// Returns the bytes of a sound segment.
fn template() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let path = path("template");
        let made = Segment::<u64>::create_at(&path).capacity(4).participants(4);
        let made = made.updater("scale").reader("store").after(["scale"]).build().unwrap();
        // SAFETY: no other process knows the path.
        let attached = unsafe { made.attach() }.unwrap();
        let (mut tx, mut scale) =
            (attached.producer().unwrap(), attached.updater("scale").unwrap());
        (0..3).for_each(|i| _ = tx.publish(|slot| *slot = i).unwrap());
        scale.poll(2, |_, _| ()).unwrap();
        let _ = scale.batch(1).unwrap();
        // The file is as a killed process leaves it.
        let bytes = std::fs::read(&path).unwrap();
        drop((tx, scale, attached, made));
        std::fs::remove_file(path).unwrap();
        bytes
    })
}

fn path(what: &str) -> PathBuf {
    let thread = std::thread::current().id();
    format!("/dev/shm/fuzz-{}-{thread:?}-{what}", std::process::id()).replace(['(', ')'], "").into()
}

/// Returns the bytes of a file after the changes of an input, and the file's length.
fn changed(input: &mut Input<'_>) -> (Vec<u8>, u64) {
    let mut bytes = template().to_vec();
    let flags = input.byte();
    let areas = bytes.len() as u64 - HEAD;
    while !input.0.is_empty() {
        let (area, at, how, argument) =
            (input.byte(), input.number(2), input.byte(), input.number(1));
        // Fields begin at multiples of their size.
        let len = [8, 4, 4, 1][usize::from(area >> 4 & 3)];
        let at = match area % 8 {
            0..=2 => at * 4 % size_of::<Header>() as u64,
            3 => STAGES_AT + at % 256,
            4 => SCHEMA_AT + at % 64,
            _ => HEAD + at * 8 % areas,
        };
        let at = (at as usize).min(bytes.len() - 8);
        let before = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| bytes[at + i]));
        let value = match how % 8 {
            0 => argument,
            1 => before.wrapping_add(argument).wrapping_sub(8),
            2 => 1 << (argument % 64),
            3 => u64::MAX >> (argument % 64),
            4 => before.wrapping_add(argument << 7),
            5 => before.wrapping_sub(argument << 7),
            6 => argument << (how >> 3),
            _ => before ^ 1 << (argument % 64),
        };
        bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    }
    let mut head = Head::from_bytes(bytes[..HEAD as usize].to_vec()).unwrap();
    // The checksum covers at most the head.
    if flags & 1 == 0 && (44..=HEAD as u32).contains(&head.header().header_length) {
        head.seal();
        bytes[..HEAD as usize].copy_from_slice(head.bytes());
    }
    let stated = head.header().length;
    let length = match flags >> 1 & 3 {
        // The file gets the length that its header states, because such a file passes the next
        // check.
        0 | 1 if stated <= LONGEST => stated,
        2 => u64::from(flags >> 3) * 4096,
        _ => bytes.len() as u64,
    };
    (bytes, length)
}

/// Uses the handles of a segment whose words are damaged.
///
/// # Safety
/// The caller promises that no other process changes the file.
unsafe fn attach(segment: &Segment<u64>) {
    // SAFETY: the caller promises that no other process changes the file. The test damages words on
    // purpose.
    let Ok(attached) = (unsafe { segment.attach_as("fuzz") }) else { return };
    let _ = attached.report();
    (0..6).for_each(|number| _ = attached.liveness(number));
    stages(&attached);
    if let Ok(mut tx) = attached.producer() {
        for _ in 0..3 {
            let _ = tx.try_publish(|slot| *slot = 1);
            let _ = tx.try_claim_n(2).map(|claim| claim.publish());
        }
        let _ = tx.publish_by(Instant::now(), |slot| *slot = 1);
        stages(&attached);
    }
    stages(&attached);
    let _ = attached.participation().claim_dead(2).map(|claim| claim.map(|c| c.finish()));
}

fn stages(attached: &Attached<u64>) {
    if let Ok(mut scale) = attached.updater("scale") {
        let suspects = scale.suspects();
        let _ = scale.try_batch(9).map(|batch| (batch.suspects(), batch.iter().sum::<u64>()));
        let _ = scale.poll(1, |slot, at| *slot += u64::from(suspects.contains(at.seq)));
        let _ = scale.pass_over_suspects();
        let _ = scale.batch_by(9, Instant::now()).map(|batch| batch.release());
    }
    if let Ok(mut store) = attached.reader("store") {
        let _ = (store.redelivered(), store.next_seq());
        let _ = store.poll(3, |_, _| ());
        let _ = store.try_batch(9).map(|batch| batch.hold());
        store.release_until(2);
    }
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (bytes, length) = changed(&mut input);
    let path = path("changed");
    let _ = std::fs::remove_file(&path);
    // The file has mode 0600 from the start, as `Segment` demands.
    let fd = rustix::fs::open(
        &path,
        rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    let file = File::from(fd.expect("/dev/shm has room"));
    file.write_all_at(&bytes, 0).expect("/dev/shm has room");
    file.set_len(length).expect("/dev/shm has room");
    let summary = slipring_shm::inspect_at(&path);
    for place in ["scale", "store", slipring::stages::PRODUCER] {
        // A dead process is recovered; the file names no living process.
        if let Ok(found) = Eviction::find_at(&path, place, None)
            && found.occupant().dead
        {
            let _ = found.kill(Duration::ZERO);
        }
    }
    match Segment::<u64>::open_at(&path) {
        Ok(segment) => {
            // `open_at` and `inspect_at` check the head alike.
            assert!(summary.is_ok(), "{summary:?}");
            // SAFETY: only this call knows the file.
            unsafe { attach(&segment) };
        }
        Err(error) => assert!(error.to_string().contains(": "), "{error}"),
    }
    let _ = slipring_shm::inspect_at(&path);
    let _ = std::fs::remove_file(&path);
}
