//! What a caller has to do with a block while it is executed.

use crate::executor::Executor;
use niwaki_primitives::{B256, Fault, Header, Receipt, StateDiff};

/// Gives the state root after a diff: receipts before Byzantium hold one per transaction.
pub type PostState<'a> = &'a mut dyn FnMut(&StateDiff) -> Result<B256, Fault>;

/// How far a block has come.
#[expect(missing_debug_implementations, reason = "a function")]
pub struct SoFar<'a> {
    /// Those of the transactions that have ended.
    pub receipts: &'a [Receipt],
    /// Gives what was written since it was asked last, which takes time; see [`Executor::take_untold`].
    pub changed: &'a mut dyn FnMut() -> StateDiff,
    /// So many [`SoFar::PARTS`] of the gas are used; all of them once the block changes nothing any more.
    pub part: u32,
}

impl SoFar<'_> {
    /// Into how many parts the gas of a block is divided.
    pub const PARTS: u32 = 64;

    /// Whether the block changes nothing any more.
    pub const fn is_all(&self) -> bool {
        self.part == Self::PARTS
    }
}

/// Is told how far a block has come.
pub type OnTheWay<'a> = Box<dyn FnMut(SoFar<'_>) + 'a>;

/// What else is to be done while a block is executed, by whoever runs its transactions ahead. Nothing of it panics.
pub trait Errands: Sync {
    /// Runs one that the end of the block will wait for, if there is one; whether there was.
    fn run(&self) -> bool;

    /// Runs one that is of use if there is nothing else, but for running transactions ahead; whether there was one.
    fn run_lesser(&self) -> bool;

    /// Does what is left when nothing runs ahead any more, at most until the caller is done with the block.
    fn run_rest(&self);
}

const PARTS: u32 = SoFar::PARTS;

/// The first part after which somebody is called.
const FIRST: u32 = PARTS / 16;

/// See the module.
#[expect(missing_debug_implementations, reason = "functions")]
pub struct Meanwhile<'a> {
    pub(crate) post_state: PostState<'a>,
    on_the_way: Option<OnTheWay<'a>>,
    pub(crate) errands: Option<&'a dyn Errands>,
    /// How much of the gas must be used before it is called again.
    next_part: u32,
}

impl<'a> Meanwhile<'a> {
    /// Gives roots, where they are asked for.
    pub fn new(post_state: PostState<'a>) -> Self {
        Self {
            post_state,
            on_the_way: None,
            errands: None,
            next_part: FIRST,
        }
    }

    /// The same, and is called when a sixteenth of the gas is used that the header tells, with each further part
    /// but the last, and in the end, when nothing is left but to put together what came of it.
    pub fn calling(self, on_the_way: Option<OnTheWay<'a>>) -> Self {
        Self { on_the_way, ..self }
    }

    /// The same, and whoever runs transactions ahead runs errands too: for callers that leave no processor to
    /// threads of their own.
    pub fn with_errands(self, errands: Option<&'a dyn Errands>) -> Self {
        Self { errands, ..self }
    }

    /// A transaction of the block of `header` has ended; the last of `receipts` is its.
    pub(crate) fn look(
        &mut self,
        executor: &mut Executor<'_>,
        header: &Header,
        receipts: &[Receipt],
    ) {
        if self.on_the_way.is_none() {
            return;
        }
        let used = executor.used().header_gas(executor.rules().fork);
        let used = used.saturating_mul(u64::from(PARTS));
        let part = used.checked_div(header.gas_used).unwrap_or_default();
        let part = u32::try_from(part).unwrap_or(u32::MAX);
        if (self.next_part..PARTS).contains(&part) {
            self.next_part = part.saturating_add(1);
            self.tell(executor, receipts, part);
        }
    }

    /// Tells the caller that the block changes nothing any more.
    pub(crate) fn tell_all(&mut self, executor: &mut Executor<'_>, receipts: &[Receipt]) {
        self.tell(executor, receipts, PARTS);
    }

    fn tell(&mut self, executor: &mut Executor<'_>, receipts: &[Receipt], part: u32) {
        if let Some(on_the_way) = &mut self.on_the_way {
            on_the_way(SoFar {
                receipts,
                changed: &mut || executor.take_untold(),
                part,
            });
        }
    }
}
