//! Child processes that are stopped and killed between two machine instructions.
//!
//! A [`Victim`] is a forked child of this process, which traces it. All victims have the same
//! memory layout, so an address means the same instruction in each of them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{c_int, c_long, pid_t};

use super::{Role, skip};

/// Exit code of a victim that may not be traced.
const REFUSED: c_int = 77;

/// The steps at which a process that takes and leaves a place is killed.
pub const PLACE_STEPS: [&str; 9] = [
    "taking",
    "claim-opened",
    "claimed",
    "buried",
    "recovered",
    "unclaimed",
    "seated",
    "leaving",
    "left",
];

/// Starts a role that runs a test by itself, and waits for its report.
pub fn test_in_a_role(role: &str, values: &[(&str, &str)]) {
    let mut role = Role::start(role, values);
    loop {
        match role.hear().as_str() {
            "done" => break,
            "refused" => {
                return skip("ptrace is not permitted here: no kills between instructions");
            }
            said => println!("{said}"),
        }
    }
    assert!(role.end().success());
}

/// Stops the victim that calls this, so that its tracer continues.
pub fn mark() {
    // SAFETY: the call stops the calling process, and touches no memory.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Forks, and runs `body` in the child, which then exits. The exit code is 0, or 101 after a panic.
pub fn fork(body: impl FnOnce()) -> pid_t {
    // SAFETY: this process has one thread, so the child may do what the parent may.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no fork");
    if pid == 0 {
        // SAFETY: the call asks the kernel to kill this process when its parent ends, and touches
        // no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let code = if catch_unwind(AssertUnwindSafe(body)).is_ok() { 0 } else { 101 };
        // SAFETY: the call ends the child without running the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    pid
}

/// Waits for a change of a child's state.
pub fn wait(pid: pid_t) -> c_int {
    let mut status = 0;
    // SAFETY: `status` is valid.
    let waited = unsafe { libc::waitpid(pid, &mut status, libc::__WALL) };
    assert_eq!(waited, pid, "waitpid");
    status
}

/// Kills a child and waits for its end.
pub fn kill(pid: pid_t) {
    // SAFETY: the process is a child of this one, and no call has waited for its end yet.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    while !libc::WIFSIGNALED(wait(pid)) {}
}

/// The point at which a victim stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// At a [`mark`].
    Mark,
    /// After a single instruction, or at a breakpoint.
    Trap,
    /// At the beginning or at the end of a system call.
    Call,
}

/// Number of stops at system calls after which a victim that came to no breakpoint has taken
/// another path, and may wait for ever. A path can contain instructions that no later victim
/// executes: the kernel's clock, for example, is read again if it was being set meanwhile.
const MOST_CALLS: u32 = 1000;

/// A traced child.
pub struct Victim {
    pub pid: pid_t,
    ended: bool,
}

impl Victim {
    /// Starts a child, and lets it run to its first [`mark`]. Returns `None` if it may not be
    /// traced.
    pub fn start(body: impl FnOnce()) -> Option<Victim> {
        let pid = fork(|| {
            // SAFETY: the call makes the parent the tracer, and touches no memory.
            if unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0 {
                // SAFETY: the call only ends the child.
                unsafe { libc::_exit(REFUSED) };
            }
            body();
        });
        let status = wait(pid);
        if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == REFUSED {
            return None;
        }
        let victim = Victim { pid, ended: false };
        assert_eq!(victim.stopped(status), Stop::Mark, "the victim failed before its first mark");
        victim.request(libc::PTRACE_SETOPTIONS, 0, libc::PTRACE_O_TRACESYSGOOD as usize);
        Some(victim)
    }

    fn stopped(&self, status: c_int) -> Stop {
        const CALL: c_int = libc::SIGTRAP | 0x80;
        assert!(libc::WIFSTOPPED(status), "the victim ended by itself: status {status:#x}");
        match libc::WSTOPSIG(status) {
            libc::SIGSTOP => Stop::Mark,
            libc::SIGTRAP => Stop::Trap,
            CALL => Stop::Call,
            signal => panic!("the victim got signal {signal}"),
        }
    }

    fn request(&self, request: libc::c_uint, address: usize, data: usize) -> c_long {
        // SAFETY: the child is stopped, and a request for a stopped child changes only that child.
        let result = unsafe { libc::ptrace(request, self.pid, address, data) };
        assert_ne!(result, -1, "ptrace {request}: {}", std::io::Error::last_os_error());
        result
    }

    fn resume(&self, request: libc::c_uint) -> Stop {
        self.request(request, 0, 0);
        self.stopped(wait(self.pid))
    }

    /// Runs one instruction. A system call is one instruction.
    pub fn step(&self) -> Stop {
        self.resume(libc::PTRACE_SINGLESTEP)
    }

    /// Runs to the next mark or breakpoint.
    pub fn run(&self) -> Stop {
        self.resume(libc::PTRACE_CONT)
    }

    /// Lets the victim continue, without waiting until it stops.
    pub fn let_go(&self) {
        self.request(libc::PTRACE_CONT, 0, 0);
    }

    /// Kills the victim.
    pub fn kill(mut self) {
        self.ended = true;
        kill(self.pid);
    }

    #[cfg(target_arch = "x86_64")]
    fn registers(&self) -> libc::user_regs_struct {
        let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        self.request(libc::PTRACE_GETREGS, 0, registers.as_mut_ptr() as usize);
        // SAFETY: the kernel has filled the registers.
        unsafe { registers.assume_init() }
    }

    /// Returns the address of the next instruction.
    #[cfg(target_arch = "x86_64")]
    pub fn at(&self) -> u64 {
        self.registers().rip
    }

    /// Runs to the beginning of the next system call `number`.
    #[cfg(target_arch = "x86_64")]
    pub fn run_to_call(&self, number: c_long) {
        loop {
            assert_eq!(self.resume(libc::PTRACE_SYSCALL), Stop::Call, "no such call");
            let begins = self.registers().orig_rax as c_long == number;
            if begins {
                return;
            }
            assert_eq!(self.resume(libc::PTRACE_SYSCALL), Stop::Call, "no such call");
        }
    }

    /// Finishes the system call that has begun, and returns its result.
    #[cfg(target_arch = "x86_64")]
    pub fn finish_call(&self) -> c_long {
        assert_eq!(self.resume(libc::PTRACE_SYSCALL), Stop::Call);
        self.registers().rax as c_long
    }

    /// Returns the system call that the next instruction makes, if it makes one.
    #[cfg(target_arch = "x86_64")]
    fn system_call(&self, registers: &libc::user_regs_struct) -> Option<c_long> {
        let peek = libc::PTRACE_PEEKTEXT;
        // SAFETY: the call reads the stopped child's memory. If it fails, it returns -1, which is
        // not the number of a system call.
        let code = unsafe { libc::ptrace(peek, self.pid, registers.rip, 0) };
        (code as u64 & 0xFFFF == 0x050F).then_some(registers.rax as c_long)
    }

    /// Runs the victim until it is about to execute the instruction at `address` for the `count`th
    /// time. If it is about to do so now, this is the first time. Returns whether the victim got
    /// there before its next mark. A victim that takes another path may never get there
    /// ([`MOST_CALLS`]).
    #[cfg(target_arch = "x86_64")]
    pub fn run_to(&self, address: u64, count: usize) -> bool {
        let address_of = address as usize;
        let mut left = count - usize::from(self.at() == address);
        if left == 0 {
            return true;
        }
        if self.at() == address && self.step() == Stop::Mark {
            return false;
        }
        let code = self.request(libc::PTRACE_PEEKTEXT, address_of, 0) as usize;
        loop {
            if self.at() == address {
                left -= 1;
                if left == 0 {
                    return true;
                }
                if self.step() == Stop::Mark {
                    return false;
                }
                continue;
            }
            self.request(libc::PTRACE_POKETEXT, address_of, code & !0xFF | 0xCC);
            let mut calls = 0..MOST_CALLS;
            let stop = loop {
                let stop = self.resume(libc::PTRACE_SYSCALL);
                if stop != Stop::Call || calls.next().is_none() {
                    break stop;
                }
            };
            self.request(libc::PTRACE_POKETEXT, address_of, code);
            if stop != Stop::Trap {
                return false;
            }
            let mut registers = self.registers();
            assert_eq!(registers.rip, address + 1, "another trap");
            registers.rip = address;
            self.request(libc::PTRACE_SETREGS, 0, &raw const registers as usize);
        }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        if !self.ended {
            kill(self.pid);
        }
    }
}

/// The instructions of one run of a call.
#[derive(Default)]
pub struct Path {
    /// For each instruction, its address, and how often the path has reached that address so far,
    /// including this time.
    pub places: Vec<(u64, usize)>,
    /// The indices of the instructions that matter: the first one, each one that follows a change
    /// of the shared memory, and those before and behind each new system call. A kill at any other
    /// instruction leaves the same memory as a kill at the preceding one of these.
    pub changes: Vec<usize>,
    /// The indices of new instructions. An instruction is new unless the path has reached it before
    /// since the last change of the shared memory: in a wait, it is new in the first round.
    new: Vec<usize>,
    /// Number of changes of the shared memory.
    states: usize,
    seen: HashMap<u64, Seen>,
    /// Index of the instruction before which the survivors act, or `None` if they do not act.
    pub acts_at: Option<usize>,
}

/// An instruction that a path has reached.
struct Seen {
    times: usize,
    /// Whether it is a system call.
    calls: bool,
    /// Number of changes of the shared memory before the last time.
    states: usize,
}

impl Path {
    /// Runs a victim from its first mark to its second one, instruction by instruction, and kills
    /// it. `memory` returns the shared memory, whose changes are noted.
    pub fn of<'m>(victim: Victim, memory: impl Fn() -> &'m [u8]) -> Path {
        let (mut path, mut copy) = (Path::default(), memory().to_vec());
        let changed = |copy: &mut Vec<u8>| {
            let changed = *copy != memory();
            copy.copy_from_slice(memory());
            changed
        };
        while path.step(&victim, |_, _| (), || changed(&mut copy)) != Stop::Mark {}
        victim.kill();
        path
    }

    /// Runs one instruction of a victim. If it is a system call, `before` is first called with its
    /// number. After the instruction, `changed` returns whether the shared memory has changed since
    /// the last check.
    #[cfg(target_arch = "x86_64")]
    pub fn step(
        &mut self,
        victim: &Victim,
        before: impl FnOnce(&mut Path, c_long),
        changed: impl FnOnce() -> bool,
    ) -> Stop {
        let index = self.places.len();
        let registers = victim.registers();
        let call = || victim.system_call(&registers);
        let first = || Seen { times: 0, calls: call().is_some(), states: usize::MAX };
        let seen = self.seen.entry(registers.rip).or_insert_with(first);
        seen.times += 1;
        let is_new = std::mem::replace(&mut seen.states, self.states) != self.states;
        let calls = seen.calls;
        self.places.push((registers.rip, seen.times));
        if is_new {
            self.new.push(index);
        }
        if index == 0 {
            self.changes.push(0);
        }
        if calls {
            before(self, registers.rax as c_long);
        }
        if calls && is_new {
            self.changes.push(index);
        }
        let stop = victim.step();
        let changes = stop == Stop::Trap && changed();
        self.states += usize::from(changes);
        if stop == Stop::Trap && (changes || calls && is_new) {
            self.changes.push(index + 1);
        }
        stop
    }

    /// Runs a victim, which is at the instruction `from` of this path, to the instruction `to`.
    /// Returns whether it got there.
    ///
    /// A breakpoint in a loop stops the victim in each round. So it stands at the rarest of the
    /// instructions shortly before `to`, and the victim takes the last steps one by one.
    #[cfg(target_arch = "x86_64")]
    pub fn lead(&self, victim: &Victim, from: usize, to: usize) -> bool {
        const STEPS: usize = 500;
        let near = (from.max(to.saturating_sub(STEPS))..=to).rev();
        let rarest = near.min_by_key(|&index| self.places[index].1).unwrap_or(to);
        let (address, count) = self.places[rarest];
        let before = self.places[..from].iter().filter(|place| place.0 == address).count();
        victim.run_to(address, count - before)
            && (rarest..to).all(|_| victim.step() == Stop::Trap)
            && victim.at() == self.places[to].0
    }

    /// Returns the indices of `samples` new instructions spread over the path, and of all
    /// instructions in `changes`.
    pub fn kills(&self, samples: usize) -> Vec<usize> {
        let samples = samples.min(self.new.len());
        let spread = (0..samples).map(|sample| self.new[sample * self.new.len() / samples]);
        let mut places: Vec<usize> = spread.chain(self.changes.iter().copied()).collect();
        places.retain(|&place| place < self.places.len());
        places.sort_unstable();
        places.dedup();
        places
    }
}
