//! Blocks as a consensus client sends them: `engine_newPayload` and `engine_forkchoiceUpdated`.

use eyre::{Result, WrapErr, bail, ensure};
use niwaki_crypto::sha256;
use niwaki_primitives::{
    B256, Block, Bytes, Encodable2718, TxEnvelope, Withdrawal, rlp::Decodable,
};
use serde_json::{Value, json};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// A chain in a folder.
#[derive(Clone, Debug)]
pub(super) struct ChainFolder {
    pub(super) genesis: PathBuf,
    pub(super) blocks: PathBuf,
    /// Access lists, from Amsterdam on.
    bals: PathBuf,
}

/// The requests for one block.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) number: u64,
    pub(super) gas: u64,
    pub(super) transactions: usize,
    pub(super) new_payload: String,
    pub(super) fork_choice: String,
    /// Its transactions without blobs, as they are sent to a pool.
    pub(super) raw: Vec<Bytes>,
}

/// Reads the requests of a chain, block by block.
pub(super) struct Reader {
    file: BufReader<File>,
    name: String,
    /// The rest of the file of access lists.
    bals: Bytes,
}

impl ChainFolder {
    /// The chain at `path`, a folder or the file of blocks in it.
    pub(super) fn find(path: &Path) -> Result<Self> {
        let blocks = crate::chain_file::in_folder(path);
        let genesis = blocks.with_file_name("genesis.json");
        for file in [&blocks, &genesis] {
            ensure!(
                file.is_file(),
                "there is no {}; give a folder with chain.rlp and genesis.json, as `niwaki-bench \
                 gen-chain` makes it",
                file.display()
            );
        }
        Ok(Self {
            bals: blocks.with_file_name("access-lists.rlp"),
            genesis: std::path::absolute(genesis)?,
            blocks,
        })
    }

    /// Opens the chain.
    pub(super) fn read(&self) -> Result<Reader> {
        let name = self.blocks.display().to_string();
        let file = File::open(&self.blocks).wrap_err_with(|| format!("can't read {name}"))?;
        let bals = match self.bals.is_file() {
            true => std::fs::read(&self.bals)
                .wrap_err_with(|| format!("can't read {}", self.bals.display()))?,
            false => Vec::new(),
        };
        Ok(Reader {
            file: BufReader::with_capacity(1 << 20, file),
            name,
            bals: bals.into(),
        })
    }
}

impl Reader {
    /// The requests of the next block; `None` at the end.
    pub(super) fn next_block(&mut self) -> Result<Option<Requests>> {
        let name = &self.name;
        let item = crate::chain_file::next_item(&mut self.file).wrap_err_with(|| name.clone())?;
        let Some(item) = item else { return Ok(None) };
        let block = Block::decode(&mut item.as_slice())
            .map_err(|error| eyre::eyre!("{name}: {error}; give a file of RLP blocks"))?;
        let number = block.header.number;
        let bal = match block.header.block_access_list_hash {
            Some(_) => Some(self.next_bal(number)?),
            None => None,
        };
        Requests::of(&block, bal.as_ref())
            .map(Some)
            .wrap_err_with(|| format!("block {number} of {}", self.name))
    }

    fn next_bal(&mut self, number: u64) -> Result<Bytes> {
        let mut rest: &[u8] = &self.bals;
        if rest.is_empty() {
            bail!(
                "block {number} needs its access list; put access-lists.rlp next to {}",
                self.name
            );
        }
        let bal = Bytes::decode(&mut rest)
            .map_err(|error| eyre::eyre!("access-lists.rlp, at block {number}: {error}"))?;
        let read = self.bals.len() - rest.len();
        self.bals = self.bals.slice(read..);
        Ok(bal)
    }
}

impl Requests {
    fn of(block: &Block, bal: Option<&Bytes>) -> Result<Self> {
        let header = &block.header;
        if let Some(hash) = header.requests_hash {
            ensure!(
                hash == sha256(&[]),
                "it has requests, which a file of blocks does not hold; give a chain without"
            );
        }
        let version = match (bal, header.requests_hash, header.blob_gas_used) {
            (Some(_), ..) => 5,
            (None, Some(_), _) => 4,
            (None, None, Some(_)) => 3,
            _ => bail!("it is older than Cancun; give a chain that begins with Cancun or later"),
        };
        let mut params = vec![
            payload(block, bal),
            json!(versioned_hashes(block)),
            json!(header.parent_beacon_block_root.unwrap_or_default()),
        ];
        if version >= 4 {
            params.push(json!([]));
        }
        let hash = header.hash_slow();
        let state = json!({
            "headBlockHash": hash,
            "safeBlockHash": B256::ZERO,
            "finalizedBlockHash": B256::ZERO,
        });
        let fork_choice = match bal {
            Some(_) => "engine_forkchoiceUpdatedV4",
            None => "engine_forkchoiceUpdatedV3",
        };
        Ok(Self {
            number: header.number,
            gas: header.gas_used,
            transactions: block.body.transactions.len(),
            new_payload: request(&format!("engine_newPayloadV{version}"), &params.into()),
            fork_choice: request(fork_choice, &json!([state, null])),
            raw: raw(block),
        })
    }
}

/// A JSON-RPC request.
pub(super) fn request(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Requests for `eth_sendRawTransaction`, as one batch.
pub(super) fn send_raw(transactions: &[Bytes]) -> String {
    let requests = transactions.iter().enumerate().map(|(id, raw)| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "eth_sendRawTransaction", "params": [raw] })
    });
    Value::from(requests.collect::<Vec<_>>()).to_string()
}

