//! The allocator: lines of its own for each allocation of a run, and none used twice.

use std::collections::BTreeSet;

use slipring_coherence::{Lines, Machine, Simulation, own_lines};

#[global_allocator]
static LINES: Lines = Lines;

fn in_a_run(body: impl FnOnce()) {
    Simulation::new(&Machine::two_vcpus()).thread("only", body).run().unwrap();
}

fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<u8>().addr()
}

#[test]
fn allocations_of_a_run_share_no_line() {
    let check = || {
        let bytes: Vec<Box<u8>> = (0..100).map(Box::new).collect();
        let lines: BTreeSet<usize> = bytes.iter().map(|byte| address(&**byte) / 128).collect();
        assert_eq!(lines.len(), 100);
        assert!(bytes.iter().all(|byte| address(&**byte) % 128 == 0));
    };
    in_a_run(check);
    own_lines(check);
}

#[test]
fn no_address_is_used_twice_in_a_run() {
    in_a_run(|| {
        let addresses: BTreeSet<usize> = (0..2_000).map(|n| address(&*Box::new(n))).collect();
        assert_eq!(addresses.len(), 2_000);
    });
}

#[test]
fn memory_keeps_its_contents_when_it_grows_or_is_zeroed() {
    let check = || {
        let mut grows: Vec<u32> = Vec::new();
        (0..10_000).for_each(|n| grows.push(n));
        grows.shrink_to_fit();
        assert!(grows.iter().copied().eq(0..10_000));
        let zeroed = vec![0u64; 1_000];
        assert!(zeroed.iter().all(|word| *word == 0));
        #[repr(align(4096))]
        struct Page(u8);
        let page = Box::new(Page(1));
        assert_eq!((address(&*page) % 4096, page.0), (0, 1));
    };
    in_a_run(check);
    own_lines(check);
    check();
}

#[test]
fn a_run_gives_its_memory_back() {
    // 25 runs of 64 MiB each are more than a test's share of memory.
    for _ in 0..25 {
        in_a_run(|| {
            for _ in 0..64 {
                let mut block = vec![0u8; 1 << 20];
                block.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
            }
        });
        #[cfg(target_os = "linux")]
        {
            let status = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
            assert!(pages < (512 << 20) / 4096, "{pages} pages");
        }
    }
}

#[test]
fn what_a_run_made_outlives_it_and_goes_between_threads() {
    let mut made = Vec::new();
    in_a_run(|| made.extend((0..100).map(|n| vec![n; 10])));
    std::thread::spawn(move || {
        assert!(made.iter().enumerate().all(|(n, made)| *made == vec![n; 10]));
        drop(made);
    })
    .join()
    .unwrap();
    // Allocated outside and freed inside.
    let outside: Vec<Box<u64>> = (0..100).map(Box::new).collect();
    in_a_run(|| drop(outside));
}
