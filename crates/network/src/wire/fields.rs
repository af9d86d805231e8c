//! An RLP list read field by field. Lists may have more fields than are read (EIP-8) unless their end is asked for.

use niwaki_primitives::rlp::{Decodable, Error, Header, Result};

/// What is left of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of the list that `data` begins with.
    pub(crate) fn of(mut data: &'a [u8]) -> Result<Self> {
        Header::decode_bytes(&mut data, true).map(Self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of all that is left.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Reads the next field.
    pub(crate) fn next<T: Decodable>(&mut self) -> Result<T> {
        T::decode(&mut self.0)
    }

    /// The next field is a list: its fields.
    pub(crate) fn list(&mut self) -> Result<Self> {
        Header::decode_bytes(&mut self.0, true).map(Self)
    }

    /// The next field is a string: its bytes.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        Header::decode_bytes(&mut self.0, false)
    }

    /// The next field with its head, whatever it is.
    pub(crate) fn raw(&mut self) -> Result<&'a [u8]> {
        let start = self.0;
        let header = Header::decode(&mut self.0)?;
        let rest = self.0.get(header.payload_length..);
        self.0 = rest.ok_or(Error::InputTooShort)?;
        Ok(&start[..start.len() - self.0.len()])
    }

    /// The bytes of a string that is given with its head.
    pub(crate) fn string(raw: &'a [u8]) -> Result<&'a [u8]> {
        Header::decode_bytes(&mut &*raw, false)
    }

    /// All that is left, at most `max` of them.
    pub(crate) fn all<T: Decodable>(mut self, max: usize) -> Result<Vec<T>> {
        let mut all = Vec::new();
        while !self.is_empty() {
            if all.len() == max {
                return Err(Error::Custom("more items than allowed"));
            }
            all.push(self.next()?);
        }
        Ok(all)
    }

    /// Nothing may be left.
    pub(crate) fn end(self) -> Result<()> {
        match self.is_empty() {
            true => Ok(()),
            false => Err(Error::ListLengthMismatch {
                expected: 0,
                got: self.0.len(),
            }),
        }
    }
}

/// Whether an item, given with its head, is a list.
pub(crate) fn is_list(raw: &[u8]) -> bool {
    raw.first().is_some_and(|head| *head >= 0xc0)
}

/// Appends a list of `fields`, which are encoded already.
pub(crate) fn put_list(fields: &[&[u8]], out: &mut Vec<u8>) {
    let header = Header {
        list: true,
        payload_length: fields.iter().map(|field| field.len()).sum(),
    };
    out.reserve(header.length() + header.payload_length);
    header.encode(out);
    for field in fields {
        out.extend_from_slice(field);
    }
}

/// The list of `fields`, which are encoded already.
pub(crate) fn list(fields: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    put_list(fields, &mut out);
    out
}
