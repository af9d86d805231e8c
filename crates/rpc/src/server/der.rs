//! A reader of DER (X.690), as far as keys, certificates and key stores need it.
//!
//! It reads slices without copying; malformed input gives `None`.

/// The bytes that are not read yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Der<'a>(&'a [u8]);

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;

/// One element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// Its first byte.
    pub(crate) tag: u8,
    /// Its contents.
    pub(crate) content: &'a [u8],
    /// All of its bytes.
    pub(crate) whole: &'a [u8],
}

impl<'a> Der<'a> {
    /// A reader of `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next element, of definite length.
    pub(crate) fn element(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let length = digits
                    .iter()
                    .fold(0u64, |all, digit| all << 8 | u64::from(*digit));
                (usize::try_from(length).ok()?, rest)
            }
            _ => return None,
        };
        // Tags of several bytes do not occur in what is read here.
        let (content, rest) = rest
            .split_at_checked(length)
            .filter(|_| tag & 0x1f != 0x1f)?;
        let whole = self.0.get(..self.0.len() - rest.len())?;
        self.0 = rest;
        Some(Element {
            tag,
            content,
            whole,
        })
    }

    /// The contents of the next element, if it has this tag; else it is not consumed.
    pub(crate) fn tagged(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = *self;
        let element = self.element().filter(|element| element.tag == tag);
        if element.is_none() {
            *self = before;
        }
        element.map(|element| element.content)
    }

    /// A sequence.
    pub(crate) fn sequence(&mut self) -> Option<Self> {
        self.tagged(SEQUENCE).map(Self)
    }

    /// The contents of the context-specific tag `number`.
    pub(crate) fn context(&mut self, number: u8) -> Option<Self> {
        self.tagged(0xa0 | number).map(Self)
    }

    /// An integer, big-endian.
    pub(crate) fn integer(&mut self) -> Option<&'a [u8]> {
        self.tagged(INTEGER)
    }

    /// A small, non-negative integer.
    pub(crate) fn number(&mut self) -> Option<u32> {
        let bytes = self.integer()?;
        let first = bytes.iter().position(|byte| *byte != 0);
        let bytes = bytes.get(first.unwrap_or(bytes.len())..)?;
        (bytes.len() <= 4).then(|| {
            bytes
                .iter()
                .fold(0, |all, byte| all << 8 | u32::from(*byte))
        })
    }

    /// An object identifier, undecoded.
    pub(crate) fn object_id(&mut self) -> Option<&'a [u8]> {
        self.tagged(OBJECT_ID)
    }

    /// An octet string.
    pub(crate) fn octets(&mut self) -> Option<&'a [u8]> {
        self.tagged(OCTET_STRING)
    }

    /// A bit string of whole bytes.
    pub(crate) fn bit_string(&mut self) -> Option<&'a [u8]> {
        self.tagged(BIT_STRING)?.strip_prefix(&[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_in_order_and_malformed_ones_refused() {
        let bytes = [0x30, 0x06, 0x02, 0x01, 0x05, 0x04, 0x01, 0xff];
        let mut inner = Der::new(&bytes).sequence().unwrap();
        assert_eq!(inner.octets(), None);
        assert_eq!(inner.number(), Some(5));
        assert_eq!(inner.octets(), Some(&[0xff][..]));
        assert!(inner.element().is_none());
        for end in 0..bytes.len() {
            assert!(Der::new(&bytes[..end]).sequence().is_none(), "{end} bytes");
        }
        // Indefinite and absurd lengths, tags of several bytes.
        for odd in [
            &[0x30, 0x80, 0, 0][..],
            &[0x04, 0x85, 1, 1, 1, 1, 1],
            &[0x1f, 0x01, 0x00],
        ] {
            assert!(Der::new(odd).element().is_none(), "{odd:?}");
        }
        assert!(
            Der::new(&[0x04, 0x84, 0xff, 0xff, 0xff, 0xff])
                .octets()
                .is_none()
        );
    }

    #[test]
    fn lengths_of_several_bytes_are_read() {
        let mut bytes = vec![0x04, 0x82, 0x01, 0x2c];
        bytes.extend([7; 300]);
        assert_eq!(Der::new(&bytes).octets().unwrap().len(), 300);
    }
}
