//! What is sent: accounts that are new in each run, a contract that they call, and their transactions.

use super::client::{Client, number};
use eyre::{Result, ensure, eyre};
use niwaki_primitives::{Address, B256, Bytes, Encodable2718, TxKind, TxLegacy, U256, hex};
use niwaki_testkit::Key;
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant, UNIX_EPOCH};

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Call {
    /// Registers a credential: five new slots and a log.
    Register,
    /// Sends one wei to itself.
    Transfer,
}

/// Gas limits, above what the calls use.
const REGISTER_GAS: u64 = 180_000;
const TRANSFER_GAS: u64 = 21_000;
const DEPLOY_GAS: u64 = 400_000;

/// `register(bytes32 id, bytes32 x 8)`: refuses an id that is known, stores five words from `keccak256(id)` on, and logs all nine.
const REGISTER_CODE: &str = concat!(
    "600435600052602060002080541561001657600080fd5b", // base = keccak256(id); revert if slot base is not zero
    "602435815560443581600101556064358160020155608435816003015560a435816004015561012060046000376101206000a100",
);

/// Signed transactions in the order in which they are sent: account by account, then again.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) call: Call,
    pub(super) accounts: usize,
    pub(super) transactions: Vec<Transaction>,
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) hash: B256,
    pub(super) raw: Bytes,
}

impl Work {
    /// Deploys the contract, and signs `count` transactions of `accounts` accounts.
    pub(super) fn prepare(node: &Client, call: Call, accounts: u64, count: u64) -> Result<Self> {
        let seed = UNIX_EPOCH.elapsed()?.as_nanos();
        let chain_id = node.number("eth_chainId")?;
        let to = match call {
            Call::Register => deploy(node, &Key::of(&format!("{seed} deploys")), chain_id)?,
            Call::Transfer => Address::ZERO,
        };
        let keys: Vec<Key> = (0..accounts)
            .map(|n| Key::of(&format!("{seed} {n}")))
            .collect();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = count.div_ceil(threads as u64).max(1);
        let sign = |first: u64| {
            let indices = first..(first + share).min(count);
            let signed = indices.map(|index| {
                let key = &keys[usize::try_from(index % accounts)?];
                sign(key, call, to, index / accounts, index, chain_id)
            });
            signed.collect::<Result<Vec<Transaction>>>()
        };
        let transactions = std::thread::scope(|scope| {
            let starts = (0..count).step_by(usize::try_from(share)?);
            let threads: Vec<_> = starts
                .map(|first| scope.spawn(move || sign(first)))
                .collect();
            let mut all = Vec::new();
            for thread in threads {
                all.extend(
                    thread
                        .join()
                        .map_err(|_| eyre!("a thread that signs ended"))??,
                );
            }
            Ok::<_, eyre::Report>(all)
        })?;
        Ok(Self {
            call,
            accounts: keys.len(),
            transactions,
        })
    }
}

fn sign(
    key: &Key,
    call: Call,
    to: Address,
    nonce: u64,
    index: u64,
    chain_id: u64,
) -> Result<Transaction> {
    let (to, gas_limit, input) = match call {
        Call::Register => (to, REGISTER_GAS, calldata(key.address, index)),
        Call::Transfer => (key.address, TRANSFER_GAS, Bytes::new()),
    };
    let tx = key.sign(TxLegacy {
        chain_id: Some(chain_id),
        nonce,
        gas_limit,
        to: TxKind::Call(to),
        input,
        ..TxLegacy::default()
    });
    Ok(Transaction {
        hash: *tx.tx_hash(),
        raw: tx.encoded_2718().into(),
    })
}

/// 292 bytes: a selector, and nine words without zero bytes.
fn calldata(sender: Address, index: u64) -> Bytes {
    let mut data = vec![0xf2, 0xc2, 0x98, 0xbe];
    for word in 0..9_u64 {
        let content = [sender.as_slice(), &index.to_be_bytes(), &word.to_be_bytes()].concat();
        data.extend_from_slice(niwaki_crypto::keccak256(content).as_slice());
    }
    data.into()
}

fn deploy(node: &Client, key: &Key, chain_id: u64) -> Result<Address> {
    let code = hex::decode(REGISTER_CODE)?;
    let length = u8::try_from(code.len())?;
    // Returns what follows it.
    let init = [
        0x60, length, 0x80, 0x60, 0x0b, 0x60, 0x00, 0x39, 0x60, 0x00, 0xf3,
    ];
    let tx = key.sign(TxLegacy {
        chain_id: Some(chain_id),
        gas_limit: DEPLOY_GAS,
        to: TxKind::Create,
        value: U256::ZERO,
        input: [&init[..], &code].concat().into(),
        ..TxLegacy::default()
    });
    let raw = Bytes::from(tx.encoded_2718());
    if let Some(error) = node.send(&[&raw])?.into_iter().flatten().next() {
        return Err(eyre!(
            "the contract is refused: {error}; transactions must be free"
        ));
    }
    let began = Instant::now();
    loop {
        let receipt = node.call("eth_getTransactionReceipt", &json!([tx.tx_hash()]))?;
        if receipt.is_object() {
            ensure!(
                number(&receipt["status"])? == 1,
                "the contract is not there: {receipt}"
            );
            return Ok(serde_json::from_value(receipt["contractAddress"].clone())?);
        }
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "the contract is in no block after 60 s"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}
