//! Random inputs of precompiled contracts, each on the native library and on the pure one, and compared.
//!
//! Outcome, output and gas must be the same, and the gas that of the specifications. A contract that has one library
//! only is compared with a plain form made here. An input is all drawn from its seed.

mod curve;
mod draw;
mod plain;
mod price;
mod valid;

pub use price::price;
pub use valid::valid_input;

use alloy_primitives::{Address, hex};
use niwaki_crypto::{PrecompileHalt, PrecompileSet, Precompiled, Preference};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The precompiled contracts of Osaka by the ends of their addresses, with names.
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

/// The contract of Osaka at an address by its end.
pub fn contract_at(address: u16) -> Option<Precompiled> {
    let mut whole = Address::ZERO;
    whole.0[18..].copy_from_slice(&address.to_be_bytes());
    PrecompileSet::Osaka.get(&whole)
}

/// An input on which libraries do not agree.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The end of the contract's address.
    pub contract: u16,
    /// The seed of the input.
    pub seed: u64,
    /// The input, hex.
    pub input: String,
    /// What differs.
    pub what: String,
}

/// What came of inputs: ones that all fail would prove little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// With an output.
    pub succeeded: u64,
    /// Taken, with an empty output, as that of a signature that is wrong.
    pub empty: u64,
    /// Refused for what they are.
    pub refused: u64,
    /// With too little gas.
    pub out_of_gas: u64,
}

impl Outcomes {
    /// All of them.
    pub fn count(&self) -> u64 {
        self.succeeded + self.empty + self.refused + self.out_of_gas
    }

    fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.empty += other.empty;
        self.refused += other.refused;
        self.out_of_gas += other.out_of_gas;
    }
}

/// What is compared of an outcome: libraries have words of their own for what they refuse.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Output(u64, String),
    Refused,
    OutOfGas,
    Fault(String),
}

fn seen(contract: Precompiled, library: Preference, input: &[u8], gas: u64) -> Seen {
    match contract.run_by(library, input, gas) {
        Ok((used, output)) => Seen::Output(used, hex::encode(output)),
        Err(PrecompileHalt::Input(_)) => Seen::Refused,
        Err(PrecompileHalt::OutOfGas) => Seen::OutOfGas,
        Err(PrecompileHalt::Fault(what)) => Seen::Fault(what),
    }
}

/// Runs the input of `seed` on both libraries of the contract at `address`.
///
/// # Errors
/// The [`Disagreement`], if they do not agree with each other or with the specifications' price.
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
    let native = seen(contract, Preference::Native, &input, gas);
    let pure = seen(contract, Preference::Pure, &input, gas);
    if let Some(what) = difference(address, &input, gas, [&native, &pure]) {
        return Err(Disagreement {
            contract: address,
            seed,
            input: hex::encode(&input),
            what,
        });
    }
    match native {
        Seen::Output(_, output) if output.is_empty() => outcomes.empty += 1,
        Seen::Output(..) => outcomes.succeeded += 1,
        Seen::Refused => outcomes.refused += 1,
        _ => outcomes.out_of_gas += 1,
    }
    Ok(())
}

/// What is wrong with what the native library and the pure one made of `input`.
fn difference(address: u16, input: &[u8], gas: u64, [native, pure]: [&Seen; 2]) -> Option<String> {
    if native != pure {
        return Some(format!("with {gas} gas native {native:?}, pure {pure:?}"));
    }
    let price = price(address, input);
    let is_right = match (native, price) {
        (Seen::Output(used, output), Some(price)) => {
            let output = hex::decode(output).ok();
            let is_output = plainly(address, input).is_none_or(|plain| plain == output);
            *used == price && gas >= price && is_output
        }
        (Seen::OutOfGas, Some(price)) => gas < price,
        (Seen::Refused, Some(price)) => {
            plainly(address, input).is_none_or(|plain| plain.is_none())
                && (gas >= price || may_be_refused_first(address))
        }
        (Seen::Refused | Seen::OutOfGas, None) => true,
        _ => false,
    };
    (!is_right).then(|| format!("with {gas} gas {native:?}, and the price is {price:?}"))
}

