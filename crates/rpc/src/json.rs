//! Writes JSON straight into bytes, in the formats of Ethereum's JSON-RPC.
//!
//! Responses are most of the work of this server, and nearly all of them are hexadecimal, so they are written without a
//! tree of values in between. An [`Object`] or [`Array`] closes itself when it is dropped.
//!
//! ```text
//! let mut object = Object::new(out);      // {
//! object.number("gasUsed", 21_000);       // "gasUsed":"0x5208"
//! drop(object);                           // }
//! ```

use niwaki_primitives::U256;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// An object being written.
#[derive(Debug)]
pub(crate) struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> Object<'o> {
    /// Opens an object.
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self {
            out,
            is_empty: true,
        }
    }

    /// Writes a name; the caller writes its value to the returned buffer.
    pub(crate) fn field(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// A number as a QUANTITY.
    pub(crate) fn number(&mut self, name: &str, value: u64) {
        number(self.field(name), value);
    }

    /// A number of up to 256 bits as a QUANTITY.
    pub(crate) fn quantity(&mut self, name: &str, value: &U256) {
        quantity(self.field(name), value);
    }

    /// A number with so many decimals.
    pub(crate) fn float(&mut self, name: &str, value: f64, decimals: usize) {
        let text = format!("{value:.decimals$}");
        self.field(name).extend_from_slice(text.as_bytes());
    }

    /// Bytes as DATA.
    pub(crate) fn data(&mut self, name: &str, bytes: &[u8]) {
        data(self.field(name), bytes);
    }

    /// Bytes as DATA, or null.
    pub(crate) fn data_or_null(&mut self, name: &str, bytes: Option<impl AsRef<[u8]>>) {
        match bytes {
            Some(bytes) => self.data(name, bytes.as_ref()),
            None => self.null(name),
        }
    }

    /// An array of DATA.
    pub(crate) fn data_list(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) {
        let mut list = self.array(name);
        for item in items {
            list.data(item.as_ref());
        }
    }

    /// An array of DATA or null.
    pub(crate) fn optional_data_list(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = Option<impl AsRef<[u8]>>>,
    ) {
        let mut list = self.array(name);
        for item in items {
            match item {
                Some(item) => list.data(item.as_ref()),
                None => null(list.item()),
            }
        }
    }

    /// A string, escaped.
    pub(crate) fn string(&mut self, name: &str, text: &str) {
        string(self.field(name), text);
    }

    /// True or false.
    pub(crate) fn boolean(&mut self, name: &str, value: bool) {
        boolean(self.field(name), value);
    }

    /// A decimal number.
    pub(crate) fn decimal(&mut self, name: &str, value: u64) {
        let text = value.to_string();
        self.field(name).extend_from_slice(text.as_bytes());
    }

    /// Null.
    pub(crate) fn null(&mut self, name: &str) {
        null(self.field(name));
    }

    /// An array, to be filled.
    pub(crate) fn array(&mut self, name: &str) -> Array<'_> {
        Array::new(self.field(name))
    }

    /// An object, to be filled.
    pub(crate) fn object(&mut self, name: &str) -> Object<'_> {
        Object::new(self.field(name))
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        self.out.push(b'}');
    }
}

/// An array being written.
#[derive(Debug)]
pub(crate) struct Array<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> Array<'o> {
    /// Opens an array.
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        out.push(b'[');
        Self {
            out,
            is_empty: true,
        }
    }

    /// Starts the next item; the caller writes it to the returned buffer.
    pub(crate) fn item(&mut self) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out
    }

    /// The buffer, to send what it holds; not to write to.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// What the buffer holds: everything that was not sent yet.
    pub(crate) fn unsent(&self) -> &[u8] {
        self.out
    }

    /// Bytes as DATA.
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        data(self.item(), bytes);
    }

    /// An object, to be filled.
    pub(crate) fn object(&mut self) -> Object<'_> {
        Object::new(self.item())
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        self.out.push(b']');
    }
}

/// Writes `value` as a QUANTITY: hexadecimal without leading zeros.
pub(crate) fn number(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(b"\"0x");
    let digits = (64 - value.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let [.., low] = (value >> (4 * digit)).to_be_bytes();
        out.push(DIGITS[usize::from(low & 15)]);
    }
    out.push(b'"');
}

/// Writes `value` as a QUANTITY.
pub(crate) fn quantity(out: &mut Vec<u8>, value: &U256) {
    if let Ok(small) = u64::try_from(*value) {
        return number(out, small);
    }
    let bytes = value.to_be_bytes::<32>();
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(31);
    out.extend_from_slice(b"\"0x");
    let from = out.len();
    push_hex(out, &bytes[first..]);
    if out[from] == b'0' {
        out.remove(from);
    }
    out.push(b'"');
}

/// Writes null.
pub(crate) fn null(out: &mut Vec<u8>) {
    out.extend_from_slice(b"null");
}

/// Writes true or false.
pub(crate) fn boolean(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Writes `bytes` as DATA.
pub(crate) fn data(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() * 2 + 4);
    out.extend_from_slice(b"\"0x");
    push_hex(out, bytes);
    out.push(b'"');
}

fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    let from = out.len();
    out.resize(from + bytes.len() * 2, 0);
    niwaki_primitives::hex::encode_to_slice(bytes, &mut out[from..])
        .expect("the slice has twice the bytes");
}

/// Writes `text` as a string, escaped.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a Vec takes whatever is written to it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn quantities_have_no_leading_zeros_and_data_keeps_them() {
        for (value, want) in [
            (0, "\"0x0\""),
            (15, "\"0xf\""),
            (16, "\"0x10\""),
            (u64::MAX, "\"0xffffffffffffffff\""),
        ] {
            assert_eq!(written(|out| number(out, value)), want);
            assert_eq!(written(|out| quantity(out, &U256::from(value))), want);
        }
        let large = U256::from(1) << 64;
        assert_eq!(
            written(|out| quantity(out, &large)),
            "\"0x10000000000000000\""
        );
        let largest = format!("\"0x{}\"", "f".repeat(64));
        assert_eq!(written(|out| quantity(out, &U256::MAX)), largest);
        assert_eq!(written(|out| data(out, &[0, 1, 255])), "\"0x0001ff\"");
        assert_eq!(written(|out| data(out, &[])), "\"0x\"");
    }

    #[test]
    fn objects_and_arrays_close_themselves_and_strings_are_escaped() {
        let text = written(|out| {
            let mut object = Object::new(out);
            object.number("a", 1);
            object.string("b", "\"\n\u{1}");
            object.null("c");
            object.boolean("d", true);
            let mut array = object.array("e");
            array.data(&[7]);
            array.object().decimal("f", 12);
        });
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value,
            serde_json::json!({
                "a": "0x1", "b": "\"\n\u{1}", "c": null, "d": true, "e": ["0x07", {"f": 12}]
            })
        );
        assert_eq!(written(|out| drop(Object::new(out))), "{}");
        assert_eq!(written(|out| drop(Array::new(out))), "[]");
    }
}
