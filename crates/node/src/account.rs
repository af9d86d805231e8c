//! `niwaki storage account`: an account as of any block whose state is stored, with proofs.

use crate::Outcome;
use crate::open::open_existing;
use crate::options::{AccountOptions, Options};
use crate::stop::Stop;
use eyre::{Result, eyre};
use niwaki_chain::{Chain, ChainView, HistoricalView, StateHead};
use niwaki_primitives::{Address, Bytes, EMPTY_CODE_HASH, EMPTY_ROOT_HASH, StateView, U256};
use niwaki_trie::TrieAccount;
use serde_json::{Value, json};

/// The state after a block.
enum StateAt {
    /// A state that trie logs reach from the head.
    Recent(ChainView),
    /// A state of the archive.
    Past(HistoricalView),
}

/// Prints an account as JSON with the keys of `eth_getProof`.
pub(crate) fn show(options: &Options, request: &AccountOptions) -> Result<Outcome> {
    let Some(chain) = open_existing(options, &Stop::default())? else {
        return Ok(Outcome::Interrupted);
    };
    let head = chain.head().id.number;
    let number = request.block.unwrap_or(head);
    let block = chain.header_at(number)?.ok_or_else(|| {
        eyre!("there is no block {number}, the head is block {head}; name a lower one")
    })?;
    let position = StateHead {
        block: block.id,
        root: block.header.state_root,
    };
    let state = state_at(&chain, position)?;
    let mut shown = state.account(&request.address)?;
    let slots = request.slot.iter();
    let slots = slots.map(|slot| state.slot(&request.address, slot));
    shown["storageProof"] = Value::Array(slots.collect::<Result<_>>()?);
    if request.proof {
        let prove = |slot| state.prove(&request.address, slot);
        shown["accountProof"] = json!(prove(None)?);
        for (index, slot) in request.slot.iter().enumerate() {
            shown["storageProof"][index]["proof"] = json!(prove(Some(slot))?);
        }
    }
    shown["block"] = json!({
        "number": number,
        "hash": position.block.hash,
        "stateRoot": position.root,
    });
    println!("{shown:#}");
    Ok(Outcome::Done)
}

fn state_at(chain: &Chain, position: StateHead) -> Result<StateAt> {
    if let Some(view) = chain.historical_view(position)? {
        return Ok(StateAt::Past(view));
    }
    let recent = chain.view_at(&position.block.hash)?.map(StateAt::Recent);
    recent.ok_or_else(|| {
        eyre!(
            "the state of block {} is no longer there; begin the chain anew with \
             --data-storage-format=X_BONSAI_ARCHIVE to keep all states",
            position.block.number
        )
    })
}

impl StateAt {
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

    /// The Merkle proof of the account, or of one of its slots.
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
