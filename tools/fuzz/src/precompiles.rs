//! Compares random inputs of precompiled contracts on the native library and on the pure one.
//!
//! Outcome, output and gas must be equal, and the gas must be the specification's. A contract with only one library is
//! compared with a simple implementation here. The seed determines an input.

mod curve;
mod draw;
mod plain;
mod price;
mod valid;

pub use valid::valid_input;

use alloy_primitives::{Address, hex};
use niwaki_crypto::{PrecompileHalt, PrecompileSet, Precompiled, Preference};
use price::price;
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::ops::AddAssign;

/// The precompiled contracts of Osaka: low bytes of the address, and name.
pub const CONTRACTS: [(u16, &str); 18] = [
    (0x01, "ecrecover"),
    (0x02, "sha256"),
    (0x03, "ripemd160"),
    (0x04, "identity"),
    (0x05, "modexp"),
    (0x06, "bn254-add"),
    (0x07, "bn254-mul"),
    (0x08, "bn254-pairing"),
    (0x09, "blake2f"),
    (0x0a, "point-evaluation"),
    (0x0b, "bls12-g1add"),
    (0x0c, "bls12-g1msm"),
    (0x0d, "bls12-g2add"),
    (0x0e, "bls12-g2msm"),
    (0x0f, "bls12-pairing"),
    (0x10, "bls12-map-fp"),
    (0x11, "bls12-map-fp2"),
    (0x100, "p256verify"),
];

/// The contract of Osaka at an address, by its low bytes.
pub fn contract_at(address: u16) -> Option<Precompiled> {
    let mut whole = Address::ZERO;
    whole.0[18..].copy_from_slice(&address.to_be_bytes());
    PrecompileSet::Osaka.get(&whole)
}

/// An input for which the libraries differ.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The low bytes of the contract's address.
    pub contract: u16,
    /// The seed of the input.
    pub seed: u64,
    /// The input, hex.
    pub input: String,
    /// What differs.
    pub what: String,
}

/// Counts of outcomes, since inputs that all fail would prove little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// With an output.
    pub succeeded: u64,
    /// Accepted with an empty output, as for an invalid signature.
    pub empty: u64,
    /// Rejected as invalid.
    pub refused: u64,
    /// Out of gas.
    pub out_of_gas: u64,
}

impl Outcomes {
    /// The total.
    pub fn count(&self) -> u64 {
        self.succeeded + self.empty + self.refused + self.out_of_gas
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        self.succeeded += other.succeeded;
        self.empty += other.empty;
        self.refused += other.refused;
        self.out_of_gas += other.out_of_gas;
    }
}

/// The compared part of an outcome: error messages are each library's own.
#[derive(Debug, PartialEq, Eq)]
enum ComparedOutcome {
    Output(u64, String),
    Refused,
    OutOfGas,
    Fault(String),
}

fn run_on(contract: Precompiled, library: Preference, input: &[u8], gas: u64) -> ComparedOutcome {
    match contract.run_by(library, input, gas) {
        Ok((used, output)) => ComparedOutcome::Output(used, hex::encode(output)),
        Err(PrecompileHalt::Input(_)) => ComparedOutcome::Refused,
        Err(PrecompileHalt::OutOfGas) => ComparedOutcome::OutOfGas,
        Err(PrecompileHalt::Fault(what)) => ComparedOutcome::Fault(what),
    }
}

/// Runs the input of `seed` on both libraries of the contract at `address`.
///
/// # Errors
/// The [`Disagreement`], if they differ from each other or from the specification's price.
///
/// # Panics
/// If there is no such contract.
pub fn check_precompile(
    address: u16,
    seed: u64,
    outcomes: &mut Outcomes,
) -> Result<(), Disagreement> {
    let contract = contract_at(address).expect("a contract of Osaka");
    let mut random = SmallRng::seed_from_u64(seed);
    let input = draw::input(address, &mut random);
    let price = price(address, &input);
    let affordable = price.filter(|price| *price <= ample_gas(address));
    let gas = match (random.random_range(0..20), affordable) {
        (0, Some(price)) => price,
        (1, Some(price)) => price.saturating_sub(1),
        (2, Some(price)) => random.random_range(0..=price),
        _ => ample_gas(address),
    };
    let native = run_on(contract, Preference::Native, &input, gas);
    let pure = run_on(contract, Preference::Pure, &input, gas);
    if let Some(what) = difference(address, &input, gas, [&native, &pure]) {
        return Err(Disagreement {
            contract: address,
            seed,
            input: hex::encode(&input),
            what,
        });
    }
    match native {
        ComparedOutcome::Output(_, output) if output.is_empty() => outcomes.empty += 1,
        ComparedOutcome::Output(..) => outcomes.succeeded += 1,
        ComparedOutcome::Refused => outcomes.refused += 1,
        _ => outcomes.out_of_gas += 1,
    }
    Ok(())
}

