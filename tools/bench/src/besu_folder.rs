//! `niwaki-bench besu-folder`: a data folder as Besu leaves it, of any size, for `niwaki storage import-besu`.
//!
//! One block upon an empty genesis block has a state of random accounts; every eighth is a contract with slots. Trie nodes are left out: the
//! take-over reads flat rows where they are whole.

use crate::random::Random;
use eyre::{Result, WrapErr, ensure};
use niwaki_crypto::keccak256;
use niwaki_primitives::{B256, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, Header, U256, rlp};
use niwaki_rules::Genesis;
use niwaki_storage::{ForeignDatabase, ForeignFamily};
use niwaki_trie::{Path as TriePath, TrieAccount, TrieBuilder, encode_slot};
use std::path::{Path, PathBuf};
use std::time::Instant;

const fn family(id: &'static str, name: &'static str) -> ForeignFamily {
    ForeignFamily { id, name }
}

const BLOCKCHAIN: ForeignFamily = family("\u{1}", "BLOCKCHAIN");
const ACCOUNTS: ForeignFamily = family("\u{6}", "ACCOUNT_INFO_STATE");
const CODES: ForeignFamily = family("\u{7}", "CODE_STORAGE");
const SLOTS: ForeignFamily = family("\u{8}", "ACCOUNT_STORAGE_STORAGE");
const TRIE: ForeignFamily = family("\u{9}", "TRIE_BRANCH_STORAGE");
const TRIE_LOGS: ForeignFamily = family("\u{a}", "TRIE_LOG_STORAGE");
const VARIABLES: ForeignFamily = family("\u{b}", "VARIABLES");
const ALL: [ForeignFamily; 7] = [
    BLOCKCHAIN, ACCOUNTS, CODES, SLOTS, TRIE, TRIE_LOGS, VARIABLES,
];

/// Every one of so many accounts is a contract.
const CONTRACTS_EACH: u64 = 8;
const CODE: &[u8] = &[0x60, 0, 0x54, 0x50, 0];
/// Rows are written by so many.
const ROWS: usize = 20_000;
/// An empty genesis block whose chain has no seal.
const GENESIS: &str = r#"{"config": {"chainId": 1337, "londonBlock": 0}, "difficulty": "0x1", "gasLimit": "0x1c9c380", "alloc": {}}"#;

/// Options of `niwaki-bench besu-folder`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder to write; it must not exist. Its genesis.json is the genesis file.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Accounts.
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    accounts: u64,
    /// Slots of each contract: one account of eight.
    #[arg(long, value_name = "N", default_value_t = 10)]
    slots: u64,
}

