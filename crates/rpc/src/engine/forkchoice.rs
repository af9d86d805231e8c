//! `engine_forkchoiceUpdated`: sets the head, and on request starts a payload on top of it.

use super::log::count_status;
use crate::json::Object;
use crate::params::{Number, Params};
use crate::simulation::withdrawals;
use crate::{Backend, RpcError, RpcResult};
use niwaki_chain::{BlockTemplate, ForkChoice, ForkChoiceError, StoredHeader, Verdict};
use niwaki_crypto::sha256;
use niwaki_primitives::rlp::Encodable;
use niwaki_primitives::{Address, B256, Bytes, Fork, Withdrawal};
use serde::Deserialize;

/// A version of the method: its fields and forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    V1,
    V2,
    V3,
    V4,
}

impl Version {
    /// Whether the method builds payloads of `fork`. The newest version takes all later forks.
    fn accepts(self, fork: Fork) -> bool {
        match self {
            Self::V1 => fork < Fork::Shanghai,
            Self::V2 => fork < Fork::Cancun,
            Self::V3 => (Fork::Cancun..Fork::Amsterdam).contains(&fork),
            Self::V4 => fork >= Fork::Amsterdam,
        }
    }
}

macro_rules! versions {
    ($($name:ident $version:ident)*) => {$(
        pub(super) fn $name(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
            fork_choice_updated(backend, params, Version::$version, out)
        }
    )*};
}

versions! { v1 V1 v2 V2 v3 V3 v4 V4 }

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ForkchoiceState {
    head_block_hash: B256,
    safe_block_hash: B256,
    finalized_block_hash: B256,
}

/// The attributes of a payload to build; the version decides which fields there are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PayloadAttributes {
    pub(super) timestamp: Number,
    pub(super) prev_randao: B256,
    pub(super) suggested_fee_recipient: Address,
    #[serde(default, deserialize_with = "withdrawals")]
    pub(super) withdrawals: Option<Vec<Withdrawal>>,
    pub(super) parent_beacon_block_root: Option<B256>,
    pub(super) slot_number: Option<Number>,
    pub(super) target_gas_limit: Option<Number>,
}

/// The numbers of the attributes, which must be QUANTITYs before the fork choice is applied; all other errors in
/// attributes are reported after it is applied.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AttributeNumbers {
    #[serde(rename = "timestamp")]
    _timestamp: Option<Number>,
    #[serde(rename = "slotNumber")]
    _slot_number: Option<Number>,
    #[serde(rename = "targetGasLimit")]
    _target_gas_limit: Option<Number>,
    #[serde(rename = "withdrawals", default, deserialize_with = "withdrawals")]
    _withdrawals: Option<Vec<Withdrawal>>,
}

fn fork_choice_updated(
    backend: &Backend,
    params: &Params<'_>,
    version: Version,
    out: &mut Vec<u8>,
) -> RpcResult {
    let state: ForkchoiceState = params.required(0)?;
    params.optional::<AttributeNumbers>(1)?;
    if version >= Version::V4
        && let Some(columns) = params.optional::<Bytes>(2)?
    {
        let wrong = |_| RpcError::invalid_params("custodyColumns must have 16 bytes");
        let columns = <[u8; 16]>::try_from(&columns[..]).map_err(wrong)?;
        backend
            .pool
            .set_custody_columns(u128::from_le_bytes(columns));
    }
    let choice = ForkChoice {
        head: state.head_block_hash,
        safe: state.safe_block_hash,
        finalized: state.finalized_block_hash,
    };
    let attributes = || {
        params.raw(1)?;
        let read: Result<PayloadAttributes, RpcError> = params.required(1);
        Some(read.map_err(|error| invalid_attributes(&error.message)))
    };
    let (verdict, id) = apply(backend, version, &choice, attributes)?;
    write_response(out, &verdict, choice.head, id);
    Ok(())
}

/// Sets the head, and if there are attributes starts a payload on top of it, whose id is returned. The attributes are
/// read after the fork choice is applied: it holds even if they are invalid.
///
/// # Errors
/// Why the fork choice or the attributes are refused, or a fault.
pub(super) fn apply(
    backend: &Backend,
    version: Version,
    choice: &ForkChoice,
    attributes: impl FnOnce() -> Option<Result<PayloadAttributes, RpcError>>,
) -> Result<(Verdict, Option<[u8; 8]>), RpcError> {
    let verdict = backend.consensus.fork_choice(*choice).map_err(refused)?;
    count_status(format!("forkchoiceUpdated{version:?}"), &verdict);
    backend.engine_log.fork_choice(backend, choice, &verdict);
    if !matches!(verdict, Verdict::Valid(_)) {
        return Ok((verdict, None));
    }
    let Some(attributes) = attributes().transpose()? else {
        return Ok((verdict, None));
    };
    let head = backend.chain().head();
    if head.id.hash != choice.head {
        return Ok((verdict, None));
    }
    check_attributes(backend, version, &attributes, &head)?;
    let id = payload_id(version, &choice.head, &attributes);
    let template = template(backend, choice.head, attributes);
    backend.payloads.start(id, template)?;
    Ok((verdict, Some(id)))
}

