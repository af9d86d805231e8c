//! The trace flags of Besu's evmtool and of go-ethereum's.

use clap::Args;
use niwaki_evm::tracers::{Eip3155Format, Eip3155Options};

/// The flags of a trace; each also as `--flag=false`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Traces")]
pub(crate) struct TraceOptions {
    /// With memory.
    #[arg(long = "trace.memory", visible_alias = "memory", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    memory: Option<bool>,
    /// Without memory, the default.
    #[arg(
        long = "trace.nomemory",
        visible_alias = "nomemory",
        value_name = "BOOL"
    )]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_memory: Option<bool>,
    /// With the stack, the default.
    #[arg(long = "trace.stack", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    stack: Option<bool>,
    /// Without the stack.
    #[arg(long = "trace.nostack", visible_alias = "nostack", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_stack: Option<bool>,
    /// With the return data of the last call.
    #[arg(long = "trace.returndata", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    return_data: Option<bool>,
    /// Without the return data of the last call, the default.
    #[arg(
        long = "trace.noreturndata",
        visible_alias = "noreturndata",
        value_name = "BOOL"
    )]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_return_data: Option<bool>,
    /// With the written slots of the account.
    #[arg(long = "trace.storage", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    storage: Option<bool>,
    /// Without storage, the default.
    #[arg(
        long = "trace.nostorage",
        visible_alias = "nostorage",
        value_name = "BOOL"
    )]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_storage: Option<bool>,
    /// Gas in hex and opcodes as numbers, as in the EIP; the default.
    #[arg(
        long = "trace.eip-3155",
        visible_alias = "eip-3155",
        value_name = "BOOL"
    )]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    strict: Option<bool>,
    /// Gas as numbers and opcodes in hex.
    #[arg(
        long = "trace.noeip-3155",
        visible_alias = "noeip-3155",
        value_name = "BOOL"
    )]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    not_strict: Option<bool>,
    /// Prints the summary without times.
    #[arg(long = "notime", value_name = "BOOL")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    no_time: Option<bool>,
    /// Prints in the format of Besu's tool, traces too. So does each of these flags, an option before the command or
    /// without one, and `state-test` of standard input.
    #[arg(long)]
    besu: bool,
}

impl TraceOptions {
    /// Whether the output is in Besu's format.
    pub(crate) fn is_besu(&self) -> bool {
        let flags = [
            self.memory,
            self.no_memory,
            self.stack,
            self.no_stack,
            self.return_data,
            self.no_return_data,
            self.storage,
            self.no_storage,
            self.strict,
            self.not_strict,
            self.no_time,
        ];
        self.besu || flags.iter().any(Option::is_some)
    }

    /// Whether the summary has times.
    pub(crate) fn with_time(&self) -> bool {
        !self.no_time.unwrap_or(false)
    }

    /// Whether numbers are those of the EIP.
    pub(crate) fn is_strict(&self) -> bool {
        chosen(self.strict, self.not_strict, true)
    }

    /// The options of Besu's format.
    pub(crate) fn options(&self) -> Eip3155Options {
        Eip3155Options {
            memory: chosen(self.memory, self.no_memory, false),
            stack: chosen(self.stack, self.no_stack, true),
            return_data: chosen(self.return_data, self.no_return_data, false),
            storage: chosen(self.storage, self.no_storage, false),
            form: Eip3155Format::Besu {
                strict: self.is_strict(),
            },
        }
    }
}

/// The value of a flag and its negation.
fn chosen(flag: Option<bool>, negated: Option<bool>, default: bool) -> bool {
    flag.or(negated.map(|no| !no)).unwrap_or(default)
}
