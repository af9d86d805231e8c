//! Users who log in with a password and get a token.
//!
//! Passwords are stored as bcrypt hashes, which are slow on purpose. One thread of low priority checks them one after
//! the other, and at most 32 logins wait: a client that sends many can delay other logins and nothing else. A check
//! takes the same time whether the user exists or not.

use super::key::{OwnKey, TokenKey};
use crate::json;
use crate::node::now;
use bcrypt::{HashParts, Version};
use data_encoding::BASE64URL_NOPAD;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use tokio::sync::oneshot;

/// How long a token is valid, seconds.
const LIFETIME_SECONDS: u64 = 300;

/// Logins that may wait.
const WAITING: usize = 32;

/// Accepted bcrypt costs. Each step doubles the work: 4 is bcrypt's minimum, 16 takes seconds.
const COSTS: std::ops::RangeInclusive<u32> = 4..=16;

/// The cost of the hashes that this program makes; the same as Besu's.
const OWN_COST: u32 = 10;

/// Bytes of a password that bcrypt uses.
const MAX_BYTES: usize = 72;

/// A user who may log in.
#[derive(Clone)]
pub struct User {
    /// The bcrypt hash of the password.
    hash: String,
    cost: u32,
    permissions: Vec<String>,
}

/// All users, by name.
pub type Users = BTreeMap<String, User>;

/// What is wrong with a password, or with the hash of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// It is empty.
    #[error("the password is empty")]
    Empty,
    /// Longer than what bcrypt uses.
    #[error("the password has {0} bytes, of which bcrypt would see 72: choose a shorter one")]
    TooLong(usize),
    /// Not a bcrypt hash.
    #[error("the password is no bcrypt hash: `niwaki password hash` makes one")]
    NoHash,
    /// Too fast to be safe, or too slow.
    #[error(
        "the password's hash has the cost {0}: 4 to 16 are taken; `niwaki password hash` makes one"
    )]
    Cost(u32),
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// The bcrypt hash of a password, as a file of credentials has it.
///
/// # Errors
/// [`PasswordError`].
pub fn hash_password(password: &str) -> Result<String, PasswordError> {
    match password.len() {
        0 => return Err(PasswordError::Empty),
        length if length > MAX_BYTES => return Err(PasswordError::TooLong(length)),
        _ => {}
    }
    let hash = bcrypt::hash_with_result(password, OWN_COST);
    let hash = hash.map_err(|_| PasswordError::NoRandomness)?;
    Ok(hash.format_for_version(Version::TwoA))
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("permissions", &self.permissions)
            .finish_non_exhaustive()
    }
}

impl User {
    /// A user with the bcrypt hash of a password, and permissions such as `eth:*`.
    ///
    /// # Errors
    /// [`PasswordError`].
    pub fn new(hash: &str, permissions: Vec<String>) -> Result<Self, PasswordError> {
        let parts = HashParts::from_str(hash).map_err(|_| PasswordError::NoHash)?;
        match parts.get_cost() {
            cost if COSTS.contains(&cost) => Ok(Self {
                hash: hash.to_owned(),
                cost,
                permissions,
            }),
            cost => Err(PasswordError::Cost(cost)),
        }
    }
}

/// Checks passwords and issues tokens.
#[derive(Debug)]
pub struct Login {
    key: TokenKey,
    waiting: SyncSender<Attempt>,
}

/// A login that waits.
struct Attempt {
    name: String,
    password: String,
    reply: oneshot::Sender<Option<String>>,
}

/// Too many logins are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

impl Login {
    /// Lets the users of `load` log in; it is called at every attempt, since the file of users may change. Generates a
    /// key for their tokens, which takes some tenths of a second.
    ///
    /// # Errors
    /// If the system gives no random bytes or no thread.
    pub fn new(load: impl Fn() -> Result<Users, String> + Send + 'static) -> Result<Self, String> {
        let own = OwnKey::new()?;
        let key = own.public();
        let (waiting, attempts) = sync_channel(WAITING);
        let spawned = thread::Builder::new()
            .name("rpc-login".to_owned())
            .spawn(move || check_logins(&attempts, &own, load));
        spawned
            .map_err(|error| format!("can't start the thread that checks passwords: {error}"))?;
        Ok(Self { key, waiting })
    }

    /// The key that its tokens are checked with.
    pub(super) const fn key(&self) -> &TokenKey {
        &self.key
    }

