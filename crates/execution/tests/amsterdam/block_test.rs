//! A fixture: a block with its state, transactions and withdrawals, and the result of executing it.

use alloy_eips::{eip2935, eip4788, eip7002, eip7251, eip8282};
use niwaki_crypto::keccak256;
use niwaki_execution::{ExecuteError, RecoveringBlock, apply_body};
use niwaki_primitives::{
    AccessList, AccountChanges, Address, B256, Block, BlockBody, Bytes, Fork, Header, Log, Receipt,
    SignedAuthorization, TxEip1559, TxEip7702, TxEnvelope, TxKind, U256, Withdrawal, Withdrawals,
    address,
};
use niwaki_rules::{ChainSpec, InvalidBlock};
use niwaki_testkit::{Key, MemoryAccount, MemoryState};
use std::collections::BTreeMap;

/// The contract that transactions call by default.
pub(crate) const MAIN: Address = Address::repeat_byte(0xaa);
/// Another contract, which [`MAIN`] calls.
pub(crate) const OTHER: Address = Address::repeat_byte(0xbb);
/// An account that does not exist.
pub(crate) const ABSENT: Address = Address::repeat_byte(0xdd);
/// An account with a balance and nothing else.
pub(crate) const EXISTING: Address = Address::repeat_byte(0xee);
pub(crate) const COINBASE: Address = Address::repeat_byte(0xcb);
pub(crate) const SYSTEM_ADDRESS: Address = address!("fffffffffffffffffffffffffffffffffffffffe");
/// The default gas limit of a transaction: enough, and below [`CAP`].
pub(crate) const GAS: u64 = 1_000_000;
/// The bound of execution gas per transaction (EIP-7825).
pub(crate) const CAP: u64 = 1 << 24;
const CHAIN_ID: u64 = 1;
pub(crate) const BASE_FEE: u64 = 7;

/// The six system contracts with their code, in the order of their EIPs.
pub(crate) fn system_contracts() -> [(Address, Bytes); 6] {
    let codes = niwaki_testkit::genesis::system_contracts();
    let addresses = [
        eip4788::BEACON_ROOTS_ADDRESS,
        eip2935::HISTORY_STORAGE_ADDRESS,
        eip7002::WITHDRAWAL_REQUEST_PREDEPLOY_ADDRESS,
        eip7251::CONSOLIDATION_REQUEST_PREDEPLOY_ADDRESS,
        eip8282::BUILDER_DEPOSIT_CONTRACT_ADDRESS,
        eip8282::BUILDER_EXIT_CONTRACT_ADDRESS,
    ];
    addresses.map(|address| (address, codes[&address].clone()))
}

fn key(number: u8) -> Key {
    Key::new(keccak256([number]))
}

/// The account of key `number`. Key 0 is the default sender.
pub(crate) fn account_of_key(number: u8) -> Address {
    key(number).address
}

pub(crate) fn sender() -> Address {
    account_of_key(0)
}

/// An authorization by key `number` to delegate to `delegate`.
pub(crate) fn authorize(number: u8, delegate: Address, nonce: u64) -> SignedAuthorization {
    key(number).authorize(CHAIN_ID, delegate, nonce)
}

/// A delegation designator.
pub(crate) fn delegation(to: Address) -> Vec<u8> {
    [&[0xef, 0x01, 0x00], to.as_slice()].concat()
}

/// One transaction.
#[derive(Clone, Debug)]
pub(crate) struct Tx {
    pub(crate) key: u8,
    pub(crate) to: TxKind,
    pub(crate) gas: u64,
    pub(crate) value: u64,
    pub(crate) input: Bytes,
    pub(crate) tip: u128,
    pub(crate) access_list: AccessList,
    pub(crate) authorizations: Vec<SignedAuthorization>,
}

impl Default for Tx {
    fn default() -> Self {
        Self {
            key: 0,
            to: TxKind::Call(MAIN),
            gas: GAS,
            value: 0,
            input: Bytes::new(),
            tip: 1,
            access_list: AccessList::default(),
            authorizations: Vec::new(),
        }
    }
}

impl Tx {
    pub(crate) fn to(to: Address) -> Self {
        Self {
            to: TxKind::Call(to),
            ..Self::default()
        }
    }

    pub(crate) fn create(init: impl Into<Bytes>) -> Self {
        Self {
            to: TxKind::Create,
            input: init.into(),
            ..Self::default()
        }
    }

    pub(crate) fn set_code(authorizations: Vec<SignedAuthorization>) -> Self {
        Self {
            authorizations,
            ..Self::default()
        }
    }

