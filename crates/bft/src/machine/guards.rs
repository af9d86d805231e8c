//! Rules that the simulator takes out, one at a time, to see that each is needed.

/// A rule of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// It never signs two digests for one height, round and kind.
    OneVote,
    /// What it has signed survives a restart (the simulator drops it).
    Memory,
    /// It signs nothing below the round that it entered.
    RoundsRise,
    /// Only the proposer of a round proposes.
    Proposer,
    /// A proposal after round 0 shows a quorum of round changes.
    RoundChangeQuorum,
    /// Each validator counts once.
    DistinctAuthors,
    /// Only validators count.
    Validators,
    /// A block that a quorum may have committed is proposed again.
    PreparedBlock,
    /// What a round change says was prepared is shown by a quorum of prepares.
    PrepareQuorum,
    /// A block is executed before it is prepared.
    Verdict,
    /// A quorum of prepares comes before a commit.
    CommitAfterPrepares,
    /// A block is finished with a quorum of commits.
    CommitQuorum,
    /// The seal of a commit is its author's.
    CommitSeal,
    /// A prepare and a commit are for the block that was proposed.
    Digest,
    /// It follows to a later round when more validators than can be faulty are there. As timeouts stop
    /// doubling, honest validators stay a round apart for ever without it.
    FollowAhead,
}

impl Guard {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::OneVote,
        Self::Memory,
        Self::RoundsRise,
        Self::Proposer,
        Self::RoundChangeQuorum,
        Self::DistinctAuthors,
        Self::Validators,
        Self::PreparedBlock,
        Self::PrepareQuorum,
        Self::Verdict,
        Self::CommitAfterPrepares,
        Self::CommitQuorum,
        Self::CommitSeal,
        Self::Digest,
        Self::FollowAhead,
    ];
}

/// All rules, but for one at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guards(Option<Guard>);

impl Guards {
    /// All but one: for the simulator.
    pub const fn without(guard: Guard) -> Self {
        Self(Some(guard))
    }

    /// Whether a rule holds.
    pub fn has(self, guard: Guard) -> bool {
        self.0 != Some(guard)
    }
}
