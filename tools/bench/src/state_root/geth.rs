//! geth as a contender: a small Go program on top of its state layer, built here and driven by lines of JSON.
//!
//! The program (`tools/bench/peers/geth-state`) puts the changes of a block into a StateDB before its clock starts.
//! The time of the root is that of `IntermediateRoot`, which hashes the keys, loads what its caches do not hold, and
//! computes all roots. The time of the commit is that of `Commit`, which collects the changed nodes into a diff layer
//! in memory. geth writes a layer to disk 128 blocks later.

use super::Outcome;
use crate::{big_state, big_state::BigState, peers};
use eyre::{Context, Result, bail, ensure, eyre};
use niwaki_primitives::{Address, B256, StateDiff, U256};
use niwaki_state::{BlockId, TrieLog, WorldState};
use niwaki_storage::Segment;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Options of geth's state.
pub(super) struct GethOptions<'a> {
    pub(super) folder: &'a Path,
    pub(super) cache_bytes: usize,
    pub(super) threads: usize,
    pub(super) prefetch: bool,
}

/// The running program.
pub(super) struct GethState {
    child: Child,
    requests: Option<ChildStdin>,
    responses: BufReader<ChildStdout>,
    folder: PathBuf,
    /// Version of geth.
    pub(super) version: String,
}

#[derive(Serialize)]
struct Block {
    number: u64,
    accounts: Vec<ChangedAccount>,
}

#[derive(Serialize)]
struct ChangedAccount {
    address: Address,
    nonce: u64,
    slots: Vec<(B256, B256)>,
}

#[derive(Deserialize)]
struct Ready {
    version: String,
    number: u64,
    root: B256,
    made_s: f64,
}

#[derive(Deserialize)]
struct BlockDone {
    root: B256,
    root_ms: f64,
    commit_ms: f64,
}

/// The time of flushing the last blocks to disk, and of compacting the database.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Finished {
    flush_ms: f64,
    compact_ms: f64,
}

impl GethState {
    /// Builds the program, opens its state (created if it does not exist), and brings it to the head of `world`.
    pub(super) fn start(
        options: &GethOptions<'_>,
        state: &BigState,
        world: &WorldState,
    ) -> Result<Self> {
        let program = build()?;
        let folder = options.folder.to_owned();
        if !folder.exists() {
            eprintln!("making geth's state, which takes minutes");
        }
        let mut command = Command::new(&program);
        command.arg("-dir").arg(&folder);
        for (flag, value) in [
            ("-accounts", state.accounts),
            ("-slots-each", state.slots_each()),
            ("-cache-mib", (options.cache_bytes >> 20) as u64),
            ("-threads", options.threads as u64),
        ] {
            command.arg(flag).arg(value.to_string());
        }
        command.arg(format!("-prefetch={}", options.prefetch));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .wrap_err_with(|| format!("can't run {}", program.display()))?;
        let (Some(requests), Some(responses)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("{} has no pipes", program.display());
        };
        let mut geth = Self {
            child,
            requests: Some(requests),
            responses: BufReader::new(responses),
            folder,
            version: String::new(),
        };
        let ready: Ready = geth.read_response()?;
        if ready.made_s > 0.0 {
            eprintln!("geth: made in {:.1} s", ready.made_s);
        }
        geth.version = ready.version;
        geth.catch_up(ready.number, ready.root, world)?;
        Ok(geth)
    }

