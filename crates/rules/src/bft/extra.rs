//! The extra data of a BFT header.
//!
//! ```text
//! QBFT      [vanity, [validator, ...], [] or [validator, 0xff or 0x80], round, [seal, ...]]
//! IBFT 2.0  [vanity, [validator, ...], 0x80 or [validator, 0xff or 0x00], round in 4 bytes, [seal, ...]]
//! ```
//!
//! A vote of 0xff adds the validator, the other one drops it. A seal is a signature, 65 bytes: r, s, and 0 or 1. Where a contract
//! names the validators their list is empty, and there is no vote.

use super::{BftProtocol, Seal};
use alloy_primitives::{Address, Bytes};
use alloy_rlp::{BufMut, Decodable, EMPTY_LIST_CODE, EMPTY_STRING_CODE, Encodable, Header};

/// The byte of a vote that adds a validator.
const ADD: u8 = 0xff;
/// That of an IBFT 2.0 vote that drops one.
const DROP: u8 = 0;
/// Bytes of the round in IBFT 2.0.
const ROUND_BYTES: usize = 4;

/// What a header's coinbase wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// Who is voted on.
    pub validator: Address,
    /// Whether it is to be a validator.
    pub is_add: bool,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BftExtra {
    /// Bytes of the proposer's choice: 32, by convention.
    pub vanity: Bytes,
    /// The validators of this block, ascending but for a genesis block; none where a contract names them.
    pub validators: Vec<Address>,
    /// The vote of the header's coinbase.
    pub vote: Option<Vote>,
    /// The round in which validators agreed.
    pub round: u32,
    /// Seals of a quorum of them.
    pub seals: Vec<Seal>,
}

/// Why extra data is not that of a BFT header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BftExtraError {
    /// It is not RLP of this form.
    #[error("extra data that is no {} header's: {reason}", protocol.name())]
    Malformed {
        /// Whose form it should have.
        protocol: BftProtocol,
        /// What is wrong.
        reason: alloy_rlp::Error,
    },
}

/// What of the extra data is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// All.
    All,
    /// All but the seals: QBFT has an empty list in their place, IBFT 2.0 nothing.
    WithoutSeals,
    /// IBFT 2.0: nothing from the round on.
    WithoutRound,
}

impl BftExtra {
    /// Reads extra data. In QBFT items after the seals are skipped, as Besu does.
    ///
    /// # Errors
    /// [`BftExtraError`] naming what is malformed.
    pub fn decode(protocol: BftProtocol, bytes: &[u8]) -> Result<Self, BftExtraError> {
        Self::read(protocol, bytes).map_err(|reason| BftExtraError::Malformed { protocol, reason })
    }

    fn read(protocol: BftProtocol, mut bytes: &[u8]) -> alloy_rlp::Result<Self> {
        let mut items = Header::decode_bytes(&mut bytes, true)?;
        if !bytes.is_empty() {
            return Err(alloy_rlp::Error::UnexpectedLength);
        }
        let items = &mut items;
        let extra = Self {
            vanity: Bytes::decode(items)?,
            validators: Vec::decode(items)?,
            vote: read_vote(protocol, items)?,
            round: read_round(protocol, items)?,
            seals: Vec::decode(items)?,
        };
        match items.is_empty() || protocol == BftProtocol::Qbft {
            true => Ok(extra),
            false => Err(alloy_rlp::Error::UnexpectedLength),
        }
    }

    /// The bytes of all of it.
    pub fn encode(&self, protocol: BftProtocol) -> Bytes {
        self.encode_parts(protocol, Parts::All)
    }

    pub(super) fn encode_parts(&self, protocol: BftProtocol, parts: Parts) -> Bytes {
        let mut items = Vec::new();
        self.vanity.encode(&mut items);
        self.validators.encode(&mut items);
        put_vote(protocol, self.vote.as_ref(), &mut items);
        match protocol {
            BftProtocol::Qbft => self.round.encode(&mut items),
            BftProtocol::Ibft2 if parts == Parts::WithoutRound => {}
            BftProtocol::Ibft2 => self.round.to_be_bytes().encode(&mut items),
        }
        match (parts, protocol) {
            (Parts::All, _) => self.seals.encode(&mut items),
            (_, BftProtocol::Qbft) => items.put_u8(EMPTY_LIST_CODE),
            (_, BftProtocol::Ibft2) => {}
        }
        list(&items).into()
    }
}

/// A list of items that are encoded.
fn list(items: &[u8]) -> Vec<u8> {
    let header = Header {
        list: true,
        payload_length: items.len(),
    };
    let mut bytes = Vec::with_capacity(header.length_with_payload());
    header.encode(&mut bytes);
    bytes.extend_from_slice(items);
    bytes
}

fn read_vote(protocol: BftProtocol, items: &mut &[u8]) -> alloy_rlp::Result<Option<Vote>> {
    let none = match protocol {
        BftProtocol::Qbft => EMPTY_LIST_CODE,
        BftProtocol::Ibft2 => EMPTY_STRING_CODE,
    };
    if items.first() == Some(&none) {
        *items = items.get(1..).unwrap_or_default();
        return Ok(None);
    }
    let mut vote = Header::decode_bytes(items, true)?;
    let validator = Address::decode(&mut vote)?;
    let kind = Bytes::decode(&mut vote)?;
    let is_add = match (protocol, &kind[..]) {
        (_, [ADD]) => true,
        (BftProtocol::Qbft, []) | (BftProtocol::Ibft2, [DROP]) => false,
        _ => return Err(alloy_rlp::Error::Custom("a vote neither adds nor drops")),
    };
    match vote.is_empty() {
        true => Ok(Some(Vote { validator, is_add })),
        false => Err(alloy_rlp::Error::UnexpectedLength),
    }
}

fn put_vote(protocol: BftProtocol, vote: Option<&Vote>, items: &mut Vec<u8>) {
    let Some(vote) = vote else {
        items.put_u8(match protocol {
            BftProtocol::Qbft => EMPTY_LIST_CODE,
            BftProtocol::Ibft2 => EMPTY_STRING_CODE,
        });
        return;
    };
    let mut fields = Vec::new();
    vote.validator.encode(&mut fields);
    let kind: &[u8] = match (vote.is_add, protocol) {
        (true, _) => &[ADD],
        (false, BftProtocol::Qbft) => &[],
        (false, BftProtocol::Ibft2) => &[DROP],
    };
    kind.encode(&mut fields);
    items.extend(list(&fields));
}

fn read_round(protocol: BftProtocol, items: &mut &[u8]) -> alloy_rlp::Result<u32> {
    match protocol {
        BftProtocol::Qbft => u32::decode(items),
        BftProtocol::Ibft2 => <[u8; ROUND_BYTES]>::decode(items).map(u32::from_be_bytes),
    }
}
