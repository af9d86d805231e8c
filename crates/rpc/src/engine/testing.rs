//! `testing_buildBlockV1`: builds a block of given transactions, for test tools.
//!
//! Spec: execution-apis `testing/testing_buildBlockV1.md`.

use super::forkchoice::{PayloadAttributes, template};
use super::payload::{self, Version};
use crate::params::Params;
use crate::payloads::Payload;
use crate::{Backend, RpcError};
use niwaki_chain::BuildError;
use niwaki_primitives::{Bytes, Decodable2718, TxEnvelope};
use std::time::Instant;

/// Parameters: parent, attributes, transactions (null: the pool's) and extra data.
pub(super) fn build_block(
    backend: &Backend,
    params: &Params<'_>,
    out: &mut Vec<u8>,
) -> Result<(), RpcError> {
    let parent = params.hash(0)?;
    let attributes: PayloadAttributes = params.required(1)?;
    let transactions: Option<Vec<Bytes>> = params.optional(2)?;
    let mut template = template(backend, parent, attributes);
    if let Some(extra_data) = params.optional::<Bytes>(3)? {
        template.extra_data = extra_data;
    }
    let payload = match transactions {
        None => backend.payloads.build_now(template).map_err(refused)?,
        Some(encoded) => {
            let decoded = encoded.iter().enumerate().map(|(index, bytes)| {
                TxEnvelope::decode_2718_exact(bytes).map_err(|error| {
                    RpcError::invalid_params(format!("transaction {index}: {error}"))
                })
            });
            let decoded = decoded.collect::<Result<_, _>>()?;
            let began = Instant::now();
            let built = backend.chain().build(template, decoded).map_err(refused)?;
            Payload::new(built, Vec::new(), began)
        }
    };
    payload::write(out, &payload, Version::V6);
    Ok(())
}

fn refused(error: BuildError) -> RpcError {
    match error {
        BuildError::Fault(fault) => fault.into(),
        error => RpcError::server(error.to_string()),
    }
}
