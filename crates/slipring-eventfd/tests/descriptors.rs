//! Checks the error in a process that has no descriptor left. The test is alone in its file,
//! because the limit of descriptors applies to the whole process.
#![cfg(target_os = "linux")]

#[path = "../../slipring/tests/common/watchdog.rs"]
mod watchdog;

use std::os::fd::AsRawFd;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slipring_eventfd::EventFd;

#[test]
fn a_process_without_free_descriptors_gets_emfile() {
    let _watched = watchdog::watched();
    let first = EventFd::new().unwrap();
    let before = getrlimit(Resource::Nofile);
    let few = Rlimit { current: Some(first.as_raw_fd() as u64 + 8), ..before };
    setrlimit(Resource::Nofile, few).unwrap();
    let mut open = Vec::new();
    let error = loop {
        match EventFd::new() {
            Ok(fd) => open.push(fd),
            Err(error) => break error,
        }
        assert!(open.len() <= 8);
    };
    assert_eq!(error.raw_os_error(), Some(Errno::MFILE.raw_os_error()), "{error}");
    drop(first);
    EventFd::new().expect("one free descriptor");
    setrlimit(Resource::Nofile, before).unwrap();
}
