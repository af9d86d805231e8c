//! What comes into the machine and what goes out.

use super::{Candidate, Record};
use crate::wire::{Message, View};
use niwaki_primitives::{Address, B256, Block, Bytes, Header};
use niwaki_rules::{BftRules, ValidatorSet};
use std::sync::Arc;

/// The last block of the chain, and what holds for the next one.
#[derive(Clone, Debug)]
pub struct Head {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// Its timestamp, seconds.
    pub timestamp: u64,
    /// Who proposed it.
    pub coinbase: Address,
    /// The validators of the next block.
    pub validators: ValidatorSet,
    /// The rules of the next block.
    pub rules: Arc<BftRules>,
}

/// What execution says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be voted for.
    Valid,
    /// It breaks a rule.
    Invalid,
    /// This node can't say: its storage failed, or the parent's state is missing.
    Fault,
}

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKind {
    /// After a start, other validators have had their time to connect.
    Start,
    /// The next block is due.
    Block,
    /// The round has had its time.
    Round,
    /// The round change is sent again.
    Resend,
}

/// A timer. There is one of each kind: to set it replaces what was set before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timer {
    /// What it is for.
    pub kind: TimerKind,
    /// Where it was set.
    pub view: View,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The chain has a new head.
    Head(Box<Head>),
    /// A message that is well-formed came; its signatures have been recovered.
    Message {
        /// The message.
        message: Box<Message>,
        /// The bytes that it had.
        bytes: usize,
    },
    /// A timer has run out.
    Timer(Timer),
    /// A block has been executed.
    Judged {
        /// The hash of the block.
        hash: B256,
        /// What came of it.
        verdict: Verdict,
    },
    /// A block has been built.
    Built {
        /// Where it was asked for.
        view: View,
        /// The block, without seals, and the RLP of its access list; `None` if it failed.
        built: Option<(Arc<Block>, Option<Bytes>)>,
    },
    /// A validator is connected.
    PeerUp(Address),
    /// A validator is not connected any more.
    PeerDown(Address),
    /// Whether there is a transaction for the next block.
    Work(bool),
    /// Whether this node's chain is where that of its peers is.
    Level(bool),
}

/// What is to be done, in this order.
#[derive(Clone, Debug)]
pub enum Action {
    /// To be made durable, before anything that follows leaves the node.
    Record(Record),
    /// To be sent to this validator, or to all.
    Send {
        /// To whom.
        to: Option<Address>,
        /// What.
        message: Arc<Message>,
    },
    /// To come back at this time.
    Set {
        /// Which.
        timer: Timer,
        /// When, milliseconds of the clock that events have.
        at_ms: u64,
    },
    /// To build a block on the head, with at least this timestamp. The result is an [`Event::Built`].
    Build {
        /// For where.
        view: View,
        /// Seconds.
        timestamp: u64,
    },
    /// To execute a block. The result is an [`Event::Judged`].
    Judge(Arc<Candidate>),
    /// A quorum has committed: to be imported.
    Finish {
        /// The block.
        candidate: Arc<Candidate>,
        /// Its header, with seals.
        header: Box<Header>,
    },
    /// Blocks are missing, up to this one if it is known.
    Sync {
        /// The block.
        to: Option<u64>,
    },
    /// A validator has signed two different messages of one kind in one round.
    Evidence(Box<[Message; 2]>),
    /// A message of a validator was refused.
    Refused {
        /// Whose.
        author: Address,
        /// Where it belongs.
        view: View,
        /// Which rule it breaks.
        reason: super::Refusal,
    },
    /// Another node signs with the key of this one, which signs nothing any more: one such message.
    Stop(Box<Message>),
}
