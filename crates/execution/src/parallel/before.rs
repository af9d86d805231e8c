//! The state that transactions run ahead upon.

use super::committed::{Committed, Following};
use super::listed::{BeforeEach, Listed, Told};
use niwaki_evm::World;
use niwaki_primitives::StateView;

/// What transactions that run ahead find before them.
#[derive(Clone, Copy)]
pub(super) enum Before<'r> {
    /// What those before them have left so far.
    Committed(&'r Committed<'r>),
    /// What the block's access list says that those before them leave.
    Listed(&'r Listed<'r>),
}

impl<'r> Before<'r> {
    /// What the block's list says, if there is one.
    pub(super) fn of(committed: &'r Committed<'r>, listed: Option<&'r Listed<'r>>) -> Self {
        listed.map_or(Self::Committed(committed), Self::Listed)
    }

    /// Has `world` tell of its changes, if they are not known already.
    pub(super) fn hear(self, world: &mut World<'r>) {
        if let Self::Committed(committed) = self {
            world.publish_to(committed);
        }
    }

    /// For one thread.
    pub(super) fn view(self) -> AheadView<'r> {
        match self {
            Self::Committed(committed) => AheadView::Following(Following::new(committed)),
            Self::Listed(listed) => AheadView::Listed(BeforeEach::new(listed)),
        }
    }

    /// Whether it is the same whatever the transactions before have done by now.
    pub(super) const fn is_listed(self) -> bool {
        matches!(self, Self::Listed(_))
    }
}

/// The state that one thread runs transactions ahead upon.
pub(super) enum AheadView<'r> {
    Following(Following<'r>),
    Listed(BeforeEach<'r>),
}

impl AheadView<'_> {
    pub(super) fn state(&self) -> &dyn StateView {
        match self {
            Self::Following(following) => following,
            Self::Listed(listed) => listed,
        }
    }

    /// The transaction at `index` of the block is next, in `world`, whose view this is.
    pub(super) fn begin(&self, index: usize, world: &mut World<'_>) {
        match self {
            Self::Following(following) => {
                world.start_again();
                following.catch_up(world);
            }
            Self::Listed(listed) => {
                listed.begin(index);
                world.start_over();
            }
        }
    }

    /// What its run was told by the list alone.
    pub(super) fn take_told(&self) -> Told {
        match self {
            Self::Following(_) => Told::default(),
            Self::Listed(listed) => listed.take_told(),
        }
    }
}
