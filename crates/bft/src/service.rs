//! A validator in a node: the machine with its clock, its disk, its chain and its peers.
//!
//! ```text
//! peers --bytes--> Door (seen? validator? recovered) --+
//! chain --head--> blocks thread (who validates next) --+--> machine thread --records, messages, blocks--> journal thread --> peers
//!                    ^  | verdicts, built blocks ------+         |                                             | finished blocks
//!                    |  +<------------- to judge, to build ------+                                             |
//!                    +<----------------------------------------------------------------------------------------+
//! ```
//!
//! | thread | what it does |
//! |---|---|
//! | `bft` | one event after the other through the machine; timers |
//! | `bft-journal` | makes records durable, then sends what follows them, in the machine's order |
//! | `bft-blocks` | executes proposals, builds blocks, imports finished ones |
//!
//! The threads that receive messages recover who signed them. The machine's thread never waits for a disk, an execution or a peer.

mod ahead;
mod block_size;
mod blocks;
mod door;
mod metrics;
mod outbox;
mod relays;
mod timers;
mod worker;

use crate::PendingVotes;
use crate::journal::{Journal, JournalSync};
use crate::machine::{
    Ballots, DigestForm, Event, Guards, Head, Machine, Phase, Settings, TimerKind,
};
use crate::wire::{Form, KeyError, Message, Signer, View};
use ahead::Ahead;
use block_size::BlockSize;
use blocks::{Blocks, Job};
use door::Door;
use niwaki_chain::{
    BlockTemplate, BuildError, BuiltBlock, Chain, HeadChange, ImportError, Imported, JudgedBlock,
    StoredHeader,
};
use niwaki_primitives::{Address, B256, Block, Bytes, Fault, Header};
use niwaki_rules::{BftProtocol, BftRules, ChainSpec, ValidatorSet};
use outbox::{Effect, Outbox};
use relays::{Relay, Relays};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};
use timers::Timers;
use tracing::info;
use worker::Worker;

/// What the node does for its validator.
pub trait ValidatorHost: Send + Sync {
    /// Fills a block with what the pool has and gets, until it is full or `should_end` holds.
    ///
    /// # Errors
    /// [`BuildError`].
    fn build_ahead(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError>;

    /// The senders of a block's transactions, those that are known.
    fn senders(&self, block: &Block) -> Vec<Option<Address>>;

    /// Whether this validator may vote for a block upon the head: a rule of the operator, which says nothing of blocks that others sealed.
    fn may_vote(&self, block: &Block) -> bool;

    /// Builds a block of the pool's transactions.
    ///
    /// # Errors
    /// [`BuildError`].
    fn build(&self, template: BlockTemplate) -> Result<(BuiltBlock, JudgedBlock), BuildError>;

    /// Sends a message, of this number, to a validator or to all that are connected.
    fn send(&self, protocol: BftProtocol, to: Option<Address>, code: u8, bytes: &Bytes);

    /// Gets blocks that are missing, up to this one if it is known.
    fn sync(&self, to: Option<u64>);

    /// A block of the validators was imported.
    fn imported(&self, header: &Header, imported: &Imported);
}

/// How a validator is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its key: that of the node.
    pub key: B256,
    /// How blocks are named in what it signs.
    pub digest: DigestForm,
    /// Whether proposals and round changes have a place for an access list.
    pub has_access_list: bool,
    /// The longest timeout of a round, milliseconds.
    pub max_round_timeout_ms: u64,
    /// The folder of its records.
    pub folder: PathBuf,
    /// What its records survive.
    pub journal_sync: JournalSync,
    /// Whether it signs although its records are missing.
    pub accepts_missing_journal: bool,
    /// The operator's bytes in the extra data.
    pub vanity: B256,
    /// The gas limit that its blocks approach.
    pub target_gas_limit: Option<u64>,
}

