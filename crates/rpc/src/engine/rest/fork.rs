//! Names of forks, as the header `Eth-Execution-Version` has them.

use niwaki_primitives::Fork;

/// A fork that changed a body of the Engine API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EngineFork {
    Paris,
    Shanghai,
    Cancun,
    Prague,
    Osaka,
    Amsterdam,
}

impl EngineFork {
    /// Every fork, ascending.
    const ALL: [Self; 6] = [
        Self::Paris,
        Self::Shanghai,
        Self::Cancun,
        Self::Prague,
        Self::Osaka,
        Self::Amsterdam,
    ];
    /// Their names.
    pub(super) const NAMES: [&str; 6] = [
        "paris",
        "shanghai",
        "cancun",
        "prague",
        "osaka",
        "amsterdam",
    ];

    /// The fork with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        let index = Self::NAMES.iter().position(|known| *known == name)?;
        Self::ALL.get(index).copied()
    }

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The one whose bodies a block of `fork` has: forks that change parameters of blobs only have none of their own.
    pub(super) fn of(fork: Fork) -> Self {
        match fork {
            fork if fork >= Fork::Amsterdam => Self::Amsterdam,
            fork if fork >= Fork::Osaka => Self::Osaka,
            fork if fork >= Fork::Prague => Self::Prague,
            fork if fork >= Fork::Cancun => Self::Cancun,
            fork if fork >= Fork::Shanghai => Self::Shanghai,
            _ => Self::Paris,
        }
    }
}
