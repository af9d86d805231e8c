//! callTracer and 4byteTracer: the calls of a transaction as geth nests them.

use crate::json::{Array, Object};
use crate::simulation::revert_reason;
use niwaki_evm::tracers::Call;
use niwaki_evm::{CallKind, Failure};
use niwaki_primitives::hex;

/// Writes a call with those within it. Logs of calls that failed never came to be.
pub(crate) fn write(out: &mut Vec<u8>, call: &Call, is_undone: bool) {
    let is_undone = is_undone || call.failure.is_some();
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
            write(calls.item(), inner, is_undone);
        }
    }
    if !is_undone && !call.logs.is_empty() {
        logs(&mut object.array("logs"), call);
    }
    if call.kind != CallKind::StaticCall {
        object.quantity("value", &call.value);
    }
    object.string("type", call.kind.mnemonic());
}

/// Output, error and reason. Of a failure only REVERT's data is shown.
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
        let mut topics = object.array("topics");
        for topic in each.log.data.topics() {
            topics.data(topic.as_slice());
        }
        drop(topics);
        object.data("data", &each.log.data.data);
        object.number("position", each.position as u64);
    }
}

/// Writes how often each function was called with how many bytes.
pub(crate) fn write_selectors(out: &mut Vec<u8>, root: &Call) {
    let mut object = Object::new(out);
    for ((selector, bytes), number) in root.selectors() {
        let name = format!("{}-{bytes}", hex::encode_prefixed(selector));
        object.decimal(&name, number);
    }
}
