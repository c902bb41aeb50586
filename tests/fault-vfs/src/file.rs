//! One open file: everything is passed on to the real one, which lies behind it in the same piece of memory.

use std::ffi::{c_int, c_void};
use std::ptr::null;
use std::sync::Arc;

use rusqlite::ffi;

use crate::watch::{Event, Failure, Inner, Op, Part};

/// What SQLite believes to be the file. The real one follows.
#[repr(C)]
pub(crate) struct Shim {
    base: ffi::sqlite3_file,
    held: *mut Held,
}

struct Held {
    watch: Option<Arc<Inner>>,
    part: Part,
}

/// Bytes of a file of ours around a real one.
pub(crate) fn bytes(real: c_int) -> c_int {
    size_of::<Shim>() as c_int + real
}

impl Shim {
    /// Makes a file that is not open.
    ///
    /// # Safety
    /// `shim` has room for [`bytes`] of the real VFS's.
    pub(crate) unsafe fn prepare(shim: *mut Self, watch: Option<Arc<Inner>>, part: Part) {
        let held = Box::into_raw(Box::new(Held { watch, part }));
        // SAFETY: the caller's promise.
        unsafe {
            shim.write(Self { base: ffi::sqlite3_file { pMethods: null() }, held });
            (*Self::real(shim)).pMethods = null();
        }
    }

    /// The real file.
    pub(crate) fn real(shim: *mut Self) -> *mut ffi::sqlite3_file {
        shim.wrapping_add(1).cast()
    }

    /// From now on SQLite calls us.
    ///
    /// # Safety
    /// The file was prepared, and the real one is open.
    pub(crate) unsafe fn opened(shim: *mut Self) {
        // SAFETY: the caller's promise.
        unsafe { (*shim).base.pMethods = &METHODS };
    }

    /// The real file could not be opened, or is closed.
    ///
    /// # Safety
    /// The file was prepared; it is not used again.
    pub(crate) unsafe fn discard(shim: *mut Self) {
        // SAFETY: `held` comes from a box and is given back once.
        drop(unsafe { Box::from_raw((*shim).held) });
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

type File = *mut ffi::sqlite3_file;

/// What of the file is ours.
///
/// # Safety
/// SQLite calls with a file that [`Shim::opened`] has made its own and that is not closed.
unsafe fn held<'a>(file: File) -> &'a Held {
    // SAFETY: the caller's promise; the box lives until the file is closed.
    unsafe { &*(*file.cast::<Shim>()).held }
}

/// Calls the same function of the real file.
macro_rules! pass_on {
    ($file:ident, $method:ident $(, $argument:expr)*) => {{
        let real = Shim::real($file.cast());
        // SAFETY: SQLite calls with an open file, and the real one is open as long.
        unsafe { (*(*real).pMethods).$method.map_or(ffi::SQLITE_IOERR, |call| call(real $(, $argument)*)) }
    }};
}

unsafe extern "C" fn write(file: File, data: *const c_void, bytes: c_int, at: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let Held { watch, part } = unsafe { held(file) };
    let Some(watch) = watch else { return pass_on!(file, xWrite, data, bytes, at) };
    if let Some(failure) = watch.trouble(*part, Op::Write) {
        return code(failure, ffi::SQLITE_IOERR_WRITE);
    }
    let written = pass_on!(file, xWrite, data, bytes, at);
    if written == ffi::SQLITE_OK {
        watch.count(*part, |counts| {
            counts.writes += 1;
            counts.bytes += bytes as u64;
        });
        watch.note(|| {
            // SAFETY: SQLite gives so many bytes.
            let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) }.to_vec();
            Event::Write { part: *part, at: at as u64, data }
        });
    }
    written
}

unsafe extern "C" fn truncate(file: File, length: i64) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let Held { watch, part } = unsafe { held(file) };
    let Some(watch) = watch else { return pass_on!(file, xTruncate, length) };
    if let Some(failure) = watch.trouble(*part, Op::Write) {
        return code(failure, ffi::SQLITE_IOERR_TRUNCATE);
    }
    let done = pass_on!(file, xTruncate, length);
    if done == ffi::SQLITE_OK {
        watch.note(|| Event::Truncate { part: *part, length: length as u64 });
    }
    done
}

unsafe extern "C" fn sync(file: File, flags: c_int) -> c_int {
    // SAFETY: SQLite calls with an open file.
    let Held { watch, part } = unsafe { held(file) };
    let Some(watch) = watch else { return pass_on!(file, xSync, flags) };
    watch.count(*part, |counts| counts.syncs += 1);
    watch.wait();
    if watch.trouble(*part, Op::Sync).is_some() {
        watch.note(|| Event::FailedSync { part: *part });
        return ffi::SQLITE_IOERR_FSYNC;
    }
    let synced = pass_on!(file, xSync, flags);
    if synced == ffi::SQLITE_OK {
        watch.note(|| Event::Sync { part: *part });
    }
    synced
}

/// What SQLite's own VFS returns for it.
fn code(failure: Failure, otherwise: c_int) -> c_int {
    match failure {
        Failure::NoRoom => ffi::SQLITE_FULL,
        Failure::Device | Failure::ReadOnly => otherwise,
    }
}

unsafe extern "C" fn close(file: File) -> c_int {
    let closed = pass_on!(file, xClose);
    // SAFETY: SQLite closes a file once, and does not use it again.
    unsafe { Shim::discard(file.cast()) };
    closed
}

unsafe extern "C" fn read(file: File, data: *mut c_void, bytes: c_int, at: i64) -> c_int {
    pass_on!(file, xRead, data, bytes, at)
}

unsafe extern "C" fn file_size(file: File, size: *mut i64) -> c_int {
    pass_on!(file, xFileSize, size)
}

unsafe extern "C" fn lock(file: File, level: c_int) -> c_int {
    pass_on!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: File, level: c_int) -> c_int {
    pass_on!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: File, out: *mut c_int) -> c_int {
    pass_on!(file, xCheckReservedLock, out)
}

unsafe extern "C" fn file_control(file: File, op: c_int, argument: *mut c_void) -> c_int {
    pass_on!(file, xFileControl, op, argument)
}

unsafe extern "C" fn sector_size(file: File) -> c_int {
    pass_on!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: File) -> c_int {
    pass_on!(file, xDeviceCharacteristics)
}

unsafe extern "C" fn shm_map(file: File, page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void) -> c_int {
    pass_on!(file, xShmMap, page, size, extend, out.cast())
}

unsafe extern "C" fn shm_lock(file: File, offset: c_int, n: c_int, flags: c_int) -> c_int {
    pass_on!(file, xShmLock, offset, n, flags)
}

unsafe extern "C" fn shm_barrier(file: File) {
    let real = Shim::real(file.cast());
    // SAFETY: SQLite calls with an open file, and the real one is open as long.
    unsafe {
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn shm_unmap(file: File, delete: c_int) -> c_int {
    pass_on!(file, xShmUnmap, delete)
}
