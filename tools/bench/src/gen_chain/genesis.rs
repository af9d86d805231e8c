//! The genesis file of a generated chain: contracts, balances, accounts. It is streamed to disk, so memory does not grow
//! with it.

use super::contracts::{
    Contract, HOLDING, LEDGERS, NFTS, RESERVE, TOKENS, of_address, of_addresses, of_word,
};
use super::population::{CHAIN_ID, Senders, TOKENS_PER_SENDER, account, token_of};
use clap::ValueEnum;
use eyre::{Result, ensure};
use niwaki_primitives::{Address, B256, Fork, U256};
use niwaki_testkit::genesis;
use std::collections::BTreeMap;
use std::io::Write;

/// The fork of a chain from its first block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ChainFork {
    Prague,
    Osaka,
    Amsterdam,
}

/// The size of the genesis state.
#[derive(Clone, Debug)]
pub(super) struct Size {
    /// Accounts other than senders and contracts.
    pub(super) accounts: u64,
    /// Slots of all contracts.
    pub(super) slots: u64,
    pub(super) gas_limit: u64,
    pub(super) fork: ChainFork,
    pub(super) seed: u64,
    /// Whether the first blocks make more of it.
    pub(super) has_growth: bool,
}

/// How the slots that senders and contracts do not need are distributed.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    /// Number of accounts that hold each token.
    pub(super) holders: Vec<u64>,
    /// NFTs of each collection.
    pub(super) nfts: u64,
    /// Entries of each list.
    pub(super) entries: u64,
}

/// Wei of every sender: full blocks let the base fee grow without bound.
const WEALTH: U256 = U256::from_limbs([0, 0, 1, 0]);
/// Token balances per thousand of the remaining slots; NFTs and lists share the others.
const HOLDERS_PER_MILLE: u64 = 800;

impl Filling {
    /// Distributes the slots of `size` that remain after the needs of `senders`.
    pub(super) fn new(size: &Size, senders: u64) -> Result<Self> {
        let least = needed_slots(senders);
        ensure!(
            size.slots >= least,
            "--slots {} is less than the {least} that {senders} senders and the contracts need; give \
             more of them or fewer --senders",
            size.slots
        );
        let spare = size.slots - least;
        let holders: Vec<u64> = ranked_shares(spare / 1000 * HOLDERS_PER_MILLE).collect();
        let rest = spare - holders.iter().sum::<u64>();
        let nfts = rest / 2 / NFTS;
        // The remainder of the division is not used.
        let entries = (rest - nfts * NFTS) / LEDGERS;
        Ok(Self {
            holders,
            nfts,
            // A list needs an entry that can be changed.
            entries: entries + 1,
        })
    }
}

/// `slots` in as many parts as there are tokens: the second has half as many as the first, the third a third, and so on.
pub(super) fn ranked_shares(slots: u64) -> impl Iterator<Item = u64> {
    let all: u64 = (1..=TOKENS).map(|rank| 1_000_000 / rank).sum();
    (1..=TOKENS).map(move |rank| {
        let share = u128::from(slots) * u128::from(1_000_000 / rank) / u128::from(all);
        u64::try_from(share).unwrap_or(0)
    })
}

/// The least number of slots.
fn needed_slots(senders: u64) -> u64 {
    let all = Contract::all();
    let own: usize = all.iter().map(|contract| contract.storage().len()).sum();
    let is_pair = |one: &&Contract| matches!(one, Contract::Pair(..) | Contract::Pool(_));
    let pairs = all.iter().filter(is_pair).count();
    // Pairs and pools hold two tokens each; tokens, collections and lists have a counter; a list has an entry.
    senders * TOKENS_PER_SENDER * 2 + (own + 2 * pairs) as u64 + TOKENS + NFTS + 2 * LEDGERS
}

/// Writes the file.
pub(super) fn write(
    out: &mut dyn Write,
    size: &Size,
    filling: &Filling,
    senders: &Senders,
) -> Result<()> {
    write_head(out, size)?;
    write_system(out)?;
    for contract in Contract::all() {
        write!(
            out,
            "\"{:x}\":{{\"balance\":\"0x0\",\"nonce\":\"0x1\",\"code\":\"0x{}\"",
            contract.address(),
            contract.code()
        )?;
        write_storage(out, contract, size, filling, senders)?;
        writeln!(out, "}},")?;
    }
    if size.has_growth {
        write_growing(out)?;
    }
    for number in 0..size.accounts {
        // A thousandth of an ether and more, different for each account.
        let balance = 1_000_000_000_000_000_u64 + number * 1_000_003;
        let address = account(size.seed, number);
        writeln!(out, "\"{address:x}\":{{\"balance\":\"{balance:#x}\"}},")?;
    }
    for (at, sender) in senders.all().iter().enumerate() {
        let comma = if at == 0 { "" } else { ",\n" };
        let address = sender.key.address;
        write!(
            out,
            "{comma}\"{address:x}\":{{\"balance\":\"{WEALTH:#x}\"}}"
        )?;
    }
    writeln!(out, "\n}}}}")?;
    Ok(())
}