/// Enough for what is drawn, and so little that a drawn length or number of rounds takes no seconds.
fn ample_gas(address: u16) -> u64 {
    match address {
        0x05 => 5_000_000,
        0x09 => 200_000,
        _ => 100_000_000,
    }
}

/// Contracts that look at the whole of their input before they look at the gas.
fn may_be_refused_first(address: u16) -> bool {
    address == 0x09
}

/// The output by a plain form made here, if there is one; none of what is to be refused.
fn plainly(address: u16, input: &[u8]) -> Option<Option<Vec<u8>>> {
    match address {
        0x02 => Some(Some(niwaki_crypto::sha256(input).to_vec())),
        0x03 => Some(Some(plain::ripemd160(input))),
        0x04 => Some(Some(input.to_vec())),
        0x09 => Some(plain::blake2f(input)),
        _ => None,
    }
}

/// Runs the inputs of `seeds` on `jobs` threads until they are through, it is `until`, or `goes_on`, which is told of
/// how many have been run, says no; what has been begun is ended.
///
/// # Errors
/// The first [`Disagreement`] found.
pub fn check_precompile_inputs(
    address: u16,
    seeds: Range<u64>,
    jobs: usize,
    until: Option<Instant>,
    goes_on: &(dyn Fn(u64) -> bool + Sync),
) -> Result<Outcomes, Disagreement> {
    const CHUNK: u64 = 16;
    let next = AtomicU64::new(seeds.start);
    let done = Mutex::new((Outcomes::default(), None::<Disagreement>));
    let lock = || done.lock().expect("no thread panics while it holds it");
    let work = || {
        loop {
            let (so_far, is_found) = {
                let held = lock();
                (held.0.count(), held.1.is_some())
            };
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            if is_found || is_late || !goes_on(so_far) {
                return;
            }
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= seeds.end {
                return;
            }
            let mut outcomes = Outcomes::default();
            let mut chunk = first..(first + CHUNK).min(seeds.end);
            let result = chunk.try_for_each(|seed| check_precompile(address, seed, &mut outcomes));
            let mut held = lock();
            held.0.add(&outcomes);
            if let Err(found) = result {
                held.1.get_or_insert(found);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
    let (outcomes, found) = done.into_inner().expect("as above");
    found.map_or(Ok(outcomes), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_agree_on_hundreds_of_inputs_of_each_contract() {
        for (address, name) in CONTRACTS {
            let outcomes = check_precompile_inputs(address, 0..300, 2, None, &|_| true);
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
    fn other_outcomes_outputs_and_gas_are_differences() {
        let output = |gas, bytes: &[u8]| Seen::Output(gas, hex::encode(bytes));
        let is_alike = |address, input: &[u8], gas, native: &Seen, pure: &Seen| {
            difference(address, input, gas, [native, pure]).is_none()
        };
        let (right, input) = (output(18, &[7]), [7]);
        assert!(is_alike(4, &input, 18, &right, &right));
        for wrong in [
            output(18, &[8]),
            output(17, &[7]),
            Seen::Refused,
            Seen::OutOfGas,
            Seen::Fault("broken".into()),
        ] {
            assert!(!is_alike(4, &input, 18, &right, &wrong), "{wrong:?}");
            // Both may be wrong alike.
            assert!(!is_alike(4, &input, 18, &wrong, &wrong), "{wrong:?}");
        }
        assert!(is_alike(4, &input, 17, &Seen::OutOfGas, &Seen::OutOfGas));
        assert!(!is_alike(4, &input, 17, &right, &right));
        // An input that is refused at any price.
        assert!(is_alike(
            0x0b,
            &input,
            1_000,
            &Seen::Refused,
            &Seen::Refused
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
    fn every_contract_of_osaka_is_named_and_no_other() {
        let addresses = PrecompileSet::Osaka.addresses();
        assert_eq!(addresses.len(), CONTRACTS.len());
        for ((address, _), known) in CONTRACTS.iter().zip(addresses) {
            assert_eq!(known.0[18..], address.to_be_bytes());
        }
    }

    #[test]
    fn a_search_ends_where_it_is_told_to() {
        let outcomes = check_precompile_inputs(4, 0..1_000_000, 1, None, &|count| count < 100);
        let count = outcomes.expect("identity").count();
        assert!((100..200).contains(&count), "{count}");
    }
}
