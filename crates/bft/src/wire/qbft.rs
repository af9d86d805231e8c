//! The form of QBFT: `istanbul/100`.
//!
//! ```text
//! proposal      [[[height, round, block, access list?], signature], [[round change payloads], [prepares]]]
//! prepare       [[height, round, digest], signature]
//! commit        [[height, round, digest, seal], signature]
//! round change  [[[height, round, [] or [round, digest]], signature], [] or block, access list?, [prepares]]
//! ```

use super::fields::{Fields, ReadError, access_list_item, item, list, read_access_list};
use super::signed::KeyError;
use super::votes::{read_prepare, read_view, signed_list, view_items};
use super::{
    Kind, Prepared, Proposal, ProposalPayload, RoundChange, RoundChangePayload, Signed, View,
};
use alloy_rlp::{Decodable, EMPTY_LIST_CODE};
use niwaki_primitives::{B256, Block, Bytes};
use niwaki_rules::BftProtocol;
use std::sync::Arc;

const PROTOCOL: BftProtocol = BftProtocol::Qbft;

pub(super) fn read_proposal(bytes: &[u8]) -> Result<Proposal, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let signed = fields.raw()?;
    let (mut block, mut access_list) = (None, None);
    let signed = Signed::read(PROTOCOL, Kind::Proposal, signed, |mut payload| {
        let view = read_view(PROTOCOL, &mut payload)?;
        block = Some(payload.item::<Block>()?);
        if !payload.is_empty() {
            access_list = read_access_list(&mut payload)?;
        }
        payload.end()?;
        Ok(ProposalPayload { view, digest: None })
    })?;
    let mut proof = fields.list()?;
    fields.end()?;
    let round_changes = proof.all(read_round_change_payload)?;
    let prepares = proof.all(|bytes| read_prepare(PROTOCOL, bytes))?;
    proof.end()?;
    Ok(Proposal {
        signed,
        block: block.ok_or(alloy_rlp::Error::InputTooShort)?.into(),
        access_list,
        round_changes,
        prepares,
    })
}

fn read_round_change_payload(bytes: &[u8]) -> Result<Signed<RoundChangePayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::RoundChange, bytes, |mut fields| {
        let view = read_view(PROTOCOL, &mut fields)?;
        let mut list = fields.list()?;
        fields.end()?;
        if list.is_empty() {
            let prepared = None;
            return Ok(RoundChangePayload { view, prepared });
        }
        let (round, digest) = (list.item()?, list.item()?);
        list.end()?;
        let prepared = Some(Prepared {
            round,
            digest,
            certificate: None,
        });
        Ok(RoundChangePayload { view, prepared })
    })
}

pub(super) fn read_round_change(bytes: &[u8]) -> Result<RoundChange, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let has_access_list = fields.count()? > 3;
    let signed = read_round_change_payload(fields.raw()?)?;
    let block = fields.optional()?;
    let block = block
        .map(|mut block| <Arc<Block>>::decode(&mut block))
        .transpose()?;
    let access_list = match has_access_list {
        true => read_access_list(&mut fields)?,
        false => None,
    };
    let prepares = fields.all(|bytes| read_prepare(PROTOCOL, bytes))?;
    fields.end()?;
    Ok(RoundChange {
        signed,
        block,
        access_list,
        prepares,
    })
}

pub(super) fn encode_proposal(proposal: &Proposal) -> Vec<u8> {
    let round_changes = signed_list(&proposal.round_changes);
    let proof = list([&round_changes[..], &signed_list(&proposal.prepares)]);
    list([&proposal.signed.bytes()[..], &proof])
}

pub(super) fn encode_round_change(change: &RoundChange, has_access_list: bool) -> Vec<u8> {
    let block = change.block.as_ref();
    let block = block.map_or_else(|| vec![EMPTY_LIST_CODE], item);
    let access_list = access_list_item(change.access_list.as_ref());
    let prepares = signed_list(&change.prepares);
    let signed = &change.signed.bytes()[..];
    match has_access_list {
        true => list([signed, &block, &access_list, &prepares]),
        false => list([signed, &block, &prepares]),
    }
}

/// Signs a proposal of a block; `access_list` is `None` where messages have no place for one.
pub(super) fn sign_proposal(
    view: View,
    block: &Block,
    access_list: Option<Option<&Bytes>>,
    key: &B256,
) -> Result<Signed<ProposalPayload>, KeyError> {
    let [height, round] = view_items(PROTOCOL, view);
    let block = item(block);
    let access_list = access_list.map(access_list_item);
    let mut items = vec![&height[..], &round, &block];
    items.extend(access_list.as_deref());
    let payload = ProposalPayload { view, digest: None };
    Signed::sign(PROTOCOL, Kind::Proposal, payload, &list(items), key)
}

pub(super) fn sign_round_change(
    payload: RoundChangePayload,
    key: &B256,
) -> Result<Signed<RoundChangePayload>, KeyError> {
    let [height, round] = view_items(PROTOCOL, payload.view);
    let prepared = match &payload.prepared {
        Some(prepared) => list([&item(&prepared.round)[..], &item(&prepared.digest)]),
        None => vec![EMPTY_LIST_CODE],
    };
    let encoded = list([&height[..], &round, &prepared]);
    Signed::sign(PROTOCOL, Kind::RoundChange, payload, &encoded, key)
}
