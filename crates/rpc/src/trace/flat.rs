//! Parity's flat traces: the calls of a transaction in a list, each with its address in the call tree. flatCallTracer
//! and `trace_*` return them.

use crate::json::Object;
use niwaki_chain::BlockId;
use niwaki_evm::tracers::Call;
use niwaki_evm::{CallKind, Failure, HaltReason};
use niwaki_primitives::B256;

/// The block and index of a traced transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceLocation {
    pub(crate) block: BlockId,
    pub(crate) transaction: B256,
    pub(crate) index: usize,
}

/// How traces are written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlatOptions {
    /// Failures in Parity's words instead of geth's.
    pub(crate) parity_errors: bool,
    /// Where the transaction is, if it is in a block.
    pub(crate) location: Option<TraceLocation>,
}

impl FlatOptions {
    /// Those of `trace_*`.
    pub(crate) const fn parity(location: Option<TraceLocation>) -> Self {
        Self {
            parity_errors: true,
            location,
        }
    }
}

/// Writes one call.
pub(crate) fn write(out: &mut Vec<u8>, call: &Call, address: &[usize], options: &FlatOptions) {
    let mut object = Object::new(out);
    action(&mut object, call);
    if let Some(location) = &options.location {
        object.data("blockHash", location.block.hash.as_slice());
        object.decimal("blockNumber", location.block.number);
    }
    if let Some(failure) = call.failure {
        let words = match options.parity_errors {
            true => parity_words(failure),
            false => failure.to_string(),
        };
        object.string("error", &words);
    }
    result(&mut object, call);
    object.decimal("subtraces", call.calls.len() as u64);
    let mut path = object.array("traceAddress");
    for index in address {
        path.item().extend_from_slice(index.to_string().as_bytes());
    }
    drop(path);
    if let Some(location) = &options.location {
        object.data("transactionHash", location.transaction.as_slice());
        object.decimal("transactionPosition", location.index as u64);
    }
    object.string("type", type_of(call));
}

/// Parity's name for the kind of a call.
pub(crate) fn type_of(call: &Call) -> &'static str {
    match call.kind {
        CallKind::Create | CallKind::Create2 => "create",
        CallKind::SelfDestruct => "suicide",
        _ => "call",
    }
}

fn action(object: &mut Object<'_>, call: &Call) {
    let mut action = object.object("action");
    match call.kind {
        CallKind::SelfDestruct => {
            action.data("address", call.from.as_slice());
            action.quantity("balance", &call.value);
            action.data("refundAddress", call.to.as_slice());
            return;
        }
        CallKind::Create | CallKind::Create2 => {
            action.string("creationMethod", &call.kind.mnemonic().to_lowercase());
            action.data("from", call.from.as_slice());
            action.number("gas", call.gas);
            action.data("init", &call.input);
        }
        _ => {
            action.string("callType", &call.kind.mnemonic().to_lowercase());
            action.data("from", call.from.as_slice());
            action.number("gas", call.gas);
            action.data("input", &call.input);
            action.data("to", call.to.as_slice());
        }
    }
    action.quantity("value", &call.value);
}

/// Writes the result. Of the failures only REVERT has one.
fn result(object: &mut Object<'_>, call: &Call) {
    if call.kind == CallKind::SelfDestruct {
        object.null("result");
        return;
    }
    if !matches!(call.failure, None | Some(Failure::Revert)) {
        return;
    }
    let mut result = object.object("result");
    result.number("gasUsed", call.gas_used);
    if call.kind.creates() {
        if call.failure.is_none() {
            result.data("address", call.to.as_slice());
        }
        result.data("code", &call.output);
    } else {
        result.data("output", &call.output);
    }
}

fn parity_words(failure: Failure) -> String {
    match failure {
        Failure::Revert => "Reverted",
        Failure::StackUnderflow { .. } => "Stack underflow",
        Failure::StackOverflow { .. } => "Out of stack",
        Failure::CodeDeposit => "Out of gas",
        Failure::Halt(HaltReason::OutOfGas | HaltReason::CodeTooLong) => "Out of gas",
        Failure::Halt(HaltReason::InvalidJump) => "Bad jump destination",
        Failure::Halt(HaltReason::UndefinedOpcode(_)) => "Bad instruction",
        Failure::Halt(HaltReason::ReturnDataOutOfBounds) => "Out of bounds",
        Failure::Halt(HaltReason::Precompile) => "Built-in failed",
        other => return other.to_string(),
    }
    .to_owned()
}