    /// A token for the user of this name and password, if there is one.
    pub(crate) async fn token(
        &self,
        name: String,
        password: String,
    ) -> Result<Option<String>, Busy> {
        let (reply, token) = oneshot::channel();
        let attempt = Attempt {
            name,
            password,
            reply,
        };
        self.waiting.try_send(attempt).map_err(|_| Busy)?;
        Ok(token.await.unwrap_or_default())
    }
}

fn check_logins(
    attempts: &Receiver<Attempt>,
    own: &OwnKey,
    load: impl Fn() -> Result<Users, String>,
) {
    crate::yield_to_blocks();
    for attempt in attempts {
        if attempt.reply.is_closed() {
            continue; // The client has gone.
        }
        let users = load().unwrap_or_else(|error| {
            tracing::error!(%error, "No user can log in: the file of users can't be read");
            Users::new()
        });
        let user = find(&users, &attempt.name, &attempt.password);
        let token = user.and_then(|user| token(own, &attempt.name, user, now()));
        let _ = attempt.reply.send(token);
    }
}

/// The user of this name, if the password is right. The work is the same for every name.
fn find<'a>(users: &'a Users, name: &str, password: &str) -> Option<&'a User> {
    let user = users.get(name);
    let is_right = user.is_some_and(|user| bcrypt::verify(password, &user.hash).unwrap_or(false));
    for cost in dummy_costs(users, name) {
        let hash = bcrypt::hash_with_salt(password, cost, [0; 16]);
        let _ = std::hint::black_box(hash);
    }
    user.filter(|_| is_right)
}

/// The costs of dummy hashes that bring every check to the work of the costliest hash:
/// 2^most = 2^cost + (2^cost + .. + 2^(most - 1)).
fn dummy_costs(users: &Users, name: &str) -> std::ops::Range<u32> {
    let costs = users.values().map(|user| user.cost);
    let most = costs.max().unwrap_or(OWN_COST);
    match users.get(name) {
        Some(user) => user.cost..most,
        None => most..most + 1,
    }
}

