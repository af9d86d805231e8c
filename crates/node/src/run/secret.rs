//! The JWT secret of the Engine API: read from its file, or created.

use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::JwtSecret;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tracing::info;

/// The file in the data path that is used without `--engine-jwt-secret`.
pub(crate) const JWT_FILE: &str = "jwt.hex";

/// Reads the file `given`, which must exist, or the default file in the data path, which is created if it does not exist.
pub(super) fn load(given: Option<&Path>, data_path: &Path) -> Result<JwtSecret> {
    match given {
        Some(path) => read(path),
        None => {
            let path = data_path.join(JWT_FILE);
            match path.exists() {
                true => read(&path),
                false => create(&path),
            }
        }
    }
}

fn read(path: &Path) -> Result<JwtSecret> {
    let bytes = std::fs::read(path)
        .wrap_err_with(|| format!("can't read the secret {}", path.display()))?;
    JwtSecret::parse(&String::from_utf8_lossy(&bytes))
        .map_err(|error| eyre!("the secret {} is {error}", path.display()))
}

fn create(path: &Path) -> Result<JwtSecret> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .wrap_err("can't read random bytes for the secret of the Engine API")?;
    let secret = JwtSecret::new(bytes);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(secret.to_hex().as_bytes()))
        .wrap_err_with(|| format!("can't write the secret {}", path.display()))?;
    info!(path = %path.display(), "Made a secret for the Engine API: give the consensus client this file");
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_created_once_with_mode_0600_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let made = load(None, folder.path()).unwrap();
        assert_eq!(load(None, folder.path()).unwrap(), made);
        let mode = std::fs::metadata(folder.path().join(JWT_FILE)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&mode.permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(
            load(None, tempfile::tempdir().unwrap().path()).unwrap(),
            made
        );
    }

    #[test]
    fn a_given_file_must_exist_and_hold_64_digits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let error = load(Some(&path), folder.path()).unwrap_err();
        assert!(
            format!("{error:#}").contains("can't read the secret"),
            "{error:#}"
        );
        std::fs::write(&path, "abcd").unwrap();
        let error = load(Some(&path), folder.path()).unwrap_err();
        assert!(
            error.to_string().contains("64 hexadecimal digits"),
            "{error}"
        );
    }

    #[test]
    fn only_the_first_line_that_is_not_empty_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let digits = "ab".repeat(32);
        for (before, after) in [
            ("", ""),
            ("", "\n"),
            ("0x", "\r\n\r\n"),
            (" 0X", " \n# made by hand\n"),
            ("\u{feff}\n", "\nsecond line"),
        ] {
            std::fs::write(&path, format!("{before}{digits}{after}")).unwrap();
            let secret = load(Some(&path), folder.path()).unwrap();
            assert_eq!(secret.to_hex(), digits, "{before:?} {after:?}");
        }
        std::fs::write(&path, [digits.as_bytes(), b"\n\xff\xfe"].concat()).unwrap();
        assert!(load(Some(&path), folder.path()).is_ok());
        for text in ["", "\n\n", "# secret\n{digits}", "abcd\n{digits}"] {
            std::fs::write(&path, text.replace("{digits}", &digits)).unwrap();
            assert!(load(Some(&path), folder.path()).is_err(), "{text}");
        }
    }
}
