//! `eth_createAccessList`: the accounts and slots that a message accesses.

use super::call::CallRequest;
use super::serialize;
use crate::json::Object;
use crate::params::Params;
use crate::simulation::{self, AccessItem, Message, SimulatedBlock, SimulationResult};
use crate::{Backend, RpcError, RpcResult};
use niwaki_evm::{Step, Tracer};
use niwaki_primitives::{AccessList, AccessListItem, Address, B256, StateView, Transaction};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

type Accesses = BTreeMap<Address, BTreeSet<B256>>;

/// A list may change what the message accesses, and so the next list; after this many runs the method fails.
const MAX_RUNS: usize = 64;

pub(super) fn create(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let request = CallRequest::read(backend, params)?;
    let block = request.block(backend)?;
    let gas = request.message.gas_up_to(backend.options.gas_cap);
    let (list, run) = fixed_point(&block, &request.message, gas, params.deadline)?;
    let mut object = Object::new(out);
    serialize::access_list(object.field("accessList"), &list);
    if let Some(failure) = run.failure {
        object.string("error", &failure.to_string());
    }
    object.number("gasUsed", run.result.gas_used);
    Ok(())
}

/// Runs the message again and again with the list of the run before, until the list stays the same.
fn fixed_point(
    block: &SimulatedBlock<'_>,
    message: &Message,
    gas: u64,
    deadline: Instant,
) -> Result<(AccessList, SimulationResult), RpcError> {
    let mut message = message.clone();
    let excluded = excluded(block, &message)?;
    let mut accesses = Accesses::new();
    for item in message.access_list.iter().flatten() {
        if !excluded.contains(&item.address) {
            let slots = accesses.entry(item.address).or_default();
            slots.extend(item.storage_keys.iter().flatten());
        }
    }
    for _ in 0..MAX_RUNS {
        message.access_list = Some(items(&accesses));
        let mut recorder = Recorder {
            accesses: accesses.clone(),
            excluded: &excluded,
        };
        let run = block.call(&message, gas, true, &mut recorder, deadline)?;
        let run = run.map_err(|reason| {
            let words = simulation::error_message(&reason, message.sender());
            RpcError::server(format!("failed to apply transaction: err: {words}"))
        })?;
        if recorder.accesses == accesses {
            return Ok((list(accesses), run));
        }
        accesses = recorder.accesses;
    }
    Err(RpcError::server(format!(
        "the access list still changes after {MAX_RUNS} runs"
    )))
}

/// The accounts that are warm without a list: sender, recipient, precompiled contracts and authorities (EIP-7702).
fn excluded(block: &SimulatedBlock<'_>, message: &Message) -> Result<BTreeSet<Address>, RpcError> {
    let sender = message.sender();
    let nonce = match message.nonce {
        Some(nonce) => nonce.0,
        None => block.state().account(&sender)?.unwrap_or_default().nonce,
    };
    let to = message.to.unwrap_or_else(|| sender.create(nonce));
    let mut excluded = BTreeSet::from([sender, to]);
    excluded.extend(block.table().precompiles().addresses());
    let tx = message.transaction(nonce, 0, block.spec().chain_id, 0);
    let signed = tx.authorization_list().unwrap_or_default();
    excluded.extend(signed.iter().filter_map(niwaki_rules::recover_authority));
    Ok(excluded)
}

fn items(accesses: &Accesses) -> Vec<AccessItem> {
    let items = accesses.iter().map(|(address, slots)| AccessItem {
        address: *address,
        storage_keys: Some(slots.iter().copied().collect()),
    });
    items.collect()
}

fn list(accesses: Accesses) -> AccessList {
    let items = accesses.into_iter().map(|(address, slots)| AccessListItem {
        address,
        storage_keys: slots.into_iter().collect(),
    });
    AccessList(items.collect())
}

struct Recorder<'e> {
    accesses: Accesses,
    excluded: &'e BTreeSet<Address>,
}

impl Recorder<'_> {
    fn account(&mut self, address: Address) {
        if !self.excluded.contains(&address) {
            self.accesses.entry(address).or_default();
        }
    }
}

impl Tracer for Recorder<'_> {
    fn step(&mut self, step: &Step<'_>) {
        match (step.opcode(), step.peek(0), step.peek(1)) {
            // SLOAD, SSTORE: the slots of excluded accounts count too.
            (0x54 | 0x55, Some(slot), _) => {
                let slots = self.accesses.entry(step.address()).or_default();
                slots.insert(B256::from(slot));
            }
            // BALANCE, EXTCODESIZE, EXTCODECOPY, EXTCODEHASH, SELFDESTRUCT.
            (0x31 | 0x3b | 0x3c | 0x3f | 0xff, Some(word), _)
            // CALL, CALLCODE, DELEGATECALL, STATICCALL.
            | (0xf1 | 0xf2 | 0xf4 | 0xfa, _, Some(word)) => {
                self.account(Address::from_word(word.into()));
            }
            _ => {}
        }
    }
}
