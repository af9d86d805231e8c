//! Lists of RLP, read item by item, and written of items.

use super::{Kind, WireError};
use alloy_rlp::{Decodable, EMPTY_LIST_CODE, EMPTY_STRING_CODE, Encodable, Header};
use niwaki_primitives::Bytes;
use niwaki_rules::BadSeal;

/// Round changes and prepares in a message: no network has so many validators.
const MAX_PARTS: usize = 1_024;

/// Why something can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    Malformed(alloy_rlp::Error),
    Signature(BadSeal),
}

impl ReadError {
    /// Of a message of this kind.
    pub(super) fn of(self, kind: Kind) -> WireError {
        match self {
            Self::Malformed(reason) => WireError::Malformed { kind, reason },
            Self::Signature(reason) => WireError::Signature { kind, reason },
        }
    }
}

impl From<alloy_rlp::Error> for ReadError {
    fn from(reason: alloy_rlp::Error) -> Self {
        Self::Malformed(reason)
    }
}

impl From<BadSeal> for ReadError {
    fn from(reason: BadSeal) -> Self {
        Self::Signature(reason)
    }
}

/// The items of a list that have not been read.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Of a list that is all of `bytes`.
    pub(crate) fn of(bytes: &'a [u8]) -> Result<Self, ReadError> {
        let mut all = Self(bytes);
        let fields = all.list()?;
        all.end()?;
        Ok(fields)
    }

    pub(crate) fn list(&mut self) -> Result<Self, ReadError> {
        Ok(Self(Header::decode_bytes(&mut self.0, true)?))
    }

    /// All items of the next list.
    pub(crate) fn all<T>(
        &mut self,
        mut read: impl FnMut(&'a [u8]) -> Result<T, ReadError>,
    ) -> Result<Vec<T>, ReadError> {
        let mut list = self.list()?;
        let mut items = Vec::new();
        while !list.is_empty() {
            // Each costs the recovery of a signature.
            if items.len() >= MAX_PARTS {
                return Err(alloy_rlp::Error::Custom("too many parts").into());
            }
            items.push(read(list.raw()?)?);
        }
        Ok(items)
    }

    pub(crate) fn item<T: Decodable>(&mut self) -> Result<T, ReadError> {
        Ok(T::decode(&mut self.0)?)
    }

    /// The next item with its head.
    pub(crate) fn raw(&mut self) -> Result<&'a [u8], ReadError> {
        let before = self.0;
        let mut after = before;
        let head = Header::decode(&mut after)?;
        let length = before.len() - after.len() + head.payload_length;
        let (item, rest) = before
            .split_at_checked(length)
            .ok_or(alloy_rlp::Error::InputTooShort)?;
        self.0 = rest;
        Ok(item)
    }

    /// The next item, unless it is empty: a list or a string without content.
    pub(crate) fn optional(&mut self) -> Result<Option<&'a [u8]>, ReadError> {
        let item = self.raw()?;
        let is_empty = [[EMPTY_LIST_CODE], [EMPTY_STRING_CODE]].contains(&[item[0]]);
        Ok((!is_empty).then_some(item))
    }

    /// How many items are left.
    pub(crate) fn count(&self) -> Result<usize, ReadError> {
        let (mut rest, mut count) = (self.clone(), 0);
        while !rest.is_empty() {
            rest.raw()?;
            count += 1;
        }
        Ok(count)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn end(self) -> Result<(), ReadError> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(alloy_rlp::Error::UnexpectedLength.into()),
        }
    }
}

/// An access list, as it stands: an empty string is none.
pub(crate) fn read_access_list(fields: &mut Fields<'_>) -> Result<Option<Bytes>, ReadError> {
    let item = fields.raw()?;
    let is_none = item == [EMPTY_STRING_CODE];
    Ok((!is_none).then(|| Bytes::copy_from_slice(item)))
}

/// The item of an access list.
pub(crate) fn access_list_item(list: Option<&Bytes>) -> Vec<u8> {
    list.map_or_else(|| vec![EMPTY_STRING_CODE], |list| list.to_vec())
}

/// A list of items, each with its head.
pub(crate) fn list<'i>(items: impl IntoIterator<Item = &'i [u8]> + Clone) -> Vec<u8> {
    let payload_length = items.clone().into_iter().map(<[u8]>::len).sum();
    let header = Header {
        list: true,
        payload_length,
    };
    let mut bytes = Vec::with_capacity(header.length_with_payload());
    header.encode(&mut bytes);
    items
        .into_iter()
        .for_each(|item| bytes.extend_from_slice(item));
    bytes
}

/// An item.
pub(crate) fn item(value: &impl Encodable) -> Vec<u8> {
    alloy_rlp::encode(value)
}
