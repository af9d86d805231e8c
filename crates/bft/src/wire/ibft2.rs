//! The form of IBFT 2.0: `IBF/1`. A height has 8 bytes, a round 4.
//!
//! ```text
//! proposal      [[[height, round, digest], signature], block, "" or [[round change payloads]], access list?]
//! prepare       [[height, round, digest], signature]
//! commit        [[height, round, digest, seal], signature]
//! round change  [[[height, round, "" or [proposal payload, [prepares]]], signature], "" or block, access list?]
//! ```

use super::fields::{Fields, ReadError, access_list_item, item, list, read_access_list};
use super::signed::KeyError;
use super::{
    CommitPayload, Kind, Message, PreparePayload, Prepared, Proposal, ProposalPayload, RoundChange,
    RoundChangePayload, Signed, View,
};
use alloy_rlp::{Decodable, EMPTY_STRING_CODE};
use niwaki_primitives::{B256, Block};
use niwaki_rules::BftProtocol;

const PROTOCOL: BftProtocol = BftProtocol::Ibft2;

pub(super) fn decode(kind: Kind, bytes: &[u8]) -> Result<Message, ReadError> {
    Ok(match kind {
        Kind::Proposal => Message::Proposal(Box::new(read_proposal(bytes)?)),
        Kind::Prepare => Message::Prepare(read_prepare(bytes)?),
        Kind::Commit => Message::Commit(Signed::read(PROTOCOL, kind, bytes, read_commit)?),
        Kind::RoundChange => Message::RoundChange(Box::new(read_round_change(bytes)?)),
    })
}

fn read_view(fields: &mut Fields<'_>) -> Result<View, ReadError> {
    Ok(View {
        height: u64::from_be_bytes(fields.item()?),
        round: u32::from_be_bytes(fields.item()?),
    })
}

fn read_digest(mut fields: Fields<'_>) -> Result<PreparePayload, ReadError> {
    let view = read_view(&mut fields)?;
    let digest = fields.item()?;
    fields.end()?;
    Ok(PreparePayload { view, digest })
}

fn read_prepare(bytes: &[u8]) -> Result<Signed<PreparePayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::Prepare, bytes, read_digest)
}

fn read_proposal_payload(bytes: &[u8]) -> Result<Signed<ProposalPayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::Proposal, bytes, |fields| {
        let PreparePayload { view, digest } = read_digest(fields)?;
        let digest = Some(digest);
        Ok(ProposalPayload { view, digest })
    })
}

fn read_commit(mut fields: Fields<'_>) -> Result<CommitPayload, ReadError> {
    let view = read_view(&mut fields)?;
    let (digest, seal) = (fields.item()?, fields.item()?);
    fields.end()?;
    Ok(CommitPayload { view, digest, seal })
}

fn read_proposal(bytes: &[u8]) -> Result<Proposal, ReadError> {
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
    let access_list = read_last_access_list(fields)?;
    Ok(Proposal {
        signed,
        block,
        access_list,
        round_changes,
        prepares: Vec::new(),
    })
}

/// The access list at the end, if there is a place for one.
fn read_last_access_list(
    mut fields: Fields<'_>,
) -> Result<Option<niwaki_primitives::Bytes>, ReadError> {
    if fields.is_empty() {
        return Ok(None);
    }
    let access_list = read_access_list(&mut fields)?;
    fields.end()?;
    Ok(access_list)
}

fn read_round_change_payload(bytes: &[u8]) -> Result<Signed<RoundChangePayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::RoundChange, bytes, |mut fields| {
        let view = read_view(&mut fields)?;
        let prepared = fields.optional()?.map(read_certificate).transpose()?;
        fields.end()?;
        Ok(RoundChangePayload { view, prepared })
    })
}

fn read_certificate(bytes: &[u8]) -> Result<Prepared, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let proposal = read_proposal_payload(fields.raw()?)?;
    let prepares = fields.all(read_prepare)?;
    fields.end()?;
    Ok(Prepared {
        round: proposal.payload.view.round,
        digest: proposal.payload.digest.unwrap_or_default(),
        certificate: Some((proposal, prepares)),
    })
}

