//! A tracer that stops execution at the deadline of the request, and records why the transaction failed.

use niwaki_evm::{CallEnd, CallStart, CostOrder, Failure, Step, Tracer};
use niwaki_primitives::Log;
use std::time::Instant;

/// Opcodes between two checks of the deadline.
const STEPS_PER_CHECK: u32 = 4096;

/// Wraps another tracer with a deadline.
pub(crate) struct DeadlineTracer<'t> {
    inner: &'t mut dyn Tracer,
    deadline: Instant,
    steps: u32,
    /// Why the transaction failed, if it did.
    pub(crate) failure: Option<Failure>,
    /// Whether the deadline has passed.
    pub(crate) is_timed_out: bool,
}

impl<'t> DeadlineTracer<'t> {
    pub(crate) fn new(inner: &'t mut dyn Tracer, deadline: Instant) -> Self {
        Self {
            inner,
            deadline,
            steps: 0,
            failure: None,
            is_timed_out: false,
        }
    }

    fn check_deadline(&mut self) {
        self.is_timed_out |= Instant::now() > self.deadline;
    }
}

impl Tracer for DeadlineTracer<'_> {
    fn step(&mut self, step: &Step<'_>) {
        self.inner.step(step);
        self.steps += 1;
        if self.steps >= STEPS_PER_CHECK {
            self.steps = 0;
            self.check_deadline();
        }
    }

    fn step_end(&mut self, gas_left: i64, handed: i64) {
        self.inner.step_end(gas_left, handed);
    }

    fn frame_end(&mut self, depth: usize, gas_left: i64, output: &[u8], error: Option<String>) {
        self.inner.frame_end(depth, gas_left, output, error);
    }

    fn should_trace_steps(&self) -> bool {
        self.inner.should_trace_steps()
    }

    fn cost_order(&self) -> CostOrder {
        self.inner.cost_order()
    }

    fn should_stop(&mut self) -> bool {
        self.is_timed_out || self.inner.should_stop()
    }

    fn enter(&mut self, entered: &CallStart<'_>) {
        self.check_deadline();
        self.inner.enter(entered);
    }

    fn exit(&mut self, left: &CallEnd<'_>) {
        if left.depth == 0 {
            self.failure = left.failure;
        }
        self.inner.exit(left);
    }

    fn logs(&mut self, logs: &[Log]) {
        self.inner.logs(logs);
    }
}

/// A tracer that records nothing.
pub(crate) struct NoopTracer;

impl Tracer for NoopTracer {
    fn should_trace_steps(&self) -> bool {
        false
    }
}
