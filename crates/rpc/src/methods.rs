//! Every JSON-RPC method of this server, one row each.
//!
//! To add a method, add a [`row`] to the table of its namespace (`METHODS` in `eth/mod.rs`, `engine/mod.rs`, ...) and
//! write its handler. The row is the only entry: dispatch, lanes, `rpc.discover` and `rpc_modules` read it.
//!
//! ```text
//! row("eth_getCode", "address block?", Lane::Inline, state::code),
//! //   name          parameters        who runs it   handler
//! ```

use crate::{Backend, Params, RpcResult};

/// The function of a method: it reads its parameters and appends its result to the buffer, as JSON.
pub(crate) type Handler = fn(&Backend, &Params<'_>, &mut Vec<u8>) -> RpcResult;

/// What a call costs, and so who runs it. Each lane but [`Lane::Inline`] has its own workers and queue
/// ([`WorkerPools`](crate::WorkerPools)), so that a slow call never delays a fast one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Microseconds: run by the I/O thread that read the request.
    Inline,
    /// Runs EVM code, or reads many rows; mostly short.
    Call,
    /// Reads or executes many blocks: logs, traces.
    Heavy,
    /// Changes the chain: one call at a time, in the order of arrival.
    Engine,
    /// Payloads and blobs: a consensus client waits for them while a block may be executing.
    Payload,
    /// Minutes of the disk's time: backups.
    Long,
}

impl Lane {
    /// Every lane that has a worker pool.
    pub const POOLED: [Self; 5] = [
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
    /// The names of its parameters in order, separated by blanks; one that may be left out ends with `?`, one that
    /// stands for any number with `*`.
    pub params: &'static str,
    /// Who runs it.
    pub lane: Lane,
    /// Which parameters make a call of a heavy method a short one, for the lane [`Lane::Call`].
    pub is_short: Option<fn(&str) -> bool>,
    /// Its function.
    pub run: Handler,
}

impl Method {
    /// The part of the name before the first underscore.
    pub fn namespace(&self) -> &'static str {
        self.name.split('_').next().unwrap_or(self.name)
    }

    /// The lane of a call with these parameters.
    pub(crate) fn lane_of(&self, params: Option<&str>) -> Lane {
        match (self.is_short, params) {
            (Some(is_short), Some(params)) if is_short(params) => Lane::Call,
            _ => self.lane,
        }
    }

    /// The same row, whose calls are short if `is_short` holds for their parameters.
    pub(crate) const fn short_if(mut self, is_short: fn(&str) -> bool) -> Self {
        self.is_short = Some(is_short);
        self
    }
}

/// A row of a method table: name, parameters ([`Method::params`]), lane and function.
pub(crate) const fn row(
    name: &'static str,
    params: &'static str,
    lane: Lane,
    run: Handler,
) -> Method {
    Method {
        name,
        params,
        lane,
        is_short: None,
        run,
    }
}

/// Every method but those of [`CONNECTION_METHODS`].
pub fn all() -> impl Iterator<Item = &'static Method> {
    [
        crate::dashboard::METHODS,
        crate::eth::METHODS,
        crate::engine::METHODS,
        crate::node::METHODS,
        crate::peers::METHODS,
        crate::permissions::METHODS,
        crate::debug::METHODS,
        crate::log_index::METHODS,
        crate::miner::METHODS,
        crate::niwaki::METHODS,
        crate::sync::METHODS,
        crate::trace::DEBUG_METHODS,
        crate::trace::TRACE_METHODS,
        crate::txpool::METHODS,
        crate::validators::METHODS,
    ]
    .into_iter()
    .flatten()
}

/// The methods about a connection, or about the server itself; sessions and the
/// dispatcher answer them. Name and parameters, as in a [`Method`].
pub const CONNECTION_METHODS: [(&str, &str); 4] = [
    ("eth_subscribe", "subscription details?"),
    ("eth_unsubscribe", "subscriptionId"),
    ("rpc.discover", ""),
    ("rpc_modules", ""),
];

/// Every namespace.
pub const NAMESPACES: [&str; 14] = [
    "admin", "debug", "engine", "eth", "ibft", "miner", "net", "niwaki", "perm", "qbft", "testing",
    "trace", "txpool", "web3",
];

/// The `eth` methods that the Engine API's port offers too.
///
/// Spec: execution-apis `engine/common.md`; Prysm and Lodestar call eth_getCode as well.
pub const ENGINE_EXTRA_METHODS: [&str; 9] = [
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
        for name in ENGINE_EXTRA_METHODS {
            assert!(seen.contains(name), "{name}");
        }
    }

    #[test]
    fn only_new_payload_and_forkchoice_updated_run_in_the_engine_lane() {
        for method in all().filter(|method| method.namespace() == "engine") {
            let changes = method.name.starts_with("engine_newPayload")
                || method.name.starts_with("engine_forkchoiceUpdated");
            assert_eq!(method.lane == Lane::Engine, changes, "{}", method.name);
        }
    }
}
