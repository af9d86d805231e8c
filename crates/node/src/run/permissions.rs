//! Which nodes may be peers, and which accounts may send transactions: lists in files of Besu's form, changed by `perm_*`.
//!
//! ```text
//! nodes-allowlist=["enode://.."]        looked at for each connection: a list without a node cuts it
//! accounts-allowlist=["0x.."]           looked at for each transaction that is sent, gossiped or put into a block; never at import
//! ```
//!
//! Contracts may say the same (`contract`); what both must allow is looked at in both. A validator gives no vote to a block with a
//! transaction that the contract does not allow in the state before it.

mod contract;
mod file;

use super::config::PermissionsConfig;
use contract::NodeContract;
pub(super) use contract::{Contracts, End};
use eyre::{Result, eyre};
use file::AllowlistFile;
use metrics::counter;
use niwaki_network::peers::Remote;
use niwaki_network::{Host, Node};
use niwaki_primitives::{Address, TxEnvelope, hex};
use niwaki_rpc::{ListChange, ListHooks, PermissionHooks};
use std::fmt::Display;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

const ACCOUNTS: &str = "accounts-allowlist";
const NODES: &str = "nodes-allowlist";

/// An account of a list, written as Besu does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AllowedAccount(Address);

impl FromStr for AllowedAccount {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_whole = text.len() == 42 && text.starts_with("0x");
        let address = is_whole.then(|| text.parse().ok()).flatten();
        address.map(Self).ok_or(())
    }
}

impl Display for AllowedAccount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode_prefixed(self.0))
    }
}

/// A node of a list. The port of discovery does not count.
#[derive(Clone, Debug)]
struct AllowedNode(Node);

impl PartialEq for AllowedNode {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (&self.0, &other.0);
        (own.id, &own.host, own.tcp) == (other.id, &other.host, other.tcp)
    }
}

impl FromStr for AllowedNode {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        text.parse().map(Self).map_err(|_| ())
    }
}

impl Display for AllowedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl AllowedNode {
    /// Whether it is this one. The port counts of nodes that are dialled: others need not say theirs. Where a name leads is not looked at.
    fn is(&self, remote: &Remote) -> bool {
        let has_ip = match &self.0.host {
            Host::Ip(own) => *own == remote.ip || remote.ip.is_unspecified(),
            Host::Name(_) => true,
        };
        let has_port = !remote.is_dialled || self.0.tcp == remote.port;
        self.0.id == remote.id && has_ip && has_port
    }
}

/// A list and its file.
struct Allowlist<E> {
    file: AllowlistFile,
    /// How messages name an entry: `account`, `node`.
    what: &'static str,
    entries: RwLock<Vec<E>>,
}

impl<E: FromStr + Display + PartialEq + Clone> Allowlist<E> {
    fn read(file: AllowlistFile, what: &'static str) -> Result<Self> {
        let entries = RwLock::new(parse_file(&file, what)?);
        Ok(Self {
            file,
            what,
            entries,
        })
    }

    fn any(&self, is_so: impl FnMut(&E) -> bool) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.iter().any(is_so)
    }

    fn entries(&self) -> Vec<E> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.clone()
    }

    fn set(&self, entries: Vec<E>) {
        *self.entries.write().unwrap_or_else(PoisonError::into_inner) = entries;
    }

    fn texts(&self) -> Vec<String> {
        self.entries().iter().map(E::to_string).collect()
    }

    /// Adds or removes entries, all or none; `is_fixed` are those that stay.
    fn change(
        &self,
        change: ListChange,
        texts: &[String],
        is_fixed: impl Fn(&E) -> bool,
    ) -> Result<(), String> {
        let what = self.what;
        if texts.is_empty() {
            return Err(format!("Request contains an empty list of {what}s"));
        }
        let given = texts.iter().map(|text| text.parse::<E>());
        let given: Result<Vec<E>, _> = given.collect();
        let given = given.map_err(|_| format!("Request contains an invalid {what}"))?;
        let is_twice = |(index, entry): (usize, &E)| given[..index].contains(entry);
        if given.iter().enumerate().any(is_twice) {
            return Err(format!("Request contains duplicate {what}s"));
        }
        let before = self.entries();
        let mut after = before.clone();
        match change {
            ListChange::Add if given.iter().any(|entry| before.contains(entry)) => {
                return Err(format!("Cannot add an existing {what} to allowlist"));
            }
            ListChange::Add => after.extend(given),
            ListChange::Remove if given.iter().any(|entry| !before.contains(entry)) => {
                return Err(format!("Cannot remove an absent {what} from allowlist"));
            }
            ListChange::Remove if given.iter().any(is_fixed) => {
                return Err(
                    "Cannot remove a fixed node (bootnode or static node) from allowlist".into(),
                );
            }
            ListChange::Remove => after.retain(|entry| !given.contains(entry)),
        }
        let in_file = parse_file(&self.file, what).map_err(|error| format!("{error:#}"));
        if in_file.as_ref().ok() != Some(&before) {
            return Err(format!(
                "The permissions file {} was changed by another program; nothing was changed: use \
                 perm_reloadPermissionsFromFile first",
                self.file.path.display()
            ));
        }
        let texts: Vec<String> = after.iter().map(E::to_string).collect();
        self.file.write(&texts).map_err(|error| {
            format!("Unable to persist changes to allowlist configuration file. Changes reverted: {error}")
        })?;
        self.set(after);
        Ok(())
    }
}

