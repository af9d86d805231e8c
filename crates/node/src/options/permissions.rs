//! Flags of permissions.

use clap::Args;
use niwaki_primitives::Address;
use std::path::PathBuf;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Permissions")]
pub(crate) struct PermissionFlags {
    /// Only the accounts of a list may send transactions.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) permissions_accounts_config_file_enabled: Option<bool>,
    /// The file with `accounts-allowlist = ["0x.."]` [default: permissions_config.toml in the data path].
    #[arg(long, value_name = "FILE")]
    pub(crate) permissions_accounts_config_file: Option<PathBuf>,
    /// Only transactions that a contract allows may be sent: `transactionAllowed` of its state at the head.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[arg(requires = "permissions_accounts_contract_address")]
    pub(crate) permissions_accounts_contract_enabled: Option<bool>,
    /// The address of that contract.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) permissions_accounts_contract_address: Option<Address>,
    /// Only the nodes of a list may be peers.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) permissions_nodes_config_file_enabled: Option<bool>,
    /// The file with `nodes-allowlist = ["enode://.."]` [default: permissions_config.toml in the data path].
    #[arg(long, value_name = "FILE")]
    pub(crate) permissions_nodes_config_file: Option<PathBuf>,
    /// Only connections that a contract allows may be: `connectionAllowed` of its state at the head.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    #[arg(requires = "permissions_nodes_contract_address")]
    pub(crate) permissions_nodes_contract_enabled: Option<bool>,
    /// The address of that contract.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) permissions_nodes_contract_address: Option<Address>,
    /// Which interface it has: 1 (two nodes with their keys in halves) or 2 (one node, as texts).
    #[arg(long, value_name = "VERSION", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) permissions_nodes_contract_version: u8,
}
