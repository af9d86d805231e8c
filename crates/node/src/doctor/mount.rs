//! The file system and the disk of the data path, and the space on it.

use super::finding::Finding;
use super::machine::{Machine, text};
use std::path::{Path, PathBuf};

const GIB: u64 = 1 << 30;
/// Below this the node stops downloading a state.
const LEAST_FREE: u64 = 2 * GIB;
const LITTLE_FREE: u64 = 20 * GIB;

/// A line of `/proc/self/mountinfo` (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// `major:minor` of the device.
    device: String,
    at: PathBuf,
    /// Of the mount and of the file system.
    options: Vec<String>,
    kind: String,
    source: String,
}

/// The file system of a folder, and the disk that it is on.
pub(super) fn check(machine: &Machine, folder: &Path) -> Vec<Finding> {
    let folder = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let mounts = machine.read("proc/self/mountinfo").unwrap_or_default();
    // Of several at one place the last one is seen.
    let mounts = mounts.lines().filter_map(parse_mount);
    let mounts = mounts.filter(|mount| folder.starts_with(&mount.at));
    let Some(mount) = mounts.max_by_key(|mount| mount.at.as_os_str().len()) else {
        let found = format!("the system does not say what {} is on", text(&folder));
        return vec![Finding::unknown("file system", found)];
    };
    vec![file_system(&mount), disk(machine, &mount)]
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let (kind, source) = (after.next()?, after.next()?);
    let own = before.get(5)?.split(',');
    let options = own.chain(after.next().unwrap_or_default().split(','));
    Some(Mount {
        device: (*before.get(2)?).to_owned(),
        at: PathBuf::from(before.get(4)?.replace("\\040", " ")),
        options: options.map(str::to_owned).collect(),
        kind: kind.to_owned(),
        source: source.to_owned(),
    })
}

fn file_system(mount: &Mount) -> Finding {
    let found = format!(
        "{} on {}, from {}",
        mount.kind,
        text(&mount.at),
        mount.source
    );
    let has = |option: &str| mount.options.iter().any(|one| one == option);
    let check = "file system";
    if has("ro") {
        return Finding::fail(
            check,
            format!("{found}, read-only"),
            "mount it for writing (rw)",
        );
    }
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" => Finding::fail(
            check,
            found,
            "this is memory, gone after the next boot: put --data-path on a disk",
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "glusterfs" => Finding::fail(
            check,
            found,
            "a network file system is too slow for a node and may lose what is written: use a local disk",
        ),
        "overlay" | "aufs" => Finding::warn(
            check,
            found,
            "this is the container's own layer, gone with the container: mount a volume at --data-path",
        ),
        "btrfs" | "zfs" | "bcachefs" => Finding::warn(
            check,
            found,
            "copying what is written costs a third of the disk's speed or more: ext4 or xfs is better",
        ),
        kind if kind.starts_with("fuse") || kind == "9p" || kind == "virtiofs" => Finding::warn(
            check,
            found,
            "each access passes through another program: use a disk with ext4 or xfs",
        ),
        _ if has("sync") => Finding::warn(
            check,
            format!("{found}, with sync"),
            "each write waits for the disk: mount it without sync",
        ),
        _ => Finding::pass(check, found),
    }
}

fn disk(machine: &Machine, mount: &Mount) -> Finding {
    let Some(device) = device_folder(machine, &mount.device) else {
        return Finding::unknown("disk", format!("{} has no device of its own", mount.source));
    };
    let name = device.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let path = text(&device);
    let model = read(&device, "device/model").unwrap_or_default();
    let found = format!("{name} {model}").trim().to_owned();
    let is_rotational = read(&device, "queue/rotational").as_deref() == Some("1");
    if name.starts_with("nvme") {
        return Finding::pass("disk", format!("{found}, NVMe"));
    }
    if ["vd", "xvd", "loop", "zram"]
        .iter()
        .any(|kind| name.starts_with(kind))
    {
        // Hosts often say that theirs rotate.
        return Finding::pass(
            "disk",
            format!("{found}, virtual: the disk test tells what it can do"),
        );
    }
    if is_rotational {
        let mend = "a node needs an SSD, NVMe at best";
        return Finding::fail("disk", format!("{found}, rotating"), mend);
    }
    if path.contains("/usb") {
        let mend = "USB bridges are slow and let go under load: use NVMe or SATA";
        return Finding::warn("disk", format!("{found}, by USB"), mend);
    }
    match controller(&device) {
        Some(driver) if path.contains("/ata") && driver != "ahci" => Finding::warn(
            "disk",
            format!("{found}, SATA by the driver {driver}"),
            "choose AHCI for the controller in the UEFI or BIOS: other modes cannot queue",
        ),
        Some(driver) => Finding::pass("disk", format!("{found}, {driver}")),
        None => Finding::pass("disk", found),
    }
}