/// The entries of a file.
fn parse_file<E: FromStr>(file: &AllowlistFile, what: &str) -> Result<Vec<E>> {
    let texts = file.read()?;
    let parse = |text: &String| {
        text.parse::<E>().map_err(|_| {
            eyre!(
                "{}: {} has {text:?}, which is no {what}; correct or remove it",
                file.path.display(),
                file.key
            )
        })
    };
    texts.iter().map(parse).collect()
}

/// The lists and contracts that are enabled.
pub(super) struct Permissions {
    contracts: Contracts,
    accounts: Option<Allowlist<AllowedAccount>>,
    nodes: Option<Allowlist<AllowedNode>>,
    /// This node; `None` if it has no peers.
    own: Option<End>,
    /// Nodes that stay on the list.
    fixed: Vec<Node>,
    /// Held while lists and files change: both lists may be in one file.
    changing: Mutex<()>,
    /// Called after the list of nodes has changed.
    on_nodes: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Permissions {
    /// Reads the files of those lists that are enabled. `fixed` are the operator's boot nodes and static nodes: the list must have them.
    pub(super) fn read(
        config: &PermissionsConfig,
        own: Option<End>,
        fixed: Vec<Node>,
        contracts: Contracts,
    ) -> Result<Option<Arc<Self>>> {
        let open = |path: &Option<_>, key| path.clone().map(|path| AllowlistFile { path, key });
        let accounts = open(&config.accounts, ACCOUNTS);
        let accounts = accounts.map(|file| Allowlist::read(file, "account"));
        let nodes = open(&config.nodes, NODES);
        let nodes = nodes.map(|file| Allowlist::read(file, "node"));
        let permissions = Self {
            contracts,
            accounts: accounts.transpose()?,
            nodes: nodes.transpose()?,
            own,
            fixed,
            changing: Mutex::default(),
            on_nodes: OnceLock::new(),
        };
        if let Some(nodes) = &permissions.nodes {
            permissions.check_fixed(&nodes.entries())?;
        }
        let has_any = permissions.has_accounts() || permissions.has_nodes();
        Ok(has_any.then(|| Arc::new(permissions)))
    }

    pub(super) fn has_accounts(&self) -> bool {
        self.accounts.is_some() || self.contracts.accounts.is_some()
    }

    pub(super) fn has_nodes(&self) -> bool {
        self.nodes.is_some() || self.contracts.nodes.is_some()
    }

    pub(super) fn has_account_contract(&self) -> bool {
        self.contracts.accounts.is_some()
    }

    /// Whether what nodes may be peers can change with each block.
    pub(super) fn follows_head(&self) -> bool {
        self.contracts.nodes.is_some()
    }

    /// Whether it may have changed with the head: not while an old one is caught up with.
    pub(super) fn changes_with_head(&self) -> bool {
        self.contracts
            .nodes
            .as_ref()
            .is_some_and(NodeContract::is_asked)
    }

    /// Whether an account may send a transaction.
    pub(super) fn allows_transaction(&self, sender: &Address, tx: &TxEnvelope) -> bool {
        self.lists_account(sender) && self.contract_allows(sender, tx)
    }

    fn lists_account(&self, address: &Address) -> bool {
        let Some(list) = &self.accounts else {
            return true;
        };
        let is_listed = list.any(|entry| entry.0 == *address);
        count("account_local", is_listed);
        is_listed
    }

    /// Whether the contract allows a transaction in the state of the head; the list is not looked at.
    pub(super) fn contract_allows(&self, sender: &Address, tx: &TxEnvelope) -> bool {
        let contract = self.contracts.accounts.as_ref();
        contract.is_none_or(|contract| contract.allows(sender, tx))
    }

    /// Whether a node may be a peer.
    pub(super) fn allows_node(&self, remote: &Remote) -> bool {
        let is_own = self.own.as_ref().is_some_and(|own| own.id == remote.id);
        let is_listed = self.nodes.as_ref().is_none_or(|list| {
            let is_listed = is_own || list.any(|entry| entry.is(remote));
            count("node_local", is_listed);
            is_listed
        });
        let contract = self.contracts.nodes.as_ref();
        is_listed && contract.is_none_or(|contract| contract.allows(remote))
    }

    /// Calls `listener` after each change of the list of nodes.
    pub(super) fn on_nodes(&self, listener: Box<dyn Fn() + Send + Sync>) {
        let _ = self.on_nodes.set(listener); // The first one wins.
    }

    fn nodes_changed(&self) {
        if let Some(listener) = self.on_nodes.get() {
            listener();
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of nodes must have the fixed ones.
    fn check_fixed(&self, listed: &[AllowedNode]) -> Result<()> {
        let is_absent = |node: &&Node| !listed.contains(&AllowedNode((*node).clone()));
        match self.fixed.iter().find(is_absent) {
            Some(node) => Err(eyre!(
                "{NODES} does not have the boot node or static node {node}: add it, or leave it out of the node's own"
            )),
            None => Ok(()),
        }
    }

    /// Reads both files again: both lists change, or none.
    fn reload(&self) -> Result<()> {
        let changing = self.lock();
        let accounts = match &self.accounts {
            Some(list) => Some((list, parse_file(&list.file, list.what)?)),
            None => None,
        };
        if let Some(list) = &self.nodes {
            let entries = parse_file(&list.file, list.what)?;
            self.check_fixed(&entries)?;
            list.set(entries);
        }
        if let Some((list, entries)) = accounts {
            list.set(entries);
        }
        drop(changing);
        self.nodes_changed();
        Ok(())
    }

    fn change_accounts(&self, change: ListChange, texts: &[String]) -> Result<(), String> {
        let _changing = self.lock();
        match &self.accounts {
            Some(list) => list.change(change, texts, |_| false),
            None => Ok(()),
        }
    }

    fn change_nodes(&self, change: ListChange, texts: &[String]) -> Result<(), String> {
        let is_fixed = |entry: &AllowedNode| {
            let mut fixed = self.fixed.iter();
            fixed.any(|node| AllowedNode(node.clone()) == *entry)
        };
        let Some(list) = &self.nodes else {
            return Ok(());
        };
        let changing = self.lock();
        list.change(change, texts, is_fixed)?;
        drop(changing);
        self.nodes_changed();
        Ok(())
    }

    /// What `perm_*` sees and does.
    pub(super) fn hooks(self: &Arc<Self>) -> PermissionHooks {
        let [accounts, change_accounts, nodes, change_nodes, reload] =
            std::array::from_fn(|_| Arc::clone(self));
        PermissionHooks {
            accounts: self.accounts.is_some().then(|| ListHooks {
                entries: Box::new(move || texts(accounts.accounts.as_ref())),
                change: Box::new(move |change, texts| {
                    change_accounts.change_accounts(change, texts)
                }),
            }),
            nodes: self.nodes.is_some().then(|| ListHooks {
                entries: Box::new(move || texts(nodes.nodes.as_ref())),
                change: Box::new(move |change, texts| change_nodes.change_nodes(change, texts)),
            }),
            reload: Box::new(move || reload.reload().map_err(|error| format!("{error:#}"))),
        }
    }
}

/// Counts a look-up under Besu's names.
fn count(what: &str, is_allowed: bool) {
    let name = format!("besu_permissioning_{what}_check_count");
    let verdict = match is_allowed {
        true => "permitted",
        false => "unpermitted",
    };
    counter!(format!("{name}_total")).increment(1);
    counter!(format!("{name}_{verdict}_total")).increment(1);
}

fn texts<E: FromStr + Display + PartialEq + Clone>(list: Option<&Allowlist<E>>) -> Vec<String> {
    list.map(Allowlist::texts).unwrap_or_default()
}

#[cfg(test)]
mod tests;