fn write_head(out: &mut dyn Write, size: &Size) -> Result<()> {
    let fork = match size.fork {
        ChainFork::Prague => Fork::Prague,
        ChainFork::Osaka => Fork::Osaka,
        ChainFork::Amsterdam => Fork::Amsterdam,
    };
    let config = genesis::config(CHAIN_ID, fork, 0);
    let zero = B256::ZERO;
    writeln!(
        out,
        "{{\"config\":{config},\n\"nonce\":\"0x0\",\"timestamp\":\"0x0\",\"extraData\":\"0x\",\
         \"gasLimit\":\"{:#x}\",\"difficulty\":\"0x0\",\"mixHash\":\"{zero}\",\
         \"coinbase\":\"{}\",\"baseFeePerGas\":\"0x7\",\"excessBlobGas\":\"0x0\",\
         \"blobGasUsed\":\"0x0\",\n\"alloc\":{{",
        size.gas_limit,
        Address::ZERO
    )?;
    Ok(())
}

/// The system contracts, all of them for every fork: before its fork, one is never called.
fn write_system(out: &mut dyn Write) -> Result<()> {
    for (address, code) in genesis::system_contracts() {
        writeln!(out, "\"{address:x}\":{},", genesis::contract(code))?;
    }
    Ok(())
}

/// The contracts that the first blocks call.
fn write_growing(out: &mut dyn Write) -> Result<()> {
    for contract in Contract::growing() {
        writeln!(
            out,
            "\"{:x}\":{{\"balance\":\"{WEALTH:#x}\",\"nonce\":\"0x1\",\"code\":\"0x{}\"}},",
            contract.address(),
            contract.code()
        )?;
    }
    Ok(())
}

fn write_storage(
    out: &mut dyn Write,
    contract: Contract,
    size: &Size,
    filling: &Filling,
    senders: &Senders,
) -> Result<()> {
    let mut before = ",\"storage\":{";
    let mut put = |slot: B256, value: U256| -> Result<()> {
        let digits = format!("{value:x}");
        let pad = if digits.len() % 2 == 1 { "0" } else { "" };
        write!(out, "{before}\"{slot}\":\"0x{pad}{digits}\"")?;
        before = ",";
        Ok(())
    };
    for (slot, value) in contract.storage() {
        put(slot, value)?;
    }
    match contract {
        Contract::Token(number) => {
            put(B256::ZERO, U256::from(HOLDING) << 32)?;
            for (owner, amount) in owners(number) {
                put(of_address(owner, 1), U256::from(amount))?;
            }
            let router = Contract::Router.address();
            for (at, sender) in (0_u64..).zip(senders.all()) {
                if (0..TOKENS_PER_SENDER).any(|index| token_of(at, index) == number) {
                    put(of_address(sender.key.address, 1), U256::from(HOLDING))?;
                    // Every second allowance is the maximum, which transfers do not reduce.
                    let allowed = match at % 2 {
                        0 => U256::MAX,
                        _ => U256::from(HOLDING) << 20,
                    };
                    put(of_addresses(sender.key.address, router, 2), allowed)?;
                }
            }
            let holders = usize::try_from(number).ok();
            let holders = holders.and_then(|number| filling.holders.get(number));
            for at in 0..holders.copied().unwrap_or(0) {
                let amount = U256::from(1_000_000_000_000_000_000_u64) + U256::from(at * 7919);
                put(of_address(account(size.seed, at), 1), amount)?;
            }
        }
        Contract::Nft(_) => {
            if filling.nfts > 0 {
                put(B256::ZERO, U256::from(filling.nfts))?;
            }
            for id in 0..filling.nfts {
                let owner = super::abi::word(account(size.seed, id));
                put(of_word(U256::from(id), 1), owner)?;
            }
        }
        Contract::Ledger(number) => {
            put(B256::ZERO, U256::from(filling.entries))?;
            for at in 0..filling.entries {
                let value = U256::from(number + 1) << 128 | U256::from(at + 1);
                put(of_word(U256::from(at), 1), value)?;
            }
        }
        _ => {}
    }
    // Close the object if anything was written.
    if before == "," {
        write!(out, "}}")?;
    }
    Ok(())
}

/// The pairs and pools that hold a token.
fn owners(token: u64) -> BTreeMap<Address, u128> {
    let all = Contract::all().into_iter();
    let owners = all.filter_map(|contract| {
        let (tokens, amount) = match contract {
            Contract::Pair(a, b) => ((a, b), RESERVE),
            Contract::Pool(at) => (super::contracts::POOLS[at], HOLDING),
            _ => return None,
        };
        let is_of = tokens.0 == token || tokens.1 == token;
        is_of.then(|| (contract.address(), amount))
    });
    owners.collect()
}
