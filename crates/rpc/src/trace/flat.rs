//! Traces as Parity had them: the calls of a transaction in a row, each with its address in the
//! tree. flatCallTracer and `trace_*` write them.

use crate::json::Object;
use niwaki_chain::BlockId;
use niwaki_evm::tracers::Call;
use niwaki_evm::{CallKind, Failure, Halt};
use niwaki_primitives::{Address, B256};

/// Where a transaction stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TracePlace {
    pub(crate) block: BlockId,
    pub(crate) transaction: B256,
    pub(crate) index: usize,
}

/// How traces are worded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlatOptions {
    /// Failures in Parity's words instead of geth's.
    pub(crate) parity_errors: bool,
    /// Where the transaction stands, if it stands anywhere.
    pub(crate) place: Option<TracePlace>,
}

/// Writes one call.
pub(crate) fn write(out: &mut Vec<u8>, call: &Call, address: &[usize], options: &FlatOptions) {
    let mut object = Object::new(out);
    action(&mut object, call);
    if let Some(place) = &options.place {
        object.data("blockHash", place.block.hash.as_slice());
        object.decimal("blockNumber", place.block.number);
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
    let mut place = object.array("traceAddress");
    for index in address {
        place.item().extend_from_slice(index.to_string().as_bytes());
    }
    drop(place);
    if let Some(place) = &options.place {
        object.data("transactionHash", place.transaction.as_slice());
        object.decimal("transactionPosition", place.index as u64);
    }
    object.string("type", type_of(call));
}

/// The word for what a call is.
pub(crate) fn type_of(call: &Call) -> &'static str {
    match call.kind {
        CallKind::Create | CallKind::Create2 => "create",
        CallKind::SelfDestruct => "suicide",
        _ => "call",
    }
}

/// The two accounts that a search can ask for: who acted, and upon whom.
pub(crate) fn parties(call: &Call) -> (Address, Address) {
    (call.from, call.to)
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

/// Of a failure only REVERT leaves something to show.
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
        Failure::Halt(Halt::OutOfGas | Halt::CodeTooLong) => "Out of gas",
        Failure::Halt(Halt::InvalidJump) => "Bad jump destination",
        Failure::Halt(Halt::UndefinedOpcode(_)) => "Bad instruction",
        Failure::Halt(Halt::ReturnDataOutOfBounds) => "Out of bounds",
        Failure::Halt(Halt::Precompile) => "Built-in failed",
        other => return other.to_string(),
    }
    .to_owned()
}
