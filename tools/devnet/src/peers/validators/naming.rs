//! Who names the validators of a network: its genesis file, and how one more gets in and out.

use super::{Nodes, Protocol, ValidatorOptions, keys};
use crate::accounts;
use crate::genesis::{CHAIN_ID, GAS_LIMIT, genesis};
use clap::ValueEnum;
use eyre::Result;
use niwaki_primitives::{Address, B256, Bytes, TxKind, TxLegacy, U256, address};
use niwaki_rules::BftExtra;
use niwaki_txpool::encode_network;
use serde_json::{Value, json};

/// Who names the validators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Naming {
    /// The headers: votes change the list of the genesis block.
    Headers,
    /// A contract, whose slots transactions change (QBFT).
    Contract,
    /// The headers, a contract by a transition, then a list in a second one; the period gets longer in a third (QBFT).
    Transitions,
}

/// Blocks of the transitions: to the contract, to the list, to the longer period.
const TRANSITIONS: [u64; 3] = [8, 16, 24];

/// Slot 0 has the number of validators, the next ones are they.
const CONTRACT: Address = address!("0000000000000000000000000000000000007777");
/// ```text
/// 64 bytes of input: SSTORE(first word, second word)
/// other input: the words 32, n = SLOAD(0), SLOAD(1) to SLOAD(n), an ABI-encoded list
/// ```
const CODE: &str = concat!(
    "0x",
    "3660401460365760206000526000548060205280",
    "5b8015602b578054",
    "8160051b60200152",
    "60019003601456",
    "5b5060051b6040016000f3",
    "5b6020356000355500",
);

impl Naming {
    /// The last block that a transition changes, and two more.
    pub(super) fn settled(self) -> u64 {
        match self {
            Self::Transitions => TRANSITIONS[2] + 2,
            Self::Headers | Self::Contract => 0,
        }
    }
}

/// The genesis file of a network.
pub(super) fn bft_genesis(options: &ValidatorOptions) -> Result<String> {
    let validators: Vec<Address> = keys(options)?[..options.validators]
        .iter()
        .map(|(address, _)| *address)
        .collect();
    let protocol = options.protocol();
    let mut file: Value = serde_json::from_str(&genesis(&accounts::make(8), GAS_LIMIT))?;
    file["config"] = config(options, &validators);
    if options.naming != Naming::Headers {
        file["alloc"][CONTRACT.to_string()] = contract(&validators);
    }
    if options.quorums > 0 {
        let later = ["baseFeePerGas", "excessBlobGas", "blobGasUsed"];
        if let Some(fields) = file.as_object_mut() {
            fields.retain(|name, _| !later.contains(&name.as_str()));
        }
    }
    let extra = BftExtra {
        vanity: B256::ZERO.0.into(),
        validators: match options.naming {
            Naming::Contract => Vec::new(),
            Naming::Headers | Naming::Transitions => validators,
        },
        ..BftExtra::default()
    };
    file["extraData"] = json!(extra.encode(protocol));
    file["difficulty"] = json!("0x1");
    file["mixHash"] = json!("0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365");
    Ok(file.to_string())
}

fn config(options: &ValidatorOptions, validators: &[Address]) -> Value {
    let name = match options.protocol {
        Protocol::Qbft => "qbft",
        Protocol::Ibft2 => "ibft2",
    };
    let period_s = options.period_ms.div_ceil(1_000);
    let mut rules = json!({
        // Votes are cast before, in and after epoch blocks.
        "epochlength": 6,
        "blockperiodseconds": period_s,
        "requesttimeoutseconds": period_s * 2,
    });
    if options.period_ms < 1_000 {
        rules["xblockperiodmilliseconds"] = json!(options.period_ms);
    }
    let by_contract = json!({
        "validatorselectionmode": "contract",
        "validatorcontractaddress": CONTRACT,
    });
    if options.naming == Naming::Contract {
        merge(&mut rules, &by_contract);
    }
    let mut transitions = Vec::new();
    if options.naming == Naming::Transitions {
        let [contract, list, period] = TRANSITIONS;
        let longer = match options.period_ms {
            ms if ms < 1_000 => json!({ "block": period, "xblockperiodmilliseconds": ms * 2 }),
            _ => json!({ "block": period, "blockperiodseconds": period_s + 1 }),
        };
        let mut first = json!({ "block": contract });
        merge(&mut first, &by_contract);
        transitions = vec![
            first,
            json!({ "block": list, "validatorselectionmode": "blockheader", "validators": validators }),
            longer,
        ];
    }
    match options.quorums {
        0 => json!({
            "chainId": CHAIN_ID, "berlinBlock": 0, "londonBlock": 0, "shanghaiTime": 0, "zeroBaseFee": true, name: rules,
            "transitions": { name: transitions },
        }),
        // GoQuorum knows no later fork.
        _ => json!({
            "chainId": CHAIN_ID, "homesteadBlock": 0, "eip150Block": 0, "eip155Block": 0, "eip158Block": 0, "byzantiumBlock": 0,
            "constantinopleBlock": 0, "petersburgBlock": 0, "istanbulBlock": 0, "berlinBlock": 0, "isQuorum": true,
            "txnSizeLimit": 64, name: rules, "transitions": transitions,
        }),
    }
}

fn merge(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        into.extend(from.clone());
    }
}

/// The contract with these validators.
fn contract(validators: &[Address]) -> Value {
    let count = std::iter::once(B256::from(U256::from(validators.len())));
    let words = count.chain(validators.iter().map(|validator| validator.into_word()));
    let slots = words.enumerate().map(|(slot, word)| {
        let slot = B256::from(U256::from(slot)).to_string();
        (slot, json!(word))
    });
    json!({ "balance": "0x0", "nonce": "0x1", "code": CODE, "storage": slots.collect::<serde_json::Map<_, _>>() })
}

impl Nodes {
    /// All validators vote on a node, or the contract gets it as its last one.
    pub(super) fn change(
        &mut self,
        options: &ValidatorOptions,
        address: Address,
        is_add: bool,
    ) -> Result<()> {
        if options.naming != Naming::Contract {
            return self
                .all
                .iter()
                .try_for_each(|node| self.vote(node, address, is_add));
        }
        let count = options.validators as u64 + u64::from(is_add);
        if is_add {
            self.set_slot(options, count, address.into_word())?;
        }
        self.set_slot(options, 0, B256::from(U256::from(count)))
    }

    /// Has the contract write a slot.
    fn set_slot(&mut self, options: &ValidatorOptions, slot: u64, word: B256) -> Result<()> {
        let key = accounts::make(1)[0].key;
        let input = [B256::from(U256::from(slot)).0, word.0].concat();
        let tx = key.sign(TxLegacy {
            chain_id: Some(CHAIN_ID),
            nonce: self.sent,
            // None is allowed where GoQuorum is; ours wants some otherwise.
            gas_price: match options.quorums {
                0 => 1_000_000_000,
                _ => 0,
            },
            gas_limit: 100_000,
            to: TxKind::Call(CONTRACT),
            value: U256::ZERO,
            input: input.into(),
        });
        self.sent += 1;
        let raw: Bytes = encode_network(&tx, None).into();
        let last = &self.all[self.all.len() - 1];
        last.client.call("eth_sendRawTransaction", json!([raw]))?;
        Ok(())
    }
}
