//! The built-in chains.

mod boot;

use crate::genesis::{Genesis, from_parts};
use alloy_primitives::{Address, B256, U256, address, b256};

/// The funded accounts of [`Network::Dev`] and their private keys, which are public: Besu's development chain has the
/// same.
pub const DEV_ACCOUNTS: [(Address, B256); 3] = [
    (
        address!("fe3b557e8fb62b89f4916b721be55ceb828dbd73"),
        b256!("8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63"),
    ),
    (
        address!("627306090abab3a6e1400e9345bc60c78a8bef57"),
        b256!("c87509a1c067bbde78beb793e6fa76530b6382a4c0241e5e4a9ec0a0f44dc0d3"),
    ),
    (
        address!("f17f52151ebef6c7334fad080c5704d77216b732"),
        b256!("ae6ae8e5ccbfb04590405997ee2d52d2b330726137b875053c36d94e974d162f"),
    ),
];

/// A built-in chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Ethereum's main network.
    Mainnet,
    /// Test network for applications.
    Sepolia,
    /// Test network for staking.
    Hoodi,
    /// The former test network for staking.
    Holesky,
    /// A chain on one machine, with Osaka's rules from genesis and three funded accounts.
    Dev,
}

impl Network {
    /// Every built-in chain.
    pub const ALL: [Self; 5] = [
        Self::Mainnet,
        Self::Sepolia,
        Self::Hoodi,
        Self::Holesky,
        Self::Dev,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mainnet => "mainnet",
            Self::Sepolia => "sepolia",
            Self::Hoodi => "hoodi",
            Self::Holesky => "holesky",
            Self::Dev => "dev",
        }
    }

    /// The chain of this name, in any letter case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|network| network.name().eq_ignore_ascii_case(name))
    }

    /// Hash of the genesis block.
    pub const fn genesis_hash(self) -> B256 {
        match self {
            Self::Mainnet => {
                b256!("d4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3")
            }
            Self::Sepolia => {
                b256!("25a5cc106eea7138acab33231d7160d69cb777ee0c2c553fcddf5138993e6dd9")
            }
            Self::Hoodi => {
                b256!("bbe312868b376a3001692a646dd2d7d1e4406380dfd86b98aa8a34d1557c971b")
            }
            Self::Holesky => {
                b256!("b5f7f912443c940f21fd611f12828d75b534364ed9e95ca4e307729a4661bde4")
            }
            Self::Dev => {
                b256!("19587a7c71efd066779769965c237c87f70c8408c9369b95a9e4b886cad5c987")
            }
        }
    }

    /// The total difficulty of the last block of proof of work, and so of all after it; `None` for a chain that has no such block
    /// above its genesis block.
    pub fn merged_difficulty(self) -> Option<U256> {
        match self {
            Self::Mainnet => Some(U256::from(58_750_003_716_598_352_816_469_u128)),
            Self::Sepolia => Some(U256::from(17_000_018_015_853_232_u128)),
            Self::Hoodi | Self::Holesky | Self::Dev => None,
        }
    }

    /// The genesis. Cost: mainnet's has 8,893 accounts, about a millisecond.
    pub fn genesis(self) -> Genesis {
        macro_rules! files {
            ($name:literal) => {
                (
                    include_str!(concat!("../genesis/", $name, ".json")),
                    include_bytes!(concat!("../genesis/", $name, ".alloc.rlp")),
                )
            };
        }
        let (json, alloc): (&str, &[u8]) = match self {
            Self::Mainnet => files!("mainnet"),
            Self::Sepolia => files!("sepolia"),
            Self::Hoodi => files!("hoodi"),
            Self::Holesky => files!("holesky"),
            Self::Dev => files!("dev"),
        };
        let mut genesis = from_parts(json, alloc).expect("a test parses every built-in genesis");
        genesis.spec.genesis_hash = Some(self.genesis_hash());
        genesis
    }
}

#[cfg(test)]
pub(crate) mod tests;
