//! A disk for a node's data: an ext4 file system in a file. Its power can fail, and it can be full.
//!
//! Mounting needs root. That the file system is told to abort ends all its writing at once, as when the power fails: after it is mounted
//! again it has what was synced, and of the rest what its own writing in the background had come to.

use eyre::{Result, WrapErr, ensure};
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// More than a sync asks for before it begins with a state; the file is sparse.
const DISK_BYTES: u64 = 8 << 30;
/// So much less is tried where a file can't have all that is free.
const STEP_BYTES: u64 = 4 << 20;

/// See the module. Dropping it takes the disk away.
#[derive(Debug)]
pub(super) struct Disk {
    image: PathBuf,
    mount: PathBuf,
}

impl Disk {
    /// A disk for the data of the node in `folder`.
    pub(super) fn create(folder: &Path) -> Result<Self> {
        let (image, mount) = (folder.join("disk.img"), folder.join("data"));
        std::fs::create_dir_all(&mount)?;
        File::create(&image)?.set_len(DISK_BYTES)?;
        run("mkfs.ext4", &[&"-q", &"-F", &image])?;
        let disk = Self { image, mount };
        disk.mount()?;
        Ok(disk)
    }

    fn mount(&self) -> Result<()> {
        run("mount", &[&"-o", &"loop", &self.image, &self.mount])
    }

    /// What is not synced is gone. No process may use it.
    pub(super) fn cut_power(&self) -> Result<()> {
        run("mount", &[&"-o", &"remount,abort", &self.mount])?;
        run("umount", &[&self.mount])?;
        self.mount()
    }

    /// Fills it up to so many MiB.
    pub(super) fn fill(&self, left_mib: u64) -> Result<()> {
        let space = rustix::fs::statvfs(&self.mount)?;
        let free = space.f_bfree.saturating_mul(space.f_frsize);
        let mut length = free.saturating_sub(left_mib << 20);
        let file = File::create(self.ballast())?;
        let mode = rustix::fs::FallocateFlags::empty();
        // The file system keeps some of it back.
        while let Err(error) = rustix::fs::fallocate(&file, mode, 0, length.max(1)) {
            ensure!(
                error == rustix::io::Errno::NOSPC && length > STEP_BYTES,
                "can't fill the disk: {error}"
            );
            length -= STEP_BYTES;
        }
        Ok(())
    }

    /// Frees what [`Disk::fill`] took.
    pub(super) fn free(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        self.mount.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Err(error) = run("umount", &[&self.mount]) {
            eprintln!("{error:#}");
        }
    }
}

fn run(program: &str, arguments: &[&dyn AsRef<OsStr>]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments.iter().map(|argument| argument.as_ref()))
        .output()
        .wrap_err_with(|| format!("can't run {program}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {errors}");
    Ok(())
}
