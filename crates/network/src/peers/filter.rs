//! Which nodes may be peers at all, as the owner says.

use crate::key::NodeId;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Its key.
    pub id: NodeId,
    /// Its address; unspecified behind a name.
    pub ip: IpAddr,
    /// The port for connections to it: the one that is dialled, or what its Hello says; 0 if that says nothing.
    pub port: u16,
    /// Whether this node dials it.
    pub is_dialled: bool,
}

type Permits = dyn Fn(&Remote) -> bool + Send + Sync;

/// Which nodes may be peers; by default all. It holds for static and trusted nodes too.
#[derive(Clone, Default)]
pub struct NodeFilter(Option<Arc<Permits>>);

impl NodeFilter {
    /// Only those for which `permits` holds. It is asked for each dial and each connection, and must be quick.
    pub fn new(permits: impl Fn(&Remote) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(permits)))
    }

    pub(crate) fn permits(&self, remote: &Remote) -> bool {
        self.0.as_ref().is_none_or(|permits| permits(remote))
    }
}

impl fmt::Debug for NodeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeFilter").finish_non_exhaustive()
    }
}
