//! Authentication of HTTP and WebSocket, from flags and files.

use crate::options::{HttpTokenFlags, SocketTokenFlags};
use eyre::{Result, WrapErr, eyre};
use niwaki_rpc::{
    Authentication, CONNECTION_METHODS, Login, TokenAlgorithm, TokenKey, Tokens, User, Users,
    methods,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::{Table, Value};
use tracing::warn;

/// The authentication flags of a server; `prefix` begins their names.
pub(crate) struct TokenFlags {
    prefix: &'static str,
    enabled: bool,
    credentials_file: Option<PathBuf>,
    public_key_file: Option<PathBuf>,
    algorithm: TokenAlgorithm,
    open_methods: Vec<String>,
}

macro_rules! from_flags {
    ($($flags:ty: $prefix:literal)*) => {$(
        impl From<&$flags> for TokenFlags {
            fn from(flags: &$flags) -> Self {
                Self {
                    prefix: $prefix,
                    enabled: flags.enabled == Some(true),
                    credentials_file: flags.credentials_file.clone(),
                    public_key_file: flags.public_key_file.clone(),
                    algorithm: flags.algorithm,
                    open_methods: flags.open_methods.clone(),
                }
            }
        }
    )*};
}

from_flags! { HttpTokenFlags: "--rpc-http" SocketTokenFlags: "--rpc-ws" }

impl TokenFlags {
    /// What callers must present.
    ///
    /// # Errors
    /// A flag or a file that is wrong, by name.
    pub(super) fn authentication(&self) -> Result<Authentication> {
        let prefix = self.prefix;
        let is_configured = self.credentials_file.is_some() || self.public_key_file.is_some();
        if !self.enabled {
            if is_configured || !self.open_methods.is_empty() {
                warn!("{prefix}-authentication-enabled is missing: no token is asked for");
            }
            return Ok(Authentication::None);
        }
        let is_known = |name: &str| {
            methods().any(|method| method.name == name)
                || CONNECTION_METHODS.iter().any(|(known, _)| *known == name)
        };
        if let Some(unknown) = self.open_methods.iter().find(|name| !is_known(name)) {
            return Err(eyre!(
                "there is no method {unknown}, which {prefix}-api-methods-no-auth names"
            ));
        }
        let open = self.open_methods.iter().cloned().collect();
        let tokens = match (&self.public_key_file, &self.credentials_file) {
            (Some(path), credentials) => {
                if credentials.is_some() {
                    warn!(
                        "{prefix}-authentication-credentials-file has no effect together with a public key"
                    );
                }
                Tokens::of_others(read_key(path, self.algorithm)?, open)
            }
            (None, Some(path)) => {
                read_users(path)?;
                let path = path.clone();
                let load = move || read_users(&path).map_err(|error| format!("{error:#}"));
                let login = Login::new(load).map_err(|error| eyre!("{error}"))?;
                Tokens::of_users(login, open)
            }
            (None, None) => {
                return Err(eyre!(
                    "{prefix}-authentication-enabled needs {prefix}-authentication-credentials-file \
                     or {prefix}-authentication-jwt-public-key-file"
                ));
            }
        };
        Ok(Authentication::Tokens(Arc::new(tokens)))
    }
}

fn read_key(path: &Path, algorithm: TokenAlgorithm) -> Result<TokenKey> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the public key {}", path.display()))?;
    TokenKey::parse(&text, algorithm)
        .map_err(|error| eyre!("the public key file {} holds {error}", path.display()))
}

/// The users of a credentials file in Besu's format. Groups and roles have no effect, as in Besu.
fn read_users(path: &Path) -> Result<Users> {
    let text = std::fs::read_to_string(path)
        .wrap_err_with(|| format!("can't read the credentials file {}", path.display()))?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        let (path, message) = (path.display(), error.message());
        eyre!("the credentials file {path} is not TOML: line {line}: {message}")
    })?;
    let users = table.get("Users").and_then(Value::as_table);
    let users = users.filter(|users| !users.is_empty()).ok_or_else(|| {
        eyre!(
            "the credentials file {} has no user: write [Users.NAME] with password and permissions",
            path.display()
        )
    })?;
    users
        .iter()
        .map(|(name, value)| {
            let user = read_user(value).wrap_err_with(|| {
                format!("the user {name} in the credentials file {}", path.display())
            })?;
            Ok((name.clone(), user))
        })
        .collect()
}

fn read_user(value: &Value) -> Result<User> {
    let fields = value
        .as_table()
        .ok_or_else(|| eyre!("is no table with password and permissions"))?;
    let known = [
        "password",
        "permissions",
        "groups",
        "roles",
        "privacyPublicKey",
    ];
    if let Some(unknown) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(eyre!(
            "has a field {unknown}; there are {}",
            known.join(", ")
        ));
    }
    let password = fields.get("password").and_then(Value::as_str);
    let password = password.ok_or_else(|| eyre!("has no password"))?;
    let permissions = match fields.get("permissions") {
        Some(value) => read_permissions(value)?,
        None => Vec::new(),
    };
    Ok(User::new(password, permissions)?)
}

fn read_permissions(value: &Value) -> Result<Vec<String>> {
    let items = value
        .as_array()
        .ok_or_else(|| eyre!("has permissions that are no list"))?;
    items
        .iter()
        .map(|item| match item.as_str() {
            Some(text) if text.contains(':') => Ok(text.to_owned()),
            _ => Err(eyre!(
                "has the permission {item:?}: write namespace:method, as in \"eth:blockNumber\", \
                 \"eth:*\" or \"*:*\""
            )),
        })
        .collect()
}
