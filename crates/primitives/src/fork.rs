//! The forks of mainnet, in order.

/// A set of protocol rules, named as execution-specs names it. Ordered: a later fork is greater.
///
/// Forks that only move the difficulty bomb or the blob schedule are listed too, so that a chain
/// spec can name them; the EVM's tables fold them into their predecessor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Fork {
    Frontier,
    Homestead,
    DaoFork,
    TangerineWhistle,
    SpuriousDragon,
    Byzantium,
    Constantinople,
    Petersburg,
    Istanbul,
    MuirGlacier,
    Berlin,
    London,
    ArrowGlacier,
    GrayGlacier,
    Paris,
    Shanghai,
    Cancun,
    Prague,
    #[default]
    Osaka,
    Bpo1,
    Bpo2,
    Bpo3,
    Bpo4,
    Bpo5,
    Amsterdam,
}

impl Fork {
    /// Every fork, oldest first.
    pub const ALL: [Self; 25] = [
        Self::Frontier,
        Self::Homestead,
        Self::DaoFork,
        Self::TangerineWhistle,
        Self::SpuriousDragon,
        Self::Byzantium,
        Self::Constantinople,
        Self::Petersburg,
        Self::Istanbul,
        Self::MuirGlacier,
        Self::Berlin,
        Self::London,
        Self::ArrowGlacier,
        Self::GrayGlacier,
        Self::Paris,
        Self::Shanghai,
        Self::Cancun,
        Self::Prague,
        Self::Osaka,
        Self::Bpo1,
        Self::Bpo2,
        Self::Bpo3,
        Self::Bpo4,
        Self::Bpo5,
        Self::Amsterdam,
    ];

    /// The execution-specs name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frontier => "Frontier",
            Self::Homestead => "Homestead",
            Self::DaoFork => "DAOFork",
            Self::TangerineWhistle => "TangerineWhistle",
            Self::SpuriousDragon => "SpuriousDragon",
            Self::Byzantium => "Byzantium",
            Self::Constantinople => "Constantinople",
            Self::Petersburg => "Petersburg",
            Self::Istanbul => "Istanbul",
            Self::MuirGlacier => "MuirGlacier",
            Self::Berlin => "Berlin",
            Self::London => "London",
            Self::ArrowGlacier => "ArrowGlacier",
            Self::GrayGlacier => "GrayGlacier",
            Self::Paris => "Paris",
            Self::Shanghai => "Shanghai",
            Self::Cancun => "Cancun",
            Self::Prague => "Prague",
            Self::Osaka => "Osaka",
            Self::Bpo1 => "BPO1",
            Self::Bpo2 => "BPO2",
            Self::Bpo3 => "BPO3",
            Self::Bpo4 => "BPO4",
            Self::Bpo5 => "BPO5",
            Self::Amsterdam => "Amsterdam",
        }
    }

    /// The fork named `name`, in any letter case; also the names that test fixtures use
    /// (`EIP150`, `EIP158`, `ConstantinopleFix`, `Merge`).
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(fork) = Self::ALL
            .into_iter()
            .find(|f| f.name().eq_ignore_ascii_case(name))
        {
            return Some(fork);
        }
        match name.to_ascii_lowercase().as_str() {
            "eip150" => Some(Self::TangerineWhistle),
            "eip158" => Some(Self::SpuriousDragon),
            "constantinoplefix" => Some(Self::Petersburg),
            "merge" => Some(Self::Paris),
            _ => None,
        }
    }
}

impl std::str::FromStr for Fork {
    type Err = String;

    /// As [`Fork::from_name`]; the error names all forks.
    fn from_str(name: &str) -> Result<Self, String> {
        Self::from_name(name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("{name} is no fork; use one of {names}")
        })
    }
}

impl std::fmt::Display for Fork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Fork;

    #[test]
    fn forks_are_listed_in_order_and_found_by_name() {
        for (at, fork) in Fork::ALL.into_iter().enumerate() {
            assert_eq!(fork as usize, at);
            assert_eq!(Fork::from_name(fork.name()), Some(fork));
        }
        assert_eq!(Fork::from_name("EIP158"), Some(Fork::SpuriousDragon));
        assert_eq!(Fork::from_name("no such fork"), None);
    }
}
