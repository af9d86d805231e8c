//! `engine_newPayload`: a block to judge.

use super::forkchoice::write_status;
use crate::params::Params;
use crate::{Backend, RpcError};
use niwaki_chain::Verdict;
use niwaki_primitives::{Address, B256, Block, Bytes, Fork};
use niwaki_rules::{PayloadError, PayloadInput, PayloadVersion, decode_payload};
use niwaki_trie::ordered_root;

type Answer = Result<(), RpcError>;

macro_rules! versions {
    ($($name:ident $version:ident)*) => {$(
        pub(super) fn $name(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> Answer {
            new_payload(backend, params, PayloadVersion::$version, out)
        }
    )*};
}

versions! { v1 V1 v2 V2 v3 V3 v4 V4 v5 V5 }

fn new_payload(
    backend: &Backend,
    params: &Params<'_>,
    version: PayloadVersion,
    out: &mut Vec<u8>,
) -> Answer {
    backend.consensus_spoke();
    let input = PayloadInput {
        payload: params.required(0)?,
        versioned_hashes: params.optional::<Vec<B256>>(1)?,
        parent_beacon_block_root: params.optional::<B256>(2)?,
        execution_requests: params.optional::<Vec<Bytes>>(3)?,
    };
    refuse_amsterdam(backend, &input)?;
    let root = |encoded: &[Bytes]| ordered_root(encoded, |bytes, out| out.extend_from_slice(bytes));
    let verdict = match decode_payload(backend.chain().spec(), version, input, root) {
        Ok((block, hash)) => {
            let known = known_senders(backend, &block);
            (backend.consensus.new_payload(block, hash, known)?, hash)
        }
        Err(PayloadError::Invalid(reason)) => {
            // Nothing is known of what came before it.
            write_status(out, "INVALID", None, Some(&reason.to_string()));
            return Ok(());
        }
        Err(error) => {
            let code = error.code().unwrap_or(-32602);
            return Err(RpcError::new(code, error.to_string()));
        }
    };
    if let (Verdict::Valid(Some(imported)), _) = &verdict {
        backend.figures().block(imported);
    }
    write_verdict(out, &verdict);
    Ok(())
}

/// The rules of Amsterdam are not here: to judge its blocks by others would call good ones invalid.
fn refuse_amsterdam(backend: &Backend, input: &PayloadInput) -> Answer {
    let payload = input.payload.as_v1();
    let spec = backend.chain().spec();
    let fork = spec.fork_at(payload.block_number, payload.timestamp, true);
    if fork < Fork::Amsterdam {
        return Ok(());
    }
    let message = format!("Unsupported fork: this version has no rules for {fork}; update it");
    Err(RpcError::new(-38005, message))
}

/// The senders of transactions that waited in the pool.
fn known_senders(backend: &Backend, block: &Block) -> Vec<Option<Address>> {
    let transactions = block.body.transactions.iter();
    let hashes: Vec<B256> = transactions.map(|tx| *tx.tx_hash()).collect();
    backend.pool.senders_of(&hashes)
}

fn write_verdict(out: &mut Vec<u8>, (verdict, hash): &(Verdict, B256)) {
    match verdict {
        Verdict::Valid(_) => write_status(out, "VALID", Some(*hash), None),
        Verdict::Invalid(refused) => {
            write_status(out, "INVALID", refused.latest_valid, Some(&refused.reason));
        }
        Verdict::Syncing => write_status(out, "SYNCING", None, None),
        Verdict::Accepted => write_status(out, "ACCEPTED", None, None),
    }
}
