//! A private ext4 on a loop device, with the defaults of `mkfs`: what reaches its block layer can be counted, it can be
//! shut down as by a power cut, and it can find an error, as on a card that fails. Needs root.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::ioctl::{Setter, ioctl, opcode};

/// `EXT4_IOC_SHUTDOWN`, and its way that throws away what is in the file system's journal and not yet on disk.
const SHUTDOWN: rustix::ioctl::Opcode = opcode::read::<u32>(b'X', 125);
const WITHOUT_FLUSHING_THE_LOG: u32 = 2;

/// The file system; unmounted and deleted when it is dropped.
#[derive(Debug)]
pub struct Ext4 {
    folder: PathBuf,
    device: PathBuf,
    options: String,
    mounted: bool,
}

impl Ext4 {
    /// Makes one of so many mebibytes below `folder`, and mounts it with these options.
    pub fn new(folder: &Path, mebibytes: u64, options: &str) -> io::Result<Self> {
        let image = folder.join("image");
        fs::create_dir_all(folder.join("mount"))?;
        fs::File::create(&image)?.set_len(mebibytes << 20)?;
        run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        let mut made = Self {
            folder: folder.to_owned(),
            device: device.trim().into(),
            options: options.to_owned(),
            mounted: false,
        };
        made.mount()?;
        Ok(made)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.join("mount")
    }

    /// Bytes written to the block device so far.
    pub fn written(&self) -> io::Result<u64> {
        let name = self.device.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let stat = fs::read_to_string(format!("/sys/block/{name}/stat"))?;
        let sectors = stat.split_whitespace().nth(6).and_then(|sectors| sectors.parse::<u64>().ok());
        sectors.map(|sectors| sectors * 512).ok_or_else(|| io::Error::other("no count of sectors"))
    }

    /// Brings everything that is cached to the device.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(self.path())?)?)
    }

    /// From now on nothing reaches the device: what is cached, also of the file system's own journal, is lost.
    pub fn shut_down(&self) -> io::Result<()> {
        let folder = fs::File::open(self.path())?;
        // SAFETY: the request takes a pointer to 32 bits, which `Setter` gives it.
        let shut = unsafe { ioctl(folder, Setter::<SHUTDOWN, u32>::new(WITHOUT_FLUSHING_THE_LOG)) };
        Ok(shut?)
    }

    /// It finds an error, and does what its option `errors=` says.
    pub fn find_error(&self) -> io::Result<()> {
        fs::write(self.trigger(), "drill\n")
    }

    /// Whether it can be made to find one: not where the kernel's settings are mounted read-only.
    pub fn can_find_error(&self) -> bool {
        fs::OpenOptions::new().write(true).open(self.trigger()).is_ok()
    }

    fn trigger(&self) -> PathBuf {
        let name = self.device.file_name().unwrap_or_default();
        Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error")
    }

    /// Mounts it with other options where it is. The kernel refuses `ro` while anybody has a file open for writing.
    pub fn remount(&self, options: &str) -> io::Result<()> {
        run(Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path())).map(|_| ())
    }

    /// Mounts it again, which replays its journal; nobody may have files open there.
    pub fn mount_again(&mut self) -> io::Result<()> {
        self.unmount()?;
        self.mount()
    }

    fn mount(&mut self) -> io::Result<()> {
        run(Command::new("mount").args(["-o", &self.options]).arg(&self.device).arg(self.path()))?;
        self.mounted = true;
        Ok(())
    }

    fn unmount(&mut self) -> io::Result<()> {
        run(Command::new("umount").arg(self.path()))?;
        self.mounted = false;
        Ok(())
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        if self.mounted {
            let _ = self.unmount();
        }
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        let _ = fs::remove_file(self.folder.join("image"));
    }
}

/// What a program says, or why it fails.
fn run(command: &mut Command) -> io::Result<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = command.env("PATH", path).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