    fn signed(&self, nonce: u64) -> TxEnvelope {
        let (chain_id, gas_limit, value) = (CHAIN_ID, self.gas, U256::from(self.value));
        let (input, access_list) = (self.input.clone(), self.access_list.clone());
        let max_fee_per_gas = u128::from(BASE_FEE) + self.tip;
        if self.authorizations.is_empty() {
            return key(self.key).sign(TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas,
                max_priority_fee_per_gas: self.tip,
                to: self.to,
                value,
                access_list,
                input,
            });
        }
        key(self.key).sign(TxEip7702 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas,
            max_priority_fee_per_gas: self.tip,
            to: *self.to.to().unwrap(),
            value,
            access_list,
            authorization_list: self.authorizations.clone(),
            input,
        })
    }
}

/// A block to execute.
#[derive(Clone, Debug)]
pub(crate) struct BlockTest {
    pub(crate) header: Header,
    pub(crate) state: MemoryState,
    transactions: Vec<(TxEnvelope, Address)>,
    pub(crate) withdrawals: Vec<Withdrawal>,
    nonces: BTreeMap<u8, u64>,
}

/// The result of a block.
#[derive(Clone, Debug)]
pub(crate) struct BlockResult {
    pub(crate) receipts: Vec<Receipt>,
    pub(crate) gas_used: u64,
    pub(crate) requests: Vec<Bytes>,
    /// The block access list, by address.
    pub(crate) bal: BTreeMap<Address, AccountChanges>,
    /// The state after it.
    pub(crate) state: MemoryState,
}

impl BlockTest {
    /// The system contracts, a rich sender, and [`EXISTING`].
    pub(crate) fn new() -> Self {
        let mut state = MemoryState::default();
        for (address, code) in system_contracts() {
            state.insert(address, contract(code));
        }
        let holds = |wei: u64| MemoryAccount {
            balance: U256::from(wei),
            ..MemoryAccount::default()
        };
        state.insert(sender(), holds(u64::MAX));
        state.insert(EXISTING, holds(1));
        state.block_hashes.insert(0, B256::repeat_byte(0x11));
        let header = Header {
            parent_hash: B256::repeat_byte(0x11),
            number: 1,
            timestamp: 1_000,
            gas_limit: 100_000_000,
            beneficiary: COINBASE,
            base_fee_per_gas: Some(BASE_FEE),
            excess_blob_gas: Some(0),
            blob_gas_used: Some(0),
            parent_beacon_block_root: Some(B256::repeat_byte(0x22)),
            slot_number: Some(5),
            ..Header::default()
        };
        Self {
            header,
            state,
            transactions: Vec::new(),
            withdrawals: Vec::new(),
            nonces: BTreeMap::new(),
        }
    }

    /// A block with `code` at [`MAIN`].
    pub(crate) fn running(code: impl Into<Bytes>) -> Self {
        Self::new().code(MAIN, code)
    }

    pub(crate) fn code(mut self, at: Address, code: impl Into<Bytes>) -> Self {
        self.state.insert(at, contract(code));
        self
    }

    pub(crate) fn change(mut self, at: Address, change: impl FnOnce(&mut MemoryAccount)) -> Self {
        let mut account = self.state.accounts.get(&at).cloned().unwrap_or_default();
        change(&mut account);
        self.state.insert(at, account);
        self
    }

    /// Sets a slot.
    pub(crate) fn slot(self, at: Address, key: u64, value: u64) -> Self {
        self.change(at, |account| {
            account.storage.insert(U256::from(key), U256::from(value));
        })
    }

    pub(crate) fn balance(self, at: Address, wei: u64) -> Self {
        self.change(at, |account| account.balance = U256::from(wei))
    }

    /// Adds a transaction with the next nonce of its sender.
    pub(crate) fn then(mut self, tx: Tx) -> Self {
        let from = account_of_key(tx.key);
        let first = self.state.accounts.get(&from).map_or(0, |a| a.nonce);
        let nonce = self.nonces.entry(tx.key).or_insert(first);
        self.transactions.push((tx.signed(*nonce), from));
        *nonce += 1;
        self
    }

    fn apply(&self) -> Result<BlockResult, ExecuteError> {
        let (transactions, senders): (_, Vec<_>) = self.transactions.iter().cloned().unzip();
        let block = Block {
            header: self.header.clone(),
            body: BlockBody {
                transactions,
                ommers: vec![],
                withdrawals: Some(Withdrawals::new(self.withdrawals.clone())),
            },
        };
        let block = RecoveringBlock::new(block, B256::ZERO, senders.into_iter().map(Some));
        let spec = ChainSpec::single(CHAIN_ID, Fork::Amsterdam);
        let executed = apply_body(&spec, &block, &self.state, &mut |_: &_| Ok(B256::ZERO))?;
        let mut state = self.state.clone();
        state.apply(&executed.diff);
        let list = executed.block_access_list.unwrap();
        assert!(list.is_sorted_by(|a, b| a.address < b.address));
        Ok(BlockResult {
            receipts: executed.receipts,
            gas_used: executed.gas_used,
            requests: executed.requests,
            bal: list
                .into_iter()
                .map(|account| (account.address, account))
                .collect(),
            state,
        })
    }