fn refused(error: ForkChoiceError) -> RpcError {
    match error {
        ForkChoiceError::Inconsistent { .. } => {
            RpcError::new(-38002, format!("Invalid forkchoice state: {error}"))
        }
        ForkChoiceError::TooDeep(_) => RpcError::new(-38006, format!("Too deep reorg: {error}")),
        ForkChoiceError::Fault(fault) => fault.into(),
    }
}

fn invalid_attributes(what: &str) -> RpcError {
    RpcError::new(-38003, format!("Invalid payload attributes: {what}"))
}

/// Checks the fields first, then the fork, then the time. `targetGasLimit` may be absent, unlike in the specification,
/// because geth does not require it: then the operator's target holds.
fn check_attributes(
    backend: &Backend,
    version: Version,
    attributes: &PayloadAttributes,
    head: &StoredHeader,
) -> RpcResult {
    let invalid = |what: &str| Err(invalid_attributes(what));
    let Number(timestamp) = attributes.timestamp;
    let (spec, number) = (backend.chain().spec(), head.id.number.saturating_add(1));
    let fork = spec.fork_at(number, timestamp, true);
    let has = (
        attributes.withdrawals.is_some(),
        attributes.parent_beacon_block_root.is_some(),
        attributes.slot_number.is_some(),
    );
    let expected = match version {
        Version::V1 => (false, false, false),
        Version::V2 => (fork >= Fork::Shanghai, false, false),
        Version::V3 => (true, true, false),
        Version::V4 => (true, true, true),
    };
    if has.0 != expected.0 {
        return invalid("withdrawals must be there from Shanghai on, and only then");
    }
    if has.1 != expected.1 {
        return invalid("parentBeaconBlockRoot must be there from Cancun on, and only then");
    }
    if has.2 != expected.2 || attributes.target_gas_limit.is_some() && !expected.2 {
        return invalid("slotNumber must be there from Amsterdam on, targetGasLimit only then");
    }
    if !version.accepts(fork) {
        let message = format!(
            "Unsupported fork: engine_forkchoiceUpdated{version:?} takes no payload of timestamp \
             {timestamp}, that is {fork}"
        );
        return Err(RpcError::new(-38005, message));
    }
    if timestamp <= head.header.timestamp {
        return invalid("the timestamp is not after the head's");
    }
    Ok(())
}

/// The builder's template from the attributes and the operator's settings.
pub(super) fn template(
    backend: &Backend,
    parent: B256,
    attributes: PayloadAttributes,
) -> BlockTemplate {
    let settings = backend.block_template();
    let target = attributes.target_gas_limit.map(|Number(target)| target);
    BlockTemplate {
        parent,
        coinbase: attributes.suggested_fee_recipient,
        timestamp: attributes.timestamp.0,
        extra_data: settings.extra_data,
        prev_randao: attributes.prev_randao,
        withdrawals: attributes.withdrawals.unwrap_or_default(),
        parent_beacon_block_root: attributes.parent_beacon_block_root.unwrap_or_default(),
        slot_number: attributes.slot_number.map_or(0, |Number(slot)| slot),
        target_gas_limit: target.or(settings.target_gas_limit),
        max_gas: None,
    }
}

/// The id of a payload: a hash of version, parent and attributes.
fn payload_id(version: Version, parent: &B256, attributes: &PayloadAttributes) -> [u8; 8] {
    let mut bytes = parent.to_vec();
    bytes.extend_from_slice(&attributes.timestamp.0.to_be_bytes());
    bytes.extend_from_slice(attributes.prev_randao.as_slice());
    bytes.extend_from_slice(attributes.suggested_fee_recipient.as_slice());
    if let Some(list) = &attributes.withdrawals {
        list.encode(&mut bytes);
    }
    if let Some(root) = &attributes.parent_beacon_block_root {
        bytes.extend_from_slice(root.as_slice());
    }
    let numbers = [attributes.slot_number, attributes.target_gas_limit];
    for Number(number) in numbers.into_iter().flatten() {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    let mut id = [0; 8];
    id.copy_from_slice(&sha256(&bytes)[..8]);
    id[0] = version as u8 + 1;
    id
}

fn write_response(out: &mut Vec<u8>, verdict: &Verdict, head: B256, id: Option<[u8; 8]>) {
    let mut object = Object::new(out);
    let status = object.field("payloadStatus");
    match verdict {
        Verdict::Valid(_) => write_status(status, "VALID", Some(head), None),
        Verdict::Invalid(rejected) => {
            write_status(
                status,
                "INVALID",
                rejected.latest_valid,
                Some(&rejected.reason),
            );
        }
        Verdict::Syncing | Verdict::Accepted => write_status(status, "SYNCING", None, None),
    }
    object.data_or_null("payloadId", id);
}

/// Writes a PayloadStatusV1.
pub(super) fn write_status(
    out: &mut Vec<u8>,
    status: &str,
    latest_valid: Option<B256>,
    error: Option<&str>,
) {
    let mut object = Object::new(out);
    object.string("status", status);
    object.data_or_null("latestValidHash", latest_valid);
    match error {
        Some(error) => object.string("validationError", error),
        None => object.null("validationError"),
    }
}
