//! The calls of each kind of transaction, and the state that they need to succeed.

use super::abi::{call, call_swap, word};
use super::contracts::{
    Contract, HOLDING, LAST_OF_SECOND, LEDGERS, NFTS, POOLS, SPACING, TOKEN_INIT, TOKENS, signed,
};
use super::genesis::{Filling, Size};
use super::mix::Kind;
use super::population::{Senders, TOKENS_PER_SENDER, account, token_of};
use crate::random::Random;
use eyre::Result;
use niwaki_primitives::{Address, Bytes, TxKind, U256, hex};

/// A thousandth of an ether, or of a token.
const MILLI: u128 = 1_000_000_000_000_000;

/// A call before it is signed.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    pub(super) sender: u64,
    pub(super) to: TxKind,
    pub(super) value: U256,
    pub(super) input: Bytes,
    /// Steps of work, for kinds whose work varies.
    pub(super) steps: u64,
}

/// A sender's liquidity in a pool.
#[derive(Clone, Copy, Debug)]
struct Position {
    owner: u64,
    pool: usize,
    lower: i32,
    upper: i32,
    amount: u128,
}

/// An NFT.
#[derive(Clone, Copy, Debug)]
struct Nft {
    owner: u64,
    collection: u64,
    id: u64,
}

/// Makes calls and tracks the state that they lead to.
#[derive(Debug)]
pub(super) struct Calls {
    seed: u64,
    accounts: u64,
    /// Accounts created so far.
    fresh: u64,
    filling: Filling,
    /// Owner, spender and token.
    approvals: Vec<(u64, u64, u64)>,
    nfts: Vec<Nft>,
    next_ids: Vec<u64>,
    positions: Vec<Position>,
    /// Net amount of token 0 sold to each pool.
    sold: [i128; POOLS.len()],
}

impl Calls {
    pub(super) fn new(size: &Size, filling: Filling) -> Self {
        Self {
            seed: size.seed,
            accounts: size.accounts,
            fresh: 0,
            approvals: Vec::new(),
            nfts: Vec::new(),
            next_ids: (0..NFTS).map(|_| filling.nfts).collect(),
            positions: Vec::new(),
            sold: [0; POOLS.len()],
            filling,
        }
    }

    /// A call of `kind` by `sender`, or by another sender if the kind needs it.
    pub(super) fn of(
        &mut self,
        kind: Kind,
        random: &mut Random,
        senders: &Senders,
        sender: u64,
    ) -> Result<Call> {
        Ok(match kind {
            Kind::TokenTransfer => self.token_transfer(random, senders, sender)?,
            Kind::TokenTransferFrom => self.transfer_from(random, senders, sender)?,
            Kind::Approve => self.approve(random, senders, sender)?,
            Kind::PairSwap => pair_swap(random, sender),
            Kind::PoolSwap => self.pool_swap(random, sender),
            Kind::PoolMint => self.pool_mint(random, sender),
            Kind::NftMint => self.mint(random, senders, sender)?,
            Kind::NftTransfer => self.nft_transfer(random, senders, sender)?,
            Kind::Deploy => Call {
                sender,
                to: TxKind::Create,
                input: hex::decode(TOKEN_INIT.trim())?.into(),
                ..Call::default()
            },
            Kind::FactoryMake => {
                let token = word(Contract::Token(token_of(sender, 0)).address());
                let input = call("make(address,uint256)", &[token, U256::from(random.next())]);
                contract_call(sender, Contract::Factory, input)
            }
            Kind::LedgerAppend => ledger(random, sender, "append", 5, 15),
            Kind::LedgerUpdate => ledger(random, sender, "update", 10, 50),
            Kind::LedgerSum => ledger(random, sender, "sum", 20, 100),
            Kind::Compute => compute(random, sender),
            Kind::Revert => revert(random, sender),
            Kind::Transfer | Kind::Blob | Kind::SetCode | Kind::WalletBatch | Kind::Growth => {
                self.transfer(random, sender)
            }
        })
    }

    fn transfer(&mut self, random: &mut Random, sender: u64) -> Call {
        let milli = 1 + random.skewed(1_000);
        Call {
            sender,
            to: TxKind::Call(self.recipient(random)),
            value: U256::from(MILLI) * U256::from(milli),
            ..Call::default()
        }
    }

    /// The call of a blob transaction.
    pub(super) fn inbox(&mut self, random: &mut Random, sender: u64) -> Call {
        // Few inboxes, as rollups have.
        let inbox = account(self.seed, sender % 8);
        Call {
            sender,
            to: TxKind::Call(inbox),
            input: random.word().to_vec().into(),
            ..Call::default()
        }
    }

