//! A temporary data path, and the binary run on it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Hash of block 54, the last of `testdata/chain`.
pub(crate) const HEAD: &str = "0xd226371d0b1551adb03fb52b71f08e3e11247fe9b1af994768af8cdaa8e7dcd7";

pub(crate) fn chain_file() -> PathBuf {
    testdata("chain.rlp")
}

pub(crate) fn genesis_file() -> PathBuf {
    testdata("genesis.json")
}

/// Osaka from genesis, Amsterdam from timestamp 24.
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

/// A temporary folder for one test, with a data path in it.
pub(crate) struct TestDir {
    folder: TempDir,
    pub(crate) genesis: PathBuf,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl TestDir {
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
            .env("NIWAKI_P2P_ENABLED", "false")
            .arg("--data-path")
            .arg(self.data_path())
            .arg("--genesis-file")
            .arg(&self.genesis)
            .args(words.split_whitespace())
            .args(files);
        command
    }

    /// Runs the command of `words` with `files` as the last arguments.
    pub(crate) fn run(&self, words: &str, files: &[&Path]) -> CommandResult {
        CommandResult::of(&self.command(words, files).output().unwrap())
    }

    pub(crate) fn import(&self, file: &Path) -> CommandResult {
        self.run("blocks import --from", &[file])
    }

    /// Number and hash of the head, from a check that must find no problems.
    pub(crate) fn checked_head(&self) -> (u64, String) {
        let result = self.run("storage check", &[]).succeeded();
        assert!(result.out.contains("no problems found"), "{result:?}");
        result.head()
    }
}

impl CommandResult {
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

    /// Asserts that the command failed with each of `words` in its last line.
    #[track_caller]
    pub(crate) fn failed(self, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.errors);
        let last = self.errors.lines().last().unwrap_or_default();
        // A running node writes the error to its log.
        let is_error = last.starts_with("niwaki: ") || last.contains(" ERROR ");
        assert!(is_error, "{}", self.errors);
        for word in words {
            assert!(last.contains(word), "no '{word}' in: {last}");
        }
        self
    }

    /// Number and hash of the head in the output.
    #[track_caller]
    pub(crate) fn head(&self) -> (u64, String) {
        let line = self.out.lines().find_map(|line| line.strip_prefix("head "));
        let mut words = line.expect("a line 'head'").split_whitespace();
        let number = words.next().unwrap().parse().unwrap();
        let hash = words.next().unwrap().trim_end_matches(',').to_owned();
        (number, hash)
    }

    /// The number of blocks in the line of the summary that begins with `title`.
    #[track_caller]
    pub(crate) fn count(&self, title: &str) -> u64 {
        let line = self.out.lines().find_map(|line| line.strip_prefix(title));
        let word = line.expect("the line").split_whitespace().next().unwrap();
        word.parse().unwrap()
    }
}

/// The size of all files below `folder`; files that vanish meanwhile count as 0.
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

fn spawn(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Waits until something holds. What does not within a minute fails the test with what there is instead.
pub(crate) fn wait_until(state: impl Fn() -> String, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", state());
        std::thread::yield_now();
    }
}

/// Runs `command` to its end and returns the largest size of `folder` meanwhile.
pub(crate) fn growth(command: &mut Command, folder: &Path) -> u64 {
    let (mut child, mut most) = (spawn(command), 0);
    while child.try_wait().unwrap().is_none() {
        most = most.max(bytes_below(folder));
    }
    most
}

/// Runs `command` and kills it once `folder` has `bytes` bytes: at a point of its work, not of time. Returns the exit
/// status; the command may exit first.
pub(crate) fn kill_at(command: &mut Command, folder: &Path, bytes: u64) -> ExitStatus {
    let mut child = spawn(command);
    while bytes_below(folder) < bytes {
        if let Some(result) = child.try_wait().unwrap() {
            return result;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap()
}
