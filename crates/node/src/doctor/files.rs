//! Secret files that others can read, and the database.

use super::finding::Finding;
use super::machine::text;
use crate::open::open_existing;
use crate::options::Options;
use crate::run::{JWT_FILE, key_file};
use crate::stop::Stop;
use niwaki_rpc::JwtSecret;
use niwaki_storage::is_data_path;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Rights of the group and of others.
const OTHERS: u32 = 0o077;

/// The secret of the Engine API and the key of the node.
pub(super) fn secrets(options: &Options, data_path: &Path) -> Vec<Finding> {
    let engine = &options.node.engine;
    let given = engine.engine_jwt_secret.as_deref();
    let default = data_path.join(JWT_FILE);
    let mut findings = Vec::new();
    if engine.engine_jwt_disabled != Some(true) {
        findings.push(jwt_secret(given, &default));
    }
    findings.push(node_key(&key_file(&options.node.peers, data_path)));
    findings
}

fn jwt_secret(given: Option<&Path>, default: &Path) -> Finding {
    let check = "engine secret";
    let path = given.unwrap_or(default);
    if given.is_none() && !path.exists() {
        return Finding::pass(check, format!("{} is made at the first start", text(path)));
    }
    let secret = std::fs::read(path);
    let secret = secret.map_err(|error| error.to_string()).and_then(|bytes| {
        let secret = JwtSecret::parse(&String::from_utf8_lossy(&bytes));
        secret.map_err(|error| error.to_string())
    });
    match secret {
        Err(error) => Finding::fail(
            check,
            format!("{}: {error}", text(path)),
            "make one with: openssl rand -hex 32, and give the consensus client the same file",
        ),
        Ok(_) => rights(check, path),
    }
}

fn node_key(path: &Path) -> Finding {
    match path.exists() {
        true => rights("node key", path),
        false => Finding::pass(
            "node key",
            format!("{} is made at the first start", text(path)),
        ),
    }
}

/// Whether only its owner can read a file.
fn rights(check: &'static str, path: &Path) -> Finding {
    let mode = match std::fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode() & 0o777,
        Err(error) => return Finding::unknown(check, format!("{}: {error}", text(path))),
    };
    let found = format!("{} has mode {mode:03o}", text(path));
    match mode & OTHERS {
        0 => Finding::pass(check, found),
        _ => Finding::warn(
            check,
            format!("{found}: other users can read it"),
            format!(
                "chmod 600 {}; if others use this machine, make a new one",
                text(path)
            ),
        ),
    }
}

/// Whether the database opens, and its head agrees with its state.
pub(super) fn database(options: &Options, data_path: &Path, is_running: bool) -> Finding {
    let check = "database";
    if is_running {
        return Finding::pass(check, format!("a node runs on {}", text(data_path)));
    }
    match is_data_path(data_path) {
        Ok(true) => {}
        Ok(false) => {
            return Finding::pass(check, format!("none yet in {}", text(data_path)));
        }
        Err(error) => {
            return Finding::fail(
                check,
                error.to_string(),
                "let the node's user read the data path",
            );
        }
    }
    let whole = "'niwaki storage check' reads all of it, 'niwaki storage repair' mends it";
    match open_existing(options, &Stop::default()) {
        Err(error) => Finding::fail(check, format!("{error:#}"), whole),
        Ok(None) => Finding::unknown(check, "not opened"),
        Ok(Some(chain)) => {
            let head = chain.head();
            match chain.check_head() {
                Ok(None) => Finding::pass(check, format!("head {}, with its state", head.id)),
                Ok(Some(problem)) => Finding::fail(check, problem.to_string(), whole),
                Err(error) => Finding::fail(check, error.to_string(), whole),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Grade;
    use super::*;

    #[test]
    fn a_secret_must_be_one_and_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwt.hex");
        let of = |given| jwt_secret(given, &path);
        assert_eq!(of(None).grade, Grade::Pass);
        assert_eq!(of(Some(path.as_path())).grade, Grade::Fail);
        std::fs::write(&path, "abcd").unwrap();
        assert_eq!(of(None).grade, Grade::Fail);
        std::fs::write(&path, "ab".repeat(32)).unwrap();
        for (mode, grade) in [
            (0o644, Grade::Warn),
            (0o640, Grade::Warn),
            (0o600, Grade::Pass),
        ] {
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, rights).unwrap();
            assert_eq!(of(None).grade, grade, "{mode:o}");
            assert_eq!(node_key(&path).grade, grade, "{mode:o}");
        }
    }
}
