//! Checks which room may import which, and which other crates may be used where.
//!
//! The code map of ARCHITECTURE.md decides for the rooms, the table of docs/dependencies.md for the rest. Both are read
//! from the documents, not repeated here.

use std::path::Path;

use crate::{
    finding::Finding,
    manifest::{self, Table},
    markdown,
};

const ROOMS: &str = "ARCHITECTURE.md";
const DEPENDENCIES: &str = "docs/dependencies.md";
const PREFIX: &str = "niwaki-";
/// The room that the tests of every room may import.
const TEST_ROOM: &str = "testkit";

/// Path from the root and content of a manifest.
type Manifest = (String, String);

/// A row of the code map with the rooms it may import, or of the table of dependencies with the rooms that may name it.
struct Row {
    name: String,
    line: usize,
    admits: Vec<String>,
}

impl Row {
    fn admits(&self, name: &str) -> bool {
        self.admits
            .iter()
            .any(|admitted| admitted == "all" || admitted == name)
    }
}

/// Every finding in the manifests of the workspace at `root`.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let read =
        |path: &str| std::fs::read_to_string(root.join(path)).map_err(|e| format!("{path}: {e}"));
    let mut members = Vec::new();
    for folder in ["crates", "tools"] {
        let entries = std::fs::read_dir(root.join(folder)).map_err(|e| format!("{folder}: {e}"))?;
        for entry in entries {
            let entry = entry.map_err(|e| format!("{folder}: {e}"))?;
            let path = format!(
                "{folder}/{}/Cargo.toml",
                entry.file_name().to_string_lossy()
            );
            if root.join(&path).is_file() {
                let text = read(&path)?;
                members.push((path, text));
            }
        }
    }
    members.sort();
    check_texts(
        &read("Cargo.toml")?,
        &members,
        &read(ROOMS)?,
        &read(DEPENDENCIES)?,
    )
}

fn check_texts(
    root: &str,
    members: &[Manifest],
    rooms: &str,
    dependencies: &str,
) -> Result<Vec<Finding>, String> {
    let rooms = rows(rooms, &["room", "may import"], 1)
        .ok_or_else(|| format!("{ROOMS}: no table that begins `| room | may import |`"))?;
    let header = ["crate", "why", "maintained by", "wrapped by", "named by"];
    let known = rows(dependencies, &header, 4).ok_or_else(|| {
        format!(
            "{DEPENDENCIES}: no table that begins `| {} |`",
            header.join(" | ")
        )
    })?;
    let mut findings = Vec::new();
    declared(root, &known, &mut findings);
    for member in members {
        imports(member, &rooms, &known, &mut findings);
    }
    Ok(findings)
}

/// Rows of the table with this header; `column` holds the names each row admits.
fn rows(text: &str, header: &[&str], column: usize) -> Option<Vec<Row>> {
    let row = |(line, cells): (usize, Vec<&str>)| {
        let name = markdown::code(cells.first()?)?.to_owned();
        let admits = cells
            .get(column)?
            .split(',')
            .map(|word| word.trim().replace('`', ""));
        Some(Row {
            name,
            line,
            admits: admits.collect(),
        })
    };
    Some(
        markdown::table(text, header)?
            .into_iter()
            .filter_map(row)
            .collect(),
    )
}

/// Each dependency that the root declares has a row that says why, and each row is declared.
fn declared(root: &str, known: &[Row], findings: &mut Vec<Finding>) {
    let (_, declared) = manifest::parse(root);
    let external = || declared.iter().filter(|d| !d.name.starts_with(PREFIX));
    for dependency in external().filter(|d| known.iter().all(|row| row.name != d.name)) {
        let advice = format!(
            "`{}` has no row in {DEPENDENCIES}: say why we need it",
            dependency.name
        );
        findings.push(Finding::new(
            "Cargo.toml",
            dependency.line,
            "unexplained-dependency",
            advice,
        ));
    }
    for row in known
        .iter()
        .filter(|row| external().all(|d| d.name != row.name))
    {
        let advice = format!("`{}` is not in the root Cargo.toml: drop the row", row.name);
        findings.push(Finding::new(DEPENDENCIES, row.line, "stale-row", advice));
    }
}

