//! Access control of a server: host names, origins, authentication.

use crate::server::jwt::JwtSecret;
use crate::server::tokens::Tokens;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// The host names under which a browser may reach the server: a guard against DNS rebinding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostList {
    /// All.
    Any,
    /// These, without ports.
    These(Vec<String>),
}

impl HostList {
    /// Reads the items of `--host-allowlist`: `*` or `all` is everything.
    pub fn new(items: &[String]) -> Self {
        if items.iter().any(|item| item == "*" || item == "all") {
            return Self::Any;
        }
        Self::These(items.iter().map(|item| item.to_ascii_lowercase()).collect())
    }

    /// Whether a `Host` header is allowed. Browsers always send one, so a request without it is allowed.
    pub fn allows(&self, host: Option<&str>) -> bool {
        let (Self::These(items), Some(host)) = (self, host) else {
            return true;
        };
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        items.iter().any(|item| item.eq_ignore_ascii_case(name))
    }
}

/// The web pages whose scripts may read responses (CORS).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// All.
    Any,
    /// These; none if the list is empty.
    These(Vec<String>),
}

impl Origins {
    /// Reads the items of `--rpc-http-cors-origins`: `*` or `all` is everything, `none` nothing.
    pub fn new(items: &[String]) -> Self {
        if items.iter().any(|item| item == "*" || item == "all") {
            return Self::Any;
        }
        let items = items.iter().filter(|item| *item != "none");
        Self::These(items.cloned().collect())
    }

    /// The value of `Access-Control-Allow-Origin` for `origin`, if it is allowed.
    pub fn allowed(&self, origin: &str) -> Option<String> {
        match self {
            Self::Any => Some("*".to_owned()),
            Self::These(items) => {
                let same = |item: &&String| item.eq_ignore_ascii_case(origin);
                items.iter().find(same).map(|_| origin.to_owned())
            }
        }
    }
}

/// The access control of one server.
#[derive(Clone, Debug)]
pub struct Access {
    /// Host names.
    pub hosts: HostList,
    /// Web pages.
    pub origins: Origins,
    /// How callers authenticate.
    pub authentication: Authentication,
}

impl Access {
    /// Whether a request from a page of `origin` comes from this server's own page, at `host`. A name that any host is allowed
    /// for could be another's, brought here by its DNS, so then only addresses count.
    pub(crate) fn is_own_page(&self, origin: Option<&str>, host: Option<&str>) -> bool {
        let (Some(origin), Some(host)) = (origin, host) else {
            return false;
        };
        let scheme = ["http://", "https://"];
        let mut schemes = scheme.iter().filter_map(|one| origin.strip_prefix(one));
        if !schemes.any(|name| name.eq_ignore_ascii_case(host)) {
            return false;
        }
        match &self.hosts {
            HostList::These(_) => true,
            HostList::Any => host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok(),
        }
    }
}

/// How callers authenticate.
#[derive(Clone, Debug)]
pub enum Authentication {
    /// Not at all.
    None,
    /// With tokens signed by a shared secret: the Engine API's.
    Secret(JwtSecret),
    /// With tokens that carry permissions.
    Tokens(Arc<Tokens>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(items: &[&str]) -> Vec<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn hosts_are_compared_without_port_and_case() {
        let hosts = HostList::new(&list(&["localhost", "127.0.0.1", "[::1]"]));
        for host in ["localhost", "LocalHost:8545", "127.0.0.1:80", "[::1]:8545"] {
            assert!(hosts.allows(Some(host)), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8545", ""] {
            assert!(!hosts.allows(Some(host)), "{host}");
        }
        assert!(hosts.allows(None));
        assert!(HostList::new(&list(&["*"])).allows(Some("evil.example")));
        assert!(!HostList::new(&[]).allows(Some("localhost")));
    }

    #[test]
    fn the_own_page_has_the_origin_of_its_host_and_an_address_where_any_name_is_allowed() {
        let access = |hosts: &[&str]| Access {
            hosts: HostList::new(&list(hosts)),
            origins: Origins::new(&[]),
            authentication: Authentication::None,
        };
        let is_own =
            |hosts: &[&str], origin, host| access(hosts).is_own_page(Some(origin), Some(host));
        let named = ["localhost", "node.example"];
        assert!(is_own(&named, "http://localhost:8545", "localhost:8545"));
        assert!(is_own(&named, "https://node.example", "node.example"));
        assert!(!is_own(&named, "http://localhost:3000", "localhost:8545"));
        assert!(!is_own(&named, "null", "localhost:8545"));
        assert!(!is_own(&["*"], "http://evil.example", "evil.example"));
        assert!(is_own(&["*"], "http://10.0.0.1:8545", "10.0.0.1:8545"));
        assert!(!access(&named).is_own_page(None, Some("localhost:8545")));
    }

    #[test]
    fn origins_are_named_all_or_none() {
        let origins = Origins::new(&list(&["https://a.example"]));
        assert_eq!(
            origins.allowed("https://a.example"),
            Some("https://a.example".to_owned())
        );
        assert_eq!(origins.allowed("https://b.example"), None);
        assert_eq!(Origins::new(&list(&["none"])).allowed("x"), None);
        assert_eq!(
            Origins::new(&list(&["*"])).allowed("x"),
            Some("*".to_owned())
        );
    }
}