/// The folder of the whole disk under `/sys`, behind partitions and device mappers.
fn device_folder(machine: &Machine, device: &str) -> Option<PathBuf> {
    let link = machine.path(&format!("sys/dev/block/{device}"));
    let mut folder = std::fs::canonicalize(link).ok()?;
    // An encrypted volume in a logical one on a partition is three deep.
    for _ in 0..8 {
        if folder.join("partition").exists() {
            folder = folder.parent()?.to_owned();
        }
        let below = std::fs::read_dir(folder.join("slaves"));
        let Some(below) = below.into_iter().flatten().flatten().next() else {
            break;
        };
        folder = std::fs::canonicalize(below.path()).ok()?;
    }
    Some(folder)
}

/// The driver of the nearest PCI device above a disk.
fn controller(device: &Path) -> Option<String> {
    let is_pci = |folder: &&Path| folder.join("class").exists() && folder.join("driver").exists();
    let device = device.ancestors().find(is_pci)?;
    let driver = std::fs::canonicalize(device.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

fn read(folder: &Path, file: &str) -> Option<String> {
    let text = std::fs::read_to_string(folder.join(file)).ok()?;
    Some(text.trim().to_owned())
}

/// Space that is free for the node's user.
pub(super) fn free_space(folder: &Path) -> Finding {
    match rustix::fs::statvfs(folder) {
        Ok(space) => {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            grade_space(folder, free, space.f_blocks.saturating_mul(space.f_frsize))
        }
        Err(error) => Finding::unknown("free space", format!("{}: {error}", text(folder))),
    }
}

fn grade_space(folder: &Path, free: u64, all: u64) -> Finding {
    let found = format!("{} of {} GiB at {}", free / GIB, all / GIB, text(folder));
    match free {
        free if free < LEAST_FREE => Finding::fail(
            "free space",
            found,
            "make room or move --data-path: a node whose disk is full stops",
        ),
        free if free < LITTLE_FREE => Finding::warn(
            "free space",
            found,
            "a chain grows; mainnet wants hundreds of GiB and a third free",
        ),
        _ => Finding::pass("free space", found),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Grade;
    use super::*;
    use std::os::unix::fs::symlink;

    fn mount(line: &str) -> Mount {
        parse_mount(line).unwrap()
    }

    #[test]
    fn a_line_of_mountinfo_is_read_with_and_without_optional_fields() {
        let plain = mount("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard");
        assert_eq!(
            (plain.device.as_str(), plain.kind.as_str()),
            ("254:0", "ext4")
        );
        assert!(plain.options.iter().any(|option| option == "discard"));
        let shared = mount("36 35 98:0 /m /a\\040b ro,noatime shared:1 master:2 - nfs4 host:/x rw");
        assert_eq!(shared.at, PathBuf::from("/a b"));
        assert_eq!(parse_mount("36 35 98:0 / /"), None);
    }

    #[test]
    fn file_systems_that_lose_or_slow_down_are_named() {
        for (line, grade) in [
            ("1 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw", Grade::Pass),
            ("1 1 8:1 / / rw,relatime - xfs /dev/sda1 rw", Grade::Pass),
            ("1 1 8:1 / / ro,relatime - ext4 /dev/sda1 rw", Grade::Fail),
            ("1 1 8:1 / / rw - ext4 /dev/sda1 rw,sync", Grade::Warn),
            ("1 1 0:9 / / rw - tmpfs tmpfs rw", Grade::Fail),
            ("1 1 0:9 / / rw - nfs4 host:/x rw", Grade::Fail),
            ("1 1 0:9 / / rw - overlay overlay rw", Grade::Warn),
            ("1 1 0:9 / / rw - zfs tank rw", Grade::Warn),
            ("1 1 0:9 / / rw - fuse.sshfs host: rw", Grade::Warn),
        ] {
            assert_eq!(file_system(&mount(line)).grade, grade, "{line}");
        }
    }

    /// A machine whose device 8:1 is the first partition of a disk at this path under `/sys/devices`.
    fn disk_at(path: &str, rotational: &str, driver: &str) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path().join("sys");
        let disk = sys.join("devices").join(path);
        let partition = disk.join("part1");
        std::fs::create_dir_all(disk.join("queue")).unwrap();
        std::fs::create_dir_all(disk.join("slaves")).unwrap();
        std::fs::create_dir_all(&partition).unwrap();
        std::fs::write(disk.join("queue/rotational"), rotational).unwrap();
        std::fs::write(partition.join("partition"), "1\n").unwrap();
        let pci = sys.join("devices/pci0/0000:00:17.0");
        let drivers = sys.join("bus/pci/drivers").join(driver);
        std::fs::create_dir_all(&drivers).unwrap();
        std::fs::create_dir_all(&pci).unwrap();
        std::fs::write(pci.join("class"), "0x010601").unwrap();
        symlink(&drivers, pci.join("driver")).unwrap();
        std::fs::create_dir_all(sys.join("dev/block")).unwrap();
        symlink(&partition, sys.join("dev/block/8:1")).unwrap();
        let machine = Machine::at(folder.path());
        (folder, machine)
    }

    #[test]
    fn disks_are_told_apart_by_name_rotation_and_controller() {
        let mount = mount("1 1 8:1 / / rw - ext4 /dev/sda1 rw");
        for (path, rotational, driver, grade, word) in [
            (
                "pci0/0000:00:17.0/nvme/nvme0/nvme0n1",
                "0",
                "nvme",
                Grade::Pass,
                "NVMe",
            ),
            (
                "pci0/0000:00:17.0/ata1/host0/sda",
                "0\n",
                "ahci",
                Grade::Pass,
                "ahci",
            ),
            (
                "pci0/0000:00:17.0/ata1/host0/sda",
                "0\n",
                "ata_piix",
                Grade::Warn,
                "ata_piix",
            ),
            (
                "pci0/0000:00:17.0/ata1/host0/sda",
                "1\n",
                "ahci",
                Grade::Fail,
                "rotating",
            ),
            (
                "pci0/0000:00:17.0/usb2/2-1/host4/sdb",
                "0\n",
                "xhci_hcd",
                Grade::Warn,
                "USB",
            ),
            (
                "pci0/0000:00:17.0/virtio1/block/vda",
                "1\n",
                "virtio-pci",
                Grade::Pass,
                "virtual",
            ),
        ] {
            let (_folder, machine) = disk_at(path, rotational, driver);
            let finding = disk(&machine, &mount);
            assert_eq!(finding.grade, grade, "{path} {driver}");
            assert!(finding.found.contains(word), "{}", finding.found);
        }
        assert_eq!(disk(&Machine::at("/nowhere"), &mount).grade, Grade::Unknown);
    }

    #[test]
    fn a_device_mapper_is_followed_to_its_disk() {
        let (folder, machine) = disk_at("pci0/0000:00:17.0/nvme/nvme0/nvme0n1", "0", "nvme");
        let sys = folder.path().join("sys");
        let mapper = sys.join("devices/virtual/block/dm-0");
        std::fs::create_dir_all(mapper.join("slaves")).unwrap();
        let partition = std::fs::canonicalize(sys.join("dev/block/8:1")).unwrap();
        symlink(partition, mapper.join("slaves/part1")).unwrap();
        symlink(&mapper, sys.join("dev/block/253:0")).unwrap();
        let mount = mount("1 1 253:0 / / rw - ext4 /dev/mapper/data rw");
        assert!(disk(&machine, &mount).found.contains("nvme0n1"));
    }

    #[test]
    fn little_space_is_a_warning_and_none_fails() {
        for (free, grade) in [(1, Grade::Fail), (3, Grade::Warn), (500, Grade::Pass)] {
            let finding = grade_space(Path::new("/data"), free * GIB, 1_000 * GIB);
            assert_eq!(finding.grade, grade);
        }
        assert_eq!(free_space(Path::new("/nowhere")).grade, Grade::Unknown);
    }
}
