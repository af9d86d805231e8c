//! Answers of `snap`: read by the side that asked, and written by the side that serves.

use super::SnapKind;
use crate::wire::fields::{Fields, is_list, list, put_list};
use crate::wire::footprint::{FIRST_ITEMS, GROWTH, items, sum};
use crate::wire::limits::MAX_REQUESTED;
use crate::wire::response::read_access_lists;
use niwaki_primitives::rlp::{BufMut, Encodable, Error, Header, Result, encode};
use niwaki_primitives::{B256, Bytes};

/// Most nodes of a proof: two paths of at most 64 each.
const MAX_PROOF: usize = 128;

/// An answer of `snap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapAnswer {
    /// Accounts.
    AccountRange {
        /// Hashed addresses, and accounts as RLP lists in slim form.
        accounts: Entries,
        /// The nodes on the paths to the origin and to the last account.
        proof: Vec<Bytes>,
    },
    /// Slots of a part of the accounts asked for, in their order.
    StorageRanges {
        /// Of each account the hashed slots and their values, RLP in a string.
        slots: Vec<Entries>,
        /// The nodes on the paths to the origin and to the last slot of the last account; none if that is complete and was asked from
        /// the beginning.
        proof: Vec<Bytes>,
    },
    /// Codes: a part of those asked for, in their order.
    ByteCodes(Vec<Bytes>),
    /// RLP of nodes, position by position; empty where the other side has none. The end may be cut.
    TrieNodes(Vec<Bytes>),
    /// RLP of block access lists, position by position; `None` where the other side has none. The end may be cut.
    AccessLists(Vec<Option<Bytes>>),
}

/// Keys with values, in the bytes in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// RLP of each pair of key and value.
    rlp: Vec<u8>,
    count: usize,
}

impl Entries {
    /// These keys with their values, each RLP already: an account's list, or a string.
    pub fn of<'v>(pairs: impl Iterator<Item = (B256, &'v [u8])>) -> Self {
        let mut entries = Self::default();
        for (key, value) in pairs {
            put_pair(&key, value, &mut entries.rlp);
            entries.count += 1;
        }
        entries
    }

    fn read(list: Fields<'_>, value: impl Fn(&mut Fields<'_>) -> Result<()>) -> Result<Self> {
        let (rlp, mut rest, mut count) = (list.rest().to_vec(), list, 0);
        while !rest.is_empty() {
            let mut pair = rest.list()?;
            let _key: B256 = pair.next()?;
            value(&mut pair)?;
            pair.end()?;
            count += 1;
        }
        Ok(Self { rlp, count })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each key with its value: an account as its RLP list, a slot's value as the string's content.
    pub fn iter(&self) -> impl Iterator<Item = (B256, &[u8])> {
        let mut rest = self.rlp.as_slice();
        std::iter::from_fn(move || {
            let mut pair = Header::decode_bytes(&mut rest, true).ok()?;
            let key = Header::decode_bytes(&mut pair, false).ok()?;
            let value = match is_list(pair) {
                true => pair,
                false => Header::decode_bytes(&mut pair, false).ok()?,
            };
            Some((B256::try_from(key).ok()?, value))
        })
    }
}

impl SnapAnswer {
    /// Reads the fields of an answer of this kind after its id. The order of keys is not checked. At most [`MAX_REQUESTED`] items and
    /// 128 nodes of a proof are read.
    pub(in crate::wire) fn read(kind: SnapKind, fields: &mut Fields<'_>) -> Result<Self> {
        Ok(match kind {
            SnapKind::AccountRange => {
                let slim = |pair: &mut Fields<'_>| pair.list().map(drop);
                Self::AccountRange {
                    accounts: Entries::read(fields.list()?, slim)?,
                    proof: fields.list()?.all(MAX_PROOF)?,
                }
            }
            SnapKind::StorageRanges => {
                let value = |pair: &mut Fields<'_>| pair.bytes().map(drop);
                let (mut all, mut slots) = (fields.list()?, Vec::new());
                while !all.is_empty() {
                    if slots.len() == MAX_REQUESTED {
                        return Err(Error::Custom("more accounts than allowed"));
                    }
                    slots.push(Entries::read(all.list()?, value)?);
                }
                Self::StorageRanges {
                    slots,
                    proof: fields.list()?.all(MAX_PROOF)?,
                }
            }
            SnapKind::ByteCodes => Self::ByteCodes(fields.list()?.all(MAX_REQUESTED)?),
            SnapKind::TrieNodes => Self::TrieNodes(fields.list()?.all(MAX_REQUESTED)?),
            SnapKind::AccessLists => Self::AccessLists(read_access_lists(fields.list()?)?),
        })
    }