/// Why a validator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Validators do not agree on the next block of this chain.
    #[error("the chain is none of IBFT 2.0 or QBFT")]
    NotBft,
    /// The key is none.
    #[error("the node's key: {0}")]
    Key(#[from] KeyError),
    /// The validators of the next block can't be read.
    #[error(transparent)]
    Chain(#[from] ImportError),
    /// The disk failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A thread did not start.
    #[error("can't start the threads of the validator: {0}")]
    Thread(std::io::Error),
}

/// Where a validator is.
#[derive(Clone, Debug)]
pub struct Status {
    /// Its own address.
    pub address: Address,
    /// Height and round.
    pub view: View,
    /// How far it is in the round.
    pub phase: Phase,
    /// The validators of this height.
    pub validators: ValidatorSet,
    /// The nodes to which it is connected.
    pub connected: BTreeSet<Address>,
    /// How many blocks it has executed since the start: proposals, its own, and those that a quorum finished before it had seen them. Not what
    /// the sync imports.
    pub executions: u64,
}

enum Input {
    Event(Event),
    /// A message of a peer.
    Message {
        message: Box<Message>,
        relay: Box<Relay>,
    },
    Stop,
}

/// A running validator.
pub struct Service {
    inputs: Sender<Input>,
    jobs: Sender<Job>,
    effects: Sender<Effect>,
    door: Arc<Door>,
    status: Arc<Mutex<Status>>,
    votes: Arc<PendingVotes>,
    has_lost_records: bool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").finish_non_exhaustive()
    }
}

impl Service {
    /// Starts a validator of a chain. It does nothing until [`Service::set_level`].
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(
        chain: &Arc<Chain>,
        options: Options,
        host: Arc<dyn ValidatorHost>,
    ) -> Result<Self, StartError> {
        let stored = chain.head();
        let head = next_head(chain, &stored)?.ok_or(StartError::NotBft)?;
        let settings = settings(&options, head.rules.protocol)?;
        let (journal, ballots) = open_journal(&options)?;
        let votes = Arc::new(PendingVotes::open(&options.folder)?);
        let (own, has_lost_records) = (settings.signer.address(), ballots.is_lost());
        let machine = Machine::new(settings, ballots, head.clone());
        let status = Arc::new(Mutex::new(Status {
            address: own,
            view: machine.view(),
            phase: machine.phase(),
            validators: head.validators.clone(),
            connected: BTreeSet::new(),
            executions: 0,
        }));
        let (inputs, events) = channel();
        let (jobs, to_do) = channel();
        let (effects, outgoing) = channel();
        let door = Arc::new(Door::new(own, head.rules.protocol, &head.validators));
        let blocks = Blocks {
            chain: Arc::clone(chain),
            own,
            options: options.clone(),
            votes: Arc::clone(&votes),
            head: head.clone(),
            judged: Vec::new(),
            deferred: Vec::new(),
            ahead: Ahead::default(),
            size: BlockSize::default(),
            events: inputs.clone(),
            host: Arc::clone(&host),
            status: Arc::clone(&status),
        };
        let outbox = Outbox {
            journal,
            host: Arc::clone(&host),
            jobs: jobs.clone(),
        };
        let worker = Worker {
            options,
            machine,
            timers: Timers::default(),
            relays: Relays::default(),
            connected: BTreeSet::new(),
            is_level: false,
            effects: effects.clone(),
            jobs: jobs.clone(),
            host,
            door: Arc::clone(&door),
            status: Arc::clone(&status),
            proposed: None,
        };
        let to_blocks = jobs.clone();
        chain.on_head(Box::new(move |change: &HeadChange| {
            // After a stop there is no receiver.
            let _ = to_blocks.send(Job::Head(Box::new(change.head.clone())));
        }));
        // What came before the listener.
        let _ = jobs.send(Job::Head(Box::new(chain.head())));
        let threads = vec![
            spawn("bft", move || worker.run(&events))?,
            spawn("bft-journal", move || outbox.run(&outgoing))?,
            spawn("bft-blocks", move || blocks.run(&to_do))?,
        ];
        info!(validator = %own, validators = head.validators.as_slice().len(), "The validator is ready");
        Ok(Self {
            inputs,
            jobs,
            effects,
            door,
            status,
            votes,
            has_lost_records,
            threads: Mutex::new(threads),
        })
    }