    /// Applies the blocks that `world` has more, from its trie logs, and compares the roots.
    fn catch_up(&mut self, number: u64, mut root: B256, world: &WorldState) -> Result<()> {
        let head = big_state::head(world)?;
        let folder = self.folder.display();
        let out_of_reach = eyre!(
            "geth's state in {folder} is of block {number}, out of reach of our block {}; remove \
             both folders and they are made again",
            head.number
        );
        ensure!(number <= head.number, out_of_reach);
        let mut blocks = Vec::new();
        let mut block = head;
        while block.number > number {
            let key = [&block.number.to_be_bytes()[..], block.hash.as_slice()].concat();
            let Some(row) = world.database().get(Segment::TrieLogs, &key)? else {
                return Err(out_of_reach);
            };
            let log = TrieLog::decode(&row)?;
            blocks.push((block.number, log.diff));
            block = BlockId {
                number: block.number - 1,
                hash: log.parent,
            };
        }
        for (number, changes) in blocks.into_iter().rev() {
            let accounts = changes.accounts.iter().map(|account| {
                let slots = account.slots.iter();
                ChangedAccount {
                    address: account.address,
                    nonce: account.new.map_or(0, |new| new.nonce),
                    slots: slots
                        .filter_map(|change| Some(words(change.slot?, change.new)))
                        .collect(),
                }
            });
            let accounts = accounts.collect();
            root = self.request::<BlockDone>(&Block { number, accounts })?.root;
        }
        let ours = world.head().map(|head| head.root).unwrap_or_default();
        ensure!(
            root == ours,
            "geth's state in {} has root {root}, ours {ours}; remove both folders and they are \
             made again",
            self.folder.display()
        );
        Ok(())
    }

    /// Applies a block.
    pub(super) fn apply_block(&mut self, number: u64, diff: &StateDiff) -> Result<Outcome> {
        let accounts = diff.accounts.iter().map(|(address, change)| {
            let slots = change.slots.iter();
            ChangedAccount {
                address: *address,
                nonce: change.new.map_or(0, |new| new.nonce),
                slots: slots.map(|(slot, value)| words(*slot, value.new)).collect(),
            }
        });
        let accounts = accounts.collect();
        let done: BlockDone = self.request(&Block { number, accounts })?;
        Ok(Outcome {
            root: done.root,
            root_ms: done.root_ms,
            commit_ms: Some(done.commit_ms),
        })
    }

    /// Flushes everything to disk, compacts it, and ends the program.
    pub(super) fn finish(mut self) -> Result<Finished> {
        let finished = self.request(&serde_json::json!({"finish": true}))?;
        let status = self.child.wait().wrap_err("can't wait for geth's state")?;
        ensure!(status.success(), "geth's state ended with {status}");
        Ok(finished)
    }

    fn request<T: DeserializeOwned>(&mut self, request: &impl Serialize) -> Result<T> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        if let Some(requests) = &mut self.requests {
            // If it has ended, its reason is on standard error.
            requests
                .write_all(&line)
                .wrap_err("geth's state has ended; see its message above")?;
        }
        self.read_response()
    }

    fn read_response<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.responses
            .read_line(&mut line)
            .wrap_err("can't read what geth's state answers")?;
        ensure!(
            !line.is_empty(),
            "geth's state has ended; see its message above"
        );
        serde_json::from_str(&line)
            .wrap_err_with(|| format!("can't read what geth's state answers: {}", line.trim_end()))
    }
}

impl Drop for GethState {
    fn drop(&mut self) {
        // It ends when its standard input is closed.
        self.requests = None;
        let _ = self.child.wait();
    }
}

fn words(slot: U256, value: U256) -> (B256, B256) {
    (slot.into(), value.into())
}

/// Builds the Go program into the target folder; takes a second if it is up to date.
fn build() -> Result<PathBuf> {
    let program = peers::folder().join("geth-state");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/geth-state");
    let mut command = Command::new("go");
    command
        .current_dir(&source)
        .args(["build", "-trimpath", "-buildvcs=false"]);
    command.arg("-o").arg(&program).arg(".");
    let output = command.output().wrap_err(
        "can't run go, which builds the peer geth; install Go 1.25 or newer, or leave out --peer geth",
    )?;
    ensure!(
        output.status.success(),
        "go can't build {}: {}; check that it reaches a module proxy, or leave out --peer geth",
        source.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(program)
}
