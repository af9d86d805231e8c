//! callTracer and 4byteTracer: the calls of a transaction as geth nests them.

use crate::json::{Array, Object};
use crate::simulation::revert_reason;
use niwaki_evm::tracers::Call;
use niwaki_evm::{CallKind, Failure};
use niwaki_primitives::hex;

/// Writes a call and its inner calls. The logs of failed calls are left out.
pub(crate) fn write(out: &mut Vec<u8>, call: &Call, is_reverted: bool) {
    let is_reverted = is_reverted || call.failure.is_some();
    let mut object = Object::new(out);
    object.data("from", call.from.as_slice());
    object.number("gas", call.gas);
    object.number("gasUsed", call.gas_used);
    if call.failure.is_none() || !call.kind.creates() {
        object.data("to", call.to.as_slice());
    }
    object.data("input", &call.input);
    end(&mut object, call);
    if !call.calls.is_empty() {
        let mut calls = object.array("calls");
        for inner in &call.calls {
            write(calls.item(), inner, is_reverted);
        }
    }
    if !is_reverted && !call.logs.is_empty() {
        logs(&mut object.array("logs"), call);
    }
    if call.kind != CallKind::StaticCall {
        object.quantity("value", &call.value);
    }
    object.string("type", call.kind.mnemonic());
}

/// Writes output, error and revert reason. Of the failures only REVERT has output.
fn end(object: &mut Object<'_>, call: &Call) {
    let shows = matches!(call.failure, None | Some(Failure::Revert));
    if shows && !call.output.is_empty() {
        object.data("output", &call.output);
    }
    let Some(failure) = call.failure else { return };
    object.string("error", &failure.to_string());
    if let Some(reason) = revert_reason(&call.output).filter(|_| shows) {
        object.string("revertReason", &reason);
    }
}

fn logs(list: &mut Array<'_>, call: &Call) {
    for each in &call.logs {
        let mut object = list.object();
        object.data("address", each.log.address.as_slice());
        object.number("index", each.index as u64);
        object.data_list("topics", each.log.data.topics());
        object.data("data", &each.log.data.data);
        object.number("position", each.position as u64);
    }
}

/// Writes how often each selector was called, by size of its call data (4byteTracer).
pub(crate) fn write_selectors(out: &mut Vec<u8>, root: &Call) {
    let mut object = Object::new(out);
    for ((selector, bytes), number) in root.selectors() {
        let name = format!("{}-{bytes}", hex::encode_prefixed(selector));
        object.decimal(&name, number);
    }
}