    /// How many items it has, compared with what was asked for.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::AccountRange { accounts, .. } => accounts.len(),
            Self::StorageRanges { slots, .. } => slots.len(),
            Self::ByteCodes(codes) => codes.len(),
            Self::TrieNodes(nodes) => nodes.len(),
            Self::AccessLists(lists) => lists.len(),
        }
    }
}

/// Most bytes that reading an answer allocates. Keys and values stay in the bytes in which they come.
pub(in crate::wire) fn footprint(kind: SnapKind, fields: &mut Fields<'_>) -> Result<usize> {
    Ok(match kind {
        SnapKind::AccountRange => {
            let accounts = fields.raw()?.len();
            accounts + items(fields, size_of::<Bytes>())?
        }
        SnapKind::StorageRanges => {
            let of_account =
                |lists: &mut Fields<'_>| Ok(lists.raw()?.len() + GROWTH * size_of::<Entries>());
            let first = FIRST_ITEMS * size_of::<Entries>();
            first + sum(fields.list()?, of_account)? + items(fields, size_of::<Bytes>())?
        }
        SnapKind::ByteCodes | SnapKind::TrieNodes | SnapKind::AccessLists => {
            items(fields, size_of::<Option<Bytes>>())?
        }
    })
}

/// The items of an answer, each encoded, until they reach the bytes asked for: the item that passes them is the last.
#[derive(Debug)]
pub struct SnapItems {
    rlp: Vec<u8>,
    /// Of the items, as the other side counts them.
    counted: usize,
    most: usize,
}

impl SnapItems {
    /// No items, of which these bytes may be counted.
    pub fn new(most: usize) -> Self {
        Self {
            rlp: Vec::new(),
            counted: 0,
            most,
        }
    }

    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.counted > self.most
    }

    /// Appends an account in slim form. Key and account count.
    pub fn push_account(&mut self, key: &B256, slim: &[u8]) {
        put_pair(key, slim, &mut self.rlp);
        self.counted += key.len() + slim.len();
    }

    /// Appends code, a node, or RLP that is a string on the wire.
    pub fn push_string(&mut self, bytes: &[u8]) {
        bytes.encode(&mut self.rlp);
        self.counted += bytes.len();
    }

    /// Appends RLP as it is.
    pub fn push_raw(&mut self, rlp: &[u8]) {
        self.rlp.extend_from_slice(rlp);
        self.counted += rlp.len();
    }

    /// Begins the list of an account's slots, which may go on until these bytes are counted.
    pub fn slots(&mut self, most: usize) -> SlotItems<'_> {
        SlotItems {
            items: self,
            rlp: Vec::new(),
            most,
        }
    }

    /// The message that answers request `id` with accounts or slots.
    pub fn range_answer(&self, id: u64, proof: &[Bytes]) -> Vec<u8> {
        let nodes: Vec<u8> = proof.iter().flat_map(encode).collect();
        list(&[&encode(id), &list(&[&self.rlp]), &list(&[&nodes])])
    }

    /// The message that answers request `id` with anything else.
    pub fn answer(&self, id: u64) -> Vec<u8> {
        list(&[&encode(id), &list(&[&self.rlp])])
    }
}

/// The slots of one account in an answer.
#[derive(Debug)]
pub struct SlotItems<'i> {
    items: &'i mut SnapItems,
    rlp: Vec<u8>,
    most: usize,
}

impl SlotItems<'_> {
    /// Appends a slot and the RLP of its value. Both count.
    pub fn push(&mut self, key: &B256, value: &[u8]) {
        put_pair(key, &encode(value), &mut self.rlp);
        self.items.counted += key.len() + value.len();
    }

    /// Whether there is no room for another.
    pub fn is_full(&self) -> bool {
        self.items.counted >= self.most
    }

    /// Ends the list; one without slots is left out.
    pub fn finish(self) {
        if !self.rlp.is_empty() {
            put_list(&[&self.rlp], &mut self.items.rlp);
        }
    }
}

/// Appends the pair of a key and a value that is RLP already.
fn put_pair(key: &B256, value: &[u8], out: &mut Vec<u8>) {
    let payload_length = 1 + key.len() + value.len();
    Header {
        list: true,
        payload_length,
    }
    .encode(out);
    key.encode(out);
    out.put_slice(value);
}