/// The difference between both outcomes for `input`, or from the specification's price.
fn difference(
    address: u16,
    input: &[u8],
    gas: u64,
    [native, pure]: [&ComparedOutcome; 2],
) -> Option<String> {
    if native != pure {
        return Some(format!("with {gas} gas native {native:?}, pure {pure:?}"));
    }
    let price = price(address, input);
    let is_right = match (native, price) {
        (ComparedOutcome::Output(used, output), Some(price)) => {
            let output = hex::decode(output).ok();
            let is_output = reference_output(address, input).is_none_or(|plain| plain == output);
            *used == price && gas >= price && is_output
        }
        (ComparedOutcome::OutOfGas, Some(price)) => gas < price,
        (ComparedOutcome::Refused, Some(price)) => {
            reference_output(address, input).is_none_or(|plain| plain.is_none())
                && (gas >= price || may_be_refused_first(address))
        }
        (ComparedOutcome::Refused | ComparedOutcome::OutOfGas, None) => true,
        _ => false,
    };
    (!is_right).then(|| format!("with {gas} gas {native:?}, and the price is {price:?}"))
}

/// Enough gas for drawn inputs, and little enough that no drawn length or number of rounds takes seconds.
fn ample_gas(address: u16) -> u64 {
    match address {
        0x05 => 5_000_000,
        0x09 => 200_000,
        _ => 100_000_000,
    }
}

/// Whether the contract checks its whole input before the gas.
fn may_be_refused_first(address: u16) -> bool {
    address == 0x09
}

/// The output of the simple implementation, if there is one; the inner `None` for an invalid input.
fn reference_output(address: u16, input: &[u8]) -> Option<Option<Vec<u8>>> {
    match address {
        0x02 => Some(Some(niwaki_crypto::sha256(input).to_vec())),
        0x03 => Some(Some(plain::ripemd160(input))),
        0x04 => Some(Some(input.to_vec())),
        0x09 => Some(plain::blake2f(input)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Progress, Search, search};
    use std::ops::Range;

    /// Checks the inputs of seeds from 0 on while fewer than `limit` were checked.
    fn check_inputs(address: u16, inputs: u64, limit: u64) -> Result<Outcomes, Disagreement> {
        let plan = Search {
            seed: 0,
            cases: (0, inputs),
            until: None,
            jobs: 2,
            chunk: 16,
        };
        let check = |mut seeds: Range<u64>, outcomes: &mut Outcomes| {
            seeds.try_for_each(|seed| check_precompile(address, seed, outcomes))
        };
        let should_continue = |progress: &Progress<Outcomes>| progress.cases < limit;
        search(&plan, &check, &should_continue).map(|progress| progress.tally)
    }

    #[test]
    fn libraries_agree_on_hundreds_of_inputs_of_each_contract() {
        for (address, name) in CONTRACTS {
            let outcomes = check_inputs(address, 300, u64::MAX);
            let outcomes = outcomes.unwrap_or_else(|found| panic!("{name}: {found:?}"));
            assert_eq!(outcomes.count(), 300, "{name}");
            assert!(outcomes.succeeded >= 75, "{name}: {outcomes:?}");
            assert!(outcomes.out_of_gas > 5, "{name}: {outcomes:?}");
            let is_choosy = !matches!(address, 0x02..=0x04);
            let not_taken = outcomes.refused + outcomes.empty;
            assert!(!is_choosy || not_taken > 5, "{name}: {outcomes:?}");
        }
    }

    #[test]
    fn different_outcome_output_or_gas_is_a_difference() {
        let output = |gas, bytes: &[u8]| ComparedOutcome::Output(gas, hex::encode(bytes));
        let is_alike =
            |address, input: &[u8], gas, native: &ComparedOutcome, pure: &ComparedOutcome| {
                difference(address, input, gas, [native, pure]).is_none()
            };
        let (right, input) = (output(18, &[7]), [7]);
        assert!(is_alike(4, &input, 18, &right, &right));
        for wrong in [
            output(18, &[8]),
            output(17, &[7]),
            ComparedOutcome::Refused,
            ComparedOutcome::OutOfGas,
            ComparedOutcome::Fault("broken".into()),
        ] {
            assert!(!is_alike(4, &input, 18, &right, &wrong), "{wrong:?}");
            // Both libraries may be wrong in the same way.
            assert!(!is_alike(4, &input, 18, &wrong, &wrong), "{wrong:?}");
        }
        assert!(is_alike(
            4,
            &input,
            17,
            &ComparedOutcome::OutOfGas,
            &ComparedOutcome::OutOfGas
        ));
        assert!(!is_alike(4, &input, 17, &right, &right));
        // An invalid input.
        assert!(is_alike(
            0x0b,
            &input,
            1_000,
            &ComparedOutcome::Refused,
            &ComparedOutcome::Refused
        ));
        assert!(!is_alike(
            0x0b,
            &input,
            1_000,
            &output(375, &[]),
            &output(375, &[])
        ));
    }

    #[test]
    fn each_contract_of_osaka_has_a_name() {
        let addresses = PrecompileSet::Osaka.addresses();
        assert_eq!(addresses.len(), CONTRACTS.len());
        for ((address, _), known) in CONTRACTS.iter().zip(addresses) {
            assert_eq!(known.0[18..], address.to_be_bytes());
        }
    }

    #[test]
    fn search_ends_when_stopped() {
        let outcomes = check_inputs(4, 1_000_000, 100);
        let count = outcomes.expect("identity").count();
        assert!((100..200).contains(&count), "{count}");
    }
}
