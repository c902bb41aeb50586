//! `fsync` and `fdatasync` in place of the C library's: they tell which of the two was called for a file that is watched.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::io::{Errno, Result};

use crate::watch::{Counts, Inner, Part};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

/// As the C library's.
// SAFETY: the name and the signature are those of POSIX; whoever calls it gets what it would have got.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fsync(fd: c_int) -> c_int {
    call(fd, |counts| counts.fsyncs += 1, |fd| rustix::fs::fsync(fd))
}

/// As the C library's.
// SAFETY: as for `fsync`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fdatasync(fd: c_int) -> c_int {
    call(fd, |counts| counts.fdatasyncs += 1, |fd| rustix::fs::fdatasync(fd))
}

/// Names both, so that the linker takes this file before it comes to SQLite's object.
pub(crate) fn link() {
    std::hint::black_box([fsync as extern "C" fn(c_int) -> c_int, fdatasync]);
}

fn call(fd: c_int, count: impl FnOnce(&mut Counts), real: impl FnOnce(BorrowedFd<'_>) -> Result<()>) -> c_int {
    if fd < 0 {
        return fail(Errno::BADF);
    }
    if let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{fd}"))
        && let Some(watch) = Inner::of(Path::new(&path))
    {
        watch.count(Part::of(&path), count);
        if watch.is_unsynced() {
            return 0;
        }
    }
    // SAFETY: the caller promises an open file, as it must to the C library.
    match real(unsafe { BorrowedFd::borrow_raw(fd) }) {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

fn fail(error: Errno) -> c_int {
    // SAFETY: the C library gives each thread a place for its error number.
    unsafe { *__errno_location() = error.raw_os_error() };
    -1
}
