//! What one seed draws: a network of validators, and what is done to it.

use niwaki_bft::machine::{DigestForm, Guards};
use niwaki_rules::BftProtocol;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// Messages take up to two seconds, and overtake each other.
    Delays,
    /// Connections end and come back; what was under way is lost.
    Disconnects,
    /// The network falls into two parts.
    Partitions,
    /// The node that finishes a height first is cut off.
    Isolation,
    /// Nodes stop at any action and start again.
    Crashes,
    /// All nodes stop and start again.
    Blackouts,
    /// A node starts again without chain and journal.
    Wipes,
    /// Clocks are up to two seconds off.
    Skew,
    /// Execution takes longer than a round.
    SlowExecution,
    /// Execution fails without a verdict.
    StorageFaults,
    /// Validators are voted in and out.
    Votes,
    /// Some validators lie, as many as may.
    Liars,
}

impl Trouble {
    const ALL: [Self; 12] = [
        Self::Delays,
        Self::Disconnects,
        Self::Partitions,
        Self::Isolation,
        Self::Crashes,
        Self::Blackouts,
        Self::Wipes,
        Self::Skew,
        Self::SlowExecution,
        Self::StorageFaults,
        Self::Votes,
        Self::Liars,
    ];
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) protocol: BftProtocol,
    pub(super) digest: DigestForm,
    /// Validators at the beginning.
    pub(super) validators: usize,
    /// Nodes that may be voted in.
    pub(super) spares: usize,
    /// Validators that lie: the first ones.
    pub(super) liars: usize,
    /// The period, milliseconds; below a second it is that of the milliseconds' key.
    pub(super) period_ms: u64,
    pub(super) empty_period_s: u64,
    pub(super) troubles: BTreeSet<Trouble>,
    /// How long there is trouble, milliseconds.
    pub(super) trouble_ms: u64,
    pub(super) guards: Guards,
}

impl Scenario {
    /// What a seed draws.
    pub(super) fn of_seed(seed: u64, guards: Guards) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let sizes = [1, 2, 3, 4, 4, 4, 4, 5, 6, 7, 7, 10];
        let validators = *sizes.choose(&mut rng).unwrap_or(&4);
        let protocol = match rng.random_bool(0.5) {
            true => BftProtocol::Qbft,
            false => BftProtocol::Ibft2,
        };
        let likely = rng.random_range(0.1..0.5);
        let mut troubles: BTreeSet<Trouble> = Trouble::ALL
            .into_iter()
            .filter(|_| rng.random_bool(likely))
            .collect();
        // Each spends what may be faulty, so there is one of them at a time.
        let spent = [Trouble::Liars, Trouble::Votes, Trouble::Wipes];
        let chosen = *spent.choose(&mut rng).unwrap_or(&Trouble::Liars);
        for other in spent.into_iter().filter(|other| *other != chosen) {
            troubles.remove(&other);
        }
        let may_be_faulty = (validators - 1) / 3;
        let has = |trouble| troubles.contains(&trouble);
        Self {
            seed,
            protocol,
            digest: match protocol == BftProtocol::Qbft && rng.random_bool(0.3) {
                true => DigestForm::RoundZero,
                false => DigestForm::OwnRound,
            },
            validators,
            spares: if has(Trouble::Votes) { 2 } else { 0 },
            liars: if has(Trouble::Liars) {
                may_be_faulty
            } else {
                0
            },
            period_ms: *[1_000, 1_000, 1_000, 200, 500]
                .choose(&mut rng)
                .unwrap_or(&1_000),
            empty_period_s: if rng.random_bool(0.2) { 3 } else { 0 },
            trouble_ms: rng.random_range(4_000..20_000),
            troubles,
            guards,
        }
    }

    pub(super) fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// The same run with less in it, smallest change last.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let without = self.troubles.iter().map(|trouble| {
            let mut smaller = self.clone();
            smaller.troubles.remove(trouble);
            if *trouble == Trouble::Liars {
                smaller.liars = 0;
            }
            smaller
        });
        let shorter = (self.trouble_ms > 2_000).then(|| Self {
            trouble_ms: self.trouble_ms / 2,
            ..self.clone()
        });
        let fewer = (self.validators > 4).then(|| Self {
            validators: 4,
            liars: self.liars.min(1),
            ..self.clone()
        });
        fewer.into_iter().chain(without).chain(shorter).collect()
    }
}