fn raw(block: &Block) -> Vec<Bytes> {
    let transactions = block.body.transactions.iter();
    let others = transactions.filter(|tx| !matches!(tx, TxEnvelope::Eip4844(_)));
    others.map(|tx| tx.encoded_2718().into()).collect()
}

fn versioned_hashes(block: &Block) -> Vec<B256> {
    let transactions = block.body.transactions.iter();
    let blobs = transactions.filter_map(|tx| match tx {
        TxEnvelope::Eip4844(tx) => Some(&tx.tx().blob_versioned_hashes),
        _ => None,
    });
    blobs.flatten().copied().collect()
}

/// Spec: execution-apis `engine/amsterdam.md`, ExecutionPayloadV4, and those before.
fn payload(block: &Block, bal: Option<&Bytes>) -> Value {
    let header = &block.header;
    let number = |number: u64| Value::from(format!("{number:#x}"));
    let transactions = block.body.transactions.iter();
    let transactions: Vec<Bytes> = transactions.map(|tx| tx.encoded_2718().into()).collect();
    let withdrawal = |each: &Withdrawal| {
        json!({
            "index": number(each.index),
            "validatorIndex": number(each.validator_index),
            "address": each.address,
            "amount": number(each.amount),
        })
    };
    let withdrawals = block.body.withdrawals.iter().flat_map(|list| list.iter());
    let mut payload = json!({
        "parentHash": header.parent_hash,
        "feeRecipient": header.beneficiary,
        "stateRoot": header.state_root,
        "receiptsRoot": header.receipts_root,
        "logsBloom": header.logs_bloom,
        "prevRandao": header.mix_hash,
        "blockNumber": number(header.number),
        "gasLimit": number(header.gas_limit),
        "gasUsed": number(header.gas_used),
        "timestamp": number(header.timestamp),
        "extraData": header.extra_data,
        "baseFeePerGas": number(header.base_fee_per_gas.unwrap_or(0)),
        "blockHash": header.hash_slow(),
        "transactions": transactions,
        "withdrawals": withdrawals.map(withdrawal).collect::<Vec<_>>(),
        "blobGasUsed": number(header.blob_gas_used.unwrap_or(0)),
        "excessBlobGas": number(header.excess_blob_gas.unwrap_or(0)),
    });
    if let Some(bal) = bal {
        payload["blockAccessList"] = json!(bal);
        payload["slotNumber"] = number(header.slot_number.unwrap_or(0));
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{BlockBody, Header, rlp::Encodable};

    fn folder(headers: &[Header], lists: Option<&[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = Vec::new();
        for header in headers {
            let body = BlockBody::default();
            Block::new(header.clone(), body).encode(&mut bytes);
        }
        std::fs::write(folder.path().join("chain.rlp"), bytes).unwrap();
        std::fs::write(folder.path().join("genesis.json"), "{}").unwrap();
        if let Some(lists) = lists {
            std::fs::write(folder.path().join("access-lists.rlp"), lists).unwrap();
        }
        folder
    }

    fn prague() -> Header {
        Header {
            number: 1,
            base_fee_per_gas: Some(7),
            withdrawals_root: Some(B256::ZERO),
            blob_gas_used: Some(0),
            excess_blob_gas: Some(0),
            parent_beacon_block_root: Some(B256::ZERO),
            requests_hash: Some(sha256(&[])),
            ..Header::default()
        }
    }

    fn first(folder: &Path) -> Result<Requests> {
        let chain = ChainFolder::find(folder)?;
        Ok(chain.read()?.next_block()?.unwrap())
    }

    #[test]
    fn method_versions_follow_the_fork() {
        let methods = |header: Header, lists: Option<&[u8]>| {
            let requests = first(folder(&[header], lists).path()).unwrap();
            [requests.new_payload, requests.fork_choice].map(|text| {
                let request: Value = serde_json::from_str(&text).unwrap();
                request["method"].as_str().unwrap().replace("engine_", "")
            })
        };
        let osaka = methods(prague(), None);
        assert_eq!(osaka, ["newPayloadV4", "forkchoiceUpdatedV3"]);
        let amsterdam = Header {
            block_access_list_hash: Some(B256::ZERO),
            slot_number: Some(1),
            ..prague()
        };
        let amsterdam = methods(amsterdam, Some(&[0x81, 0xc0]));
        assert_eq!(amsterdam, ["newPayloadV5", "forkchoiceUpdatedV4"]);
    }

    #[test]
    fn blocks_that_can_not_be_sent_are_refused_by_number() {
        let text = |header: Header| {
            let error = first(folder(&[header], None).path()).unwrap_err();
            format!("{error:#}")
        };
        let requests = text(Header {
            requests_hash: Some(B256::ZERO),
            ..prague()
        });
        assert!(
            requests.contains("block 1") && requests.contains("requests"),
            "{requests}"
        );
        let list = text(Header {
            block_access_list_hash: Some(B256::ZERO),
            slot_number: Some(1),
            ..prague()
        });
        assert!(list.contains("access-lists.rlp"), "{list}");
        let old = text(Header::default());
        assert!(old.contains("older than Cancun"), "{old}");
        let nowhere = ChainFolder::find(Path::new("/nonexistent")).unwrap_err();
        assert!(nowhere.to_string().contains("gen-chain"), "{nowhere}");
    }
}
