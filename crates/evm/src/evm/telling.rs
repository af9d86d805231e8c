//! What a tracer is told of calls; never on the way of a run without one.

use super::{Ended, Evm};
use crate::{
    frame::{Exit, Frame, Request},
    tracer::{CallKind, Entered, Failure, Left, Tracer},
};
use niwaki_primitives::{Address, U256};

impl Evm<'_> {
    /// Depth of what is entered next.
    fn next_depth(&self) -> usize {
        self.frames.len()
    }

    #[cold]
    pub(super) fn tell_entered(
        &mut self,
        tracer: &mut (dyn Tracer + '_),
        request: &Request,
        exit: Exit,
    ) {
        let (kind, from) = match self.frames.last() {
            // SAFETY: the frame has run the opcode that lies before `ip`.
            Some(frame) => unsafe { (CallKind::of_opcode(*frame.ip.sub(1)), frame.address) },
            None if exit == Exit::Create => (CallKind::Create, request.caller),
            None => (CallKind::Call, request.caller),
        };
        let world = &self.shared().world;
        let is_precompiled = !kind.creates()
            && !request.delegated
            && world.precompiled(request.code_account).is_some();
        // SAFETY: the range lies in the caller's memory, or in the message.
        let input = unsafe { std::slice::from_raw_parts(request.input, request.input_len) };
        let depth = self.next_depth();
        if depth == 0 {
            self.shared().told_logs = 0;
        }
        tracer.enter(&Entered {
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

    /// The end of what needed no frame.
    #[cold]
    pub(super) fn tell_done(
        &mut self,
        tracer: &mut (dyn Tracer + '_),
        request: &Request,
        ended: &Ended,
    ) {
        self.tell_logs(tracer);
        let depth = self.next_depth();
        let too_deep = self.too_deep();
        let shared = self.shared();
        let failure = match ended.exit {
            // What needs no frame reverts by being refused, or is a contract of the host's own.
            Exit::Revert if too_deep => Some(Failure::Depth),
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
        tracer.leave(&Left {
            depth,
            output: &shared.return_data,
            gas_used: (request.gas - ended.gas).unsigned_abs(),
            failure,
        });
    }

    #[cold]
    pub(super) fn tell_logs(&mut self, tracer: &mut (dyn Tracer + '_)) {
        let shared = self.shared();
        let logs = shared.world.logs();
        let told = std::mem::replace(&mut shared.told_logs, logs.len());
        if let Some(new) = logs.get(told..).filter(|new| !new.is_empty()) {
            tracer.logs(new);
        }
    }
}

#[cold]
pub(super) fn tell_destroyed(tracer: &mut (dyn Tracer + '_), frame: &Frame, heir: (Address, U256)) {
    let depth = frame.depth + 1;
    tracer.enter(&Entered {
        kind: CallKind::SelfDestruct,
        from: frame.address,
        to: heir.0,
        value: heir.1,
        input: &[],
        gas: 0,
        depth,
        is_precompiled: false,
    });
    tracer.leave(&Left {
        depth,
        output: &[],
        gas_used: 0,
        failure: None,
    });
}
