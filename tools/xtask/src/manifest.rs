//! The dependencies that a `Cargo.toml` names.
//!
//! Reads the forms this workspace uses: `a = "1"`, `a.workspace = true`, `a = { .. }` (over several
//! lines too) and `[dependencies.a]`. Not a TOML parser: cargo has read the file before.

/// The table of a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// `[dependencies]` and `[build-dependencies]`, also below `[target.*]`.
    Normal,
    /// `[dev-dependencies]`.
    Dev,
    /// `[workspace.dependencies]`.
    Workspace,
}

/// One dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The name on the left of the `=`.
    pub name: String,
    pub table: Table,
    /// Line, counted from 1.
    pub line: usize,
    /// The text after the name, joined to one line.
    pub value: String,
}

impl Dependency {
    /// Whether the root manifest gives the version.
    pub(crate) fn is_inherited(&self) -> bool {
        let value: String = self.value.split_whitespace().collect();
        value.contains("workspace=true")
    }
}

/// The package's name (empty if it has none) and its dependencies in order.
pub(crate) fn parse(text: &str) -> (String, Vec<Dependency>) {
    let (mut package, mut section) = (String::new(), String::new());
    let (mut found, mut depth) = (Vec::<Dependency>::new(), 0_usize);
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line);
        let inside = depth > 0;
        depth = depth_after(line, depth);
        if line.is_empty() {
            continue;
        }
        let dependency = |name: &str, table, value| Dependency {
            name: name.to_owned(),
            table,
            line: index + 1,
            value,
        };
        if inside {
            if let Some(last) = found.last_mut().filter(|_| table(&section).is_some()) {
                last.value.push_str(line);
            }
        } else if line.starts_with('[') {
            section = line.trim_matches(['[', ']']).to_owned();
            if let Some((table, name)) = split_named(&section) {
                found.push(dependency(name, table, String::new()));
            }
        } else if let Some((key, value)) = line.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            if section == "package" && key == "name" {
                package = value.trim_matches('"').to_owned();
            } else if let Some(table) = table(&section) {
                let (name, rest) = key.split_once('.').unwrap_or((key, ""));
                let (name, value) = (name.trim_matches('"'), format!("{rest}={value}"));
                found.push(dependency(name, table, value));
            } else if let Some(last) = found.last_mut().filter(|_| split_named(&section).is_some())
            {
                last.value.push_str(line);
            }
        }
    }
    (package, found)
}

fn table(section: &str) -> Option<Table> {
    match section {
        "dev-dependencies" => Some(Table::Dev),
        "workspace.dependencies" => Some(Table::Workspace),
        "dependencies" | "build-dependencies" => Some(Table::Normal),
        _ if section.starts_with("target.") && section.ends_with(".dev-dependencies") => {
            Some(Table::Dev)
        }
        _ if section.starts_with("target.") && section.ends_with("dependencies") => {
            Some(Table::Normal)
        }
        _ => None,
    }
}

/// Table and name of a section such as `dependencies.serde`.
fn split_named(section: &str) -> Option<(Table, &str)> {
    let (head, name) = section.rsplit_once('.')?;
    table(head).map(|table| (table, name))
}

/// The line up to a `#` that is not inside a string, trimmed.
fn without_comment(line: &str) -> &str {
    let end = outside_strings(line)
        .find(|(_, byte)| *byte == b'#')
        .map_or(line.len(), |(at, _)| at);
    line[..end].trim()
}

fn depth_after(line: &str, depth: usize) -> usize {
    outside_strings(line).fold(depth, |depth, (_, byte)| match byte {
        b'[' | b'{' => depth + 1,
        b']' | b'}' => depth.saturating_sub(1),
        _ => depth,
    })
}

fn outside_strings(line: &str) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut quoted = false;
    line.bytes().enumerate().filter(move |(_, byte)| {
        quoted ^= *byte == b'"';
        !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_dependency_is_read() {
        let text = r#"
[package]
name = "niwaki-a"
[features]
x = ["dep:b"]
[dependencies] # normal
b.workspace = true
c = { workspace = true, features = [
    "one", # { not a brace
    "two",
] }
[target.'cfg(unix)'.dependencies]
d = "1"
[dev-dependencies.e]
version = "2"
[workspace.dependencies]
"f" = "3"
"#;
        let (package, found) = parse(text);
        let rows: Vec<_> = found
            .iter()
            .map(|d| (d.name.as_str(), d.table, d.line))
            .collect();
        assert_eq!(package, "niwaki-a");
        assert_eq!(
            rows,
            [
                ("b", Table::Normal, 7),
                ("c", Table::Normal, 8),
                ("d", Table::Normal, 13),
                ("e", Table::Dev, 14),
                ("f", Table::Workspace, 17),
            ]
        );
        let inherited: Vec<bool> = found.iter().map(Dependency::is_inherited).collect();
        assert_eq!(inherited, [true, true, false, false, false]);
        assert!(found[1].value.contains("\"two\""));
    }
}