fn read_round_change(bytes: &[u8]) -> Result<RoundChange, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let signed = read_round_change_payload(fields.raw()?)?;
    let block = fields.optional()?;
    let block = block
        .map(|mut block| Block::decode(&mut block))
        .transpose()?;
    let access_list = read_last_access_list(fields)?;
    Ok(RoundChange {
        signed,
        block,
        access_list,
        prepares: Vec::new(),
    })
}

pub(super) fn encode(message: &Message, has_access_list: bool) -> Vec<u8> {
    let empty = || vec![EMPTY_STRING_CODE];
    let with_access_list = |mut items: Vec<Vec<u8>>, access_list| {
        items.extend(has_access_list.then(|| access_list_item(access_list)));
        list(items.iter().map(Vec::as_slice))
    };
    match message {
        Message::Prepare(prepare) => prepare.bytes().to_vec(),
        Message::Commit(commit) => commit.bytes().to_vec(),
        Message::Proposal(proposal) => {
            let round_changes = proposal.round_changes.iter();
            let round_changes = match proposal.round_changes.is_empty() {
                true => empty(),
                false => list([&list(round_changes.map(|one| &one.bytes()[..]))[..]]),
            };
            let items = vec![
                proposal.signed.bytes().to_vec(),
                item(&proposal.block),
                round_changes,
            ];
            with_access_list(items, proposal.access_list.as_ref())
        }
        Message::RoundChange(change) => {
            let block = change.block.as_ref().map_or_else(empty, item);
            let items = vec![change.signed.bytes().to_vec(), block];
            with_access_list(items, change.access_list.as_ref())
        }
    }
}

fn view_items(view: View) -> [Vec<u8>; 2] {
    [
        item(&view.height.to_be_bytes()),
        item(&view.round.to_be_bytes()),
    ]
}

fn encode_digest(view: View, digest: &B256) -> Vec<u8> {
    let [height, round] = view_items(view);
    list([&height[..], &round, &item(digest)])
}

pub(super) fn sign_proposal(
    view: View,
    digest: B256,
    key: &B256,
) -> Result<Signed<ProposalPayload>, KeyError> {
    let payload = ProposalPayload {
        view,
        digest: Some(digest),
    };
    let encoded = encode_digest(view, &digest);
    Signed::sign(PROTOCOL, Kind::Proposal, payload, &encoded, key)
}

pub(super) fn sign_prepare(
    payload: PreparePayload,
    key: &B256,
) -> Result<Signed<PreparePayload>, KeyError> {
    let encoded = encode_digest(payload.view, &payload.digest);
    Signed::sign(PROTOCOL, Kind::Prepare, payload, &encoded, key)
}

pub(super) fn sign_commit(
    payload: CommitPayload,
    key: &B256,
) -> Result<Signed<CommitPayload>, KeyError> {
    let [height, round] = view_items(payload.view);
    let (digest, seal) = (item(&payload.digest), item(&payload.seal));
    let encoded = list([&height[..], &round, &digest, &seal]);
    Signed::sign(PROTOCOL, Kind::Commit, payload, &encoded, key)
}

pub(super) fn sign_round_change(
    payload: RoundChangePayload,
    key: &B256,
) -> Result<Signed<RoundChangePayload>, KeyError> {
    let [height, round] = view_items(payload.view);
    let certificate = payload.prepared.as_ref();
    let certificate = certificate.and_then(|prepared| prepared.certificate.as_ref());
    let prepared = match certificate {
        Some((proposal, prepares)) => {
            let prepares = list(prepares.iter().map(|one| &one.bytes()[..]));
            list([&proposal.bytes()[..], &prepares])
        }
        None => vec![EMPTY_STRING_CODE],
    };
    let encoded = list([&height[..], &round, &prepared]);
    Signed::sign(PROTOCOL, Kind::RoundChange, payload, &encoded, key)
}
