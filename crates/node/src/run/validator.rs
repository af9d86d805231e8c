//! The validator of a chain of IBFT 2.0 or QBFT: joined to the pool, the peers and the disk.
//!
//! Each node of such a chain runs one; it votes while its key's address is among the validators.
//!
//! ```text
//! peers --messages--> thread bft-peers --> Service --messages--> peers
//! thread bft-watch: is there work in the pool, are peers ahead --> Service
//! ```

use super::config::ValidatorConfig;
use super::permissions::Permissions;
use eyre::{Result, WrapErr};
use niwaki_bft::machine::DigestForm;
use niwaki_bft::service::{Options, Service, Status, ValidatorHost};
use niwaki_chain::{BlockTemplate, BuildError, BuiltBlock, Chain, Imported, JudgedBlock};
use niwaki_network::peers::ConnId;
use niwaki_network::wire::BlockRange;
use niwaki_network::{Peer, Subprotocol, SubprotocolEvent};
use niwaki_primitives::{Address, B256, Block, Bytes, Header};
use niwaki_rpc::{Backend, Filling, ValidatorHooks, ValidatorReport};
use niwaki_rules::{BftProtocol, ChainSpec, recover_sender};
use niwaki_txpool::Pool;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often pool and peers are looked at.
const WATCH: Duration = Duration::from_millis(50);
/// How long validators are waited for before a start without them.
const START: Duration = Duration::from_secs(10);
/// A chain that is so far behind those of others does not vote.
const BEHIND_BLOCKS: u64 = 2;
/// The part of a period in which a block is filled, percent.
const FILL_PERCENT: u64 = 40;
/// The least time for that.
const MIN_FILL: Duration = Duration::from_millis(20);

const QBFT: &str = "istanbul";
const IBFT2: &str = "IBF";

fn name(protocol: BftProtocol) -> &'static str {
    match protocol {
        BftProtocol::Qbft => QBFT,
        BftProtocol::Ibft2 => IBFT2,
    }
}

/// The protocols that validators of a chain speak: both, if the chain goes from one to the other.
pub(super) fn subprotocols(spec: &ChainSpec) -> Vec<Subprotocol> {
    let all = [(BftProtocol::Qbft, 100, 22), (BftProtocol::Ibft2, 1, 4)];
    let spoken = |protocol| {
        spec.bft_rules
            .iter()
            .any(|rules| rules.protocol == protocol)
    };
    let spoken = all.into_iter().filter(|(protocol, ..)| spoken(*protocol));
    let offered = spoken.map(|(protocol, version, length)| Subprotocol {
        name: name(protocol).to_owned(),
        version,
        length,
    });
    offered.collect()
}

/// The connected peers that speak one of them.
#[derive(Debug, Default)]
struct Connected(Mutex<HashMap<ConnId, (Address, Arc<Peer>)>>);

