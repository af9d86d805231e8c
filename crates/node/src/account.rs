//! `niwaki storage account`: an account as of any block whose state is stored, with proofs.

use crate::Outcome;
use crate::open::open_existing;
use crate::options::{AccountOptions, Options};
use crate::stop::Stop;
use eyre::{Result, eyre};
use niwaki_chain::{Chain, StateHead};
use niwaki_primitives::StateView;
use niwaki_rpc::State;
use serde_json::{Value, json};

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
    let account = state.trie_account(&request.address)?;
    let slots = request.slot.iter().map(|slot| -> Result<Value> {
        let value = state.storage(&request.address, slot)?;
        Ok(json!({ "key": slot, "value": value }))
    });
    let mut shown = json!({
        "address": request.address,
        "nonce": format!("{:#x}", account.nonce),
        "balance": account.balance,
        "codeHash": account.code_hash,
        "storageHash": account.storage_root,
        "storageProof": slots.collect::<Result<Vec<_>>>()?,
    });
    if request.proof {
        let proofs = state.proofs(position.root)?.ok_or_else(|| {
            eyre!(
                "too much has changed since block {number} for proofs; leave out --proof, or start a new \
                 chain with --data-storage-format=X_BONSAI_ARCHIVE"
            )
        })?;
        shown["accountProof"] = json!(proofs.prove(&request.address, None)?);
        for (index, slot) in request.slot.iter().enumerate() {
            shown["storageProof"][index]["proof"] =
                json!(proofs.prove(&request.address, Some(slot))?);
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

/// The state at a position, from the archive if there is one.
fn state_at(chain: &Chain, position: StateHead) -> Result<State> {
    if let Some(view) = chain.historical_view(position)? {
        return Ok(State::Past(view));
    }
    let recent = chain.view_at(&position.block.hash)?.map(State::Recent);
    recent.ok_or_else(|| {
        eyre!(
            "the state of block {} is no longer there; start a new chain with \
             --data-storage-format=X_BONSAI_ARCHIVE to keep all states",
            position.block.number
        )
    })
}