    /// An existing account, or in one of five cases a new one.
    fn recipient(&mut self, random: &mut Random) -> Address {
        if self.accounts == 0 || random.per_mille(200) {
            self.fresh += 1;
            return account(self.seed, self.accounts + self.fresh);
        }
        account(self.seed, random.skewed(self.accounts))
    }

    pub(super) fn token_transfer(
        &mut self,
        random: &mut Random,
        senders: &Senders,
        sender: u64,
    ) -> Result<Call> {
        let token = token_of(sender, random.skewed(TOKENS_PER_SENDER));
        let to = self.token_recipient(random, senders, token)?;
        let amount = U256::from(MILLI) * U256::from(1 + random.skewed(1_000_000));
        let input = call("transfer(address,uint256)", &[word(to), amount]);
        Ok(contract_call(sender, Contract::Token(token), input))
    }

    /// In three of five cases a holder of the token, else a sender or any account.
    fn token_recipient(
        &mut self,
        random: &mut Random,
        senders: &Senders,
        token: u64,
    ) -> Result<Address> {
        let index = usize::try_from(token)?;
        let holders = self.filling.holders.get(index).copied().unwrap_or(0);
        Ok(match random.below(5) {
            0..=2 if holders > 0 => account(self.seed, random.skewed(holders)),
            3 => senders.key(random.below(senders.count()))?.address,
            _ => self.recipient(random),
        })
    }

    fn approve(&mut self, random: &mut Random, senders: &Senders, sender: u64) -> Result<Call> {
        let token = token_of(sender, random.skewed(TOKENS_PER_SENDER));
        let spender = random.skewed(senders.count());
        let amount = U256::from(HOLDING) << 20;
        let to = if random.per_mille(500) || spender == sender {
            Contract::Router.address()
        } else {
            self.approvals.push((sender, spender, token));
            senders.key(spender)?.address
        };
        let input = call("approve(address,uint256)", &[word(to), amount]);
        Ok(contract_call(sender, Contract::Token(token), input))
    }

    fn transfer_from(
        &mut self,
        random: &mut Random,
        senders: &Senders,
        sender: u64,
    ) -> Result<Call> {
        let count = self.approvals.len() as u64;
        if count == 0 {
            return self.token_transfer(random, senders, sender);
        }
        let (owner, spender, token) = self.approvals[usize::try_from(random.below(count))?];
        let to = self.token_recipient(random, senders, token)?;
        let amount = U256::from(MILLI) * U256::from(1 + random.skewed(1_000_000));
        let words = [word(senders.key(owner)?.address), word(to), amount];
        let input = call("transferFrom(address,address,uint256)", &words);
        Ok(contract_call(spender, Contract::Token(token), input))
    }

    fn pool_swap(&mut self, random: &mut Random, sender: u64) -> Call {
        let number = random.skewed(POOLS.len() as u64);
        let at = usize::try_from(number).unwrap_or(0);
        let amount = i128::from(100 + random.skewed(1_000) * 50);
        // Mostly against the past price movement, so that the price stays where the liquidity is.
        let down = (self.sold[at] <= 0) == random.per_mille(650);
        self.sold[at] += if down { amount } else { -amount };
        let words = [
            word(Contract::Pool(at).address()),
            U256::from(down),
            U256::from(amount.unsigned_abs() * 1000 * MILLI),
            U256::ONE,
        ];
        let input = call("swapIn(address,bool,uint256,uint256)", &words);
        contract_call(sender, Contract::Router, input)
    }

    /// Adds liquidity, or in 35 % of the cases removes liquidity that was added before.
    fn pool_mint(&mut self, random: &mut Random, sender: u64) -> Call {
        let count = self.positions.len() as u64;
        if count > 0 && random.per_mille(350) {
            let at = usize::try_from(random.below(count)).unwrap_or(0);
            let position = self.positions.swap_remove(at);
            let words = [
                signed(position.lower),
                signed(position.upper),
                U256::from(position.amount),
            ];
            let input = call("burn(int24,int24,uint128)", &words);
            return contract_call(position.owner, Contract::Pool(position.pool), input);
        }
        let number = random.skewed(POOLS.len() as u64);
        let ticks = |random: &mut Random| i32::try_from(1 + random.skewed(60)).unwrap_or(1);
        let position = Position {
            owner: sender,
            pool: usize::try_from(number).unwrap_or(0),
            lower: -ticks(random) * SPACING,
            upper: ticks(random) * SPACING,
            amount: u128::from(random.next() >> 4),
        };
        self.positions.push(position);
        let words = [
            word(Contract::Pool(position.pool).address()),
            signed(position.lower),
            signed(position.upper),
            U256::from(position.amount),
        ];
        let input = call("mint(address,int24,int24,uint128)", &words);
        contract_call(sender, Contract::Router, input)
    }

