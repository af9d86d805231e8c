//! Where messages belong, prepares and commits: alike in both protocols, but for how numbers are written.

use super::fields::{Fields, ReadError, item, list};
use super::signed::KeyError;
use super::{CommitPayload, Kind, PreparePayload, Signed, View};
use niwaki_primitives::B256;
use niwaki_rules::BftProtocol;

/// QBFT's numbers are as short as they can be; in IBFT 2.0 a height has 8 bytes, a round 4.
pub(super) fn read_view(protocol: BftProtocol, fields: &mut Fields<'_>) -> Result<View, ReadError> {
    Ok(match protocol {
        BftProtocol::Qbft => View {
            height: fields.item()?,
            round: fields.item()?,
        },
        BftProtocol::Ibft2 => View {
            height: u64::from_be_bytes(fields.item()?),
            round: u32::from_be_bytes(fields.item()?),
        },
    })
}

pub(super) fn view_items(protocol: BftProtocol, view: View) -> [Vec<u8>; 2] {
    match protocol {
        BftProtocol::Qbft => [item(&view.height), item(&view.round)],
        BftProtocol::Ibft2 => [
            item(&view.height.to_be_bytes()),
            item(&view.round.to_be_bytes()),
        ],
    }
}

/// What a prepare signs; in IBFT 2.0 a proposal too.
pub(super) fn read_digest(
    protocol: BftProtocol,
    mut fields: Fields<'_>,
) -> Result<PreparePayload, ReadError> {
    let view = read_view(protocol, &mut fields)?;
    let digest = fields.item()?;
    fields.end()?;
    Ok(PreparePayload { view, digest })
}

pub(super) fn digest_payload(protocol: BftProtocol, view: View, digest: &B256) -> Vec<u8> {
    let [height, round] = view_items(protocol, view);
    list([&height[..], &round, &item(digest)])
}

pub(crate) fn read_prepare(
    protocol: BftProtocol,
    bytes: &[u8],
) -> Result<Signed<PreparePayload>, ReadError> {
    Signed::read(protocol, Kind::Prepare, bytes, |fields| {
        read_digest(protocol, fields)
    })
}

pub(super) fn read_commit(
    protocol: BftProtocol,
    bytes: &[u8],
) -> Result<Signed<CommitPayload>, ReadError> {
    Signed::read(protocol, Kind::Commit, bytes, |mut fields| {
        let view = read_view(protocol, &mut fields)?;
        let (digest, seal) = (fields.item()?, fields.item()?);
        fields.end()?;
        Ok(CommitPayload { view, digest, seal })
    })
}

pub(super) fn sign_prepare(
    protocol: BftProtocol,
    payload: PreparePayload,
    key: &B256,
) -> Result<Signed<PreparePayload>, KeyError> {
    let encoded = digest_payload(protocol, payload.view, &payload.digest);
    Signed::sign(protocol, Kind::Prepare, payload, &encoded, key)
}

pub(super) fn sign_commit(
    protocol: BftProtocol,
    payload: CommitPayload,
    key: &B256,
) -> Result<Signed<CommitPayload>, KeyError> {
    let [height, round] = view_items(protocol, payload.view);
    let (digest, seal) = (item(&payload.digest), item(&payload.seal));
    let encoded = list([&height[..], &round, &digest, &seal]);
    Signed::sign(protocol, Kind::Commit, payload, &encoded, key)
}

/// A list of what others signed, as it came.
pub(super) fn signed_list<P>(all: &[Signed<P>]) -> Vec<u8> {
    list(all.iter().map(|one| &one.bytes()[..]))
}