/// Writes the folder.
pub(crate) fn run(options: &Options) -> Result<()> {
    let shown = options.to.display();
    ensure!(!options.to.exists(), "{shown} exists; name a new folder");
    std::fs::create_dir_all(&options.to).wrap_err_with(|| format!("can't make {shown}"))?;
    std::fs::write(options.to.join("genesis.json"), GENESIS)?;
    let metadata = r#"{"v2": {"format": "BONSAI", "version": 3}}"#;
    std::fs::write(options.to.join("DATABASE_METADATA.json"), metadata)?;
    let began = Instant::now();
    let database = ForeignDatabase::create(&options.to.join("database"), &ALL)?;
    let (root, slots) = write_state(options, &database)?;
    write_blocks(root, &database)?;
    drop(database);
    println!(
        "{} accounts, {slots} slots, {} MiB in {shown}; {:.1} s",
        options.accounts,
        size(&options.to.join("database"))? >> 20,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Rows on their way to one family.
struct Rows<'d> {
    database: &'d ForeignDatabase,
    family: ForeignFamily,
    rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'d> Rows<'d> {
    fn new(database: &'d ForeignDatabase, family: ForeignFamily) -> Self {
        Self {
            database,
            family,
            rows: Vec::new(),
        }
    }

    fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.rows.push((key, value));
        match self.rows.len() >= ROWS {
            true => self.write(),
            false => Ok(()),
        }
    }

    fn write(&mut self) -> Result<()> {
        let rows = self.rows.iter().map(|(key, value)| (&key[..], &value[..]));
        self.database.put(self.family, rows)?;
        self.rows.clear();
        Ok(())
    }
}

/// Writes accounts and slots; returns the root of the state, and how many slots there are.
fn write_state(options: &Options, database: &ForeignDatabase) -> Result<(B256, u64)> {
    let key = |number: u64| keccak256(number.to_be_bytes());
    let mut keys: Vec<(B256, u64)> = (0..options.accounts).map(|n| (key(n), n)).collect();
    keys.sort_unstable();
    let mut random = Random(7);
    let (mut accounts, mut slots) = (Rows::new(database, ACCOUNTS), Rows::new(database, SLOTS));
    let (mut ignored, mut count) = (|_: &TriePath, _: &[u8]| {}, 0);
    let mut trie = TrieBuilder::new(&mut ignored);
    for (owner, number) in &keys {
        let mut account = TrieAccount {
            nonce: random.next() % 1_000,
            balance: U256::from(random.next()),
            storage_root: EMPTY_ROOT_HASH,
            code_hash: EMPTY_CODE_HASH,
        };
        if number.is_multiple_of(CONTRACTS_EACH) {
            account.code_hash = keccak256(CODE);
            let mut own: Vec<B256> = (0..options.slots)
                .map(|slot| keccak256([number.to_be_bytes(), slot.to_be_bytes()].concat()))
                .collect();
            own.sort_unstable();
            let mut ignored = |_: &TriePath, _: &[u8]| {};
            let mut storage = TrieBuilder::new(&mut ignored);
            for slot in own {
                let value = U256::from(random.next() | 1);
                storage.add(TriePath::of_hash(&slot), encode_slot(&value));
                let value = value.to_be_bytes_trimmed_vec();
                slots.put([owner.0, slot.0].concat(), value)?;
                count += 1;
            }
            account.storage_root = storage.finish();
        }
        trie.add(TriePath::of_hash(owner), account.to_leaf());
        accounts.put(owner.to_vec(), account.to_leaf())?;
    }
    accounts.write()?;
    slots.write()?;
    let hash = keccak256(CODE);
    database.put(CODES, [(hash.as_slice(), CODE)])?;
    Ok((trie.finish(), count))
}

/// Writes the genesis block and one upon it with this state.
fn write_blocks(root: B256, database: &ForeignDatabase) -> Result<()> {
    let genesis = Genesis::from_json(GENESIS)?;
    let first = genesis.header(EMPTY_ROOT_HASH);
    let spec = &genesis.spec;
    let head = Header {
        parent_hash: spec.header_hash(&first),
        number: 1,
        timestamp: first.timestamp + 1,
        state_root: root,
        ..first.clone()
    };
    for header in [&first, &head] {
        let hash = spec.header_hash(header);
        let of = |kind: u8| [&[kind], hash.as_slice()].concat();
        let number = [&[5][..], &U256::from(header.number).to_be_bytes::<32>()].concat();
        let total = U256::from(header.number + 1).to_be_bytes::<32>();
        let rows = [
            (of(2), rlp::encode(header)),
            (of(3), vec![0xc2, 0xc0, 0xc0]),
            (of(4), vec![0xc0]),
            (of(6), total.to_vec()),
            (number, hash.to_vec()),
        ];
        let rows = rows.iter().map(|(key, value)| (&key[..], &value[..]));
        database.put(BLOCKCHAIN, rows)?;
    }
    let head = spec.header_hash(&head);
    database.put(VARIABLES, [(&b"chainHeadHash"[..], head.as_slice())])?;
    let state: [(&[u8], &[u8]); 2] = [
        (b"worldBlockHash", head.as_slice()),
        (b"flatDbStatus", &[1]),
    ];
    Ok(database.put(TRIE, state)?)
}

/// Bytes of the files of a folder.
fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}
