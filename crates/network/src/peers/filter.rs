//! Which nodes may be peers at all, as the owner says.

use crate::key::NodeId;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Says whether a node may be a peer: by its key, its address (unspecified behind a name) and its port, if that is known.
type Permits = dyn Fn(&NodeId, IpAddr, Option<u16>) -> bool + Send + Sync;

/// Which nodes may be peers; by default all. It holds for static and trusted nodes too.
#[derive(Clone, Default)]
pub struct NodeFilter(Option<Arc<Permits>>);

impl NodeFilter {
    /// Only those for which `permits` holds. It is asked for each dial and each connection, and must be quick.
    pub fn new(
        permits: impl Fn(&NodeId, IpAddr, Option<u16>) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(permits)))
    }

    pub(crate) fn permits(&self, id: &NodeId, ip: IpAddr, port: Option<u16>) -> bool {
        self.0.as_ref().is_none_or(|permits| permits(id, ip, port))
    }
}

impl fmt::Debug for NodeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeFilter").finish_non_exhaustive()
    }
}
