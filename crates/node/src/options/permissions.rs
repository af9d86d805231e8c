//! Flags of permissions.

use clap::Args;
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
    /// Only the nodes of a list may be peers.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) permissions_nodes_config_file_enabled: Option<bool>,
    /// The file with `nodes-allowlist = ["enode://.."]` [default: permissions_config.toml in the data path].
    #[arg(long, value_name = "FILE")]
    pub(crate) permissions_nodes_config_file: Option<PathBuf>,
}
