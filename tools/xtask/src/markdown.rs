//! Rows of a markdown table, found by the first cells of its header.

/// The rows below the header whose first cells are `header`: line (from 1) and trimmed cells.
/// `None` if the text has no such table.
pub(crate) fn table<'a>(text: &'a str, header: &[&str]) -> Option<Vec<(usize, Vec<&'a str>)>> {
    let mut lines = text.lines().enumerate();
    lines.find(|(_, line)| cells(line).starts_with(header))?;
    lines
        .next()
        .filter(|(_, line)| line.trim_start().starts_with("|-"))?;
    Some(
        lines
            .take_while(|(_, line)| line.trim_start().starts_with('|'))
            .map(|(index, line)| (index + 1, cells(line)))
            .collect(),
    )
}

/// The first word between backticks of a cell.
pub(crate) fn code(cell: &str) -> Option<&str> {
    cell.split('`').nth(1)
}

fn cells(line: &str) -> Vec<&str> {
    let line = line.trim();
    let Some(inner) = line
        .strip_prefix('|')
        .and_then(|rest| rest.strip_suffix('|'))
    else {
        return Vec::new();
    };
    inner.split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_by_its_header_and_ends_at_the_first_other_line() {
        let text = "x | y\n| a | b | c |\n|---|---|---|\n| `1` | 2 | 3 |\n\n| 4 | 5 | 6 |\n";
        assert_eq!(
            table(text, &["a", "b"]),
            Some(vec![(4, vec!["`1`", "2", "3"])])
        );
        assert_eq!(table(text, &["b"]), None);
        assert_eq!(code("the `bin` here"), Some("bin"));
    }
}
