//! Base64url without padding (RFC 4648): how tokens are written.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64url without padding (RFC 4648).
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
        for index in 0..=chunk.len() {
            let digit = (bits >> (18 - 6 * index)) & 63;
            out.push(char::from(ALPHABET[digit as usize]));
        }
    }
    out
}

/// The bytes of such a text, if it is one.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for (index, byte) in chunk.iter().enumerate() {
            let digit = ALPHABET.iter().position(|letter| letter == byte)?;
            bits |= u32::try_from(digit).ok()? << (18 - 6 * index);
        }
        let bytes = bits.to_be_bytes();
        let whole = chunk.len().checked_sub(1).filter(|whole| *whole > 0)?;
        out.extend_from_slice(&bytes[1..=whole]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_7519_is_encoded_as_there() {
        let text = b"{\"typ\":\"JWT\",\r\n \"alg\":\"HS256\"}";
        let coded = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9";
        assert_eq!(encode(text), coded);
        assert_eq!(decode(coded).unwrap(), text);
    }

    #[test]
    fn bytes_of_any_length_come_back_and_other_alphabets_are_refused() {
        for length in 0..70u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }
        for text in ["a", "ab+/", "ab==", "a b"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
