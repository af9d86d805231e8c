//! How long a request is besides its strings: what it costs to be parsed and checked follows from that.

/// The length of a query without what is in its strings, which may be transactions with blobs.
pub(super) fn bytes_outside_strings(query: &str) -> usize {
    let (mut outside, mut rest) = (0, query);
    while let Some(at) = rest.find(['"', '#']) {
        let (before, from) = rest.split_at(at);
        let length = match from {
            comment if comment.starts_with('#') => {
                let end = comment.find(['\n', '\r']).unwrap_or(comment.len());
                outside += end;
                end
            }
            block if block.starts_with("\"\"\"") => after(&block[3..], "\"\"\"") + 3,
            string => after(&string[1..], "\"") + 1,
        };
        outside += before.len() + 2;
        rest = &from[length..];
    }
    outside + rest.len()
}

/// The length of JSON without what is in its strings, quotes counted. Each use of a variable costs as much again, before
/// any deadline is looked at.
pub(super) fn json_outside_strings(body: &[u8]) -> usize {
    let (mut outside, mut is_string, mut is_escaped) = (0, false, false);
    for byte in body {
        let is_quote = *byte == b'"' && !is_escaped;
        outside += usize::from(!is_string || is_quote);
        is_string ^= is_quote;
        is_escaped = is_string && *byte == b'\\' && !is_escaped;
    }
    outside
}

/// The length of `text` up to the end of the first `quote` without a backslash; all of it if there is none.
fn after(text: &str, quote: &str) -> usize {
    let mut found = text.match_indices(quote);
    let is_escaped = |at: usize| {
        let backslashes = text[..at].bytes().rev().take_while(|byte| *byte == b'\\');
        backslashes.count() % 2 == 1
    };
    let end = found.find(|(at, _)| !is_escaped(*at));
    end.map_or(text.len(), |(at, _)| at + quote.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_strings_do_not_count_and_those_of_comments_do() {
        let most = |text: &str| bytes_outside_strings(text);
        assert_eq!(most("{ a }"), 5);
        let long = "0".repeat(1_000);
        for text in [
            format!("{{ a(b: \"{long}\") }}"),
            format!("{{ a(b: \"\\\"{long}\") }}"),
            format!("{{ a(b: \"\"\"\"{long}\n\"\"\") }}"),
            format!("# \"\n{{ a(b: \"{long}\") }}"),
        ] {
            assert!(most(&text) < 30, "{text}");
        }
        let json = format!("{{\"a\": \"{long}\\\"{long}\", \"b\": [0,0]}}");
        assert_eq!(json_outside_strings(json.as_bytes()), json.len() - 2_004);
        for text in [
            format!("# \"\n{long}"),
            format!("\"\\\\\" {long}"),
            format!("\"\"\"\"\"\" {long}"),
            format!("\"#\" {long}"),
            format!("#{long}\n"),
        ] {
            assert!(most(&text) >= 1_000, "{text}");
        }
    }
}
