//! Chains that a source gets: built here by a client, with transactions of all types, or read from a folder.
//!
//! A folder has `genesis.json` and `newpayload.json`, a list of Engine API requests, one for each block: the form of go-ethereum's
//! test chains.

use super::Binaries;
use super::node;
use crate::accounts::{self, Account, BlobSidecars, SentTransaction};
use crate::build::{self, BuildRequest, BuiltBlock};
use crate::genesis::{GAS_LIMIT, genesis};
use crate::load::number;
use crate::process::{Process, StartOptions};
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_primitives::B256;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Accounts that send transactions.
const ACCOUNTS: u64 = 24;
/// One block in so many has a blob transaction: its proofs take a pool 10 ms.
const BLOB_EVERY: u64 = 16;

/// A block as its consensus client sends it.
#[derive(Clone, Debug)]
pub(super) struct ChainBlock {
    pub(super) number: u64,
    pub(super) hash: String,
    pub(super) method: String,
    pub(super) params: Value,
}

impl From<BuiltBlock> for ChainBlock {
    fn from(built: BuiltBlock) -> Self {
        Self {
            number: built.number,
            method: built.new_payload_method().into(),
            hash: built.hash,
            params: built.params,
        }
    }
}

impl Chain {
    /// The blocks without the last ones, and these.
    pub(super) fn split(&self, late: usize) -> (&[ChainBlock], &[ChainBlock]) {
        self.blocks.split_at(self.blocks.len().saturating_sub(late))
    }
}

impl ChainBlock {
    /// The root of the state after it.
    pub(super) fn state_root(&self) -> Result<B256> {
        let root = self.params[0]["stateRoot"].as_str().map(str::parse);
        let root = root.ok_or_else(|| eyre!("block {} has no stateRoot", self.number))?;
        Ok(root?)
    }

    pub(super) fn fork_choice(&self) -> Value {
        node::choice(&self.hash)
    }

    pub(super) fn fork_choice_method(&self) -> &'static str {
        match self.method.as_str() {
            "engine_newPayloadV5" => "engine_forkchoiceUpdatedV4",
            _ => "engine_forkchoiceUpdatedV3",
        }
    }
}

/// A genesis file and blocks.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) genesis: PathBuf,
    pub(super) blocks: Vec<ChainBlock>,
}

impl Chain {
    /// The chain in `saved` if that folder exists, cut to `count` blocks; else a new one, which is written there.
    pub(super) fn read_or_build(
        binaries: &Binaries,
        saved: Option<&Path>,
        temporary: &Path,
        count: usize,
    ) -> Result<Self> {
        let folder = saved.map_or_else(|| temporary.join("chain"), Path::to_owned);
        if !folder.exists() {
            std::fs::create_dir_all(&folder)?;
            Self::build(binaries, &folder, count)?.write(&folder)?;
        }
        let mut chain = Self::read(&folder)?;
        chain.blocks.truncate(count);
        Ok(chain)
    }

