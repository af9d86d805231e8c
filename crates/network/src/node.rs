//! A node as people write it: `enode://<128 hex digits>@host:port?discport=N`. In goes text, out come an id, a host and two ports.
//!
//! Names are not resolved here: an address behind a name may change, so that the dialling task resolves it each time.

use crate::key::NodeId;
use crate::record::Record;
use niwaki_primitives::{FixedBytes, hex};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Most bytes of a host name, as DNS has it.
const MAX_NAME_BYTES: usize = 253;

/// Most characters of a refused input that its error repeats.
const MAX_QUOTED_CHARS: usize = 160;

/// Where a node is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A DNS name, in lower case.
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(ip)) => ip.fmt(f),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A node: its key, its host and its ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node {
    /// Its public key.
    pub id: NodeId,
    /// Where it is.
    pub host: Host,
    /// The port for connections; 0 if it takes none.
    pub tcp: u16,
    /// The port for discovery; 0 if it takes no part in it.
    pub udp: u16,
}

/// Why a text names no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{input:?} names no node: {reason}")]
pub struct NodeError {
    /// The text, cut to 160 characters.
    pub input: String,
    /// What is wrong with it, and how it should be.
    pub reason: String,
}

impl Node {
    /// A node at an address.
    pub fn at(id: NodeId, ip: IpAddr, tcp: u16, udp: u16) -> Self {
        let host = Host::Ip(ip);
        Self { id, host, tcp, udp }
    }

    /// Where discovery reaches it; `None` if its host is a name, or if it takes no part.
    pub fn udp_address(&self) -> Option<SocketAddr> {
        self.address(self.udp)
    }

    /// Where connections reach it; `None` if its host is a name, or if it takes none.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.address(self.tcp)
    }

    fn address(&self, port: u16) -> Option<SocketAddr> {
        match self.host {
            Host::Ip(ip) if port != 0 => Some(SocketAddr::new(ip, port)),
            _ => None,
        }
    }

    fn parse_enode(rest: &str) -> Result<Self, String> {
        let (id, address) = rest
            .split_once('@')
            .ok_or("after the id there must be @host:port")?;
        let id = parse_id(id)?;
        let (address, query) = match address.split_once('?') {
            Some((address, query)) => (address, Some(query)),
            None => (address, None),
        };
        let address = address.strip_suffix('/').unwrap_or(address);
        let (host, port) = address
            .rsplit_once(':')
            .ok_or("after the host there must be :port")?;
        let host = parse_host(host)?;
        let tcp = parse_port("port", port)?;
        let udp = match query {
            None => tcp,
            Some(query) => {
                let port = query.strip_prefix("discport=").ok_or_else(|| {
                    format!("after ? there must be discport=N, there is {query:?}")
                })?;
                parse_port("discovery port", port)?
            }
        };
        Ok(Self { id, host, tcp, udp })
    }
}

fn parse_id(text: &str) -> Result<NodeId, String> {
    let bytes: Option<[u8; 64]> = match text.len() {
        128 => hex::decode(text)
            .ok()
            .and_then(|bytes| bytes.try_into().ok()),
        _ => None,
    };
    let bytes = bytes.ok_or_else(|| {
        let got = text.chars().count();
        format!("the id must be 128 hex digits without 0x, there are {got} characters")
    })?;
    let id = NodeId(FixedBytes::new(bytes));
    match id.is_on_curve() {
        true => Ok(id),
        false => Err("the id is no public key: it is not a point of secp256k1".into()),
    }
}

fn parse_host(text: &str) -> Result<Host, String> {
    if let Some(inner) = text.strip_prefix('[') {
        let ip = inner.strip_suffix(']').map(Ipv6Addr::from_str);
        return match ip {
            Some(Ok(ip)) => Ok(Host::Ip(IpAddr::V6(ip))),
            _ => Err(format!("{text:?} is no IPv6 address in brackets")),
        };
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return match ip {
            IpAddr::V4(_) => Ok(Host::Ip(ip)),
            IpAddr::V6(_) => Err(format!(
                "the IPv6 address must be in brackets: [{text}]:port"
            )),
        };
    }
    match is_name(text) {
        true => Ok(Host::Name(text.to_ascii_lowercase())),
        false => Err(format!("the host {text:?} is no address and no DNS name")),
    }
}

/// Whether DNS could know this name. A last label of digits is refused: that is an address with a slip.
pub(crate) fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    text.len() <= MAX_NAME_BYTES
        && text.split('.').all(is_label)
        && !last.bytes().all(|byte| byte.is_ascii_digit())
}

fn parse_port(what: &str, text: &str) -> Result<u16, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| text.parse().ok())
        .flatten()
        .ok_or_else(|| format!("the {what} {text:?} is no number from 0 to 65535"))
}

impl FromStr for NodeId {
    type Err = NodeError;

    /// Reads 128 hex digits, with or without `0x`.
    fn from_str(text: &str) -> Result<Self, NodeError> {
        let trimmed = text.trim();
        parse_id(trimmed.strip_prefix("0x").unwrap_or(trimmed)).map_err(|reason| NodeError {
            input: trimmed.chars().take(MAX_QUOTED_CHARS).collect(),
            reason,
        })
    }
}

impl FromStr for Node {
    type Err = NodeError;

    /// Reads `enode://` and, with the address that is in it, `enr:`.
    fn from_str(text: &str) -> Result<Self, NodeError> {
        let trimmed = text.trim();
        let node = if let Some(rest) = trimmed.strip_prefix("enode://") {
            Self::parse_enode(rest)
        } else if trimmed.starts_with("enr:") {
            let record = trimmed.parse::<Record>().map_err(|error| error.to_string());
            let without = "the record has no address, so that it can't be dialled";
            record.and_then(|record| record.node().ok_or_else(|| without.into()))
        } else {
            Err("it must begin with enode:// or enr:".into())
        };
        node.map_err(|reason| NodeError {
            input: trimmed.chars().take(MAX_QUOTED_CHARS).collect(),
            reason,
        })
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "enode://{}@{}:{}", self.id, self.host, self.tcp)?;
        match self.udp == self.tcp {
            true => Ok(()),
            false => write!(f, "?discport={}", self.udp),
        }
    }
}

#[cfg(test)]
mod tests;
