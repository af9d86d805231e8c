//! The large state of the soak: its genesis file, and calls that read and write it.

use crate::accounts::Account;
use crate::genesis::genesis;
use eyre::{Result, WrapErr, eyre};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, Bytes, U256, hex};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Contracts with large storage.
#[derive(Clone, Debug)]
pub(super) struct Storage {
    contracts: Vec<Address>,
    /// Slots of each contract.
    slots: u32,
}

impl Storage {
    /// `slots` in all, spread evenly over `contracts`.
    pub(super) fn new(contracts: u32, slots: u32) -> Self {
        let address = |index| Address::from_word(keccak256(format!("niwaki soak {index}")));
        Self {
            contracts: (0..contracts).map(address).collect(),
            slots: (slots / contracts.max(1)).max(1),
        }
    }

    /// The contract that a random number picks.
    pub(super) fn contract(&self, random: u64) -> Address {
        let count = self.contracts.len() as u64;
        self.contracts[usize::try_from(random % count).unwrap_or_default()]
    }

    /// Code that adds one to each slot `keccak256(start, n) mod slots`, with n counted down to one. Calldata: start
    /// and n, a word each.
    fn code(&self) -> String {
        let slots = hex::encode(self.slots.to_be_bytes());
        format!("0x6020355f355f525b8060205263{slots}60405f2006805460010190556001900380600757005b")
    }

    /// Writes the genesis file: that of [`genesis`] and the contracts.
    pub(super) fn write(&self, path: &Path, accounts: &[Account], gas_limit: u64) -> Result<()> {
        let text = genesis(accounts, gas_limit);
        let (head, tail) = text
            .split_once(r#""alloc":{"#)
            .ok_or_else(|| eyre!("a genesis file without alloc"))?;
        let at = || format!("can't write {}", path.display());
        let mut out = BufWriter::with_capacity(1 << 20, File::create(path).wrap_err_with(at)?);
        write!(out, r#"{head}"alloc":{{"#).wrap_err_with(at)?;
        let code = self.code();
        for contract in &self.contracts {
            write!(
                out,
                r#""{contract}":{{"balance":"0x0","nonce":"0x1","code":"{code}","storage":{{"#
            )
            .wrap_err_with(at)?;
            for slot in 0..self.slots {
                let comma = if slot == 0 { "" } else { "," };
                write!(out, r#"{comma}"{slot:#066x}":"{:#066x}""#, slot + 1).wrap_err_with(at)?;
            }
            writeln!(out, "}}}},").wrap_err_with(at)?;
        }
        out.write_all(tail.as_bytes()).wrap_err_with(at)?;
        out.flush().wrap_err_with(at)
    }
}

/// Calldata for `count` slots, and the gas limit of writing them.
pub(super) fn storage_call(start: u64, count: u64) -> (Bytes, u64) {
    let words = [U256::from(start), U256::from(count)].map(|word| word.to_be_bytes::<32>());
    (words.concat().into(), 30_000 + count * 6_000)
}