    pub(crate) fn run(&self) -> BlockResult {
        self.apply().unwrap()
    }

    /// The index of the transaction that makes the block invalid, if one does.
    pub(crate) fn invalid_transaction(&self) -> Option<usize> {
        match self.apply() {
            Ok(_) => None,
            Err(ExecuteError::Invalid(InvalidBlock::Transaction { index, .. })) => Some(index),
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether the block is invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        matches!(self.apply(), Err(ExecuteError::Invalid(_)))
    }
}

fn contract(code: impl Into<Bytes>) -> MemoryAccount {
    MemoryAccount {
        nonce: 1,
        code: code.into().into(),
        ..MemoryAccount::default()
    }
}

impl BlockResult {
    /// Gas used by transaction `index`.
    pub(crate) fn gas(&self, index: usize) -> u64 {
        let before = index
            .checked_sub(1)
            .map_or(0, |at| self.receipts[at].cumulative_gas_used);
        self.receipts[index].cumulative_gas_used - before
    }

    pub(crate) fn succeeded(&self, index: usize) -> bool {
        self.receipts[index].status == Some(true)
    }

    /// The words that code has logged.
    pub(crate) fn logged(&self) -> Vec<u64> {
        self.receipts
            .iter()
            .flat_map(|receipt| &receipt.logs)
            .filter(|log| log.address != SYSTEM_ADDRESS)
            .map(|log| u64::try_from(U256::from_be_slice(&log.data.data)).unwrap())
            .collect()
    }

    /// The logged transfers: from, to, wei.
    pub(crate) fn transfers(&self) -> Vec<(Address, Address, u64)> {
        let logs = self.receipts.iter().flat_map(|receipt| &receipt.logs);
        logs.filter(|log| log.address == SYSTEM_ADDRESS)
            .map(transfer)
            .collect()
    }

    pub(crate) fn balance(&self, of: Address) -> Option<U256> {
        self.state.accounts.get(&of).map(|account| account.balance)
    }

    pub(crate) fn nonce(&self, of: Address) -> Option<u64> {
        self.state.accounts.get(&of).map(|account| account.nonce)
    }

    pub(crate) fn code(&self, of: Address) -> Option<Bytes> {
        let account = self.state.accounts.get(&of);
        account.map(|account| Bytes::clone(&account.code))
    }

    pub(crate) fn slot(&self, of: Address, key: u64) -> U256 {
        let account = self.state.accounts.get(&of);
        account
            .and_then(|account| account.storage.get(&U256::from(key)))
            .copied()
            .unwrap_or_default()
    }
}

fn transfer(log: &Log) -> (Address, Address, u64) {
    let address = |at: usize| {
        let word = log.data.topics()[at];
        assert_eq!(word[..12], [0; 12]);
        Address::from_word(word)
    };
    assert_eq!(
        log.data.topics()[0],
        keccak256("Transfer(address,address,uint256)")
    );
    assert_eq!((log.data.topics().len(), log.data.data.len()), (3, 32));
    let value = U256::from_be_slice(&log.data.data);
    (address(1), address(2), u64::try_from(value).unwrap())
}

/// An entry of the block access list with small numbers: changed slots with index and value, read slots, balances,
/// nonces and codes with their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountEntry {
    pub(crate) writes: Vec<(u64, Vec<(u64, u64)>)>,
    pub(crate) reads: Vec<u64>,
    pub(crate) balances: Vec<(u64, u64)>,
    pub(crate) nonces: Vec<(u64, u64)>,
    pub(crate) codes: Vec<(u64, Bytes)>,
}

impl BlockResult {
    /// The entry of an account; numbers above 64 bits become `u64::MAX`.
    pub(crate) fn entry(&self, of: Address) -> Option<AccountEntry> {
        let account = self.bal.get(&of)?;
        let small = |word: &U256| u64::try_from(*word).unwrap_or(u64::MAX);
        let slots = account.storage_changes.iter().map(|slot| {
            let changes = slot.changes.iter();
            let changes = changes.map(|c| (c.block_access_index.0, small(&c.new_value)));
            (small(&slot.slot), changes.collect())
        });
        let balances = account.balance_changes.iter();
        let nonces = account.nonce_changes.iter();
        let codes = account.code_changes.iter();
        Some(AccountEntry {
            writes: slots.collect(),
            reads: account.storage_reads.iter().map(small).collect(),
            balances: balances
                .map(|c| (c.block_access_index.0, small(&c.post_balance)))
                .collect(),
            nonces: nonces
                .map(|c| (c.block_access_index.0, c.new_nonce))
                .collect(),
            codes: codes
                .map(|c| (c.block_access_index.0, c.new_code.clone()))
                .collect(),
        })
    }
}
