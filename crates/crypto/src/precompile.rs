//! Precompiled contracts: which addresses have one in a fork, and running it.

mod results;

pub use results::{
    forget_precompile_results, precompile_result_look_ups, set_precompile_result_bytes,
};

use crate::provider::{self, Preference};
use alloy_primitives::{Address, Bytes};
use revm_precompile::{PrecompileSpecId, PrecompileStatus, Precompiles};

/// Why a precompiled contract failed; all its gas is consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrecompileHalt {
    /// The gas limit is below the contract's price for this input.
    OutOfGas,
    /// The input is not one that the contract accepts.
    Input(String),
    /// The machine could not run the contract: a fault, never a statement about the input.
    Fault(String),
}

/// The precompiled contracts of a span of forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrecompileSet {
    /// 0x01 to 0x04.
    Frontier,
    /// 0x05 to 0x08: EIP-198, EIP-196, EIP-197.
    Byzantium,
    /// 0x09, and cheaper curves: EIP-152, EIP-1108.
    Istanbul,
    /// Cheaper modular exponentiation: EIP-2565.
    Berlin,
    /// 0x0a: EIP-4844.
    Cancun,
    /// 0x0b to 0x11: EIP-2537.
    Prague,
    /// 0x100, and modular exponentiation bounded and repriced: EIP-7951, EIP-7823, EIP-7883.
    Osaka,
}

/// One precompiled contract of one fork.
#[derive(Clone, Copy)]
pub struct Precompiled(&'static revm_precompile::Precompile);

impl PrecompileSet {
    fn table(self) -> &'static Precompiles {
        Precompiles::new(match self {
            Self::Frontier => PrecompileSpecId::HOMESTEAD,
            Self::Byzantium => PrecompileSpecId::BYZANTIUM,
            Self::Istanbul => PrecompileSpecId::ISTANBUL,
            Self::Berlin => PrecompileSpecId::BERLIN,
            Self::Cancun => PrecompileSpecId::CANCUN,
            Self::Prague => PrecompileSpecId::PRAGUE,
            Self::Osaka => PrecompileSpecId::OSAKA,
        })
    }

    /// The contract at `address`, if the set has one there.
    pub fn get(self, address: &Address) -> Option<Precompiled> {
        // Every address in use begins with 18 zero bytes.
        if address.0[..18].iter().any(|byte| *byte != 0) {
            return None;
        }
        self.table().get(address).map(Precompiled)
    }

    /// The addresses of the set, ascending.
    pub fn addresses(self) -> Vec<Address> {
        let mut addresses: Vec<Address> = self.table().addresses().copied().collect();
        addresses.sort_unstable();
        addresses
    }
}

impl Precompiled {
    /// Runs the contract: the gas used and the output.
    ///
    /// # Errors
    /// A [`PrecompileHalt`].
    pub fn run(self, input: &[u8], gas_limit: u64) -> Result<(u64, Bytes), PrecompileHalt> {
        match self.cache_bounds() {
            Some((min_gas, max_bytes)) if gas_limit >= min_gas && input.len() <= max_bytes => {
                let contract = std::ptr::from_ref(self.0).addr();
                results::cached_or(contract, input, gas_limit, || {
                    self.execute(input, gas_limit)
                })
            }
            _ => self.execute(input, gas_limit),
        }
    }

    /// As [`Self::run`] on the fast library ([`Preference::Native`]) or on the plain one, whichever is installed; no
    /// result is cached.
    ///
    /// # Errors
    /// A [`PrecompileHalt`].
    pub fn run_by(
        self,
        library: Preference,
        input: &[u8],
        gas_limit: u64,
    ) -> Result<(u64, Bytes), PrecompileHalt> {
        provider::with_preference(library, || self.execute(input, gas_limit))
    }

    /// The contract's fast library and its plain one; the same if there is only one.
    pub fn libraries(self) -> [&'static str; 2] {
        let primitive = match self.0.address().0[18..] {
            [0, 0x01] => provider::SECP256K1,
            [0, 0x02] => provider::SHA256,
            [0, 0x03] => return ["ripemd"; 2],
            [0, 0x05] => provider::MODEXP,
            [0, 0x06..=0x08] => provider::BN254,
            [0, 0x0a] => provider::KZG,
            [0, 0x0b..=0x11] => provider::BLS12_381,
            [1, 0] => provider::P256,
            _ => return ["revm-precompile"; 2],
        };
        provider::libraries(primitive)
    }

    /// The least gas and the longest input, in bytes, with which looking up a cached result takes less time than the
    /// price covers; `None` where a lookup takes about as long as the computation: SHA-256, RIPEMD-160, identity,
    /// addition on bn254, BLAKE2 F.
    fn cache_bounds(self) -> Option<(u64, usize)> {
        let address = self.0.address().0;
        Some(match address[18..] {
            [0, 0x01] => (3_000, 128),
            [0, 0x05] => (200, 1 << 10),
            [0, 0x07] => (6_000, 96),
            // The price of pairings and of sums grows with the input.
            [0, 0x08] => (45_000, 16 << 10),
            [0, 0x0a] => (50_000, 192),
            [0, 0x0b | 0x0d] => (375, 512),
            [0, 0x0c | 0x0e | 0x0f] => (10_000, 16 << 10),
            [0, 0x10 | 0x11] => (5_000, 128),
            [1, 0] => (3_450, 160),
            _ => return None,
        })
    }

    fn execute(self, input: &[u8], gas_limit: u64) -> Result<(u64, Bytes), PrecompileHalt> {
        match self.0.execute(input, gas_limit, 0) {
            Ok(output) => match output.status {
                PrecompileStatus::Success => Ok((output.gas_used, output.bytes)),
                PrecompileStatus::Revert => Err(PrecompileHalt::Input("reverted".into())),
                PrecompileStatus::Halt(revm_precompile::PrecompileHalt::OutOfGas) => {
                    Err(PrecompileHalt::OutOfGas)
                }
                PrecompileStatus::Halt(reason) => Err(PrecompileHalt::Input(reason.to_string())),
            },
            Err(fault) => Err(PrecompileHalt::Fault(fault.to_string())),
        }
    }
}

impl std::fmt::Debug for Precompiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Precompiled({})", self.0.address())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed and cached results are the same, at and below the price.
    #[test]
    fn every_contract_gives_the_same_from_the_cache() {
        let prices = |set: PrecompileSet| {
            set.addresses().into_iter().map(move |address| {
                let contract = set.get(&address).expect("of the set");
                let input = vec![0; 192];
                let computed = contract.execute(&input, 10_000_000);
                assert_eq!(contract.run(&input, 10_000_000), computed, "{contract:?}");
                assert_eq!(contract.run(&input, 10_000_000), computed, "{contract:?}");
                if let Ok((used, _)) = computed {
                    assert_eq!(contract.run(&input, used), computed, "{contract:?}");
                    let short = used.saturating_sub(1);
                    assert_eq!(contract.run(&input, short), contract.execute(&input, short));
                }
                contract.cache_bounds().is_some()
            })
        };
        let cached = prices(PrecompileSet::Osaka)
            .filter(|cached| *cached)
            .count();
        assert_eq!(cached, 13);
        // The same input at another fork's price.
        assert_eq!(prices(PrecompileSet::Byzantium).count(), 8);
        assert_eq!(prices(PrecompileSet::Istanbul).count(), 9);
    }
}
