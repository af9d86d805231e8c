//! Blocks of real chains, recorded with their pre-state.
//!
//! There are two formats. A *witness* file has the whole block and the trie nodes, codes and headers it needs, so that
//! everything can be checked, the state root included. A *pre-state* file has the header, the transactions, and the
//! accounts and slots that these touch; rewards, withdrawals and system calls are not part of it.

use eyre::{Context, Result, ensure, eyre};
use niwaki_primitives::{
    Address, B256, Block, BlockBody, Bytes, Decodable2718, Header, TxEnvelope, U256, rlp::Decodable,
};
use niwaki_testkit::{MemoryAccount, MemoryState};
use niwaki_trie::WitnessState;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

/// The recorded part of the state before a block.
pub(crate) enum PreState {
    Witness(Box<WitnessState>),
    /// What the transactions read, and the gas that each uses.
    Values {
        state: Box<MemoryState>,
        gas: Vec<u64>,
    },
}

/// A recorded block.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) chain: String,
    /// The whole block; with a pre-state of values, its header and transactions only.
    pub(crate) block: Block,
    pub(crate) pre_state: PreState,
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
    let files = crate::disk::files(dir).wrap_err("give a directory of recorded blocks")?;
    let is_json = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    };
    let mut codes = Codes::default();
    let mut entries = Vec::new();
    for path in files.into_iter().filter(is_json) {
        let text = std::fs::read(&path).wrap_err_with(|| format!("can't read {path:?}"))?;
        let Ok(file) = serde_json::from_slice::<File>(&text) else {
            continue;
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let kind = match file.witness {
            Some(_) => "witness",
            None => "transactions",
        };
        codes.path = path.with_file_name("codes.json");
        let (name, chain) = (format!("{stem} ({kind})"), file.chain.clone());
        let decoded = decode(file, &mut codes).wrap_err_with(|| format!("{path:?}"))?;
        let (block, pre_state) = decoded;
        entries.push(Entry {
            name,
            chain,
            block,
            pre_state,
        });
    }
    ensure!(
        !entries.is_empty(),
        "no recorded blocks (*.json with a pre-state) below {dir:?}"
    );
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn decode(file: File, codes: &mut Codes) -> Result<(Block, PreState)> {
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
        return Ok((block, PreState::Witness(Box::new(state))));
    }
    let missing = || eyre!("neither a witness nor a pre-state");
    let header = file.header.ok_or_else(missing)?;
    let header = Header::decode(&mut header.as_ref())?;
    ensure!(
        header.hash_slow() == file.hash,
        "the header does not have the hash given"
    );
    let mut body = BlockBody {
        transactions: Vec::new(),
        ommers: Vec::new(),
        withdrawals: None,
    };
    for encoded in file.transactions.ok_or_else(missing)? {
        let tx = TxEnvelope::decode_2718(&mut encoded.as_ref())?;
        body.transactions.push(tx);
    }
    let mut state = MemoryState::default();
    for (number, hash) in file.block_hashes {
        state.block_hashes.insert(number.parse()?, hash);
    }
    fill(&mut state, file.pre_state.ok_or_else(missing)?, codes)?;
    let receipts = file.receipts.ok_or_else(missing)?;
    let gas = receipts.iter().map(|receipt| receipt.gas_used.try_into());
    let pre_state = PreState::Values {
        gas: gas.collect::<Result<_, _>>()?,
        state: Box::new(state),
    };
    Ok((Block::new(header, body), pre_state))
}

/// The codes that all pre-state files of a folder share.
#[derive(Default)]
struct Codes {
    /// The folder's file.
    path: PathBuf,
    /// The file that was read last, and its codes.
    read: Option<(PathBuf, HashMap<B256, Bytes>)>,
}

impl Codes {
    fn get(&mut self, hash: &B256) -> Result<Bytes> {
        let path = &self.path;
        if !matches!(&self.read, Some((read, _)) if read == path) {
            let text = std::fs::read(path)
                .wrap_err_with(|| format!("can't read {path:?}, which has the codes"))?;
            let codes: HashMap<B256, Bytes> = serde_json::from_slice(&text)?;
            self.read = Some((path.clone(), codes));
        }
        let code = self.read.as_ref().and_then(|(_, codes)| codes.get(hash));
        code.cloned().ok_or_else(|| eyre!("no code {hash}"))
    }
}

fn fill(
    state: &mut MemoryState,
    accounts: HashMap<Address, PreAccount>,
    codes: &mut Codes,
) -> Result<()> {
    for (address, account) in accounts {
        let code = match account.code_hash {
            None => Bytes::new(),
            Some(hash) => codes.get(&hash)?,
        };
        let slots = account.storage.into_iter();
        let account = MemoryAccount {
            nonce: account.nonce,
            balance: account.balance,
            code: code.into(),
            storage: slots.filter(|(_, value)| !value.is_zero()).collect(),
        };
        state.insert(address, account);
    }
    Ok(())
}
