//! Commands for networks of validators, as Besu has them.

use clap::{Args, Subcommand, ValueEnum};
use niwaki_rules::BftProtocol;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum OperatorCommand {
    /// Make the keys of validators and a genesis file with their addresses in its extra data.
    GenerateBlockchainConfig(GenerateOptions),
}

#[derive(Debug, Args)]
pub(crate) struct GenerateOptions {
    /// JSON: "genesis", the genesis file without extra data, and "blockchain" with "nodes", either {"generate": true,
    /// "count": N} or {"keys": ["0x<public key>", ...]}.
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: PathBuf,
    /// Folder for all that is made; must not exist or be empty.
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,
    /// Name of the genesis file in it.
    #[arg(long, value_name = "NAME", default_value = "genesis.json")]
    pub(crate) genesis_file_name: String,
    /// Name of a private key, in keys/ADDRESS.
    #[arg(long, value_name = "NAME", default_value = "key.priv")]
    pub(crate) private_key_file_name: String,
    /// Name of a public key, in keys/ADDRESS.
    #[arg(long, value_name = "NAME", default_value = "key.pub")]
    pub(crate) public_key_file_name: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RlpCommand {
    /// Encode a JSON array of addresses as the extra data of a genesis block.
    Encode(RlpOptions),
    /// Print the validators in extra data.
    Decode(RlpOptions),
}

#[derive(Debug, Args)]
pub(crate) struct RlpOptions {
    /// What it is.
    #[arg(long = "type", value_enum, value_name = "TYPE", ignore_case = true, default_value_t = ExtraDataType::IbftExtraData)]
    pub(crate) kind: ExtraDataType,
    /// File to read [default: standard input].
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// File to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ExtraDataType {
    #[value(name = "IBFT_EXTRA_DATA")]
    IbftExtraData,
    #[value(name = "QBFT_EXTRA_DATA")]
    QbftExtraData,
}

impl From<ExtraDataType> for BftProtocol {
    fn from(kind: ExtraDataType) -> Self {
        match kind {
            ExtraDataType::IbftExtraData => Self::Ibft2,
            ExtraDataType::QbftExtraData => Self::Qbft,
        }
    }
}
