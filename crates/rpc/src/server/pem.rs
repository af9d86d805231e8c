//! PEM (RFC 7468): DER as lines of text.

use data_encoding::{BASE64_MIME, BASE64_NOPAD};

/// One PEM block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Its label, such as `CERTIFICATE`.
    pub(crate) label: String,
    /// Its contents.
    pub(crate) der: Vec<u8>,
}

/// All complete blocks of a text; text between them is skipped.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let label = line
            .strip_prefix("-----BEGIN ")
            .and_then(|line| line.strip_suffix("-----"));
        let Some(label) = label else {
            continue;
        };
        let end = format!("-----END {label}-----");
        let mut base64 = String::new();
        for line in lines.by_ref().take_while(|line| *line != end) {
            base64 += line;
        }
        if let Ok(der) = BASE64_NOPAD.decode(base64.trim_end_matches('=').as_bytes()) {
            let label = label.to_owned();
            blocks.push(Block { label, der });
        }
    }
    blocks
}

/// A block with lines of 76 characters that end in CR LF, as Java's MIME encoder writes it.
pub(crate) fn write(label: &str, der: &[u8]) -> String {
    let lines = BASE64_MIME.encode(der);
    format!("-----BEGIN {label}-----\r\n{lines}-----END {label}-----\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_block_is_read_back() {
        for length in [1, 2, 3, 56, 57, 58, 300] {
            let der: Vec<u8> = (0..length).map(|byte: u32| byte.to_le_bytes()[0]).collect();
            let text = write("PUBLIC KEY", &der);
            let read = blocks(&text);
            assert_eq!(read.len(), 1);
            assert_eq!((read[0].label.as_str(), &read[0].der), ("PUBLIC KEY", &der));
            assert!(text.lines().all(|line| line.len() <= 76));
            assert!(text.ends_with("\r\n-----END PUBLIC KEY-----\r\n"), "{text}");
        }
    }

    #[test]
    fn blocks_are_found_among_other_text_and_damaged_ones_are_left_out() {
        let text = "a comment\n-----BEGIN A-----\nAQID\n-----END A-----\nmore\n\
                    -----BEGIN B-----\nProc-Type: 4,ENCRYPTED\n\nAQID\n-----END B-----\n\
                    -----BEGIN C-----\r\nBA==\r\n-----END C-----";
        let read = blocks(text);
        let labels: Vec<_> = read.iter().map(|block| block.label.as_str()).collect();
        assert_eq!(labels, ["A", "C"]);
        assert_eq!(
            (&read[0].der[..], &read[1].der[..]),
            (&[1, 2, 3][..], &[4][..])
        );
    }
}
