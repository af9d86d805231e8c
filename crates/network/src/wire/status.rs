//! Versions of `eth`, the first message of each side, and how far a peer's chain reaches.

use super::fields::{Fields, list};
use niwaki_primitives::rlp::{self, Result, encode};
use niwaki_primitives::{B256, U256};
use niwaki_rules::ForkId;

/// A version of `eth`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EthVersion {
    /// Request ids; announcements are hashes alone (EIP-2464, EIP-2481).
    Eth66,
    /// No state by its hash (EIP-4938).
    Eth67,
    /// Announcements with types and sizes (EIP-5793).
    Eth68,
    /// Block ranges, receipts without blooms (EIP-7642).
    Eth69,
    /// Receipts in parts (EIP-7975).
    Eth70,
    /// Block access lists (EIP-8159).
    Eth71,
    /// Cells of blobs (EIP-8070).
    Eth72,
}

impl EthVersion {
    /// All, the newest first.
    pub const ALL: [Self; 7] = [
        Self::Eth72,
        Self::Eth71,
        Self::Eth70,
        Self::Eth69,
        Self::Eth68,
        Self::Eth67,
        Self::Eth66,
    ];
    /// Those that public networks speak. The older ones are for private networks of older clients.
    pub const CURRENT: [Self; 4] = [Self::Eth72, Self::Eth71, Self::Eth70, Self::Eth69];

    /// Its number.
    pub fn number(self) -> u64 {
        match self {
            Self::Eth66 => 66,
            Self::Eth67 => 67,
            Self::Eth68 => 68,
            Self::Eth69 => 69,
            Self::Eth70 => 70,
            Self::Eth71 => 71,
            Self::Eth72 => 72,
        }
    }

    /// The version with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.number() == number)
    }

    /// Whether nodes say which blocks they have, and receipts come without blooms. Before, they say the hash and the total difficulty of
    /// their head.
    pub fn has_ranges(self) -> bool {
        self >= Self::Eth69
    }

    /// Whether announcements say types and sizes.
    pub fn has_typed_announcements(self) -> bool {
        self >= Self::Eth68
    }

    /// How many message numbers it has.
    pub fn length(self) -> u8 {
        match self {
            Self::Eth66 | Self::Eth67 | Self::Eth68 => 17,
            Self::Eth69 | Self::Eth70 => 18,
            Self::Eth71 => 20,
            Self::Eth72 => 22,
        }
    }
}

/// The blocks that a node has with bodies and receipts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub earliest: u64,
    /// The last block; [`BlockRange::UNKNOWN`] if the node does not say it.
    pub latest: u64,
    /// The hash of the last block.
    pub latest_hash: B256,
}

impl BlockRange {
    /// The last block of a node that only says its hash, as all do before eth/69: any block may be asked of it.
    pub const UNKNOWN: u64 = u64::MAX;

    /// Whether it can be one: the first is not after the last, and the hash is not zero.
    pub fn is_valid(&self) -> bool {
        self.earliest <= self.latest && self.latest_hash != B256::ZERO
    }

    fn read(fields: &mut Fields<'_>) -> Result<Self> {
        Ok(Self {
            earliest: fields.next()?,
            latest: fields.next()?,
            latest_hash: fields.next()?,
        })
    }

    fn fields(&self) -> Vec<u8> {
        [
            encode(self.earliest),
            encode(self.latest),
            encode(self.latest_hash),
        ]
        .concat()
    }

    /// The message BlockRangeUpdate.
    pub fn encode(&self) -> Vec<u8> {
        list(&[&self.fields()])
    }

    /// Reads the message BlockRangeUpdate.
    ///
    /// # Errors
    /// [`rlp::Error`], also for a range that can't be one.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let range = Self::read(&mut Fields::of(data)?)?;
        match range.is_valid() {
            true => Ok(range),
            false => Err(rlp::Error::Custom("a block range that is none")),
        }
    }
}

