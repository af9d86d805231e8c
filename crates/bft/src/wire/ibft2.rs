//! The form of IBFT 2.0: `IBF/1`.
//!
//! ```text
//! proposal      [[[height, round, digest], signature], block, "" or [[round change payloads]], access list?]
//! prepare       [[height, round, digest], signature]
//! commit        [[height, round, digest, seal], signature]
//! round change  [[[height, round, "" or [proposal payload, [prepares]]], signature], "" or block, access list?]
//! ```

use super::fields::{Fields, ReadError, access_list_item, item, list, read_access_list};
use super::signed::KeyError;
use super::votes::{digest_payload, read_digest, read_prepare, read_view, signed_list, view_items};
use super::{
    Kind, PreparePayload, Prepared, Proposal, ProposalPayload, RoundChange, RoundChangePayload,
    Signed, View,
};
use alloy_rlp::{Decodable, EMPTY_STRING_CODE};
use niwaki_primitives::{B256, Block, Bytes};
use niwaki_rules::BftProtocol;
use std::sync::Arc;

const PROTOCOL: BftProtocol = BftProtocol::Ibft2;

pub(crate) fn read_proposal_payload(bytes: &[u8]) -> Result<Signed<ProposalPayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::Proposal, bytes, |fields| {
        let PreparePayload { view, digest } = read_digest(PROTOCOL, fields)?;
        let digest = Some(digest);
        Ok(ProposalPayload { view, digest })
    })
}

pub(super) fn read_proposal(bytes: &[u8]) -> Result<Proposal, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let signed = read_proposal_payload(fields.raw()?)?;
    let block = fields.item()?;
    let round_changes = match fields.optional()? {
        Some(certificate) => {
            let mut certificate = Fields::of(certificate)?;
            let all = certificate.all(read_round_change_payload)?;
            certificate.end()?;
            all
        }
        None => Vec::new(),
    };
    Ok(Proposal {
        signed,
        block,
        access_list: read_last_access_list(fields)?,
        round_changes,
        prepares: Vec::new(),
    })
}

/// The access list at the end, if there is a place for one.
fn read_last_access_list(mut fields: Fields<'_>) -> Result<Option<Bytes>, ReadError> {
    if fields.is_empty() {
        return Ok(None);
    }
    let access_list = read_access_list(&mut fields)?;
    fields.end()?;
    Ok(access_list)
}

fn read_round_change_payload(bytes: &[u8]) -> Result<Signed<RoundChangePayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::RoundChange, bytes, |mut fields| {
        let view = read_view(PROTOCOL, &mut fields)?;
        let prepared = fields.optional()?.map(read_certificate).transpose()?;
        fields.end()?;
        Ok(RoundChangePayload { view, prepared })
    })
}

fn read_certificate(bytes: &[u8]) -> Result<Prepared, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let proposal = read_proposal_payload(fields.raw()?)?;
    let prepares = fields.all(|bytes| read_prepare(PROTOCOL, bytes))?;
    fields.end()?;
    Ok(Prepared {
        round: proposal.payload.view.round,
        digest: proposal.payload.digest.unwrap_or_default(),
        certificate: Some((proposal, prepares)),
    })
}

pub(super) fn read_round_change(bytes: &[u8]) -> Result<RoundChange, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let signed = read_round_change_payload(fields.raw()?)?;
    let block = fields.optional()?;
    let block = block
        .map(|mut block| <Arc<Block>>::decode(&mut block))
        .transpose()?;
    Ok(RoundChange {
        signed,
        block,
        access_list: read_last_access_list(fields)?,
        prepares: Vec::new(),
    })
}

pub(super) fn encode_proposal(proposal: &Proposal, has_access_list: bool) -> Vec<u8> {
    let round_changes = match proposal.round_changes.is_empty() {
        true => vec![EMPTY_STRING_CODE],
        false => list([&signed_list(&proposal.round_changes)[..]]),
    };
    let access_list = access_list_item(proposal.access_list.as_ref());
    let (signed, block) = (&proposal.signed.bytes()[..], item(&proposal.block));
    match has_access_list {
        true => list([signed, &block, &round_changes, &access_list]),
        false => list([signed, &block, &round_changes]),
    }
}

pub(super) fn encode_round_change(change: &RoundChange, has_access_list: bool) -> Vec<u8> {
    let block = change.block.as_ref();
    let block = block.map_or_else(|| vec![EMPTY_STRING_CODE], item);
    let access_list = access_list_item(change.access_list.as_ref());
    let signed = &change.signed.bytes()[..];
    match has_access_list {
        true => list([signed, &block, &access_list]),
        false => list([signed, &block]),
    }
}

pub(super) fn sign_proposal(
    view: View,
    digest: B256,
    key: &B256,
) -> Result<Signed<ProposalPayload>, KeyError> {
    let encoded = digest_payload(PROTOCOL, view, &digest);
    let digest = Some(digest);
    let payload = ProposalPayload { view, digest };
    Signed::sign(PROTOCOL, Kind::Proposal, payload, &encoded, key)
}

pub(super) fn sign_round_change(
    payload: RoundChangePayload,
    key: &B256,
) -> Result<Signed<RoundChangePayload>, KeyError> {
    let [height, round] = view_items(PROTOCOL, payload.view);
    let certificate = payload.prepared.as_ref();
    let certificate = certificate.and_then(|prepared| prepared.certificate.as_ref());
    let prepared = match certificate {
        Some((proposal, prepares)) => list([&proposal.bytes()[..], &signed_list(prepares)]),
        None => vec![EMPTY_STRING_CODE],
    };
    let encoded = list([&height[..], &round, &prepared]);
    Signed::sign(PROTOCOL, Kind::RoundChange, payload, &encoded, key)
}
