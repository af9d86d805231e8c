//! A transaction taken from one world to another: what it has read there, and what it has changed.
//!
//! A world that is ahead runs a transaction upon a state that may be old by the time it is the
//! transaction's turn. Its [`Effects`] hold in another world if everything that was read has the same
//! value there; then they can be laid upon it as if the transaction had run there. Who last wrote a
//! value does not matter.
//!
//! Of a balance, more is allowed: what only went up or down without being looked at is kept as a
//! difference, and "is there enough" as the least balance that makes it so. Fees and transfers of
//! several transactions to one account do not disturb each other.

use super::{AccountId, CodeId, SlotId, World, journal::Change};
use crate::code::Code;
use niwaki_primitives::{Account, Address, Fault, Log, U256, map::HashMap};
use std::sync::Arc;

/// What of an account was looked at, beside its code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Looks(u8);

impl Looks {
    pub(super) const BALANCE: Self = Self(1);
    pub(super) const NONCE: Self = Self(2);
    pub(super) const EMPTINESS: Self = Self(4);
    pub(super) const EXISTENCE: Self = Self(8);

    pub(super) const fn with(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }

    const fn has(self, look: Self) -> bool {
        self.0 & look.0 != 0
    }
}

/// What is noted of a transaction that runs ahead, beside the marks on records.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    /// The sender, and the nonce that it was taken to have in the place of the parent state's.
    sender: Option<(AccountId, u64)>,
    /// The least balances in the parent state that allow what was paid.
    needed: HashMap<AccountId, U256>,
    /// Whether it has read what no value of an account or slot tells.
    pub(super) is_opaque: bool,
    /// Accounts that it has got a handle of, some of them more than once.
    accounts: Vec<AccountId>,
    /// Slots likewise, each once.
    slots: Vec<SlotId>,
}

/// What a transaction has read and changed, taken out of the world that it ran in.
#[derive(Debug)]
pub struct Effects {
    accounts: Vec<AccountEffect>,
    slots: Vec<SlotEffect>,
    logs: Vec<Log>,
}

#[derive(Debug)]
struct AccountEffect {
    address: Address,
    /// As it was read.
    parent: Option<Account>,
    /// The nonce it was taken to have, which need not be the one that was read.
    nonce: u64,
    looks: Looks,
    /// The least balance that allows what was paid.
    needed: U256,
    after: Account,
    /// Where it changed.
    code: Option<Arc<Code>>,
    is_accessed: bool,
    is_touched: bool,
    is_destroyed: bool,
}

#[derive(Debug)]
struct SlotEffect {
    /// Index of the account.
    account: usize,
    key: U256,
    before: U256,
    after: U256,
    is_accessed: bool,
}

impl Effects {
    /// Each account that was met, and whether its balance and its nonce were looked at.
    pub fn accounts_read(&self) -> impl Iterator<Item = (Address, bool, bool)> {
        let read = |effect: &AccountEffect| {
            let looks = effect.looks;
            (
                effect.address,
                looks.has(Looks::BALANCE),
                looks.has(Looks::NONCE),
            )
        };
        self.accounts.iter().map(read)
    }

    /// Each slot that was read, if only to change it.
    pub fn slots_read(&self) -> impl Iterator<Item = (Address, U256)> {
        let address = |at: usize| self.accounts[at].address;
        self.slots
            .iter()
            .map(move |slot| (address(slot.account), slot.key))
    }
}

/// Effects that hold, with the handles of what they are about.
#[derive(Debug)]
pub struct Holding {
    accounts: Vec<AccountId>,
    slots: Vec<SlotId>,
}

