//! A tracer that ends a run when nobody waits for it any more, and keeps why it failed.

use niwaki_evm::{CostOrder, Entered, Failure, Left, Step, Tracer};
use niwaki_primitives::Log;
use std::time::Instant;

/// How many opcodes are told between two looks at the time.
const STEPS: u32 = 4096;

/// Another tracer, with an end.
pub(crate) struct Watched<'t> {
    inner: &'t mut dyn Tracer,
    deadline: Instant,
    steps: u32,
    /// Why the transaction's own message failed.
    pub(crate) failure: Option<Failure>,
    /// Whether time ran out.
    pub(crate) is_late: bool,
}

impl<'t> Watched<'t> {
    pub(crate) fn new(inner: &'t mut dyn Tracer, deadline: Instant) -> Self {
        Self {
            inner,
            deadline,
            steps: 0,
            failure: None,
            is_late: false,
        }
    }

    fn look(&mut self) {
        self.is_late |= Instant::now() > self.deadline;
    }
}

impl Tracer for Watched<'_> {
    fn step(&mut self, step: &Step<'_>) {
        self.inner.step(step);
        self.steps += 1;
        if self.steps >= STEPS {
            self.steps = 0;
            self.look();
        }
    }

    fn step_end(&mut self, gas_left: i64, handed: i64) {
        self.inner.step_end(gas_left, handed);
    }

    fn frame_end(&mut self, depth: usize, gas_left: i64, output: &[u8], error: Option<String>) {
        self.inner.frame_end(depth, gas_left, output, error);
    }

    fn wants_steps(&self) -> bool {
        self.inner.wants_steps()
    }

    fn cost_order(&self) -> CostOrder {
        self.inner.cost_order()
    }

    fn stops(&mut self) -> bool {
        self.is_late || self.inner.stops()
    }

    fn enter(&mut self, entered: &Entered<'_>) {
        self.look();
        self.inner.enter(entered);
    }

    fn leave(&mut self, left: &Left<'_>) {
        if left.depth == 0 {
            self.failure = left.failure;
        }
        self.inner.leave(left);
    }

    fn logs(&mut self, logs: &[Log]) {
        self.inner.logs(logs);
    }
}

/// A tracer that looks at nothing.
pub(crate) struct Nothing;

impl Tracer for Nothing {
    fn wants_steps(&self) -> bool {
        false
    }
}
