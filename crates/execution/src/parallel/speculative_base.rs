//! The state that workers execute transactions on.

use super::bal_view::{Bal, BalReads, BalView};
use super::latest_view::{CommittedState, LatestView};
use niwaki_evm::World;
use niwaki_primitives::StateView;

/// Where speculative transactions read the values that transactions before them leave.
#[derive(Clone, Copy)]
pub(crate) enum SpeculativeBase<'r> {
    /// What the commit thread has committed so far.
    Committed(&'r CommittedState<'r>),
    /// What the block access list claims.
    Bal(&'r Bal<'r>),
}

impl<'r> SpeculativeBase<'r> {
    /// The access list's claims, if there is one.
    pub(crate) fn of(committed: &'r CommittedState<'r>, bal: Option<&'r Bal<'r>>) -> Self {
        bal.map_or(Self::Committed(committed), Self::Bal)
    }

    /// Has the commit thread's `world` publish its changes, if workers need them.
    pub(super) fn subscribe(self, world: &mut World<'r>) {
        if let Self::Committed(committed) = self {
            world.subscribe(committed);
        }
    }

    /// A view for one worker.
    pub(super) fn view(self) -> SpeculativeView<'r> {
        match self {
            Self::Committed(committed) => SpeculativeView::Latest(LatestView::new(committed)),
            Self::Bal(bal) => SpeculativeView::Bal(BalView::new(bal)),
        }
    }

    /// Whether it is a block access list, whose values do not depend on what is committed by now.
    pub(super) const fn is_bal(self) -> bool {
        matches!(self, Self::Bal(_))
    }
}

/// The state as one worker sees it.
pub(super) enum SpeculativeView<'r> {
    Latest(LatestView<'r>),
    Bal(BalView<'r>),
}

impl SpeculativeView<'_> {
    pub(super) fn state(&self) -> &dyn StateView {
        match self {
            Self::Latest(latest) => latest,
            Self::Bal(bal) => bal,
        }
    }

    /// Prepares the worker's `world`, which reads this view, for the transaction at `index`.
    pub(super) fn begin(&self, index: usize, world: &mut World<'_>) {
        match self {
            Self::Latest(latest) => {
                world.undo_speculation();
                latest.catch_up(world);
            }
            Self::Bal(bal) => {
                bal.begin(index);
                world.reset_speculation();
            }
        }
    }

    /// What the last transaction read from the access list.
    pub(super) fn take_bal_reads(&self) -> BalReads {
        match self {
            Self::Latest(_) => BalReads::default(),
            Self::Bal(bal) => bal.take_reads(),
        }
    }
}
