//! A layer between SQLite and the file system. It passes everything on, and for folders that are watched it records,
//! counts and fails what is done there.
//!
//! SQLite knows it as a VFS of its own that became the default, so the code under test needs no hook. Calls of `fsync`
//! and `fdatasync` are counted one level lower, by functions that stand in for those of the C library: only there it
//! shows which of the two SQLite was built to use. What must stay true: what is not watched is not touched, so that
//! tests may run side by side, each with a folder of its own.
//!
//! This is the only package of the repository with unsafe code: SQLite's interface is one of C. The product has none.

mod ext4;
mod file;
mod medium;
mod sync;
mod vfs;
mod watch;

pub use ext4::Ext4;
pub use medium::{Image, Medium, Style};
pub use vfs::install;
pub use watch::{Counts, Event, Failure, Op, Part, Watch};
