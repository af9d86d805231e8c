//! Text files of the workspace, and Rust text with everything but code blanked out.
//!
//! The mask keeps length and lines: each byte of a comment, string or character literal becomes a space, so braces and
//! words that are left are code. This is a scanner, not a parser; the file must compile.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

const SKIPPED: [&str; 4] = ["target", "testdata", ".git", "node_modules"];
const TEXT: [&str; 6] = ["rs", "md", "toml", "sh", "txt", "yml"];

/// Every text file under `root` that people write, sorted: path from the root and content.
pub(crate) fn files(root: &Path) -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).map_err(|e| unreadable(&folder, &e))?;
        for entry in entries {
            let entry = entry.map_err(|e| unreadable(&folder, &e))?;
            let (path, name) = (
                entry.path(),
                entry.file_name().to_string_lossy().into_owned(),
            );
            let kind = entry.file_type().map_err(|e| unreadable(&path, &e))?;
            if kind.is_dir() && !SKIPPED.contains(&name.as_str()) {
                folders.push(path);
            } else if kind.is_file() && is_text(&path, &name) {
                let text = std::fs::read_to_string(&path).map_err(|e| unreadable(&path, &e))?;
                found.push((relative(root, &path), text));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Path from the root, with `/` between its parts.
fn relative(root: &Path, path: &Path) -> String {
    let rest: PathBuf = path.strip_prefix(root).unwrap_or(path).to_path_buf();
    rest.to_string_lossy().replace('\\', "/")
}

fn is_text(path: &Path, name: &str) -> bool {
    let by_name = matches!(name, "justfile" | ".editorconfig" | ".gitignore" | "run");
    by_name
        || path
            .extension()
            .is_some_and(|ext| TEXT.iter().any(|known| ext == *known))
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Line (from 1) of a byte offset.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset]
        .iter()
        .filter(|byte| **byte == b'\n')
        .count()
        + 1
}

/// The same number of bytes and lines, with comments and literals turned into spaces.
pub(crate) fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut masked = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = blank_end(bytes, at);
        if end == at {
            masked.push(if bytes[at].is_ascii() {
                char::from(bytes[at])
            } else {
                ' '
            });
            at += 1;
            continue;
        }
        let end = end.min(bytes.len());
        masked.extend(
            bytes[at..end]
                .iter()
                .map(|byte| if *byte == b'\n' { '\n' } else { ' ' }),
        );
        at = end;
    }
    masked
}

/// End of the comment or literal that starts at `at`; `at` itself if none does.
fn blank_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at
            + rest
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    if rest[0] == b'"' {
        return string_end(bytes, at);
    }
    if rest[0] == b'r' && (at == 0 || !is_word(bytes[at - 1]) || b"bc".contains(&bytes[at - 1])) {
        let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(1 + hashes) == Some(&b'"') {
            let close: Vec<u8> = [&b"\""[..], &vec![b'#'; hashes]].concat();
            let body = &rest[hashes + 2..];
            let length = body.windows(close.len()).position(|window| window == close);
            return at + hashes + 2 + length.unwrap_or(body.len()) + close.len();
        }
    }
    if rest[0] == b'\'' {
        return char_end(rest).map_or(at, |length| at + length);
    }
    at
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if bytes[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of a character literal; `None` for a lifetime or loop label.
fn char_end(rest: &[u8]) -> Option<usize> {
    if rest.get(1) == Some(&b'\\') {
        return rest
            .iter()
            .skip(3)
            .position(|byte| *byte == b'\'')
            .map(|length| length + 4);
    }
    let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
        .or_else(|e| std::str::from_utf8(&rest[1..1 + e.valid_up_to()]))
        .ok()?
        .chars()
        .next()?
        .len_utf8();
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// Whether identifiers may have this byte.
pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Offsets of `word` as a whole word: no other identifier byte precedes or follows it.
pub(crate) fn words<'a>(masked: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let (bytes, needle) = (masked.as_bytes(), word.as_bytes());
    masked
        .match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            let end = at + needle.len();
            let joined_before = at > 0 && is_word(bytes[at - 1]) && is_word(needle[0]);
            let joined_after = end < bytes.len() && is_word(bytes[end]) && is_word(bytes[end - 1]);
            !joined_before && !joined_after
        })
}

/// From `start`, the end of the item there: past its matching `}`, or past a `;` before any `{`.
pub(crate) fn item_end(masked: &str, start: usize) -> usize {
    let (mut braces, mut nested) = (0_usize, 0_usize);
    for (at, byte) in masked.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' if braces == 0 => nested += 1,
            b')' | b']' if braces == 0 => nested = nested.saturating_sub(1),
            b';' if braces == 0 && nested == 0 => return at + 1,
            b'{' if nested == 0 => braces += 1,
            b'}' if nested == 0 && braces <= 1 => return at + 1,
            b'}' if nested == 0 => braces -= 1,
            _ => {}
        }
    }
    masked.len()
}

/// The items that only tests compile: each from its `#[cfg(test)]` to its end.
pub(crate) fn test_regions(masked: &str) -> Vec<Range<usize>> {
    ["#[cfg(test)]", "#[cfg(all(test,"]
        .iter()
        .flat_map(|mark| masked.match_indices(mark))
        .map(|(start, mark)| {
            let after = masked[start + mark.len()..].find(|c: char| c.is_alphabetic());
            start..item_end(masked, start + mark.len() + after.unwrap_or(0))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_keeps_code_and_blanks_comments_and_literals() {
        let cases = [
            ("a // {\nb", "a     \nb"),
            ("/* /* { */ */x", "             x"),
            (r#"f("\"{", '{', '\'', 'a)"#, "f(     ,    ,     , 'a)"),
            ("r#\"{\"\n\"#; br\"{\"", "     \n  ; b    "),
            ("bar\"{\"", "bar   "),
        ];
        for (text, expected) in cases {
            assert_eq!(mask(text), expected, "{text}");
        }
    }

    #[test]
    fn a_word_stands_alone() {
        assert_eq!(
            words("unsafe_code unsafe", "unsafe").collect::<Vec<_>>(),
            [12]
        );
        assert_eq!(
            words("eprintln!() println!()", "println!").collect::<Vec<_>>(),
            [12]
        );
    }

    #[test]
    fn a_test_region_ends_with_its_item() {
        let text = "#[cfg(test)]\nuse a::{b, c};\n#[cfg(test)]\nmod t { fn f() {} }\nfn g() {}";
        let ends: Vec<&str> = test_regions(text)
            .into_iter()
            .map(|r| &text[r.end..])
            .collect();
        assert_eq!(
            ends,
            [
                ";\n#[cfg(test)]\nmod t { fn f() {} }\nfn g() {}",
                "\nfn g() {}"
            ]
        );
    }
}