    fn mint(&mut self, random: &mut Random, senders: &Senders, sender: u64) -> Result<Call> {
        let collection = random.skewed(NFTS);
        let count = 1 + random.below(4);
        let next = &mut self.next_ids[usize::try_from(collection)?];
        for id in *next..*next + count {
            self.nfts.push(Nft {
                owner: sender,
                collection,
                id,
            });
        }
        *next += count;
        let words = [word(senders.key(sender)?.address), U256::from(count)];
        let input = call("mint(address,uint256)", &words);
        Ok(Call {
            steps: count,
            ..contract_call(sender, Contract::Nft(collection), input)
        })
    }

    fn nft_transfer(
        &mut self,
        random: &mut Random,
        senders: &Senders,
        sender: u64,
    ) -> Result<Call> {
        let count = self.nfts.len() as u64;
        if count == 0 {
            return self.mint(random, senders, sender);
        }
        let to = random.below(senders.count());
        let nft = &mut self.nfts[usize::try_from(random.below(count))?];
        let from = std::mem::replace(&mut nft.owner, to);
        let words = [
            word(senders.key(from)?.address),
            word(senders.key(to)?.address),
            U256::from(nft.id),
        ];
        let input = call("transferFrom(address,address,uint256)", &words);
        Ok(contract_call(from, Contract::Nft(nft.collection), input))
    }
}

/// Sells through one pair, or through two that share token 0.
fn pair_swap(random: &mut Random, sender: u64) -> Call {
    let first = token_of(sender, random.skewed(TOKENS_PER_SENDER));
    let other = 1 + random.skewed(TOKENS - 1);
    let tokens = match first {
        0 => vec![0, other],
        1 if random.per_mille(300) => vec![1, 2 + random.skewed(LAST_OF_SECOND - 1)],
        _ if other != first && random.per_mille(350) => vec![first, 0, other],
        _ => vec![first, 0],
    };
    let pairs = tokens.windows(2).map(|two| match *two {
        [a, b] if a == 0 || (a == 1 && b != 0) => Contract::Pair(a, b).address(),
        [a, b] => Contract::Pair(b, a).address(),
        _ => Address::ZERO,
    });
    let pairs: Vec<Address> = pairs.collect();
    let addresses: Vec<Address> = tokens
        .iter()
        .map(|token| Contract::Token(*token).address())
        .collect();
    let amount = U256::from(MILLI) * U256::from(1_000 + random.skewed(100_000_000));
    let input = call_swap(&addresses, &pairs, amount, U256::ONE);
    Call {
        steps: pairs.len() as u64,
        ..contract_call(sender, Contract::Router, input)
    }
}

fn ledger(random: &mut Random, sender: u64, what: &str, least: u64, more: u64) -> Call {
    let steps = least + random.below(more);
    let signature = format!("{what}(uint256,uint256)");
    let input = call(&signature, &[seed(random), U256::from(steps)]);
    let list = Contract::Ledger(random.skewed(LEDGERS));
    Call {
        steps,
        ..contract_call(sender, list, input)
    }
}

fn compute(random: &mut Random, sender: u64) -> Call {
    let (what, least, more) = match random.below(4) {
        0 => ("hash", 200, 1_000),
        1 => ("sort", 40, 100),
        2 => ("power", 500, 2_500),
        _ => ("recover", 20, 60),
    };
    let signature = format!("{what}(uint256,uint256)");
    let steps = U256::from(least + random.below(more));
    let input = call(&signature, &[seed(random), steps]);
    contract_call(sender, Contract::Compute, input)
}

/// A call that fails: reverted by a contract, for lack of tokens, or for too little output.
fn revert(random: &mut Random, sender: u64) -> Call {
    match random.below(10) {
        0..=4 => {
            // The variant that uses all its gas is rare.
            let variant = random.skewed(5);
            let words = [U256::from(variant), U256::from(1 + random.below(3))];
            let input = call("refuse(uint256,uint256)", &words);
            contract_call(sender, Contract::Refuser, input)
        }
        5..=7 => {
            let token = Contract::Token(token_of(sender, random.skewed(TOKENS_PER_SENDER)));
            let words = [word(Contract::Router.address()), U256::MAX >> 1];
            contract_call(sender, token, call("transfer(address,uint256)", &words))
        }
        _ => {
            let other = 1 + random.skewed(TOKENS - 1);
            let tokens = [0, other].map(|token| Contract::Token(token).address());
            let pair = Contract::Pair(0, other).address();
            let input = call_swap(&tokens, &[pair], U256::from(MILLI), U256::MAX);
            contract_call(sender, Contract::Router, input)
        }
    }
}

fn seed(random: &mut Random) -> U256 {
    U256::from_be_bytes(random.word())
}

fn contract_call(sender: u64, contract: Contract, input: Bytes) -> Call {
    Call {
        sender,
        to: TxKind::Call(contract.address()),
        input,
        ..Call::default()
    }
}
