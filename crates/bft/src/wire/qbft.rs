//! The form of QBFT: `istanbul/100`. Numbers are as short as they can be.
//!
//! ```text
//! proposal      [[[height, round, block, access list?], signature], [[round change payloads], [prepares]]]
//! prepare       [[height, round, digest], signature]
//! commit        [[height, round, digest, seal], signature]
//! round change  [[[height, round, [] or [round, digest]], signature], [] or block, access list?, [prepares]]
//! ```

use super::fields::{Fields, ReadError, access_list_item, item, list, read_access_list};
use super::signed::KeyError;
use super::{
    CommitPayload, Kind, Message, PreparePayload, Prepared, Proposal, ProposalPayload, RoundChange,
    RoundChangePayload, Signed, View,
};
use alloy_rlp::{Decodable, EMPTY_LIST_CODE};
use niwaki_primitives::{B256, Block, Bytes};
use niwaki_rules::BftProtocol;

const PROTOCOL: BftProtocol = BftProtocol::Qbft;

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
        height: fields.item()?,
        round: fields.item()?,
    })
}

fn read_proposal(bytes: &[u8]) -> Result<Proposal, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let signed = fields.raw()?;
    let (mut block, mut access_list) = (None, None);
    let signed = Signed::read(PROTOCOL, Kind::Proposal, signed, |mut payload| {
        let view = read_view(&mut payload)?;
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
    let prepares = proof.all(read_prepare)?;
    proof.end()?;
    Ok(Proposal {
        signed,
        block: block.ok_or(alloy_rlp::Error::InputTooShort)?,
        access_list,
        round_changes,
        prepares,
    })
}

fn read_prepare(bytes: &[u8]) -> Result<Signed<PreparePayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::Prepare, bytes, |mut fields| {
        let view = read_view(&mut fields)?;
        let digest = fields.item()?;
        fields.end()?;
        Ok(PreparePayload { view, digest })
    })
}

fn read_commit(mut fields: Fields<'_>) -> Result<CommitPayload, ReadError> {
    let view = read_view(&mut fields)?;
    let (digest, seal) = (fields.item()?, fields.item()?);
    fields.end()?;
    Ok(CommitPayload { view, digest, seal })
}

fn read_round_change_payload(bytes: &[u8]) -> Result<Signed<RoundChangePayload>, ReadError> {
    Signed::read(PROTOCOL, Kind::RoundChange, bytes, |mut fields| {
        let view = read_view(&mut fields)?;
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

fn read_round_change(bytes: &[u8]) -> Result<RoundChange, ReadError> {
    let mut fields = Fields::of(bytes)?;
    let has_access_list = fields.count()? > 3;
    let signed = read_round_change_payload(fields.raw()?)?;
    let block = fields.optional()?;
    let block = block
        .map(|mut block| Block::decode(&mut block))
        .transpose()?;
    let access_list = match has_access_list {
        true => read_access_list(&mut fields)?,
        false => None,
    };
    let prepares = fields.all(read_prepare)?;
    fields.end()?;
    Ok(RoundChange {
        signed,
        block,
        access_list,
        prepares,
    })
}

pub(super) fn encode(message: &Message, has_access_list: bool) -> Vec<u8> {
    match message {
        Message::Prepare(prepare) => prepare.bytes().to_vec(),
        Message::Commit(commit) => commit.bytes().to_vec(),
        Message::Proposal(proposal) => {
            let round_changes = list(proposal.round_changes.iter().map(|one| &one.bytes()[..]));
            let prepares = list(proposal.prepares.iter().map(|one| &one.bytes()[..]));
            let proof = list([&round_changes[..], &prepares]);
            list([&proposal.signed.bytes()[..], &proof])
        }
        Message::RoundChange(change) => {
            let empty = || vec![EMPTY_LIST_CODE];
            let block = change.block.as_ref().map_or_else(empty, item);
            let access_list = access_list_item(change.access_list.as_ref());
            let prepares = list(change.prepares.iter().map(|one| &one.bytes()[..]));
            let signed = &change.signed.bytes()[..];
            match has_access_list {
                true => list([signed, &block, &access_list, &prepares]),
                false => list([signed, &block, &prepares]),
            }
        }
    }
}

fn view_items(view: View) -> [Vec<u8>; 2] {
    [item(&view.height), item(&view.round)]
}

/// Signs a proposal of a block; `access_list` is `None` where messages have no place for one.
pub(super) fn sign_proposal(
    view: View,
    block: &Block,
    access_list: Option<Option<&Bytes>>,
    key: &B256,
) -> Result<Signed<ProposalPayload>, KeyError> {
    let [height, round] = view_items(view);
    let block = item(block);
    let access_list = access_list.map(access_list_item);
    let mut items = vec![&height[..], &round, &block];
    items.extend(access_list.as_deref());
    let payload = ProposalPayload { view, digest: None };
    Signed::sign(PROTOCOL, Kind::Proposal, payload, &list(items), key)
}

pub(super) fn sign_prepare(
    payload: PreparePayload,
    key: &B256,
) -> Result<Signed<PreparePayload>, KeyError> {
    let [height, round] = view_items(payload.view);
    let encoded = list([&height[..], &round, &item(&payload.digest)]);
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
    let prepared = match &payload.prepared {
        Some(prepared) => list([&item(&prepared.round)[..], &item(&prepared.digest)]),
        None => vec![EMPTY_LIST_CODE],
    };
    let encoded = list([&height[..], &round, &prepared]);
    Signed::sign(PROTOCOL, Kind::RoundChange, payload, &encoded, key)
}