    /// Reads a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("newpayload.json");
        let at = || format!("{} is needed", path.display());
        let text = std::fs::read_to_string(&path).wrap_err_with(at)?;
        let requests: Vec<Value> = serde_json::from_str(&text).wrap_err_with(at)?;
        let block = |request: Value| -> Result<ChainBlock> {
            let payload = &request["params"][0];
            Ok(ChainBlock {
                number: number(&payload["blockNumber"])?,
                hash: build::text(&payload["blockHash"])?,
                method: build::text(&request["method"])?,
                params: request["params"].clone(),
            })
        };
        let blocks: Vec<ChainBlock> = requests.into_iter().map(block).collect::<Result<_>>()?;
        // A genesis block may be among them.
        let blocks = blocks.into_iter().filter(|block| block.number > 0);
        Ok(Self {
            genesis: folder.join("genesis.json"),
            blocks: blocks.collect(),
        })
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let requests: Vec<Value> = self
            .blocks
            .iter()
            .map(|block| json!({ "method": block.method, "params": block.params }))
            .collect();
        let path = folder.join("newpayload.json");
        Ok(std::fs::write(path, Value::from(requests).to_string())?)
    }

    fn build(binaries: &Binaries, folder: &Path, count: usize) -> Result<Self> {
        let mut source = TransactionSource::new()?;
        let genesis = source.write_genesis(folder)?;
        let (kind, binary) = binaries.builder()?;
        let data = tempfile::tempdir()?;
        let options = StartOptions::genesis(&genesis);
        let builder = Process::start(
            kind,
            "builder",
            binary,
            data.path().join("builder"),
            options,
        )?;
        let client = &builder.client;
        let mut parent = build::text(&client.block("0x0")?["hash"])?;
        let mut blocks = Vec::with_capacity(count);
        eprintln!("building a chain of {count} blocks");
        for slot in 1..=count as u64 {
            let kinds = |account| source_kind(account, slot);
            let sent = source.next(8, kinds);
            for (sent, error) in sent.iter().zip(client.send_batch(&raw(&sent))?) {
                source.refused(sent, error)?;
            }
            let request = BuildRequest {
                fork_choice: node::choice(&parent),
                slot,
                builder: 0,
                is_amsterdam: false,
                time: Duration::ZERO,
            };
            let (built, _) = build::build(client, &request)?;
            let block = ChainBlock::from(built);
            node::give(client, std::slice::from_ref(&block))?;
            parent.clone_from(&block.hash);
            blocks.push(block);
            if slot.is_multiple_of(500) {
                eprintln!("{slot} blocks");
            }
        }
        // The last request of a fork choice makes the last block the head of the builder, which ends here.
        let sent = blocks.iter().map(|block| &block.params[0]["transactions"]);
        let sent: usize = sent.filter_map(|all| Some(all.as_array()?.len())).sum();
        ensure!(
            sent >= count,
            "a chain of {count} blocks has {sent} transactions"
        );
        Ok(Self { genesis, blocks })
    }
}

/// The kind of transaction that an account sends in a slot; `None` for none.
pub(super) fn source_kind(account: usize, slot: u64) -> Option<usize> {
    match account {
        // An account that delegates may have one transaction in flight, so these send no other kind.
        0..4 => Some(4),
        4..8 => slot.is_multiple_of(BLOB_EVERY).then_some(3),
        _ => [0, 1, 2, 5, 6]
            .get((account + usize::try_from(slot).unwrap_or_default()) % 5)
            .copied(),
    }
}

pub(super) fn raw(sent: &[SentTransaction]) -> Vec<niwaki_primitives::Bytes> {
    sent.iter().map(|sent| sent.raw.clone()).collect()
}

/// Accounts that send in turn, each one transaction at a time.
#[derive(Debug)]
pub(super) struct TransactionSource {
    accounts: Vec<Account>,
    sidecars: BlobSidecars,
    rng: SmallRng,
    next: usize,
}

impl TransactionSource {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            accounts: accounts::make(ACCOUNTS),
            sidecars: BlobSidecars::new(2)?,
            rng: SmallRng::seed_from_u64(1),
            next: 0,
        })
    }

    /// Writes the genesis file in which the accounts have money.
    pub(super) fn write_genesis(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("genesis.json");
        std::fs::write(&path, genesis(&self.accounts, GAS_LIMIT))?;
        Ok(path)
    }

    /// At most one transaction of each of the next `count` accounts.
    pub(super) fn next(
        &mut self,
        count: usize,
        kind: impl Fn(usize) -> Option<usize>,
    ) -> Vec<SentTransaction> {
        let mut sent = Vec::new();
        for _ in 0..count.min(self.accounts.len()) {
            let index = self.next % self.accounts.len();
            self.next += 1;
            if let Some(kind) = kind(index) {
                let account = &mut self.accounts[index];
                sent.push(account.send(index, kind, &self.sidecars, &mut self.rng));
            }
        }
        sent
    }

    /// Takes back a transaction that a pool refused, if there is an error.
    ///
    /// # Errors
    /// If it is refused for another reason than an earlier one of its sender.
    pub(super) fn refused(&mut self, sent: &SentTransaction, error: Option<String>) -> Result<()> {
        let Some(error) = error else { return Ok(()) };
        // An earlier one of its sender is in no block yet.
        let must_wait = error.contains("gapped") || error.contains("in-flight");
        ensure!(must_wait, "a {} transaction is refused: {error}", sent.kind);
        let nonces = if sent.kind == "set code" { 2 } else { 1 };
        self.accounts[sent.sender].nonce -= nonces;
        Ok(())
    }
}
