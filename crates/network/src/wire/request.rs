//! What one side asks the other for.

use super::fields::{Fields, list};
use super::limits::MAX_REQUESTED;
use super::{EthVersion, SnapKind, SnapRequest, number};
use niwaki_primitives::rlp::{Encodable, Error, Header, Result, encode};
use niwaki_primitives::{B256, Bytes};

/// A block by hash or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockId {
    /// Its hash.
    Hash(B256),
    /// Its number in the canonical chain.
    Number(u64),
}

/// Which of the 128 columns of cells: bit i of byte i / 8, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CellMask(pub [u8; 16]);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Headers from `start` on, every `skip + 1`th, towards higher numbers unless `reverse`.
    Headers {
        /// The first.
        start: BlockId,
        /// How many at most.
        limit: u64,
        /// How many numbers are left out between two.
        skip: u64,
        /// Towards the genesis block.
        reverse: bool,
    },
    /// Bodies of blocks by hash.
    Bodies(Vec<B256>),
    /// Receipts of blocks by hash; of the first block from this receipt on (0 before eth/70).
    Receipts {
        /// The blocks.
        blocks: Vec<B256>,
        /// Index of the first receipt of the first block.
        first_receipt: u64,
    },
    /// Transactions of the pool by hash.
    PooledTransactions(Vec<B256>),
    /// Block access lists of blocks by hash.
    AccessLists(Vec<B256>),
    /// Cells of blob transactions of the pool by hash.
    Cells {
        /// The transactions.
        transactions: Vec<B256>,
        /// Which columns.
        columns: CellMask,
    },
    /// Parts of a state.
    Snap(SnapRequest),
}

/// What is asked for, without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestKind {
    /// Headers.
    Headers,
    /// Bodies.
    Bodies,
    /// Receipts.
    Receipts,
    /// Transactions of the pool.
    PooledTransactions,
    /// Block access lists.
    AccessLists,
    /// Cells of blobs.
    Cells,
    /// Parts of a state.
    Snap(SnapKind),
}

impl RequestKind {
    /// All.
    pub const ALL: [Self; 11] = [
        Self::Headers,
        Self::Bodies,
        Self::Receipts,
        Self::PooledTransactions,
        Self::AccessLists,
        Self::Cells,
        Self::Snap(SnapKind::AccountRange),
        Self::Snap(SnapKind::StorageRanges),
        Self::Snap(SnapKind::ByteCodes),
        Self::Snap(SnapKind::TrieNodes),
        Self::Snap(SnapKind::AccessLists),
    ];

    /// Its place in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Headers => 0,
            Self::Bodies => 1,
            Self::Receipts => 2,
            Self::PooledTransactions => 3,
            Self::AccessLists => 4,
            Self::Cells => 5,
            Self::Snap(kind) => 6 + kind as usize,
        }
    }

    /// The number of the request's message, from the protocol's first. The answer's is one higher.
    pub fn number(self) -> u8 {
        match self {
            Self::Headers => number::GET_BLOCK_HEADERS,
            Self::Bodies => number::GET_BLOCK_BODIES,
            Self::PooledTransactions => number::GET_POOLED_TRANSACTIONS,
            Self::Receipts => number::GET_RECEIPTS,
            Self::AccessLists => number::GET_BLOCK_ACCESS_LISTS,
            Self::Cells => number::GET_CELLS,
            Self::Snap(kind) => kind.number(),
        }
    }
}

