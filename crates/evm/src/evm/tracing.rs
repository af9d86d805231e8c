//! Calls of the tracer where a call begins or ends, and for new logs. A run without a tracer never comes here.

use super::{Evm, FrameResult};
use crate::{
    exit::Exit,
    frame::{CallRequest, Frame},
    tracer::{CallEnd, CallKind, CallStart, Failure, Tracer},
};
use niwaki_primitives::{Address, U256};

impl Evm<'_> {
    /// Depth of the next frame.
    fn next_depth(&self) -> usize {
        self.frames.len()
    }

    #[cold]
    pub(super) fn trace_enter(
        &mut self,
        tracer: &mut (dyn Tracer + '_),
        request: &CallRequest,
        exit: Exit,
    ) {
        let (kind, from) = match self.frames.last() {
            // SAFETY: `ip` is after the opcode that the frame has run.
            Some(frame) => unsafe { (CallKind::of_opcode(*frame.ip.sub(1)), frame.address) },
            None if exit == Exit::Create => (CallKind::Create, request.caller),
            None => (CallKind::Call, request.caller),
        };
        let world = &self.shared().world;
        let is_precompiled = !kind.creates()
            && !request.is_delegated
            && world.precompiled(request.code_account).is_some();
        // SAFETY: the range is in the caller's memory, or in the message.
        let input = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
        let depth = self.next_depth();
        if depth == 0 {
            self.shared().traced_logs = 0;
        }
        tracer.enter(&CallStart {
            kind,
            from,
            to: request.code_address,
            value: request.value,
            input,
            gas: request.gas.unsigned_abs(),
            depth,
            is_precompiled,
        });
    }

    /// The end of a call or creation that needed no frame.
    #[cold]
    pub(super) fn trace_exit(
        &mut self,
        tracer: &mut (dyn Tracer + '_),
        request: &CallRequest,
        ended: &FrameResult,
    ) {
        self.trace_logs(tracer);
        let depth = self.next_depth();
        let is_too_deep = self.is_too_deep();
        let shared = self.shared();
        let failure = match ended.exit {
            // Without a frame, only a refused call and a host's precompiled contract revert.
            Exit::Revert if is_too_deep => Some(Failure::Depth),
            Exit::Revert => {
                let payer = shared.world.load(&request.caller);
                let balance = payer.map_or(U256::MAX, |payer| shared.world.balance(payer));
                Some(if request.transfers && balance < request.value {
                    Failure::Balance
                } else if shared.world.precompiled(request.code_account).is_some() {
                    Failure::Revert
                } else {
                    Failure::Nonce
                })
            }
            Exit::Halt(halt) => Some(Failure::Halt(halt)),
            _ => None,
        };
        tracer.exit(&CallEnd {
            depth,
            output: &shared.return_data,
            gas_used: (request.gas - ended.gas).unsigned_abs(),
            failure,
        });
    }

    #[cold]
    pub(super) fn trace_logs(&mut self, tracer: &mut (dyn Tracer + '_)) {
        let shared = self.shared();
        let logs = shared.world.logs();
        let traced = std::mem::replace(&mut shared.traced_logs, logs.len());
        if let Some(new) = logs.get(traced..).filter(|new| !new.is_empty()) {
            tracer.logs(new);
        }
    }
}

/// A SELFDESTRUCT of `frame`, shown as a call that moves its balance.
#[cold]
pub(super) fn trace_selfdestruct(
    tracer: &mut (dyn Tracer + '_),
    frame: &Frame,
    beneficiary: Address,
    wei: U256,
) {
    let depth = frame.depth + 1;
    tracer.enter(&CallStart {
        kind: CallKind::SelfDestruct,
        from: frame.address,
        to: beneficiary,
        value: wei,
        input: &[],
        gas: 0,
        depth,
        is_precompiled: false,
    });
    tracer.exit(&CallEnd {
        depth,
        output: &[],
        gas_used: 0,
        failure: None,
    });
}
