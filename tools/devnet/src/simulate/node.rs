//! A simulated validator: its machine, chain, journal and clock.

use super::chain::SimChain;
use super::scenario::{Scenario, Trouble};
use niwaki_bft::machine::{Ballots, Guard, Machine, Record, Settings, TimerKind};
use niwaki_bft::wire::{Form, Signer};
use niwaki_primitives::{Address, B256, U256};
use niwaki_rules::Vote;
use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct SimNode {
    pub(super) settings: Settings,
    pub(super) chain: SimChain,
    /// What is durable.
    pub(super) journal: Vec<Record>,
    /// `None` while it is down.
    pub(super) machine: Option<Machine>,
    /// Counts its starts: what was under way in an earlier life is lost.
    pub(super) life: u64,
    /// Which setting of a timer counts.
    pub(super) timers: BTreeMap<TimerKind, u64>,
    /// When its last action is done.
    pub(super) busy_until_ms: u64,
    pub(super) skew_ms: i64,
    /// Those to which it is connected.
    pub(super) linked: BTreeSet<usize>,
    pub(super) is_liar: bool,
    /// It has lost what it had signed, and has signed nothing since.
    pub(super) is_wiped: bool,
    pub(super) votes: Vec<Vote>,
}

/// The key of a node.
pub(super) fn signer(number: usize, scenario: &Scenario) -> Signer {
    let form = Form {
        protocol: scenario.protocol,
        has_access_list: false,
    };
    let key = B256::from(U256::from(number as u64 + 1_000));
    Signer::new(form, key).expect("a small number is a key")
}

impl SimNode {
    pub(super) fn new(
        number: usize,
        chain: SimChain,
        scenario: &Scenario,
        rng: &mut SmallRng,
    ) -> Self {
        let skew_ms = match scenario.has(Trouble::Skew) {
            true => rng.random_range(-2_000..2_000),
            false => 0,
        };
        Self {
            settings: Settings {
                signer: signer(number, scenario),
                digest: scenario.digest,
                max_round_timeout_ms: 4_000,
                guards: scenario.guards,
            },
            chain,
            journal: Vec::new(),
            machine: None,
            life: 0,
            timers: BTreeMap::new(),
            busy_until_ms: 0,
            skew_ms,
            linked: BTreeSet::new(),
            is_liar: number < scenario.liars,
            is_wiped: false,
            votes: Vec::new(),
        }
    }

    pub(super) fn address(&self) -> Address {
        self.settings.signer.address()
    }

    /// What its own clock shows.
    pub(super) fn clock_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_add_signed(self.skew_ms)
    }

    /// Starts with what is durable.
    pub(super) fn start(&mut self, now_ms: u64) {
        self.life += 1;
        self.busy_until_ms = now_ms;
        self.timers.clear();
        let mut ballots = match self.is_wiped {
            true => Ballots::unknown(),
            false => Ballots::default(),
        };
        if self.settings.guards.has(Guard::Memory) {
            self.journal.iter().for_each(|record| ballots.add(record));
        }
        let head = self.chain.head();
        self.machine = Some(Machine::new(self.settings.clone(), ballots, head));
    }

    /// Its vote for the next block.
    pub(super) fn vote(&self) -> Option<Vote> {
        let validators = self.chain.validators();
        let mut open = self.votes.iter();
        open.find(|vote| validators.contains(&vote.validator) != vote.is_add)
            .copied()
    }
}
