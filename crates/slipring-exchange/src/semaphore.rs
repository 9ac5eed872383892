//! Turns passed by two named POSIX semaphores, one for each direction.
//!
//! Invariants
//! - I1: the handle of a [`Semaphore`] is open while the value lives; only its drop closes it.
//! - I2: names are C strings, and values have the types that C expects.

use std::ffi::CString;
use std::io;
use std::ptr::NonNull;

use crate::block::Turn;
use crate::ends::{PATIENCE, impatient};

/// A named semaphore that this process has open.
struct Semaphore {
    handle: NonNull<libc::sem_t>,
    /// The semaphore's name, if this process has created the semaphore and must remove it.
    made: Option<CString>,
}

// SAFETY: any thread may use an open semaphore (I1, sem_overview(7)).
unsafe impl Send for Semaphore {}

impl Semaphore {
    fn new(name: &str, first: Option<u32>) -> io::Result<Semaphore> {
        let name = CString::new(name).map_err(io::Error::other)?;
        let handle = match first {
            Some(first) => {
                let flags = libc::O_CREAT | libc::O_EXCL;
                // SAFETY: the name, the mode and the value are as C expects them (I2).
                unsafe { libc::sem_open(name.as_ptr(), flags, 0o600 as libc::c_uint, first) }
            }
            // SAFETY: as above (I2).
            None => unsafe { libc::sem_open(name.as_ptr(), 0) },
        };
        // `SEM_FAILED` is a null pointer on Linux.
        let handle = NonNull::new(handle).ok_or_else(io::Error::last_os_error)?;
        Ok(Semaphore { handle, made: first.map(|_| name) })
    }

    fn post(&self) -> io::Result<()> {
        // SAFETY: the semaphore is open (I1).
        match unsafe { libc::sem_post(self.handle.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is a writable value of C's type (I2).
        if unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &mut until) } != 0 {
            return Err(io::Error::last_os_error());
        }
        until.tv_sec += PATIENCE.as_secs() as libc::time_t;
        loop {
            // SAFETY: the semaphore is open (I1), and the time is set (I2).
            if unsafe { libc::sem_timedwait(self.handle.as_ptr(), &until) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::ETIMEDOUT) => return Err(impatient()),
                _ => return Err(error),
            }
        }
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        // SAFETY: the semaphore is open, and is not used after the drop (I1).
        unsafe { libc::sem_close(self.handle.as_ptr()) };
        if let Some(name) = &self.made {
            // SAFETY: the name is a C string (I2).
            unsafe { libc::sem_unlink(name.as_ptr()) };
        }
    }
}

/// One end's turns.
pub struct Semaphores {
    own: Semaphore,
    other: Semaphore,
}

impl Semaphores {
    /// Makes both semaphores for the writer, which has the first turn. `name` is the name of the
    /// exchange.
    pub fn create(name: &str) -> io::Result<Semaphores> {
        let (own, other) = names(name);
        let own = Semaphore::new(&own, Some(1))?;
        Ok(Semaphores { own, other: Semaphore::new(&other, Some(0))? })
    }

    /// Opens the semaphores for the reader.
    pub fn open(name: &str) -> io::Result<Semaphores> {
        let (other, own) = names(name);
        Ok(Semaphores { own: Semaphore::new(&own, None)?, other: Semaphore::new(&other, None)? })
    }
}

fn names(name: &str) -> (String, String) {
    (format!("/{name}.free"), format!("/{name}.full"))
}

impl Turn for Semaphores {
    fn take(&mut self) -> io::Result<()> {
        self.own.wait()
    }

    fn pass(&mut self) -> io::Result<()> {
        self.other.post()
    }
}
