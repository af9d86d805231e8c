//! Forms as `multipart/form-data` (RFC 7578), in which a simulator sends what a client starts with.
//!
//! ```text
//! --BOUNDARY\r\n
//! Content-Disposition: form-data; name="/chain.rlp"; filename="chain.rlp"\r\n
//! \r\n
//! CONTENT\r\n
//! --BOUNDARY--
//! ```
//!
//! In: the request's content type and body. Out: the parts in their order. hive takes the name of a part, not its file name, as the path in
//! the client.

use memchr::memmem;

/// A part of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) name: String,
    /// It has a file name, so it is a file.
    pub(super) is_file: bool,
    pub(super) content: &'a [u8],
}

/// The parts of a form.
///
/// # Errors
/// With a sentence, if the content type is another one or the body does not end with its boundary.
pub(super) fn parts<'a>(content_type: &str, body: &'a [u8]) -> Result<Vec<Part<'a>>, String> {
    let boundary = boundary(content_type)?;
    let first = format!("--{boundary}");
    let mut rest = body
        .strip_prefix(first.as_bytes())
        .ok_or("the form does not begin with its boundary")?;
    let separator = format!("\r\n--{boundary}");
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        let number = parts.len() + 1;
        rest = rest
            .strip_prefix(b"\r\n")
            .ok_or_else(|| format!("part {number} of the form does not begin with a new line"))?;
        let end = memmem::find(rest, separator.as_bytes())
            .ok_or_else(|| format!("part {number} of the form has no end"))?;
        parts.push(part(&rest[..end]).map_err(|why| format!("part {number} of the form {why}"))?);
        rest = &rest[end + separator.len()..];
    }
    Ok(parts)
}

fn boundary(content_type: &str) -> Result<&str, String> {
    let (kind, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return Err(format!(
            "the content type must be multipart/form-data, got {content_type:?}"
        ));
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        let is_it = name.eq_ignore_ascii_case("boundary");
        is_it.then(|| value.trim_matches('"'))
    });
    match boundary {
        Some(boundary) if !boundary.is_empty() => Ok(boundary),
        _ => Err(format!("the content type {content_type:?} has no boundary")),
    }
}

fn part(bytes: &[u8]) -> Result<Part<'_>, String> {
    // Without headers the blank line comes first; such a part has no name either.
    let end = memmem::find(bytes, b"\r\n\r\n").ok_or("has no blank line after its headers")?;
    let headers = std::str::from_utf8(&bytes[..end]);
    let headers = headers.map_err(|_| "has headers that are not UTF-8")?;
    let disposition = headers.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_it = name.trim().eq_ignore_ascii_case("content-disposition");
        is_it.then_some(value)
    });
    let disposition = disposition.ok_or("has no Content-Disposition")?;
    let name = quoted(disposition, "name").ok_or("has no name")?;
    Ok(Part {
        name,
        is_file: quoted(disposition, "filename").is_some(),
        content: &bytes[end + 4..],
    })
}

/// The value of a parameter in quotation marks; a backslash comes before a quotation mark or backslash inside.
fn quoted(header: &str, parameter: &str) -> Option<String> {
    let mut rest = header;
    loop {
        let (_, after) = rest.split_once(';')?;
        let (name, value) = after.split_once("=\"")?;
        let mut text = String::new();
        let mut characters = value.char_indices();
        let end = loop {
            match characters.next()? {
                (_, '\\') => text.push(characters.next()?.1),
                (at, '"') => break at,
                (_, character) => text.push(character),
            }
        };
        if name.trim().eq_ignore_ascii_case(parameter) {
            return Some(text);
        }
        rest = &value[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=xyz";

    const FORM: &str = "--xyz\r\nContent-Disposition: form-data; name=\"config\"\r\n\r\n{}\n\r\n\
        --xyz\r\nContent-Disposition: form-data; name=\"/a\\\"b;c.rlp\"; filename=\"c.rlp\"\r\n\
        Content-Type: application/octet-stream\r\n\r\n\r\n--xy\r\n\r\n--xyz--\r\n";

    #[test]
    fn parts_have_their_names_and_contents_to_the_byte() {
        let all = parts(TYPE, FORM.as_bytes()).unwrap();
        let part = |name: &str, is_file, content: &'static str| Part {
            name: name.to_owned(),
            is_file,
            content: content.as_bytes(),
        };
        let file = part("/a\"b;c.rlp", true, "\r\n--xy\r\n");
        assert_eq!(all, [part("config", false, "{}\n"), file]);
        let quoted = "Multipart/Form-Data; charset=utf-8; boundary=\"xyz\"";
        assert_eq!(parts(quoted, FORM.as_bytes()).unwrap().len(), 2);
        assert!(parts(TYPE, b"--xyz--\r\n").unwrap().is_empty());
    }

    #[test]
    fn every_shorter_form_is_refused() {
        // The last line break is the epilogue, which may be missing; so may be what follows the closing hyphens.
        for length in 0..FORM.len() - 2 {
            let refused = parts(TYPE, &FORM.as_bytes()[..length]);
            assert!(refused.is_err(), "{length} bytes: {refused:?}");
        }
    }

    #[test]
    fn a_form_that_cannot_be_read_gets_a_reason() {
        let body = |headers: &str| format!("--xyz\r\n{headers}\r\n\r\n1\r\n--xyz--");
        let cases = [
            ("application/json", body(""), "must be multipart/form-data"),
            ("multipart/form-data", body(""), "has no boundary"),
            ("multipart/form-data; boundary=", body(""), "no boundary"),
            (TYPE, "{}".into(), "does not begin with its boundary"),
            (TYPE, body("X: y"), "part 1 of the form has no Content-Disp"),
            (TYPE, body("Content-Disposition: form-data"), "has no name"),
            (TYPE, "--xyz\r\n\r\n--xyz--".into(), "has no blank line"),
            (TYPE, "--xyzw--".into(), "does not begin with a new line"),
        ];
        for (content_type, body, reason) in cases {
            let error = parts(content_type, body.as_bytes()).unwrap_err();
            assert!(error.contains(reason), "{body:?}: {error}");
        }
    }
}
