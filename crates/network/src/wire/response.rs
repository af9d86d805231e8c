//! Answers: written by the side that serves, item by item within the limits, and read by the side that asked.

use super::fields::{Fields, is_list, list, put_list};
use super::limits::{CELL_BYTES, HARD_ANSWER_BYTES, MAX_REQUESTED, SOFT_ANSWER_BYTES};
use super::{CellMask, EthVersion, RequestKind, SnapAnswer};
use niwaki_primitives::rlp::{Encodable, Error, Header as RlpHeader, Result, encode};
use niwaki_primitives::{B256, BlockBody, Bytes, Header, Receipt};

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Headers, in the order asked for.
    Headers(Vec<Header>),
    /// Bodies: a part of those asked for, in their order.
    Bodies(Vec<BlockBody>),
    /// Receipts of a part of the blocks, in their order.
    Receipts {
        /// Those of each block.
        blocks: Vec<Vec<Receipt>>,
        /// Whether the last block has more than these.
        is_last_incomplete: bool,
    },
    /// Transactions (EIP-2718): a part of those asked for, in their order.
    PooledTransactions(Vec<Bytes>),
    /// RLP of block access lists, position by position; `None` where the other side has none. The end may be cut.
    AccessLists(Vec<Option<Bytes>>),
    /// Cells.
    Cells {
        /// The transactions: a part of those asked for.
        transactions: Vec<B256>,
        /// The cells of each: column by column, of every blob in order.
        cells: Vec<Vec<Bytes>>,
        /// The columns: no others than were asked for.
        columns: CellMask,
    },
    /// Parts of a state.
    Snap(SnapAnswer),
}

impl Answer {
    /// Reads the message of an answer of this kind: the id of the request, and the answer.
    ///
    /// # Errors
    /// If it is not RLP as it must be, or has more than [`MAX_REQUESTED`] items.
    pub fn decode(kind: RequestKind, data: &[u8], version: EthVersion) -> Result<(u64, Self)> {
        let mut fields = Fields::of(data)?;
        let id = fields.next()?;
        let answer = match kind {
            RequestKind::Headers => Self::Headers(fields.list()?.all(MAX_REQUESTED)?),
            RequestKind::Bodies => Self::Bodies(fields.list()?.all(MAX_REQUESTED)?),
            RequestKind::Receipts => Self::read_receipts(&mut fields, version)?,
            RequestKind::PooledTransactions => {
                Self::PooledTransactions(read_transactions(fields.list()?, MAX_REQUESTED)?)
            }
            RequestKind::AccessLists => Self::AccessLists(read_access_lists(fields.list()?)?),
            RequestKind::Cells => Self::read_cells(&mut fields)?,
            RequestKind::Snap(kind) => Self::Snap(SnapAnswer::read(kind, &mut fields)?),
        };
        fields.end()?;
        Ok((id, answer))
    }

    /// How many items it has.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Headers(headers) => headers.len(),
            Self::Bodies(bodies) => bodies.len(),
            Self::Receipts { blocks, .. } => blocks.len(),
            Self::PooledTransactions(transactions) => transactions.len(),
            Self::AccessLists(lists) => lists.len(),
            Self::Cells { transactions, .. } => transactions.len(),
            Self::Snap(answer) => answer.count(),
        }
    }

    fn read_receipts(fields: &mut Fields<'_>, version: EthVersion) -> Result<Self> {
        let has_flag = version >= EthVersion::Eth70;
        let is_last_incomplete = has_flag && fields.next::<u64>()? != 0;
        let mut list = fields.list()?;
        let mut blocks = Vec::new();
        while !list.is_empty() {
            if blocks.len() == MAX_REQUESTED {
                return Err(Error::Custom("more blocks than allowed"));
            }
            let (mut receipts, mut block) = (Vec::new(), list.list()?);
            while !block.is_empty() {
                receipts.push(match version.has_ranges() {
                    true => read_receipt(&mut block.list()?)?,
                    false => Receipt::decode_with_bloom(&mut block.raw()?)?,
                });
            }
            blocks.push(receipts);
        }
        Ok(Self::Receipts {
            blocks,
            is_last_incomplete,
        })
    }

    fn read_cells(fields: &mut Fields<'_>) -> Result<Self> {
        let transactions: Vec<B256> = fields.list()?.all(MAX_REQUESTED)?;
        let (mut cells, mut all) = (Vec::new(), fields.list()?);
        while !all.is_empty() {
            // An empty list is one byte here and 24 in memory.
            if cells.len() == transactions.len() {
                return Err(OTHER_TRANSACTIONS);
            }
            let (mut list, mut own) = (all.list()?, Vec::new());
            while !list.is_empty() {
                let cell = list.bytes()?;
                if cell.len() != CELL_BYTES {
                    return Err(Error::UnexpectedLength);
                }
                own.push(Bytes::copy_from_slice(cell));
            }
            cells.push(own);
        }
        if cells.len() != transactions.len() {
            return Err(OTHER_TRANSACTIONS);
        }
        let columns = CellMask::read(fields)?;
        Ok(Self::Cells {
            transactions,
            cells,
            columns,
        })
    }
}

const OTHER_TRANSACTIONS: Error = Error::Custom("cells of more or fewer transactions than named");

