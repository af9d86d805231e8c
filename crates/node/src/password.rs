//! `niwaki password hash`: hashes of passwords, for credentials files.

use crate::Outcome;
use crate::options::PasswordOptions;
use eyre::{Result, WrapErr};
use std::io::BufRead;

/// Prints the hash of a password from the flag or from standard input.
pub(crate) fn hash(options: &PasswordOptions) -> Result<Outcome> {
    let password = match &options.password {
        Some(password) => password.clone(),
        None => {
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            read.wrap_err("can't read the password from standard input")?;
            line.trim_end_matches(['\r', '\n']).to_owned()
        }
    };
    println!("{}", niwaki_rpc::hash_password(&password)?);
    Ok(Outcome::Done)
}
