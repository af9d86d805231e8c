//! Flags of validators.

use clap::{Args, ValueEnum};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Validators")]
pub(crate) struct BftFlags {
    /// Longest timeout of a round, seconds; timeouts double from the one of the genesis file up to this.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) bft_round_timeout_max: u64,
    /// What the records of what this validator has signed survive: a power cut (SYNC), or the end of the process alone (ASYNC), which saves a
    /// wait for the disk before each message.
    #[arg(
        long,
        value_enum,
        value_name = "SYNC",
        ignore_case = true,
        default_value_t
    )]
    pub(crate) bft_vote_journal: VoteJournalFlag,
    /// Sign although the records of what this validator has signed are missing. Only right for a new validator, or
    /// if all validators stand still.
    #[arg(long)]
    pub(crate) bft_accept_missing_journal: bool,
    /// Write messages without a place for an access list, as Besu before 26.1 and GoQuorum do.
    #[arg(long = "Xbft-legacy-protocol-encoding", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) bft_legacy_protocol_encoding: Option<bool>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
#[value(rename_all = "UPPER")]
pub(crate) enum VoteJournalFlag {
    #[default]
    Sync,
    Async,
}