/// Transactions in EIP-2718 form: a legacy one is a list, a typed one a string.
pub(crate) fn read_transactions(mut fields: Fields<'_>, max: usize) -> Result<Vec<Bytes>> {
    let mut all = Vec::new();
    while !fields.is_empty() {
        if all.len() == max {
            return Err(Error::Custom("more transactions than allowed"));
        }
        let raw = fields.raw()?;
        let bytes = match is_list(raw) {
            true => raw,
            false => typed(Fields::string(raw)?)?,
        };
        all.push(Bytes::copy_from_slice(bytes));
    }
    Ok(all)
}

/// A string must hold a typed transaction. A legacy one in it would have two encodings.
///
/// Spec: EIP-2718, types are 0 to 0x7f.
fn typed(bytes: &[u8]) -> Result<&[u8]> {
    match bytes.first() {
        None => Err(Error::InputTooShort),
        Some(0..=0x7f) => Ok(bytes),
        Some(_) => Err(Error::Custom("a string that is no typed transaction")),
    }
}

pub(super) fn read_access_lists(mut fields: Fields<'_>) -> Result<Vec<Option<Bytes>>> {
    let mut all = Vec::new();
    while !fields.is_empty() {
        if all.len() == MAX_REQUESTED {
            return Err(Error::Custom("more access lists than allowed"));
        }
        all.push(match fields.raw()? {
            [0x80] => None,
            raw if is_list(raw) => Some(Bytes::copy_from_slice(raw)),
            _ => return Err(Error::UnexpectedString),
        });
    }
    Ok(all)
}

/// A receipt as the wire has it since eth/69: type, status or state root, gas, logs. The bloom is computed by who needs it.
fn read_receipt(fields: &mut Fields<'_>) -> Result<Receipt> {
    let tx_type = fields.next()?;
    let (status, post_state) = read_outcome(fields)?;
    Ok(Receipt {
        tx_type,
        status,
        post_state,
        cumulative_gas_used: fields.next()?,
        logs: fields.next()?,
    })
}

/// Status or state root of a receipt.
fn read_outcome(fields: &mut Fields<'_>) -> Result<(Option<bool>, Option<B256>)> {
    let outcome = fields.bytes()?;
    let outcome = match outcome {
        [] => (Some(false), None),
        [1] => (Some(true), None),
        root => {
            let root: [u8; 32] = root.try_into().map_err(|_| Error::UnexpectedLength)?;
            (None, Some(root.into()))
        }
    };
    Ok(outcome)
}

/// Appends a receipt as the wire has it in this version.
pub fn put_receipt(receipt: &Receipt, version: EthVersion, out: &mut Vec<u8>) {
    if !version.has_ranges() {
        let encoded = receipt.encode_2718();
        match receipt.tx_type {
            0 => out.extend(encoded),
            _ => encoded.as_slice().encode(out),
        }
        return;
    }
    let outcome: &dyn Encodable = match (&receipt.post_state, &receipt.status) {
        (Some(root), _) => root,
        (None, Some(status)) => status,
        (None, None) => &false,
    };
    let (tx_type, gas) = (receipt.tx_type, receipt.cumulative_gas_used);
    let payload_length = tx_type.length() + outcome.length() + gas.length() + receipt.logs.length();
    let header = RlpHeader {
        list: true,
        payload_length,
    };
    out.reserve(header.length() + payload_length);
    header.encode(out);
    tx_type.encode(out);
    outcome.encode(out);
    gas.encode(out);
    receipt.logs.encode(out);
}

/// The items of an answer, each encoded, until they reach [`SOFT_ANSWER_BYTES`].
#[derive(Debug, Default)]
pub struct Items {
    bytes: Vec<u8>,
    count: usize,
}

impl Items {
    /// Appends an item, unless a message could not hold it. Returns whether there is room for another.
    pub fn push(&mut self, item: &[u8]) -> bool {
        if self.bytes.len() + item.len() > HARD_ANSWER_BYTES {
            return false;
        }
        self.bytes.extend_from_slice(item);
        self.count += 1;
        !self.is_full()
    }

    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= SOFT_ANSWER_BYTES
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The message that answers request `id`, of any kind but receipts since eth/70 and cells.
    pub fn answer(&self, id: u64) -> Vec<u8> {
        let mut items = Vec::new();
        put_list(&[&self.bytes], &mut items);
        list(&[&encode(id), &items])
    }

    /// The message Receipts since eth/70; the last block's list may be incomplete.
    pub fn receipts_answer(&self, id: u64, is_last_incomplete: bool) -> Vec<u8> {
        let mut items = Vec::new();
        put_list(&[&self.bytes], &mut items);
        list(&[&encode(id), &encode(is_last_incomplete), &items])
    }
}

/// The message Cells: of each transaction its cells, of the columns in `columns`.
pub fn cells_answer(
    id: u64,
    transactions: &[B256],
    cells: &[Vec<Bytes>],
    columns: CellMask,
) -> Vec<u8> {
    let transactions = encode(transactions.to_vec());
    let cells = encode(cells.to_vec());
    list(&[&encode(id), &transactions, &cells, &encode(columns)])
}

#[cfg(test)]
mod tests;
