//! A data path that vanishes, and the binary run upon it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;

/// Of block 54, the last of `testdata/chain`.
pub(crate) const HEAD: &str = "0xd226371d0b1551adb03fb52b71f08e3e11247fe9b1af994768af8cdaa8e7dcd7";

pub(crate) fn chain_file() -> PathBuf {
    testdata("chain.rlp")
}

pub(crate) fn genesis_file() -> PathBuf {
    testdata("genesis.json")
}

/// Osaka from the beginning, Amsterdam from the time 24 on.
pub(crate) fn amsterdam_genesis() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/amsterdam/genesis.json")
}

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/chain")
        .join(name)
}

/// The RLP of each block of a file.
pub(crate) fn blocks(file: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(file).unwrap();
    let mut rest = &file[..];
    let mut blocks = Vec::new();
    while !rest.is_empty() {
        let before = rest;
        alloy_rlp::Header::decode_bytes(&mut rest, true).unwrap();
        blocks.push(before[..before.len() - rest.len()].to_vec());
    }
    blocks
}

/// A folder for one test, with a data path in it.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) genesis: PathBuf,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            genesis: genesis_file(),
        }
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn data_path(&self) -> PathBuf {
        self.path("data")
    }

    pub(crate) fn command(&self, words: &str, files: &[&Path]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_niwaki"));
        command
            .arg("--data-path")
            .arg(self.data_path())
            .arg("--genesis-file")
            .arg(&self.genesis)
            .args(words.split_whitespace())
            .args(files);
        command
    }

    /// Runs the command of `words` with `files` at its end.
    pub(crate) fn run(&self, words: &str, files: &[&Path]) -> Ended {
        Ended::of(&self.command(words, files).output().unwrap())
    }

    pub(crate) fn import(&self, file: &Path) -> Ended {
        self.run("blocks import --from", &[file])
    }

    /// The number and hash of the head, from a check that finds nothing wrong.
    pub(crate) fn checked_head(&self) -> (u64, String) {
        let ended = self.run("storage check", &[]).succeeded();
        assert!(ended.out.contains("no problems found"), "{ended:?}");
        ended.head()
    }
}

impl Ended {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            code: output.status.code(),
            out: text(&output.stdout),
            errors: text(&output.stderr),
        }
    }

    #[track_caller]
    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.errors);
        self
    }

    /// It failed, and said each of `words` in its last line.
    #[track_caller]
    pub(crate) fn failed(self, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.errors);
        let last = self.errors.lines().last().unwrap_or_default();
        // A node that runs writes it to its log.
        let is_told = last.starts_with("niwaki: ") || last.contains(" ERROR ");
        assert!(is_told, "{}", self.errors);
        for word in words {
            assert!(last.contains(word), "no '{word}' in: {last}");
        }
        self
    }

    /// Number and hash of the head as the command printed them.
    #[track_caller]
    pub(crate) fn head(&self) -> (u64, String) {
        let line = self.out.lines().find_map(|line| line.strip_prefix("head "));
        let mut words = line.expect("a line 'head'").split_whitespace();
        let number = words.next().unwrap().parse().unwrap();
        let hash = words.next().unwrap().trim_end_matches(',').to_owned();
        (number, hash)
    }

    /// The number of blocks that a line of the summary begins with.
    #[track_caller]
    pub(crate) fn count(&self, title: &str) -> u64 {
        let line = self.out.lines().find_map(|line| line.strip_prefix(title));
        let word = line.expect("the line").split_whitespace().next().unwrap();
        word.parse().unwrap()
    }
}

/// The bytes of all files below `folder`; of one that vanishes meanwhile, as many as were found.
pub(crate) fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_below(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    bytes.sum()
}

fn begin(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Runs `command` to its end, and gives the most bytes that were seen below `folder` meanwhile.
pub(crate) fn growth(command: &mut Command, folder: &Path) -> u64 {
    let (mut child, mut most) = (begin(command), 0);
    while child.try_wait().unwrap().is_none() {
        most = most.max(bytes_below(folder));
    }
    most
}

/// Runs `command` and kills it once there are so many bytes below `folder`: at a point of its work, however
/// slow the machine is. Gives how it ended, which it may have done before.
pub(crate) fn kill_at(command: &mut Command, folder: &Path, bytes: u64) -> ExitStatus {
    let mut child = begin(command);
    while bytes_below(folder) < bytes {
        if let Some(ended) = child.try_wait().unwrap() {
            return ended;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap()
}