/// The first message of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The version of `eth`.
    pub version: EthVersion,
    /// The network's number.
    pub network_id: u64,
    /// Hash of the genesis block.
    pub genesis: B256,
    /// The forks that the node knows (EIP-2124).
    pub fork_id: ForkId,
    /// The blocks that it has.
    pub range: BlockRange,
    /// The total difficulty of its head, which is said before eth/69 only; later zero.
    pub total_difficulty: U256,
}

/// Why a peer's status ends the connection. In the order in which it is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// Not the version that both Hellos agreed on.
    #[error("status of eth/{got}, agreed on was eth/{expected}")]
    Version {
        /// The peer's.
        got: u64,
        /// Ours.
        expected: u64,
    },
    /// Another network.
    #[error("network {got}, ours is {expected}")]
    Network {
        /// The peer's.
        got: u64,
        /// Ours.
        expected: u64,
    },
    /// Another genesis block.
    #[error("genesis block {got}, ours is {expected}")]
    Genesis {
        /// The peer's.
        got: B256,
        /// Ours.
        expected: B256,
    },
    /// Forks that don't fit ours.
    #[error("fork id {}/{}, which does not fit ours", niwaki_primitives::hex::encode(.0.hash.0), .0.next)]
    ForkId(ForkId),
    /// A range of blocks that is none.
    #[error("blocks {} to {} ({}), which is no range", .0.earliest, .0.latest, .0.latest_hash)]
    Range(BlockRange),
    /// Not RLP as it must be.
    #[error("a status that can't be read: {0}")]
    Rlp(#[from] rlp::Error),
}