/// A token with name and permissions, valid for five minutes from `now`.
fn token(own: &OwnKey, name: &str, user: &User, now: u64) -> Option<String> {
    let mut claims = b"{\"permissions\":[".to_vec();
    for (index, permission) in user.permissions.iter().enumerate() {
        if index > 0 {
            claims.push(b',');
        }
        json::string(&mut claims, permission);
    }
    claims.extend_from_slice(b"],\"username\":");
    json::string(&mut claims, name);
    let expires = now + LIFETIME_SECONDS;
    claims.extend_from_slice(format!(",\"iat\":{now},\"exp\":{expires}}}").as_bytes());

    let head = BASE64URL_NOPAD.encode(b"{\"typ\":\"JWT\",\"alg\":\"RS256\"}");
    let signed = format!("{head}.{}", BASE64URL_NOPAD.encode(&claims));
    let signature = own.sign(signed.as_bytes())?;
    Some(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tokens::{TokenError, Tokens};
    use std::collections::BTreeSet;
    use std::sync::Arc;

    fn user(password: &str, cost: u32) -> User {
        let hash = bcrypt::hash_with_salt(password, cost, [7; 16]).unwrap();
        User::new(&hash.to_string(), vec!["eth:*".to_owned()]).unwrap()
    }

    fn users() -> Users {
        [("low", 4), ("high", 9)]
            .map(|(name, cost)| (name.to_owned(), user(&format!("{name}-password"), cost)))
            .into()
    }

    #[test]
    fn only_the_users_own_password_is_accepted() {
        let users = users();
        for name in ["low", "high"] {
            assert!(find(&users, name, &format!("{name}-password")).is_some());
            for wrong in ["", "password", "low-password ", "high-passwor"] {
                assert!(find(&users, name, wrong).is_none(), "{name} {wrong}");
            }
        }
        for name in ["", "unknown", "LOW"] {
            assert!(find(&users, name, "low-password").is_none(), "{name}");
        }
        assert!(find(&Users::new(), "low", "low-password").is_none());
    }

    #[test]
    fn a_check_takes_the_same_work_for_unknown_users() {
        for users in [users(), Users::new()] {
            let work = |name: &str| {
                let own = users.get(name).map(|user| user.cost);
                let costs = own.into_iter().chain(dummy_costs(&users, name));
                costs.map(|cost| 1u64 << cost).sum::<u64>()
            };
            let most = if users.is_empty() { OWN_COST } else { 9 };
            for name in ["low", "high", "unknown"] {
                assert_eq!(work(name), 1 << most, "{name}");
            }
        }
    }

    #[test]
    fn hashes_of_besu_are_read_and_what_is_no_hash_is_refused() {
        for prefix in ["$2a$", "$2b$", "$2y$"] {
            let hash = format!("{prefix}10$l3GA7K8g6rJ/Yv.YFSygCuI9byngpEzxgWS9qEg5emYDZomQW7fGC");
            assert!(User::new(&hash, Vec::new()).is_ok(), "{hash}");
        }
        for text in [
            "",
            "pegasys",
            "$2a$10$short",
            "$9z$10$l3GA7K8g6rJ/Yv.YFSygCuI9byngpEzxgWS9qEg5emYDZomQW7fGC",
        ] {
            let error = User::new(text, Vec::new()).unwrap_err();
            assert_eq!(error, PasswordError::NoHash, "{text}");
        }
        let slow = "$2a$17$l3GA7K8g6rJ/Yv.YFSygCuI9byngpEzxgWS9qEg5emYDZomQW7fGC";
        assert_eq!(
            User::new(slow, Vec::new()).unwrap_err(),
            PasswordError::Cost(17)
        );
    }

    #[test]
    fn a_password_is_hashed_with_another_salt_each_time() {
        let (one, two) = (
            hash_password("secret").unwrap(),
            hash_password("secret").unwrap(),
        );
        assert!(one.starts_with("$2a$10$") && one != two, "{one} {two}");
        for hash in [one, two] {
            assert!(bcrypt::verify("secret", &hash).unwrap());
        }
        assert_eq!(hash_password(""), Err(PasswordError::Empty));
        assert!(hash_password(&"x".repeat(72)).is_ok());
        let long = hash_password(&"x".repeat(73));
        assert_eq!(long, Err(PasswordError::TooLong(73)));
    }

    #[tokio::test]
    async fn a_login_returns_a_token_with_the_users_permissions() {
        let login = Login::new(|| Ok(users())).unwrap();
        let tokens = Arc::new(Tokens::of_users(login, BTreeSet::new()));
        let login = tokens.login().unwrap();
        let attempt =
            |name: &str, password: &str| login.token(name.to_owned(), password.to_owned());
        assert_eq!(attempt("low", "wrong").await, Ok(None));
        assert_eq!(attempt("unknown", "low-password").await, Ok(None));
        let token = attempt("low", "low-password").await.unwrap().unwrap();
        let caller = tokens.caller(Some(&format!("Bearer {token}"))).unwrap();
        assert!(caller.may("eth_blockNumber") && !caller.may("net_version"));
        let claims = BASE64URL_NOPAD
            .decode(token.split('.').nth(1).unwrap().as_bytes())
            .unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["username"], "low");
        assert_eq!(claims["permissions"][0], "eth:*");
        let lifetime = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
        assert_eq!(lifetime, 300);

        let other = Login::new(|| Ok(users())).unwrap();
        let other = Arc::new(Tokens::of_users(other, BTreeSet::new()));
        let error = other.caller(Some(&format!("Bearer {token}"))).unwrap_err();
        assert_eq!(error, TokenError::Signature);
    }

    #[tokio::test]
    async fn at_most_32_logins_wait_and_a_broken_file_refuses_all() {
        let (release, held) = sync_channel::<()>(0);
        let held = std::sync::Mutex::new(held);
        let login = Login::new(move || {
            let _ = held.lock().unwrap().recv();
            Err("no such file".to_owned())
        });
        let login = Arc::new(login.unwrap());
        let attempt = || {
            let login = Arc::clone(&login);
            async move {
                login
                    .token("low".to_owned(), "low-password".to_owned())
                    .await
            }
        };
        let waiting: Vec<_> = (0..WAITING + 2).map(|_| tokio::spawn(attempt())).collect();
        let mut refused = 0;
        tokio::task::yield_now().await;
        drop(release);
        for attempt in waiting {
            match attempt.await.unwrap() {
                Ok(token) => assert_eq!(token, None),
                Err(Busy) => refused += 1,
            }
        }
        assert!((1..=2).contains(&refused), "{refused}");
    }
}
