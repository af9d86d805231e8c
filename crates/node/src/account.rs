//! `niwaki storage account`: an account after any block whose state is there, with proofs.

use crate::Ending;
use crate::open::open_existing;
use crate::options::{AccountOptions, Options};
use crate::stop::Stop;
use eyre::{Result, eyre};
use niwaki_chain::{Chain, ChainView, HistoricalView, StateHead};
use niwaki_primitives::{Address, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, StateView, U256};
use niwaki_trie::TrieAccount;
use serde_json::{Value, json};

/// The state after a block.
enum Seen {
    /// Within reach of the head.
    Recent(ChainView),
    /// In the archive.
    Past(HistoricalView),
}

/// Prints an account as JSON, in the words of `eth_getProof`.
pub(crate) fn show(options: &Options, wanted: &AccountOptions) -> Result<Ending> {
    let Some(chain) = open_existing(options, &Stop::default())? else {
        return Ok(Ending::Interrupted);
    };
    let head = chain.head().id.number;
    let number = wanted.block.unwrap_or(head);
    let block = chain.header_at(number)?.ok_or_else(|| {
        eyre!("there is no block {number}, the head is block {head}; name a lower one")
    })?;
    let place = StateHead {
        block: block.id,
        root: block.header.state_root,
    };
    let state = see(&chain, place)?;
    let mut shown = state.account(&wanted.address)?;
    let slots = wanted.slot.iter();
    let slots = slots.map(|slot| state.slot(&wanted.address, slot));
    shown["storageProof"] = Value::Array(slots.collect::<Result<_>>()?);
    if wanted.proof {
        let prove = |slot| state.prove(&wanted.address, slot);
        shown["accountProof"] = json!(prove(None)?);
        for (at, slot) in wanted.slot.iter().enumerate() {
            shown["storageProof"][at]["proof"] = json!(prove(Some(slot))?);
        }
    }
    shown["block"] = json!({
        "number": number,
        "hash": place.block.hash,
        "stateRoot": place.root,
    });
    println!("{shown:#}");
    Ok(Ending::Done)
}

fn see(chain: &Chain, place: StateHead) -> Result<Seen> {
    if let Some(view) = chain.historical_view(place)? {
        return Ok(Seen::Past(view));
    }
    let recent = chain.view_at(&place.block.hash)?.map(Seen::Recent);
    recent.ok_or_else(|| {
        eyre!(
            "the state of block {} is no longer there; begin the chain anew with \
             --data-storage-format=X_BONSAI_ARCHIVE to keep all states",
            place.block.number
        )
    })
}

impl Seen {
    fn account(&self, address: &Address) -> Result<Value> {
        let account = match self {
            Self::Recent(view) => view.trie_account(address)?,
            Self::Past(view) => view.trie_account(address)?,
        };
        let account = account.unwrap_or(TrieAccount {
            nonce: 0,
            balance: U256::ZERO,
            storage_root: EMPTY_ROOT_HASH,
            code_hash: EMPTY_CODE_HASH,
        });
        Ok(json!({
            "address": address,
            "nonce": format!("{:#x}", account.nonce),
            "balance": account.balance,
            "codeHash": account.code_hash,
            "storageHash": account.storage_root,
        }))
    }

    fn slot(&self, address: &Address, slot: &U256) -> Result<Value> {
        let value = match self {
            Self::Recent(view) => view.storage(address, slot)?,
            Self::Past(view) => view.storage(address, slot)?,
        };
        Ok(json!({ "key": slot, "value": value }))
    }

    /// The nodes that prove the account, or one of its slots.
    fn prove(&self, address: &Address, slot: Option<&U256>) -> Result<Vec<Bytes>> {
        let proof = match (self, slot) {
            (Self::Recent(view), None) => view.prove_account(address)?,
            (Self::Recent(view), Some(slot)) => view.prove_slot(address, slot)?,
            (Self::Past(view), None) => Some(view.prove_account(address)?),
            (Self::Past(view), Some(slot)) => Some(view.prove_slot(address, slot)?),
        };
        proof.ok_or_else(|| {
            eyre!(
                "below the head there are proofs in an archive only; leave out --proof, or begin \
                 the chain anew with --data-storage-format=X_BONSAI_ARCHIVE"
            )
        })
    }
}