impl Status {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        if !self.version.has_ranges() {
            return list(&[
                &encode(self.version.number()),
                &encode(self.network_id),
                &encode(self.total_difficulty),
                &encode(self.range.latest_hash),
                &encode(self.genesis),
                &encode(self.fork_id),
            ]);
        }
        list(&[
            &encode(self.version.number()),
            &encode(self.network_id),
            &encode(self.genesis),
            &encode(self.fork_id),
            &self.range.fields(),
        ])
    }

    /// Reads a peer's status and compares it with ours. `accepts` says whether a fork id fits our chain.
    ///
    /// # Errors
    /// [`StatusError`], the first that applies.
    ///
    /// Spec: devp2p `caps/eth.md`, Status; EIP-2124.
    pub fn check(
        &self,
        data: &[u8],
        accepts: impl FnOnce(ForkId) -> bool,
    ) -> std::result::Result<Self, StatusError> {
        let mut fields = Fields::of(data)?;
        let (got, expected) = (fields.next()?, self.version.number());
        if got != expected {
            return Err(StatusError::Version { got, expected });
        }
        let (got, expected) = (fields.next()?, self.network_id);
        if got != expected {
            return Err(StatusError::Network { got, expected });
        }
        let head: Option<(U256, B256)> = match self.version.has_ranges() {
            true => None,
            false => Some((fields.next()?, fields.next()?)),
        };
        let (got, expected) = (fields.next()?, self.genesis);
        if got != expected {
            return Err(StatusError::Genesis { got, expected });
        }
        let fork_id = fields.next()?;
        if !accepts(fork_id) {
            return Err(StatusError::ForkId(fork_id));
        }
        let range = match head {
            None => BlockRange::read(&mut fields)?,
            Some((_, latest_hash)) => BlockRange {
                earliest: 0,
                latest: BlockRange::UNKNOWN,
                latest_hash,
            },
        };
        if !range.is_valid() {
            return Err(StatusError::Range(range));
        }
        Ok(Self {
            fork_id,
            range,
            total_difficulty: head.map_or(U256::ZERO, |(total, _)| total),
            ..*self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::{b256, hex};
    use niwaki_rules::fork_filter;
    use rlp::Decodable;

    fn ours() -> Status {
        Status {
            version: EthVersion::Eth69,
            network_id: 1,
            genesis: B256::repeat_byte(1),
            fork_id: ForkId::decode(&mut &[0xc6, 0x84, 1, 2, 3, 4, 5][..]).unwrap(),
            range: BlockRange {
                earliest: 10,
                latest: 20,
                latest_hash: B256::repeat_byte(2),
            },
            total_difficulty: U256::ZERO,
        }
    }

    #[test]
    fn an_old_status_is_six_fields_with_difficulty_and_head_before_the_genesis() {
        for version in [EthVersion::Eth66, EthVersion::Eth67, EthVersion::Eth68] {
            let ours = Status {
                version,
                total_difficulty: U256::from(0x1234),
                ..ours()
            };
            let number = u8::try_from(version.number()).unwrap();
            let mut expected = vec![0xf8, 0x4e, number, 1, 0x82, 0x12, 0x34];
            expected.extend(encode(ours.range.latest_hash));
            expected.extend(encode(ours.genesis));
            expected.extend(hex::decode("c6840102030405").unwrap());
            assert_eq!(hex::encode(ours.encode()), hex::encode(expected));
            let theirs = ours.check(&ours.encode(), |_| true).unwrap();
            let range = BlockRange {
                earliest: 0,
                latest: BlockRange::UNKNOWN,
                latest_hash: ours.range.latest_hash,
            };
            assert_eq!(theirs, Status { range, ..ours });
            let other = Status {
                genesis: B256::ZERO,
                ..ours
            };
            let refused = ours.check(&other.encode(), |_| true);
            assert!(matches!(refused, Err(StatusError::Genesis { .. })));
        }
    }

    #[test]
    fn a_status_is_seven_fields_and_the_fork_id_one_of_them() {
        let encoded = ours().encode();
        let mut expected = hex::decode("f84f4501").unwrap();
        expected.extend(encode(B256::repeat_byte(1)));
        expected.extend(hex::decode("c6840102030405").unwrap()[..].iter());
        expected.extend([10, 20]);
        expected.extend(encode(B256::repeat_byte(2)));
        assert_eq!(hex::encode(&encoded[2..]), hex::encode(&expected[2..]));
        assert_eq!(ours().check(&encoded, |_| true), Ok(ours()));
    }

    #[test]
    fn the_first_field_that_differs_is_the_reason() {
        let theirs = Status {
            version: EthVersion::Eth70,
            network_id: 2,
            genesis: B256::ZERO,
            range: BlockRange::default(),
            ..ours()
        };
        let check = |theirs: &Status, accepts| ours().check(&theirs.encode(), |_| accepts);
        let refused = check(&theirs, false).unwrap_err();
        assert!(matches!(
            refused,
            StatusError::Version {
                got: 70,
                expected: 69
            }
        ));
        let theirs = Status {
            version: EthVersion::Eth69,
            ..theirs
        };
        let refused = check(&theirs, false).unwrap_err();
        assert!(matches!(
            refused,
            StatusError::Network {
                got: 2,
                expected: 1
            }
        ));
        let theirs = Status {
            network_id: 1,
            ..theirs
        };
        assert!(matches!(
            check(&theirs, false).unwrap_err(),
            StatusError::Genesis { .. }
        ));
        let theirs = Status {
            genesis: ours().genesis,
            ..theirs
        };
        assert_eq!(
            check(&theirs, false).unwrap_err(),
            StatusError::ForkId(theirs.fork_id)
        );
        assert_eq!(
            check(&theirs, true).unwrap_err(),
            StatusError::Range(theirs.range)
        );
    }

    #[test]
    fn a_range_that_ends_before_it_begins_or_has_no_hash_is_refused() {
        let good = ours().range;
        assert_eq!(BlockRange::decode(&good.encode()), Ok(good));
        let late = BlockRange {
            earliest: 21,
            ..good
        };
        let no_hash = BlockRange {
            latest_hash: B256::ZERO,
            ..good
        };
        for bad in [late, no_hash] {
            assert!(BlockRange::decode(&bad.encode()).is_err());
        }
    }

    #[test]
    fn the_fork_id_of_mainnet_is_written_as_eip_2124_has_it() {
        let genesis = b256!("d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3");
        let network = niwaki_rules::Network::from_name("mainnet")
            .unwrap()
            .genesis();
        let filter = fork_filter(&network.spec, genesis, 0, 0, 0);
        assert_eq!(
            hex::encode(encode(filter.current())),
            "c984fc64ec0483118c30"
        );
    }
}
