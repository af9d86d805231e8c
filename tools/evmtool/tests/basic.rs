//! Published cases of RLP, keys and signatures, genesis hashes and single mainnet blocks: those in `testdata`, and the
//! larger blocks of the corpus.
#![expect(clippy::unwrap_used, reason = "a test that can't read its cases fails")]

use alloy_primitives::{Bytes, U512, keccak256};
use alloy_rlp::{Decodable, Encodable};
use niwaki_primitives::{Address, B256, Block, Decodable2718, Encodable2718, TxEnvelope};
use niwaki_rules::Network;
use niwaki_rules::recover_sender;
use niwaki_testkit::corpus;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

fn testdata(path: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/basic");
    folder.join(path)
}

fn load<T: serde::de::DeserializeOwned>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().unwrap()).unwrap()
}

/// Any RLP.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    Bytes(Vec<u8>),
    List(Vec<Item>),
}

impl Item {
    /// Strings are their bytes, numbers and `#` decimals are big-endian, lists are lists.
    fn of(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::List(items.iter().map(Self::of).collect()),
            Value::Number(number) => Self::number(&number.to_string()),
            Value::String(text) => match text.strip_prefix('#') {
                Some(digits) => Self::number(digits),
                None => Self::Bytes(text.as_bytes().to_vec()),
            },
            other => panic!("no item: {other}"),
        }
    }

    fn number(digits: &str) -> Self {
        let number: U512 = digits.parse().unwrap();
        Self::Bytes(number.to_be_bytes_trimmed_vec())
    }
}

impl Encodable for Item {
    fn encode(&self, out: &mut dyn alloy_rlp::BufMut) {
        match self {
            Self::Bytes(bytes) => bytes.as_slice().encode(out),
            Self::List(items) => alloy_rlp::encode_list::<_, Self>(items, out),
        }
    }
}

impl Decodable for Item {
    fn decode(rest: &mut &[u8]) -> alloy_rlp::Result<Self> {
        let is_list = rest.first().is_some_and(|byte| *byte >= 0xc0);
        if !is_list {
            return Bytes::decode(rest).map(|bytes| Self::Bytes(bytes.to_vec()));
        }
        let mut payload = alloy_rlp::Header::decode_bytes(rest, true)?;
        let mut items = Vec::new();
        while !payload.is_empty() {
            items.push(Self::decode(&mut payload)?);
        }
        Ok(Self::List(items))
    }
}

#[test]
fn published_rlp_encodes_and_decodes() {
    let cases: Map<String, Value> = load(&testdata("RLPTests/rlptest.json"));
    assert_eq!(cases.len(), 28);
    for (name, case) in &cases {
        let (item, rlp) = (Item::of(&case["in"]), bytes(&case["out"]));
        assert_eq!(
            hex::encode(alloy_rlp::encode(&item)),
            hex::encode(&rlp),
            "{name}"
        );
        assert_eq!(alloy_rlp::decode_exact::<Item>(&rlp), Ok(item), "{name}");
    }
    let cases: Map<String, Value> = load(&testdata("RLPTests/example.json"));
    for (name, case) in &cases {
        assert_eq!(case["in"], "VALID", "{name}");
        let rlp = bytes(&case["out"]);
        let item: Item = alloy_rlp::decode_exact(&rlp).unwrap();
        assert_eq!(alloy_rlp::encode(item), rlp, "{name}");
    }
}

#[test]
fn published_malformed_rlp_fails_as_item_block_and_transaction() {
    let mut count = 0;
    for file in ["RLPTests/invalidRLPTest.json", "besu/invalidRLPTest.json"] {
        let cases: Map<String, Value> = load(&testdata(file));
        for (name, case) in &cases {
            assert_eq!(case["in"], "INVALID", "{name}");
            let rlp = bytes(&case["out"]);
            let item = alloy_rlp::decode_exact::<Item>(&rlp);
            assert!(item.is_err(), "{file} {name}: {item:?}");
            assert!(
                alloy_rlp::decode_exact::<Block>(&rlp).is_err(),
                "{file} {name}"
            );
            assert!(
                TxEnvelope::decode_2718_exact(&rlp).is_err(),
                "{file} {name}"
            );
            count += 1;
        }
    }
    assert_eq!(count, 48);
}

#[test]
fn published_keys_match_their_seeds_and_addresses() {
    let cases: Vec<Value> = load(&testdata("BasicTests/keyaddrtest.json"));
    assert_eq!(cases.len(), 2);
    for case in &cases {
        let address = Address::from_slice(&bytes(&case["addr"]));
        let key = B256::from_slice(&bytes(&case["key"]));
        assert_eq!(niwaki_crypto::address_of_secret_key(&key).unwrap(), address);
        assert_eq!(keccak256(case["seed"].as_str().unwrap()), key);
    }
}

#[test]
fn published_transactions_recover_their_sender() {
    let cases: Vec<Value> = load(&testdata("BasicTests/txtest.json"));
    assert_eq!(cases.len(), 2);
    for case in &cases {
        let rlp = bytes(&case["signed"]);
        let tx = TxEnvelope::decode_2718_exact(&rlp).unwrap();
        assert_eq!(tx.encoded_2718(), rlp);
        let key = B256::from_slice(&bytes(&case["key"]));
        let owner = niwaki_crypto::address_of_secret_key(&key).unwrap();
        assert_eq!(recover_sender(&tx).unwrap(), owner);
    }
}

#[test]
fn published_genesis_of_mainnet_is_the_built_in_one() {
    let case: Value = load(&testdata("BasicTests/genesishashestest.json"));
    let root = B256::from_slice(&bytes(&case["genesis_state_root"]));
    let header = Network::Mainnet.genesis().header(root);
    assert_eq!(header.hash_slow().as_slice(), bytes(&case["genesis_hash"]));
    let rlp = alloy_rlp::encode(Block::uncle(header));
    assert_eq!(rlp, bytes(&case["genesis_rlp_hex"]));
}

/// Decodes every block of a folder, encodes it again, and compares the parts with the header.
fn run_blocks(folder: &Path) -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "blocks") {
            continue;
        }
        let rlp = std::fs::read(&path).unwrap();
        let block: Block = alloy_rlp::decode_exact(&rlp).unwrap();
        assert_eq!(alloy_rlp::encode(&block), rlp, "{}", path.display());
        let number = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert_eq!(format!("block_{}", block.header.number), number);
        assert_eq!(
            alloy_consensus::proofs::calculate_transaction_root(&block.body.transactions),
            block.header.transactions_root
        );
        assert_eq!(block.body.calculate_ommers_root(), block.header.ommers_hash);
        for tx in &block.body.transactions {
            recover_sender(tx).unwrap();
        }
        count += 1;
    }
    count
}

#[test]
fn mainnet_blocks_decode_and_encode_unchanged() {
    assert_eq!(run_blocks(&testdata("besu")), 3);
    let Some(folder) = corpus("basic-tests/besu/blockvalidation") else {
        return;
    };
    assert!(run_blocks(&folder) >= 7);
}