    /// A message that came from a node with the address `from`. Blocks for the time that its signatures take; most that are useless are
    /// dropped before.
    pub fn receive(&self, from: Address, protocol: BftProtocol, code: u8, bytes: Bytes) {
        let Some(message) = self.door.open(protocol, code, &bytes) else {
            return;
        };
        let relay = Relay {
            protocol,
            code,
            bytes,
            height: message.view().height,
            author: message.author(),
            from,
        };
        // After a stop there is no receiver.
        let _ = self.inputs.send(Input::Message {
            message: Box::new(message),
            relay: Box::new(relay),
        });
    }

    /// A node with this address is connected, and speaks the protocol.
    pub fn peer_up(&self, address: Address) {
        self.input(Event::PeerUp(address));
    }

    /// It is connected no more.
    pub fn peer_down(&self, address: Address) {
        self.input(Event::PeerDown(address));
    }

    /// Whether there is a transaction for the next block.
    pub fn set_work(&self, has_work: bool) {
        self.input(Event::Work(has_work));
    }

    /// Whether the chain is where that of the peers is.
    pub fn set_level(&self, is_level: bool) {
        self.input(Event::Level(is_level));
    }

    /// Where it is.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    /// On whom it votes.
    pub fn votes(&self) -> &PendingVotes {
        &self.votes
    }

    /// Whether it started without knowing what it had signed. Such a node must not be told that it is level before it knows where others
    /// are, unless the network may be new.
    pub fn has_lost_records(&self) -> bool {
        self.has_lost_records
    }

    fn input(&self, event: Event) {
        // After a stop there is no receiver.
        let _ = self.inputs.send(Input::Event(event));
    }

    /// Stops it; what was decided is written.
    pub fn stop(&self) {
        let _ = self.inputs.send(Input::Stop);
        let _ = self.effects.send(Effect::Stop);
        let _ = self.jobs.send(Job::Stop);
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(run).map_err(StartError::Thread)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn settings(options: &Options, protocol: BftProtocol) -> Result<Settings, KeyError> {
    let form = Form {
        protocol,
        has_access_list: options.has_access_list,
    };
    Ok(Settings {
        signer: Signer::new(form, options.key)?,
        digest: options.digest,
        max_round_timeout_ms: options.max_round_timeout_ms,
        guards: Guards::default(),
    })
}

/// A node without records may have signed anything, but in a network that has just begun.
fn open_journal(options: &Options) -> Result<(Journal, Ballots), Fault> {
    let (journal, ballots) = Journal::open(&options.folder, options.journal_sync)?;
    let ballots = ballots.unwrap_or_else(|| match options.accepts_missing_journal {
        true => Ballots::default(),
        false => Ballots::unknown(),
    });
    Ok((journal, ballots))
}

/// What the machine must know of a block to agree on its child.
fn next_head(chain: &Chain, stored: &StoredHeader) -> Result<Option<Head>, ImportError> {
    let number = stored.id.number;
    let Some(validators) = chain.next_validators(stored)? else {
        return Ok(None);
    };
    Ok(next_rules(chain.spec(), &stored.header).map(|rules| Head {
        number,
        hash: stored.id.hash,
        timestamp: stored.header.timestamp,
        coinbase: stored.header.beneficiary,
        validators,
        rules: Arc::new(rules),
    }))
}

/// The rules of a block's child. Where a transition by time lies between the two, the longer period holds: the child's header is
/// checked by the rules of its own time (Besu's issue 9681).
fn next_rules(spec: &ChainSpec, parent: &Header) -> Option<BftRules> {
    let mut rules = spec.bft_rules_after(parent)?.clone();
    let wait = rules.block_period_ms().div_ceil(1_000);
    let (number, time) = (parent.number, parent.timestamp.saturating_add(wait));
    let own = spec.bft_rules_at(number.saturating_add(1), time)?;
    if own.block_period_ms() > rules.block_period_ms() {
        (rules.period_s, rules.period_ms) = (own.period_s, own.period_ms);
    }
    Some(rules)
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_millis();
    u64::try_from(now).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
