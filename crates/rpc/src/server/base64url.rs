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
            bits |= digit(*byte)? << (18 - 6 * index);
        }
        let bytes = bits.to_be_bytes();
        let whole = chunk.len().checked_sub(1).filter(|whole| *whole > 0)?;
        out.extend_from_slice(&bytes[1..=whole]);
    }
    Some(out)
}

/// The place of a letter in the alphabet.
fn digit(letter: u8) -> Option<u32> {
    let digit = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(digit))
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
        for (place, letter) in ALPHABET.iter().enumerate() {
            assert_eq!(digit(*letter), u32::try_from(place).ok());
        }
        for text in ["a", "ab+/", "ab==", "a b"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