impl World<'_> {
    /// Begins a transaction ahead of its turn upon a view that has changed: everything but codes is
    /// forgotten.
    pub fn start_over(&mut self) {
        self.account_ids.clear();
        self.accounts.clear();
        self.slot_ids.clear();
        self.slots.clear();
        self.begin_ahead();
    }

    /// Begins a transaction ahead of its turn upon a view of which the changes are told by
    /// [`World::learn_account`] and [`World::learn_slot`]. What the one before has changed is taken back.
    pub fn start_again(&mut self) {
        let Some(ahead) = &mut self.ahead else {
            return self.begin_ahead();
        };
        let accounts = std::mem::take(&mut ahead.accounts);
        for id in std::mem::take(&mut ahead.slots) {
            let slot = &mut self.slots[id.0 as usize];
            slot.current = slot.parent;
            slot.accessed = false;
        }
        for id in accounts {
            let parent = self.record(id).parent;
            self.take_back(id, parent);
        }
        self.begin_ahead();
    }

    fn begin_ahead(&mut self) {
        self.new_codes.clear();
        **self.ahead.get_or_insert_default() = Ahead::default();
        self.begin_transaction();
    }

    /// Makes an account what it is in the parent state, and that no transaction has looked at.
    fn take_back(&mut self, id: AccountId, parent: Option<Account>) {
        let record = self.record_mut(id);
        let before = std::mem::replace(&mut record.current, parent.unwrap_or_default());
        if before.code_hash != record.current.code_hash {
            record.code = CodeId::of_unseen(&record.current);
        }
        record.parent = parent;
        record.exists = parent.is_some();
        record.accessed = false;
        record.looks.take();
        if std::mem::take(&mut record.wiped) {
            self.set_slots(id, |slot| slot.parent);
        }
    }

    /// The view of this world has changed, between two transactions that run ahead: this is an account now.
    pub fn learn_account(&mut self, address: &Address, account: Option<Account>) {
        if let Some(id) = self.id_of(address) {
            self.take_back(id, account);
        }
    }

    /// As [`World::learn_account`], of a slot.
    pub fn learn_slot(&mut self, address: &Address, key: U256, value: U256) {
        let account = self.id_of(address);
        let id = account.and_then(|account| self.id_of_slot(account, &key));
        if let Some(id) = id {
            let slot = &mut self.slots[id.0 as usize];
            (slot.parent, slot.current) = (value, value);
        }
    }

    /// Notes that a transaction that runs ahead may look at an account.
    #[inline]
    pub(super) fn note_account(&mut self, id: AccountId) {
        if let Some(ahead) = &mut self.ahead {
            ahead.accounts.push(id);
        }
    }

    /// As [`World::note_account`], of a slot that the transaction has not seen before.
    #[inline]
    pub(super) fn note_slot(&mut self, id: SlotId) {
        if let Some(ahead) = &mut self.ahead {
            ahead.slots.push(id);
        }
    }

    /// Notes that a balance was enough and so much would be left: the balance of the parent state could
    /// be smaller by that.
    pub(super) fn note_rest(&mut self, id: AccountId, rest: U256) {
        let before = self.record(id).parent.unwrap_or_default().balance;
        if let Some(ahead) = &mut self.ahead {
            let needed = ahead.needed.entry(id).or_default();
            *needed = (*needed).max(before.saturating_sub(rest));
        }
    }

    /// Takes the sender to have this nonce, which the transactions before will have led to.
    pub fn assume_nonce(&mut self, id: AccountId, nonce: u64) {
        self.record_mut(id).current.nonce = nonce;
        if let Some(ahead) = &mut self.ahead {
            ahead.sender = Some((id, nonce));
        }
    }

    /// Takes the transaction out that ran last, and was not ended. `None` if what it has read can't be
    /// told in full.
    pub fn take_effects(&mut self) -> Option<Effects> {
        let ahead = self.ahead.as_mut().filter(|ahead| !ahead.is_opaque)?;
        ahead.accounts.sort_unstable_by_key(|id| id.0);
        ahead.accounts.dedup();
        let ahead = self.ahead.as_ref()?;
        let accounts = ahead.accounts.iter().map(|id| self.effect_on(*id, ahead));
        let accounts = accounts.collect();
        let slots = ahead.slots.iter().map(|id| {
            let slot = self.slot_record(*id);
            let of_account = |id: &AccountId| id.0.cmp(&slot.account.0);
            Some(SlotEffect {
                account: ahead.accounts.binary_search_by(of_account).ok()?,
                key: slot.key,
                before: slot.parent,
                after: slot.current,
                is_accessed: slot.accessed,
            })
        });
        let slots = slots.collect::<Option<_>>()?;
        Some(Effects {
            accounts,
            slots,
            logs: self.take_logs(),
        })
    }

    fn effect_on(&self, id: AccountId, ahead: &Ahead) -> AccountEffect {
        let record = self.record(id);
        let assumed = ahead.sender.filter(|(sender, _)| *sender == id);
        let before = record.parent.unwrap_or_default();
        let has_new_code = record.current.code_hash != before.code_hash;
        AccountEffect {
            address: record.address,
            parent: record.parent,
            nonce: assumed.map_or(before.nonce, |(_, nonce)| nonce),
            looks: record.looks.get(),
            needed: ahead.needed.get(&id).copied().unwrap_or_default(),
            after: record.current,
            code: has_new_code.then(|| self.codes[record.code.0 as usize].clone()),
            is_accessed: record.accessed,
            is_touched: record.touched_tx == self.tx,
            is_destroyed: record.destroyed_tx == self.tx,
        }
    }

    /// Whether effects hold here, between two transactions. They come from a world whose view is the
    /// one of this world, changed by nothing but what this world has changed: what this world has not
    /// seen is therefore as they say.
    ///
    /// # Errors
    /// A [`Fault`] of the view.
    pub fn holds(&mut self, effects: &Effects) -> Result<Option<Holding>, Fault> {
        let mut accounts = Vec::with_capacity(effects.accounts.len());
        for effect in &effects.accounts {
            let id = match self.id_of(&effect.address) {
                Some(id) => id,
                None => self.intern_as(&effect.address, effect.parent),
            };
            if !self.account_holds(id, effect) {
                return Ok(None);
            }
            accounts.push(id);
        }
        let mut slots = Vec::with_capacity(effects.slots.len());
        for effect in &effects.slots {
            let account = accounts[effect.account];
            let id = match self.id_of_slot(account, &effect.key) {
                Some(id) => id,
                // There the other world need not have looked at the parent state.
                None if self.record(account).wiped => self.slot(account, effect.key)?,
                None => self.intern_slot_as(account, effect.key, effect.before),
            };
            if self.slot_value(id) != effect.before {
                return Ok(None);
            }
            slots.push(id);
        }
        Ok(Some(Holding { accounts, slots }))
    }

    fn account_holds(&self, id: AccountId, effect: &AccountEffect) -> bool {
        let record = self.record(id);
        let (now, looks) = (&record.current, effect.looks);
        let before = effect.parent.unwrap_or_default();
        let balance_holds = match looks.has(Looks::BALANCE) {
            true => now.balance == before.balance,
            false => now.balance >= effect.needed,
        };
        balance_holds
            && now.code_hash == before.code_hash
            && (!looks.has(Looks::NONCE) || now.nonce == effect.nonce)
            && (!looks.has(Looks::EMPTINESS) || now.is_empty() == before.is_empty())
            && (!looks.has(Looks::EXISTENCE) || record.exists == effect.parent.is_some())
    }

    /// Lays effects that hold upon this world, as the next transaction. It is to be ended as if it had
    /// run here.
    pub fn adopt(&mut self, effects: Effects, holding: &Holding) {
        self.begin_transaction();
        for (effect, id) in effects.accounts.into_iter().zip(&holding.accounts) {
            self.adopt_account(*id, effect);
        }
        let tx = self.tx;
        for (effect, id) in effects.slots.iter().zip(&holding.slots) {
            let slot = &mut self.slots[id.0 as usize];
            slot.accessed |= effect.is_accessed;
            if effect.after != effect.before {
                slot.seen_tx = tx;
                slot.original = slot.current;
                self.set_slot(*id, effect.after);
            }
        }
        self.logs = effects.logs;
    }

    fn adopt_account(&mut self, id: AccountId, effect: AccountEffect) {
        let before = effect.parent.unwrap_or_default();
        self.record_mut(id).accessed |= effect.is_accessed;
        if effect.is_touched {
            self.touch(id);
        }
        if effect.after.nonce != effect.nonce {
            self.set_nonce(id, effect.after.nonce);
        }
        if effect.after.balance != before.balance {
            let rise = effect.after.balance.wrapping_sub(before.balance);
            self.add_balance(id, rise);
        }
        if let Some(code) = effect.code {
            self.set_known_code(id, code);
        }
        if effect.is_destroyed {
            let tx = self.tx;
            let old = std::mem::replace(&mut self.record_mut(id).destroyed_tx, tx);
            self.destroyed.push(id);
            self.journal.push(Change::Destroyed { account: id, old });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;
    use niwaki_primitives::{Bytes, Fork};
    use niwaki_testkit::{MemoryAccount, MemoryState};

    const CONTRACT: Address = Address::repeat_byte(0xc0);
    const PLAIN: Address = Address::repeat_byte(0xee);
    const KEY: U256 = U256::ZERO;

    fn world(state: &MemoryState) -> World<'_> {
        World::new(state, Table::of(Fork::London))
    }

    /// A slot of a contract that this block has destroyed: who runs ahead has seen no account, and has
    /// not looked at the parent state.
    #[test]
    fn what_a_block_has_destroyed_keeps_its_value_in_the_parent_state() {
        let mut parent = MemoryState::default();
        let mut contract = MemoryAccount {
            nonce: 1,
            ..MemoryAccount::default()
        };
        contract.storage.insert(KEY, U256::from(5));
        parent.insert(CONTRACT, contract);
        let mut world = world(&parent);
        world.begin_transaction();
        let id = world.look_at(&CONTRACT).unwrap();
        world.self_destruct(id, id, false);
        world.end_transaction();

        let without = MemoryState::default();
        let mut ahead = self::world(&without);
        ahead.start_over();
        let id = ahead.look_at(&CONTRACT).unwrap();
        ahead.set_nonce(id, 1);
        let slot = ahead.slot(id, KEY).unwrap();
        ahead.set_slot(slot, U256::from(7));
        let effects = ahead.take_effects().unwrap();

        let holding = world.holds(&effects).unwrap().expect("nothing has changed");
        world.adopt(effects, &holding);
        world.end_transaction();
        let diff = world.diff();
        let (_, change) = &diff.accounts[0];
        let (_, slot) = change.slots[0];
        assert!(change.storage_wiped);
        assert_eq!((slot.prior, slot.new), (U256::from(5), U256::from(7)));
    }

    /// A contract with 5 in slot 0 and 6 in slot 1, and an account that has nothing but ether.
    fn parent() -> MemoryState {
        let mut state = MemoryState::default();
        let mut contract = MemoryAccount {
            nonce: 1,
            code: Bytes::from_static(&[0]).into(),
            ..MemoryAccount::default()
        };
        contract.storage.insert(KEY, U256::from(5));
        contract.storage.insert(U256::ONE, U256::from(6));
        state.insert(CONTRACT, contract);
        let plain = MemoryAccount {
            balance: U256::from(9),
            ..MemoryAccount::default()
        };
        state.insert(PLAIN, plain);
        state
    }

    /// Runs ahead: another value in slot 0, another balance and code, and a look at slot 1.
    fn change_much(world: &mut World<'_>) {
        let id = world.load(&CONTRACT).unwrap();
        let (first, second) = (
            world.slot(id, KEY).unwrap(),
            world.slot(id, U256::ONE).unwrap(),
        );
        world.set_slot(first, U256::from(7));
        assert_eq!(world.slot_value(second), U256::from(6));
        let plain = world.look_at(&PLAIN).unwrap();
        world.set_balance(plain, U256::ZERO);
        world.set_code(plain, &Bytes::from_static(&[1, 2, 3]));
        let code = world.code(plain).unwrap();
        assert_eq!(world.code_at(code).bytes()[..3], [1, 2, 3]);
    }

    #[test]
    fn a_run_ahead_finds_nothing_of_the_one_before_and_tells_nothing_of_it() {
        let state = parent();
        let mut world = world(&state);
        world.start_again();
        change_much(&mut world);
        let first = world.take_effects().unwrap();
        assert_eq!((first.accounts.len(), first.slots.len()), (2, 2));
        world.start_again();
        assert_eq!(world.take_effects().unwrap().accounts.len(), 0);
        world.start_again();
        let id = world.load(&CONTRACT).unwrap();
        let slot = world.slot(id, KEY).unwrap();
        assert_eq!(world.slot_value(slot), U256::from(5));
        let plain = world.load(&PLAIN).unwrap();
        assert_eq!(world.balance(plain), U256::from(9));
        assert_eq!(world.code(plain).unwrap(), CodeId::EMPTY);
        let second = world.take_effects().unwrap();
        assert_eq!((second.accounts.len(), second.slots.len()), (2, 1));
        let slot = &second.slots[0];
        assert_eq!((slot.before, slot.after), (U256::from(5), U256::from(5)));
        let plain = second
            .accounts
            .iter()
            .find(|account| account.address == PLAIN);
        let plain = plain.unwrap();
        assert_eq!(
            (plain.after.balance, plain.is_touched, plain.is_accessed),
            (U256::from(9), false, false)
        );
        assert!(plain.code.is_none());
    }

    #[test]
    fn a_run_ahead_finds_what_was_learnt_and_tells_that_it_has_read_it() {
        let state = parent();
        let mut world = world(&state);
        world.start_again();
        change_much(&mut world);
        world.start_again();
        world.learn_slot(&CONTRACT, KEY, U256::from(50));
        world.learn_account(&PLAIN, None);
        // Of what it has not seen it learns when it looks.
        world.learn_slot(&CONTRACT, U256::from(2), U256::from(1));
        world.learn_account(&Address::repeat_byte(1), None);
        let id = world.load(&CONTRACT).unwrap();
        let slot = world.slot(id, KEY).unwrap();
        assert_eq!(world.slot_original(slot), U256::from(50));
        let plain = world.load(&PLAIN).unwrap();
        assert!(!world.exists(plain));
        let effects = world.take_effects().unwrap();
        assert_eq!(effects.slots[0].before, U256::from(50));
        let plain = effects
            .accounts
            .iter()
            .find(|account| account.address == PLAIN);
        assert_eq!(plain.unwrap().parent, None);
    }
}
