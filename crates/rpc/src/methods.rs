//! Every method this server knows: one row each.

use crate::{Backend, Params, RpcError};

/// What a method is called with, and where it writes its result.
pub(crate) type Handler = fn(&Backend, &Params<'_>, &mut Vec<u8>) -> Result<(), RpcError>;

/// What a call costs, and so where it runs. Each lane but [`Lane::Inline`] has workers and a queue
/// of its own, so that what is slow never delays what is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Microseconds: answered by the thread that read it.
    Inline,
    /// Runs code, or reads many rows; most are short.
    Call,
    /// Reads or runs many blocks: logs, traces.
    Heavy,
    /// Changes the chain: one at a time, in the order of arrival.
    Engine,
    /// What a consensus client waits for while a block may be executed: payloads, blobs.
    Payload,
    /// Minutes of the disk's time: backups.
    Long,
}

impl Lane {
    /// Every lane that has a queue.
    pub const QUEUED: [Self; 5] = [
        Self::Call,
        Self::Heavy,
        Self::Engine,
        Self::Payload,
        Self::Long,
    ];
}

/// One method.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its name, namespace first.
    pub name: &'static str,
    /// Where it runs.
    pub lane: Lane,
    /// Which parameters of a heavy one make it a short call.
    pub is_short: Option<fn(&str) -> bool>,
    /// What it does.
    pub run: Handler,
}

impl Method {
    /// The part of the name before the first underscore.
    pub fn namespace(&self) -> &'static str {
        self.name.split('_').next().unwrap_or(self.name)
    }

    /// Where a call with these parameters runs.
    pub(crate) fn lane_of(&self, params: Option<&str>) -> Lane {
        match (self.is_short, params) {
            (Some(is_short), Some(params)) if is_short(params) => Lane::Call,
            _ => self.lane,
        }
    }

    /// The same one, as a short call where `is_short` says so of its parameters.
    pub(crate) const fn short_if(mut self, is_short: fn(&str) -> bool) -> Self {
        self.is_short = Some(is_short);
        self
    }
}

/// A row.
pub(crate) const fn row(name: &'static str, lane: Lane, run: Handler) -> Method {
    Method {
        name,
        lane,
        is_short: None,
        run,
    }
}

/// Every method but those of subscriptions, which belong to a connection.
pub fn all() -> impl Iterator<Item = &'static Method> {
    [
        crate::eth::METHODS,
        crate::engine::METHODS,
        crate::node::METHODS,
        crate::debug::METHODS,
        crate::log_index::METHODS,
        crate::miner::METHODS,
        crate::niwaki::METHODS,
        crate::trace::DEBUG_METHODS,
        crate::trace::TRACE_METHODS,
        crate::txpool::METHODS,
    ]
    .into_iter()
    .flatten()
}

/// The methods that are about a connection, or about the server itself.
pub const OF_CONNECTIONS: [&str; 4] = [
    "eth_subscribe",
    "eth_unsubscribe",
    "rpc.discover",
    "rpc_modules",
];

/// The namespaces that there are.
pub const NAMESPACES: [&str; 11] = [
    "admin", "debug", "engine", "eth", "miner", "net", "niwaki", "testing", "trace", "txpool",
    "web3",
];

/// What a consensus client may ask beside the Engine API.
///
/// Spec: execution-apis `engine/common.md`; Prysm and Lodestar ask for eth_getCode too.
pub const BESIDE_ENGINE: [&str; 9] = [
    "eth_blockNumber",
    "eth_call",
    "eth_chainId",
    "eth_getBlockByHash",
    "eth_getBlockByNumber",
    "eth_getCode",
    "eth_getLogs",
    "eth_sendRawTransaction",
    "eth_syncing",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_method_has_one_row_and_a_known_namespace() {
        let mut seen = BTreeSet::new();
        for method in all() {
            assert!(seen.insert(method.name), "{} twice", method.name);
            assert!(NAMESPACES.contains(&method.namespace()), "{}", method.name);
        }
        // eth_call comes with simulation.
        for name in BESIDE_ENGINE.into_iter().filter(|name| *name != "eth_call") {
            assert!(seen.contains(name), "{name}");
        }
    }

    #[test]
    fn what_changes_the_chain_runs_in_order_and_what_is_waited_for_does_not_queue_behind_it() {
        for method in all().filter(|method| method.namespace() == "engine") {
            let changes = method.name.starts_with("engine_newPayload")
                || method.name.starts_with("engine_forkchoiceUpdated");
            assert_eq!(method.lane == Lane::Engine, changes, "{}", method.name);
        }
    }
}