impl Connected {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<ConnId, (Address, Arc<Peer>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Host {
    backend: Arc<Backend>,
    connected: Arc<Connected>,
    service: Arc<OnceLock<Arc<Service>>>,
    permissions: Option<Arc<Permissions>>,
}

impl ValidatorHost for Host {
    fn may_vote(&self, block: &Block) -> bool {
        let Some(permissions) = &self.permissions else {
            return true;
        };
        let senders = self.backend.known_senders(block);
        let mut all = block.body.transactions.iter().zip(senders);
        all.all(|(tx, sender)| {
            let sender = sender.or_else(|| recover_sender(tx).ok());
            // The execution says what is wrong with a signature.
            sender.is_none_or(|sender| permissions.contract_allows(&sender, tx))
        })
    }

    fn senders(&self, block: &Block) -> Vec<Option<Address>> {
        self.backend.known_senders(block)
    }

    fn build(&self, template: BlockTemplate) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        let began = Instant::now();
        let chain = self.backend.chain();
        let rules = chain.spec().bft_rules_after(&chain.head().header);
        let period_ms = rules.map_or(0, |rules| rules.block_period_ms());
        let fill = Duration::from_millis(period_ms.saturating_mul(FILL_PERCENT) / 100);
        let fill = fill.max(MIN_FILL);
        self.backend
            .build_judged(template, &|| began.elapsed() > fill, Filling::AtOnce)
    }

    fn build_ahead(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        self.backend
            .build_judged(template, should_end, Filling::AsTheyCome)
    }

    fn send(&self, protocol: BftProtocol, to: Option<Address>, code: u8, bytes: &Bytes) {
        let validators = self
            .service
            .get()
            .map(|service| service.status().validators);
        for (address, peer) in self.connected.all().values() {
            let is_validator = validators.as_ref().is_none_or(|all| all.contains(address));
            if is_validator && to.is_none_or(|to| to == *address) {
                // A peer that does not read what it gets loses it, and gets it again when it connects.
                let _ = peer.send_message(name(protocol), code, bytes);
            }
        }
    }

    fn sync(&self, _: Option<u64>) {
        // The sync follows the peers by itself.
    }

    fn imported(&self, header: &Header, imported: &Imported) {
        self.backend.record_import(header, imported);
    }
}

/// A running validator.
pub(super) struct Validator {
    service: Arc<Service>,
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Validator {
    /// Starts the validator with the node's key; its peers come out of `events`.
    pub(super) fn start(
        config: ValidatorConfig,
        key: B256,
        chain: &Arc<Chain>,
        backend: &Arc<Backend>,
        pool: &Arc<Pool>,
        permissions: Option<Arc<Permissions>>,
        events: mpsc::Receiver<SubprotocolEvent>,
    ) -> Result<Self> {
        let connected = Arc::new(Connected::default());
        let slot = Arc::new(OnceLock::new());
        let host = Host {
            backend: Arc::clone(backend),
            connected: Arc::clone(&connected),
            service: Arc::clone(&slot),
            permissions: permissions.filter(|permissions| permissions.has_account_contract()),
        };
        let options = Options {
            key,
            digest: match config.is_quorum {
                true => DigestForm::RoundZero,
                false => DigestForm::OwnRound,
            },
            has_access_list: config.has_access_list,
            max_round_timeout_ms: config.max_round_timeout_s.saturating_mul(1_000),
            folder: config.folder,
            journal_sync: config.journal_sync,
            accepts_missing_journal: config.accepts_missing_journal,
            vanity: config.vanity,
            target_gas_limit: config.target_gas_limit,
        };
        let service =
            Service::start(chain, options, Arc::new(host)).wrap_err("can't start the validator")?;
        let service = Arc::new(service);
        let _ = slot.set(Arc::clone(&service)); // There is one.
        backend.operator().set_validator(hooks(&service));
        let is_stopped = Arc::new(AtomicBool::new(false));
        let watch = Watch {
            chain: Arc::clone(chain),
            pool: Arc::clone(pool),
            service: Arc::clone(&service),
            connected: Arc::clone(&connected),
            is_stopped: Arc::clone(&is_stopped),
        };
        let peers = Arc::clone(&service);
        let threads = vec![
            spawn("bft-peers", move || receive(events, &peers, &connected))?,
            spawn("bft-watch", move || watch.run())?,
        ];
        Ok(Self {
            service,
            is_stopped,
            threads,
        })
    }

    /// Stops it. The network, which its peers come from, has stopped before.
    pub(super) fn stop(self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.service.stop();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

/// What the methods about validators see and do.
fn hooks(service: &Arc<Service>) -> ValidatorHooks {
    let [proposing, discarding, listed, seen] = std::array::from_fn(|_| Arc::clone(service));
    ValidatorHooks {
        propose: Box::new(move |address, is_add| {
            let proposed = proposing.votes().propose(address, is_add);
            proposed.map_err(|fault| fault.to_string())
        }),
        discard: Box::new(move |address| {
            let discarded = discarding.votes().discard(&address);
            discarded.map_err(|fault| fault.to_string())
        }),
        pending: Box::new(move || listed.votes().list()),
        state: Box::new(move || report(&seen.status())),
    }
}

fn report(status: &Status) -> ValidatorReport {
    ValidatorReport {
        address: status.address,
        height: status.view.height,
        round: status.view.round,
        phase: status.phase.name(),
        validators: status.validators.as_slice().to_vec(),
        connected: status.connected.iter().copied().collect(),
        executions: status.executions,
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.wrap_err("can't start a thread of the validator")
}

/// Hands on what peers send, until the network stops.
fn receive(mut events: mpsc::Receiver<SubprotocolEvent>, service: &Service, connected: &Connected) {
    while let Some(event) = events.blocking_recv() {
        match event {
            SubprotocolEvent::Up(peer) => {
                let address = peer.info.origin.node.address();
                let conn = peer.info.origin.conn;
                connected.all().insert(conn, (address, peer));
                service.peer_up(address);
            }
            SubprotocolEvent::Down(conn) => {
                if let Some((address, _)) = connected.all().remove(&conn) {
                    service.peer_down(address);
                }
            }
            SubprotocolEvent::Message(message) => {
                let protocol = match message.protocol.name.as_str() {
                    QBFT => BftProtocol::Qbft,
                    _ => BftProtocol::Ibft2,
                };
                let from = connected
                    .all()
                    .get(&message.peer)
                    .map(|(address, _)| *address);
                let bytes = Bytes::from(message.data);
                service.receive(from.unwrap_or_default(), protocol, message.code, bytes);
            }
        }
    }
}

/// Tells the validator what the pool has and whether the chain is behind.
struct Watch {
    chain: Arc<Chain>,
    pool: Arc<Pool>,
    service: Arc<Service>,
    connected: Arc<Connected>,
    is_stopped: Arc<AtomicBool>,
}

impl Watch {
    fn run(&self) {
        let began = Instant::now();
        let (mut is_level, mut had_work, mut has_begun) = (false, false, false);
        let mut is_lost = self.service.has_lost_records();
        while !self.is_stopped.load(Ordering::Relaxed) {
            thread::sleep(WATCH);
            let has_work = self.pool.stats().pending > 0;
            if std::mem::replace(&mut had_work, has_work) != has_work {
                self.service.set_work(has_work);
            }
            has_begun = has_begun || self.may_begin(began);
            let is_level_now = has_begun && !self.is_behind(is_lost);
            is_lost = is_lost && !is_level_now;
            if std::mem::replace(&mut is_level, is_level_now) != is_level_now {
                self.service.set_level(is_level_now);
            }
        }
    }

    /// What peers have that are validators.
    fn validators_ranges(&self) -> Vec<BlockRange> {
        let validators = self.service.status().validators;
        let connected = self.connected.all();
        let peers = connected.values();
        let peers = peers.filter(|(address, _)| validators.contains(address));
        peers.map(|(_, peer)| peer.range()).collect()
    }

    /// A quorum is there; or it has been waited for, by a node that knows what it has signed or whose network may be new.
    fn may_begin(&self, began: Instant) -> bool {
        let quorum = self.service.status().validators.quorum();
        let is_quorum = self.validators_ranges().len().saturating_add(1) >= quorum;
        let is_known = !self.service.has_lost_records() || self.chain.head().id.number == 0;
        is_quorum || (began.elapsed() >= START && is_known)
    }

    /// More validators than can be faulty say that they are ahead; or one does, and this node does not know what it has signed: it may have
    /// helped that one to its last block.
    fn is_behind(&self, is_lost: bool) -> bool {
        let bound = self.chain.head().id.number.saturating_add(BEHIND_BLOCKS);
        let is_ahead = |range: &BlockRange| match range.latest {
            // Then the hash alone is known, of the block that it had when it connected.
            BlockRange::UNKNOWN => !self.has_block(&range.latest_hash),
            latest => latest > bound,
        };
        let ranges = self.validators_ranges();
        let ahead = ranges.iter().filter(|range| is_ahead(range)).count();
        let enough = match is_lost {
            true => 1,
            false => self.service.status().validators.one_honest(),
        };
        ahead >= enough
    }

    fn has_block(&self, hash: &B256) -> bool {
        self.chain
            .number_of(hash)
            .is_ok_and(|number| number.is_some())
    }
}
