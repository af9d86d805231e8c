//! Blocks of real chains, recorded with their pre-state.
//!
//! There are two formats. A *witness* file has the whole block and the trie nodes, codes and headers it needs, so that
//! everything can be checked, the state root included. A *pre-state* file has the header, the transactions, and the
//! accounts and slots that these touch; rewards, withdrawals and system calls are not part of it.

use eyre::{Context, Result, ensure, eyre};
use niwaki_primitives::{
    Address, B256, Block, Bytes, Decodable2718, Header, TxEnvelope, U256, hex, rlp::Decodable,
};
use niwaki_testkit::{MemoryAccount, MemoryState};
use niwaki_trie::WitnessState;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

/// A block with its pre-state.
pub(crate) enum Recorded {
    /// The whole block.
    Witness {
        /// The block.
        block: Box<Block>,
        /// The part of the pre-state that the block reads.
        state: Box<WitnessState>,
    },
    /// The transactions only.
    Transactions {
        /// The header.
        header: Box<Header>,
        /// The transactions.
        transactions: Vec<TxEnvelope>,
        /// The part of the pre-state that they read.
        state: Box<MemoryState>,
        /// Gas used by each.
        gas: Vec<u64>,
    },
}

/// A recorded block, its name and its chain.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) chain: String,
    pub(crate) block: Recorded,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    chain: String,
    hash: B256,
    pre_state_root: Option<B256>,
    block: Option<Bytes>,
    witness: Option<Witness>,
    header: Option<Bytes>,
    transactions: Option<Vec<Bytes>>,
    #[serde(default)]
    block_hashes: HashMap<String, B256>,
    pre_state: Option<HashMap<Address, PreAccount>>,
    receipts: Option<Vec<RecordedReceipt>>,
}

#[derive(Deserialize)]
struct Witness {
    headers: Vec<Bytes>,
    codes: Vec<Bytes>,
    state: Vec<Bytes>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PreAccount {
    balance: U256,
    #[serde(deserialize_with = "number")]
    nonce: u64,
    code_hash: Option<B256>,
    #[serde(default)]
    storage: BTreeMap<U256, U256>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedReceipt {
    gas_used: U256,
}

/// A number, or a number as text.
fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    U256::deserialize(from)?
        .try_into()
        .map_err(serde::de::Error::custom)
}

/// Every recorded block in `dir`, recursively, sorted by name.
pub(crate) fn load(dir: &Path) -> Result<Vec<Entry>> {
    let mut files = Vec::new();
    list(dir, &mut files)?;
    let mut entries = Vec::new();
    for path in files {
        let text = std::fs::read(&path).wrap_err_with(|| format!("can't read {path:?}"))?;
        let Ok(file) = serde_json::from_slice::<File>(&text) else {
            continue;
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let kind = if file.witness.is_some() {
            "witness"
        } else {
            "transactions"
        };
        let name = format!("{stem} ({kind})");
        let chain = file.chain.clone();
        let codes = path.with_file_name("codes.json");
        let block = decode(file, &codes).wrap_err_with(|| format!("{path:?}"))?;
        entries.push(Entry { name, chain, block });
    }
    ensure!(
        !entries.is_empty(),
        "no recorded blocks (*.json with a pre-state) below {dir:?}"
    );
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn list(dir: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(dir)
        .wrap_err_with(|| format!("can't list {dir:?}; give a directory of recorded blocks"))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, into)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            into.push(path);
        }
    }
    Ok(())
}

fn decode(file: File, codes: &Path) -> Result<Recorded> {
    if let (Some(witness), Some(block), Some(root)) =
        (file.witness, file.block, file.pre_state_root)
    {
        let block = Block::decode(&mut block.as_ref())?;
        ensure!(
            block.header.hash_slow() == file.hash,
            "the block does not have the hash given"
        );
        let mut hashes = Vec::new();
        for header in &witness.headers {
            let header = Header::decode(&mut header.as_ref())?;
            hashes.push((header.number, header.hash_slow()));
            // A header also proves its parent's hash, which saves the witness one header.
            hashes.push((header.number.saturating_sub(1), header.parent_hash));
        }
        let state = WitnessState::new(root, witness.state, witness.codes, hashes);
        return Ok(Recorded::Witness {
            block: Box::new(block),
            state: Box::new(state),
        });
    }
    let missing = || eyre!("neither a witness nor a pre-state");
    let header = file.header.ok_or_else(missing)?;
    let header = Header::decode(&mut header.as_ref())?;
    ensure!(
        header.hash_slow() == file.hash,
        "the header does not have the hash given"
    );
    let mut transactions = Vec::new();
    for encoded in file.transactions.ok_or_else(missing)? {
        transactions.push(TxEnvelope::decode_2718(&mut encoded.as_ref())?);
    }
    let mut state = MemoryState::default();
    for (number, hash) in file.block_hashes {
        state.block_hashes.insert(number.parse()?, hash);
    }
    fill(&mut state, file.pre_state.ok_or_else(missing)?, codes)?;
    let receipts = file.receipts.ok_or_else(missing)?;
    let gas = receipts
        .iter()
        .map(|r| r.gas_used.try_into())
        .collect::<Result<_, _>>()?;
    Ok(Recorded::Transactions {
        header: Box::new(header),
        transactions,
        state: Box::new(state),
        gas,
    })
}

thread_local! {
    /// The codes shared by all pre-state files of a folder.
    static CODES: std::cell::RefCell<Option<(PathBuf, HashMap<B256, Bytes>)>> =
        const { std::cell::RefCell::new(None) };
}

fn fill(
    state: &mut MemoryState,
    accounts: HashMap<Address, PreAccount>,
    codes: &Path,
) -> Result<()> {
    CODES.with_borrow_mut(|cache| {
        if cache.as_ref().is_none_or(|(path, _)| path != codes) {
            let text = std::fs::read(codes)
                .wrap_err_with(|| format!("can't read {codes:?}, which has the codes"))?;
            let codes_of: HashMap<B256, String> = serde_json::from_slice(&text)?;
            let decoded = codes_of
                .into_iter()
                .map(|(hash, code)| Ok((hash, hex::decode(code)?.into())))
                .collect::<Result<_>>()?;
            *cache = Some((codes.to_owned(), decoded));
        }
        let (_, codes) = cache.as_ref().expect("just filled");
        for (address, account) in accounts {
            let code = match account.code_hash {
                None => Bytes::new(),
                Some(hash) => codes
                    .get(&hash)
                    .cloned()
                    .ok_or_else(|| eyre!("no code {hash}"))?,
            };
            let storage = account
                .storage
                .into_iter()
                .filter(|(_, v)| !v.is_zero())
                .collect();
            let (nonce, balance) = (account.nonce, account.balance);
            state.insert(
                address,
                MemoryAccount {
                    nonce,
                    balance,
                    code: code.into(),
                    storage,
                },
            );
        }
        Ok(())
    })
}
