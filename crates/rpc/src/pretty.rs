//! Indents JSON for a person to read.
//!
//! In: JSON without white space outside of strings. Out: the same values, in the same order.

/// `json` with a member or an element on each line, indented by two blanks per level.
pub(crate) fn indented(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len().saturating_mul(2));
    let mut depth = 0_usize;
    let mut bytes = json.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                out.push(byte);
                copy_string(&mut bytes, &mut out);
            }
            b'{' | b'[' => {
                out.push(byte);
                if let Some(end) = bytes.next_if(|next| matches!(next, b'}' | b']')) {
                    out.push(end);
                } else {
                    depth = depth.saturating_add(1);
                    new_line(depth, &mut out);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(depth, &mut out);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                new_line(depth, &mut out);
            }
            b':' => out.extend_from_slice(b" : "),
            _ => out.push(byte),
        }
    }
    out
}

/// Copies the rest of a string, including its closing quote.
fn copy_string(bytes: &mut impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    while let Some(byte) = bytes.next() {
        out.push(byte);
        match byte {
            b'"' => return,
            b'\\' => out.extend(bytes.next()),
            _ => {}
        }
    }
}

fn new_line(depth: usize, out: &mut Vec<u8>) {
    out.push(b'\n');
    out.extend(std::iter::repeat_n(b' ', depth.saturating_mul(2)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_is_on_its_own_line_and_strings_are_unchanged() {
        let json = br#"{"a":[1,{"b":"x,\"{:}\\"},[]],"c":{},"d":null}"#;
        let text = String::from_utf8(indented(json)).unwrap();
        let right = "{\n  \"a\" : [\n    1,\n    {\n      \"b\" : \"x,\\\"{:}\\\\\"\n    },\n    []\n  \
                     ],\n  \"c\" : {},\n  \"d\" : null\n}";
        assert_eq!(text, right);
        let same = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        assert_eq!(same(json), same(text.as_bytes()));
        assert_eq!(indented(b"\"0x1\""), b"\"0x1\"");
    }
}
