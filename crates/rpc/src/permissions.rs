//! The namespace `perm`: the lists of nodes that may be peers and of accounts that may send transactions. Codes and messages are Besu's.
//!
//! The program sets [`PermissionHooks`] if there are lists. Without them each method says that its list is not enabled.

use crate::methods::{Lane, Method, row};
use crate::params::Params;
use crate::{Backend, RpcError, RpcResult, json};
use std::fmt;

#[rustfmt::skip]
pub(crate) const METHODS: &[Method] = &[
    row("perm_addAccountsToAllowlist", "accounts", Lane::Call, add_accounts),
    row("perm_addNodesToAllowlist", "nodes", Lane::Call, add_nodes),
    row("perm_getAccountsAllowlist", "", Lane::Inline, accounts),
    row("perm_getNodesAllowlist", "", Lane::Inline, nodes),
    row("perm_reloadPermissionsFromFile", "", Lane::Call, reload),
    row("perm_removeAccountsFromAllowlist", "accounts", Lane::Call, remove_accounts),
    row("perm_removeNodesFromAllowlist", "nodes", Lane::Call, remove_nodes),
];

/// What happens to a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListChange {
    /// The entries are added.
    Add,
    /// They are removed.
    Remove,
}

/// Changes a list, in its file too; the error is what the caller gets.
pub type ChangeList = Box<dyn Fn(ListChange, &[String]) -> Result<(), String> + Send + Sync>;

/// A list as the methods see it. They call the functions from worker threads.
pub struct ListHooks {
    /// Its entries.
    pub entries: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Changes it.
    pub change: ChangeList,
}

/// The lists, those that are enabled.
pub struct PermissionHooks {
    /// The accounts that may send transactions.
    pub accounts: Option<ListHooks>,
    /// The nodes that may be peers.
    pub nodes: Option<ListHooks>,
    /// Reads the files again; the error is for the log.
    pub reload: Box<dyn Fn() -> Result<(), String> + Send + Sync>,
}

impl fmt::Debug for PermissionHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermissionHooks").finish_non_exhaustive()
    }
}

const RELOAD_FAILED: &str = "Error reloading permissions file. Please use perm_getAccountsAllowlist and perm_getNodesAllowlist to review the \
                             current state of the allowlists";

fn account_list(backend: &Backend) -> Result<&ListHooks, RpcError> {
    let hooks = backend.operator().permissions();
    let list = hooks.and_then(|hooks| hooks.accounts.as_ref());
    list.ok_or_else(|| RpcError::server("Account allowlist has not been enabled"))
}

fn node_list(backend: &Backend) -> Result<&ListHooks, RpcError> {
    let hooks = backend.operator().permissions();
    let list = hooks.and_then(|hooks| hooks.nodes.as_ref());
    list.ok_or_else(|| RpcError::server("Node allowlist has not been enabled"))
}

fn write_entries(list: &ListHooks, out: &mut Vec<u8>) -> RpcResult {
    let mut array = json::Array::new(out);
    for entry in (list.entries)() {
        json::string(array.item(), &entry);
    }
    Ok(())
}

fn change(
    list: &ListHooks,
    change: ListChange,
    params: &Params<'_>,
    what: &str,
    out: &mut Vec<u8>,
) -> RpcResult {
    let entries: Result<Vec<String>, RpcError> = params.required(0);
    let entries =
        entries.map_err(|_| RpcError::invalid_params(format!("Invalid {what} params")))?;
    (list.change)(change, &entries).map_err(RpcError::server)?;
    json::string(out, "Success");
    Ok(())
}

fn accounts(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    write_entries(account_list(backend)?, out)
}

fn nodes(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    write_entries(node_list(backend)?, out)
}

fn add_accounts(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let list = account_list(backend)?;
    change(list, ListChange::Add, params, "account", out)
}

fn remove_accounts(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let list = account_list(backend)?;
    change(list, ListChange::Remove, params, "account", out)
}

fn add_nodes(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    change(node_list(backend)?, ListChange::Add, params, "node", out)
}

fn remove_nodes(backend: &Backend, params: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    change(node_list(backend)?, ListChange::Remove, params, "node", out)
}

fn reload(backend: &Backend, _: &Params<'_>, out: &mut Vec<u8>) -> RpcResult {
    let Some(hooks) = backend.operator().permissions() else {
        return Err(RpcError::server(
            "Node/Account allowlist has not been enabled",
        ));
    };
    if let Err(reason) = (hooks.reload)() {
        tracing::warn!("The permissions are as they were: {reason}");
        return Err(RpcError::server(RELOAD_FAILED));
    }
    json::string(out, "Success");
    Ok(())
}
