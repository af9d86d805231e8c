//! Exported states (`niwaki storage export`), compared row by row, but for codes: of those a node keeps what it ever had.
//!
//! The format is in `crates/storage/FORMAT.md`.

use eyre::{Result, WrapErr, eyre};
use std::path::Path;

/// The tag of a chunk of codes.
const CODES: u8 = 5;
/// Bytes of a chunk's checksum, which covers the chunks before it too.
const CHECKSUM_BYTES: usize = 32;

/// Whether two files have the same rows.
pub(super) fn have_same_rows(first: &Path, second: &Path) -> Result<bool> {
    let read = |path: &Path| {
        let file = std::fs::read(path);
        file.wrap_err_with(|| format!("can't read {}", path.display()))
    };
    let (first, second) = (read(first)?, read(second)?);
    Ok(rows(&first)? == rows(&second)?)
}

/// Tag and packed bytes of each chunk. Equal rows are packed to equal bytes.
fn rows(file: &[u8]) -> Result<Vec<(u8, &[u8])>> {
    let cut = || eyre!("an exported state is cut off");
    let line = file.iter().position(|byte| *byte == b'\n');
    let mut rest = &file[line.ok_or_else(cut)? + 1..];
    let mut chunks = Vec::new();
    while let [tag, a, b, c, d, _, _, _, _, after @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        let (packed, after) = after.split_at_checked(length).ok_or_else(cut)?;
        if *tag != CODES {
            chunks.push((*tag, packed));
        }
        rest = after.get(CHECKSUM_BYTES..).ok_or_else(cut)?;
    }
    match rest.is_empty() && !chunks.is_empty() {
        true => Ok(chunks),
        false => Err(cut()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(chunks: &[(u8, &[u8])]) -> Vec<u8> {
        let mut file = b"niwaki-state 1\n".to_vec();
        for (index, (tag, packed)) in (0_u8..).zip(chunks) {
            file.push(*tag);
            file.extend(u32::try_from(packed.len()).unwrap().to_be_bytes());
            file.extend([0, 0, 0, 9]);
            file.extend_from_slice(packed);
            file.extend([index; CHECKSUM_BYTES]);
        }
        file
    }

    #[test]
    fn codes_do_not_count_and_everything_else_does() {
        let one = file(&[(1, b"about"), (6, b"accounts"), (0, b"")]);
        let with_codes = file(&[(1, b"about"), (5, b"codes"), (6, b"accounts"), (0, b"")]);
        let other = file(&[(1, b"about"), (6, b"account!"), (0, b"")]);
        assert_eq!(rows(&one).unwrap(), rows(&with_codes).unwrap());
        assert_ne!(rows(&one).unwrap(), rows(&other).unwrap());
        for end in 0..one.len() {
            let cut = rows(&one[..end]);
            assert!(cut.is_err() || cut.unwrap().len() < 3, "{end}");
        }
    }
}