fn imports(member: &Manifest, rooms: &[Row], known: &[Row], findings: &mut Vec<Finding>) {
    let (path, text) = member;
    let (package, dependencies) = manifest::parse(text);
    let folder = path.split('/').nth(1).unwrap_or_default();
    let mut find = |line, rule, advice| findings.push(Finding::new(path, line, rule, advice));
    if package != format!("{PREFIX}{folder}") {
        find(
            1,
            "package-name",
            format!("`{package}`: call it `{PREFIX}{folder}`, as its folder"),
        );
    }
    let Some(room) = rooms.iter().find(|row| row.name == folder) else {
        find(
            1,
            "unknown-room",
            format!("`{folder}` is not in the code map of {ROOMS}: add it"),
        );
        return;
    };
    for dependency in &dependencies {
        let (name, in_tests) = (&dependency.name, dependency.table == Table::Dev);
        if !dependency.is_inherited() {
            let advice = format!("`{name}`: declare it in the root Cargo.toml, inherit it here");
            find(dependency.line, "inherit", advice);
        }
        if let Some(other) = name.strip_prefix(PREFIX) {
            let for_tests = in_tests && [TEST_ROOM, folder].contains(&other);
            if !room.admits(other) && !for_tests {
                let advice = format!("`{folder}` may not import `{other}` (code map of {ROOMS})");
                find(dependency.line, "import", advice);
            }
        } else if path.starts_with("crates/") && !in_tests {
            let row = known.iter().find(|row| row.name == *name);
            if row.is_some_and(|row| !row.admits(folder)) {
                let advice = format!(
                    "`{name}` may not be named by `{folder}`: import the room that wraps it, or change its row in {DEPENDENCIES}"
                );
                find(dependency.line, "wrapped", advice);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::testing::rules;

    const ROOT: &str = "[workspace.dependencies]\nniwaki-a = { path = \"a\" }\nrocksdb = \"1\"\n";
    const MAP: &str =
        "| room | may import | owns |\n|---|---|---|\n| `a` | - | x |\n| `b` | a | y |\n";
    const WHY: &str = "| crate | why | maintained by | wrapped by | named by |\n|---|---|---|---|---|\n\
                       | `rocksdb` | w | m | s | a |\n";

    fn member(folder: &str, dependencies: &str) -> Manifest {
        let text = format!("[package]\nname = \"niwaki-{folder}\"\n{dependencies}");
        (format!("crates/{folder}/Cargo.toml"), text)
    }

    fn rules_of(members: &[Manifest]) -> Vec<&'static str> {
        rules(&check_texts(ROOT, members, MAP, WHY).unwrap())
    }

    #[test]
    fn imports_follow_the_code_map() {
        let down = member("b", "[dependencies]\nniwaki-a.workspace = true\n");
        let up = member("a", "[dependencies]\nniwaki-b.workspace = true\n");
        let test = member("a", "[dev-dependencies]\nniwaki-testkit.workspace = true\n");
        assert_eq!(rules_of(&[down, test]), [""; 0]);
        assert_eq!(rules_of(&[up]), ["import"]);
        assert_eq!(rules_of(&[member("c", "")]), ["unknown-room"]);
    }

    #[test]
    fn a_wrapped_crate_is_named_by_its_rooms_only_except_in_tests() {
        let dependency = |table: &str| format!("[{table}]\nrocksdb.workspace = true\n");
        assert_eq!(
            rules_of(&[member("a", &dependency("dependencies"))]),
            [""; 0]
        );
        assert_eq!(
            rules_of(&[member("b", &dependency("dependencies"))]),
            ["wrapped"]
        );
        assert_eq!(
            rules_of(&[member("b", &dependency("dev-dependencies"))]),
            [""; 0]
        );
    }

    #[test]
    fn a_version_is_declared_in_the_root_and_explained() {
        let own = member("a", "[dependencies]\nrocksdb = \"1\"\n");
        assert_eq!(rules_of(&[own]), ["inherit"]);
        let unexplained =
            check_texts("[workspace.dependencies]\nx = \"1\"\n", &[], MAP, WHY).unwrap();
        assert_eq!(rules(&unexplained), ["unexplained-dependency", "stale-row"]);
        assert_eq!(unexplained[0].line, 2);
    }

    #[test]
    fn a_missing_table_is_an_error_not_a_pass() {
        assert!(check_texts(ROOT, &[], "", WHY).is_err_and(|e| e.contains(ROOMS)));
        assert!(check_texts(ROOT, &[], MAP, "").is_err_and(|e| e.contains(DEPENDENCIES)));
    }
}
