//! Compares whole blocks: executed here sequentially and speculatively, and by go-ethereum's `evm t8n`.
//!
//! A case is a state with the system contracts, a header, transactions of every type and withdrawals, all drawn from
//! one seed for one fork. Each machine drops invalid transactions and runs the others; rejections, receipts, gas,
//! requests, state root and block access list must be equal. This module uses that program's command line and JSON, and
//! none of its code.

mod cast;
mod compare;
mod draft;
mod ours;
mod sign;
mod system;
mod t8n;
#[cfg(test)]
mod tests;

pub use t8n::T8n;

use crate::{Difference, Tally};
use cast::Cast;
use compare::Others;
use draft::Draft;
use niwaki_evm::Dispatch;
use niwaki_primitives::{
    Address, B256, Bloom, Bytes, Fork, Header, Receipt, StateView, TxEnvelope, U256, Withdrawal,
};
use niwaki_testkit::MemoryState;
use ours::Mode;
use rand::{Rng, SeedableRng, rngs::SmallRng};

/// The forks of drawn blocks: those with requests that both machines have.
pub const BLOCK_FORKS: [Fork; 3] = [Fork::Prague, Fork::Osaka, Fork::Amsterdam];

/// Number of the block.
const NUMBER: u64 = 1000;
const MAX_TRANSACTIONS: usize = 8;

/// A block with unsigned transactions, so that some can be removed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    cast: Cast,
    header: Header,
    state: MemoryState,
    drafts: Vec<Draft>,
    withdrawals: Vec<Withdrawal>,
}

/// A block and its pre-state. Some of its transactions may be invalid.
#[derive(Clone, Debug)]
pub(crate) struct BlockCase {
    pub(crate) fork: Fork,
    pub(crate) header: Header,
    pub(crate) state: MemoryState,
    pub(crate) transactions: Vec<(TxEnvelope, Address)>,
    pub(crate) withdrawals: Vec<Withdrawal>,
}

/// The result of a machine for a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The block is invalid after its transactions; the machine's message.
    Invalid(String),
    /// The block, executed without its invalid transactions.
    Done(Box<Done>),
}

/// An executed block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    /// Indices of invalid transactions.
    pub(crate) refused: Vec<usize>,
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) receipt_blooms: Vec<Bloom>,
    pub(crate) logs_bloom: Bloom,
    pub(crate) gas_used: u64,
    pub(crate) blob_gas_used: u64,
    pub(crate) requests: Vec<Bytes>,
    pub(crate) state_root: B256,
    /// RLP.
    pub(crate) block_access_list: Option<Bytes>,
}

impl Plan {
    /// The plan of `seed`.
    pub(crate) fn of(seed: u64, fork: Fork) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let (cast, mut state) = Cast::draw(&mut rng, fork);
        for number in NUMBER - 256..NUMBER {
            let hash = B256::from(U256::from(number * 7));
            state.block_hashes.insert(number, hash);
        }
        let header = draw_header(&mut rng, &cast, &state);
        let count = rng.random_range(1..=MAX_TRANSACTIONS);
        let drafts = (0..count).map(|_| Draft::draw(&mut rng, &cast)).collect();
        let withdrawals = draw_withdrawals(&mut rng, &cast);
        Self {
            cast,
            header,
            state,
            drafts,
            withdrawals,
        }
    }
}

fn draw_header(rng: &mut SmallRng, cast: &Cast, state: &MemoryState) -> Header {
    let gas_limit = match rng.random_range(0..10) {
        0..2 => rng.random_range(100_000..30_000_000),
        2 => 1 << 34,
        _ => 60_000_000,
    };
    let beneficiary = match rng.random_range(0..10) {
        0 => cast.any(rng),
        1 => cast.keys[0].address,
        _ => Address::repeat_byte(0xcb),
    };
    let parent_hash = state.block_hash(NUMBER - 1);
    Header {
        parent_hash: parent_hash.expect("given to the state"),
        number: NUMBER,
        timestamp: 1_700_000_000,
        gas_limit,
        beneficiary,
        difficulty: U256::ZERO,
        mix_hash: B256::from(rng.random::<[u8; 32]>()),
        base_fee_per_gas: Some(rng.random_range(7..1000)),
        excess_blob_gas: Some(rng.random_range(0..40_000_000)),
        blob_gas_used: Some(0),
        parent_beacon_block_root: Some(B256::from(rng.random::<[u8; 32]>())),
        slot_number: (cast.fork >= Fork::Amsterdam).then(|| rng.random()),
        ..Header::default()
    }
}

fn draw_withdrawals(rng: &mut SmallRng, cast: &Cast) -> Vec<Withdrawal> {
    let count = if rng.random_bool(0.5) {
        0
    } else {
        rng.random_range(1..5)
    };
    (0..count)
        .map(|index| Withdrawal {
            index,
            validator_index: rng.random_range(0..100),
            address: cast.any(rng),
            amount: match rng.random_range(0..3) {
                0 => 0,
                1 => 1,
                _ => rng.random_range(0..u64::MAX / 2),
            },
        })
        .collect()
}

/// Runs the block of `seed` with its transactions sequentially and speculatively, and on `peer` if there is one.
///
/// # Errors
/// The [`Difference`], shrunk to the transactions that it needs, with the files that reproduce it.
pub fn check_block(
    seed: u64,
    fork: Fork,
    peer: Option<&T8n>,
    dispatch: Dispatch,
    tally: &mut Tally,
) -> Result<(), Difference> {
    let plan = Plan::of(seed, fork);
    let case = plan.sign();
    let (ours, _) = ours::run(&case, Mode::Sequential(dispatch));
    if let Verdict::Done(done) = &ours {
        count(tally, &case, done);
    }
    let others = Others { dispatch, peer };
    let Some(what) = compare::difference(&case, others) else {
        return Ok(());
    };
    let (plan, what) = compare::shrink(plan, what, others);
    let files = peer.map(|peer| peer.keep(seed, &plan.sign()));
    Err(Difference {
        seed,
        fork,
        what: [what, files.unwrap_or_default()].join("\n"),
        test: None,
    })
}

fn count(tally: &mut Tally, case: &BlockCase, done: &Done) {
    tally.refused += done.refused.len() as u64;
    for receipt in &done.receipts {
        if receipt.status == Some(true) {
            tally.succeeded += 1;
        } else {
            tally.reverted += 1;
        }
    }
    tally.gas += done.gas_used;
    debug_assert_eq!(
        case.transactions.len(),
        done.refused.len() + done.receipts.len()
    );
}