impl Request {
    /// What is asked for.
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::Headers { .. } => RequestKind::Headers,
            Self::Bodies(_) => RequestKind::Bodies,
            Self::Receipts { .. } => RequestKind::Receipts,
            Self::PooledTransactions(_) => RequestKind::PooledTransactions,
            Self::AccessLists(_) => RequestKind::AccessLists,
            Self::Cells { .. } => RequestKind::Cells,
            Self::Snap(request) => RequestKind::Snap(request.kind()),
        }
    }

    /// The most items that an answer may have.
    pub(crate) fn most_items(&self) -> usize {
        match self {
            Self::Headers { limit, .. } => usize::try_from(*limit).unwrap_or(usize::MAX),
            Self::Bodies(hashes)
            | Self::PooledTransactions(hashes)
            | Self::AccessLists(hashes)
            | Self::Receipts { blocks: hashes, .. }
            | Self::Cells {
                transactions: hashes,
                ..
            } => hashes.len(),
            Self::Snap(request) => request.most_items(),
        }
    }

    /// The message with this request id.
    pub fn encode(&self, id: u64, version: EthVersion) -> Vec<u8> {
        let id = encode(id);
        match self {
            Self::Headers {
                start,
                limit,
                skip,
                reverse,
            } => {
                let start = match start {
                    BlockId::Hash(hash) => encode(hash),
                    BlockId::Number(number) => encode(number),
                };
                let reverse = encode(u8::from(*reverse));
                let query = list(&[&start, &encode(limit), &encode(skip), &reverse]);
                list(&[&id, &query])
            }
            Self::Receipts {
                blocks,
                first_receipt,
            } if version >= EthVersion::Eth70 => {
                list(&[&id, &encode(first_receipt), &encode(blocks)])
            }
            Self::Bodies(hashes)
            | Self::PooledTransactions(hashes)
            | Self::AccessLists(hashes)
            | Self::Receipts { blocks: hashes, .. } => list(&[&id, &encode(hashes)]),
            Self::Cells {
                transactions,
                columns,
            } => list(&[&id, &encode(transactions), &encode(columns)]),
            Self::Snap(request) => request.encode(&id),
        }
    }

    /// Reads the message of a request of this kind: its id and the request.
    ///
    /// # Errors
    /// If it is not RLP as it must be, or asks for more than [`MAX_REQUESTED`].
    pub fn decode(kind: RequestKind, data: &[u8], version: EthVersion) -> Result<(u64, Self)> {
        let mut fields = Fields::of(data)?;
        let id = fields.next()?;
        let hashes = |fields: &mut Fields<'_>| fields.list()?.all(MAX_REQUESTED);
        let request = match kind {
            RequestKind::Headers => Self::read_headers(&mut fields.list()?)?,
            RequestKind::Bodies => Self::Bodies(hashes(&mut fields)?),
            RequestKind::Receipts => {
                let has_index = version >= EthVersion::Eth70;
                let first_receipt = if has_index { fields.next()? } else { 0 };
                let blocks = hashes(&mut fields)?;
                Self::Receipts {
                    blocks,
                    first_receipt,
                }
            }
            RequestKind::PooledTransactions => Self::PooledTransactions(hashes(&mut fields)?),
            RequestKind::AccessLists => Self::AccessLists(hashes(&mut fields)?),
            RequestKind::Cells => Self::Cells {
                transactions: hashes(&mut fields)?,
                columns: CellMask::read(&mut fields)?,
            },
            RequestKind::Snap(kind) => Self::Snap(SnapRequest::read(kind, &mut fields)?),
        };
        fields.end()?;
        Ok((id, request))
    }

    fn read_headers(fields: &mut Fields<'_>) -> Result<Self> {
        let start: Bytes = fields.next()?;
        let start = match start.len() {
            32 => BlockId::Hash(B256::from_slice(&start)),
            0..=8 => BlockId::Number(number_of(&start)?),
            _ => return Err(Error::UnexpectedLength),
        };
        Ok(Self::Headers {
            start,
            limit: fields.next()?,
            skip: fields.next()?,
            reverse: fields.next::<u64>()? != 0,
        })
    }
}

/// The answer to the message GetNodeData, which eth/66 has last: this node gives no state by its hash.
///
/// # Errors
/// If the message is not RLP as it must be.
pub(crate) fn no_node_data(data: &[u8]) -> Result<Vec<u8>> {
    let mut fields = Fields::of(data)?;
    let id: u64 = fields.next()?;
    let _: Vec<B256> = fields.list()?.all(MAX_REQUESTED)?;
    fields.end()?;
    Ok(list(&[&encode(id), &list(&[])]))
}

fn number_of(bytes: &[u8]) -> Result<u64> {
    if bytes.first() == Some(&0) {
        return Err(Error::LeadingZero);
    }
    let bytes = bytes.iter();
    Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

impl CellMask {
    /// All columns.
    pub const ALL: Self = Self([0xff; 16]);

    /// The mask with column `i` where bit `i` is set.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits.to_le_bytes())
    }

    /// Bit `i` is set for column `i`.
    pub const fn bits(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    /// Whether it has column `index`.
    pub fn has(&self, index: usize) -> bool {
        let byte = self.0.get(index / 8);
        byte.is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    /// Adds a column below 128.
    pub fn set(&mut self, index: usize) {
        if let Some(byte) = self.0.get_mut(index / 8) {
            *byte |= 1 << (index % 8);
        }
    }

    /// How many columns it has.
    pub fn count(&self) -> usize {
        self.0.iter().map(|byte| byte.count_ones() as usize).sum()
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self> {
        let bytes = fields.bytes()?;
        let mask = bytes.try_into().map_err(|_| Error::UnexpectedLength)?;
        Ok(Self(mask))
    }
}

impl Encodable for CellMask {
    fn encode(&self, out: &mut dyn niwaki_primitives::rlp::BufMut) {
        let header = Header {
            list: false,
            payload_length: self.0.len(),
        };
        header.encode(out);
        out.put_slice(&self.0);
    }
}
