//! The VFS: opens files through SQLite's own for Unix, and wraps those in folders that are watched.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use rusqlite::ffi;

use crate::file::{self, Shim};
use crate::watch::{Inner, Part};

/// SQLite's VFS for Unix, an address that is valid as long as the process.
struct Real(*mut ffi::sqlite3_vfs);

// SAFETY: SQLite's own VFS is a static that it hands to every thread.
unsafe impl Send for Real {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Real {}

static REAL: OnceLock<Real> = OnceLock::new();

/// Makes this layer SQLite's default for the whole process. Cheap to call again.
pub fn install() {
    REAL.get_or_init(|| {
        crate::sync::link();
        // SAFETY: SQLite is asked for its default before anything was registered; it lives as long as the process, and
        // so does the copy, which is leaked. All functions of the copy but `xOpen` ignore their first argument.
        unsafe {
            let real = ffi::sqlite3_vfs_find(null_mut());
            assert!(!real.is_null(), "SQLite has no VFS");
            let mut ours = *real;
            ours.zName = c"fault".as_ptr();
            ours.pNext = null_mut();
            ours.szOsFile = file::bytes((*real).szOsFile);
            ours.xOpen = Some(open);
            let registered = ffi::sqlite3_vfs_register(Box::leak(Box::new(ours)), 1);
            assert_eq!(registered, ffi::SQLITE_OK, "SQLite takes no further VFS");
            Real(real)
        }
    });
}

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    mut flags: c_int,
    out: *mut c_int,
) -> c_int {
    let Some(Real(real)) = REAL.get() else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: SQLite gives a file of `szOsFile` bytes, and a name that is null or ends with a zero byte.
    unsafe {
        let path = (!name.is_null()).then(|| Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes())));
        let watch = path.and_then(Inner::of);
        let part = path.map_or(Part::Other, Part::of);
        if watch.as_ref().is_some_and(|watch| watch.is_read_only(part)) {
            flags = flags & !(ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE) | ffi::SQLITE_OPEN_READONLY;
        }
        let shim = file.cast::<Shim>();
        Shim::prepare(shim, watch, part);
        let Some(open) = (**real).xOpen else { return ffi::SQLITE_CANTOPEN };
        let opened = open(*real, name, Shim::real(shim), flags, out);
        if opened == ffi::SQLITE_OK {
            Shim::opened(shim)
        } else {
            Shim::discard(shim)
        }
        opened
    }
}
