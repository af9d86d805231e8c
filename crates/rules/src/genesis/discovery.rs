//! Where a genesis file says that the first peers are: Besu's `config.discovery`.
//!
//! ```json
//! "discovery": { "dns": "enrtree://KEY@DOMAIN", "bootnodes": ["enode://.."], "v5bootnodes": ["enr:.."] }
//! ```
//!
//! It is no rule of the chain: it may change freely, and the texts are read by the network of peers.

use super::GenesisError;
use crate::json::Object;

/// The first peers of a chain, as texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstPeers {
    /// Boot nodes, each `enode://` or `enr:`, those of both discoveries; `None` if the file names none.
    pub boot_nodes: Option<Vec<String>>,
    /// The URL of a list in the DNS, `enrtree://`.
    pub dns_list: Option<String>,
}

pub(super) fn parse_first_peers(config: &Object<'_>) -> Result<FirstPeers, GenesisError> {
    let Some(discovery) = config.object("discovery")? else {
        return Ok(FirstPeers::default());
    };
    let v4 = discovery.strings("bootnodes")?;
    let boot_nodes = match (v4, discovery.strings("v5bootnodes")?) {
        (Some(v4), Some(v5)) => Some([v4, v5].concat()),
        (v4, v5) => v4.or(v5),
    };
    Ok(FirstPeers {
        boot_nodes,
        dns_list: discovery.string("dns")?,
    })
}
