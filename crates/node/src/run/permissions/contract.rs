//! Contracts that say which connections and which transactions may be, asked in the state of the head: Besu's interfaces up to 25.5.

use super::count;
use crate::run::config::PermissionsConfig;
use eyre::{Result, bail, ensure, eyre};
use niwaki_chain::{Chain, ContractAnswer};
use niwaki_crypto::keccak256;
use niwaki_network::peers::Remote;
use niwaki_network::{Host, Node, NodeId};
use niwaki_primitives::{Address, B256, Bytes, Transaction, TxEnvelope, U256, hex};
use niwaki_rpc::{Backend, SyncStatus};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

const WORD: usize = 32;

/// One end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) id: NodeId,
    pub(crate) ip: IpAddr,
    /// Where it takes connections; 0 if that is not known.
    pub(crate) port: u16,
}

/// The interface of a contract for nodes.
#[derive(Clone, Copy, Debug)]
enum Interface {
    /// Both ends in one call, their keys in halves; true is a word of ones.
    Halves,
    /// A call for each end, key and host as texts.
    Texts,
}

/// Says whether peers are connected and none of them is ahead.
type IsLevel = Box<dyn Fn() -> bool + Send + Sync>;

/// The chain counts as synced once it has been level with its peers for so long: what a peer has is known a moment after it connects.
const LEVEL_FOR: Duration = Duration::from_secs(2);
/// Answers about connections that are kept, of one head.
const MAX_ANSWERS: usize = 1_024;

/// The contracts that are enabled.
#[derive(Default)]
pub(crate) struct Contracts {
    pub(super) accounts: Option<AccountContract>,
    pub(super) nodes: Option<NodeContract>,
}

impl Contracts {
    /// Refuses a contract for nodes that does not answer as its interface says, or without an address of this node to ask with.
    pub(crate) fn open(
        config: &PermissionsConfig,
        own: Option<&End>,
        fixed: &[Node],
        chain: &Arc<Chain>,
        backend: &Arc<Backend>,
    ) -> Result<Self> {
        let ask = |address| Asked {
            chain: Arc::downgrade(chain),
            address,
        };
        let accounts = config.accounts_contract.map(|address| AccountContract {
            asked: ask(address),
            was_absent: AtomicBool::new(false),
        });
        let nodes = own.zip(config.nodes_contract);
        let nodes = nodes.map(|(own, (address, version))| NodeContract {
            asked: ask(address),
            interface: match version {
                1 => Interface::Halves,
                _ => Interface::Texts,
            },
            own: own.clone(),
            fixed: fixed.to_vec(),
            gate: Gate::new(is_level(backend)),
            answers: Mutex::default(),
        });
        if let Some(contract) = &nodes {
            ensure!(
                !contract.own.ip.is_unspecified(),
                "a contract for nodes is asked with the address of this node, which is not known; give --p2p-host"
            );
            if chain.has_state() {
                contract.check()?;
            }
        }
        if let Some(contract) = &accounts
            && chain.has_state()
        {
            contract.warn_if_absent();
        }
        Ok(Self { accounts, nodes })
    }
}

/// The backend keeps the pool, which keeps the permissions.
fn is_level(backend: &Arc<Backend>) -> IsLevel {
    let backend = Arc::downgrade(backend);
    Box::new(move || {
        let backend = backend.upgrade();
        backend.is_some_and(|backend| {
            backend.peer_count() > 0 && backend.sync_status() == SyncStatus::Current
        })
    })
}

/// Whether the chain was synced since the start; then it stays so.
struct Gate {
    is_level: IsLevel,
    /// Since when it is level.
    since: Mutex<Option<Instant>>,
    is_open: AtomicBool,
}

impl Gate {
    fn new(is_level: IsLevel) -> Self {
        Self {
            is_level,
            since: Mutex::default(),
            is_open: AtomicBool::new(false),
        }
    }

    fn is_open(&self, now: Instant) -> bool {
        if self.is_open.load(Ordering::Relaxed) {
            return true;
        }
        let mut since = lock(&self.since);
        *since = (self.is_level)().then(|| since.unwrap_or(now));
        let is_open = since.is_some_and(|since| now.duration_since(since) >= LEVEL_FOR);
        self.is_open.store(is_open, Ordering::Relaxed);
        is_open
    }
}

/// Connections.
pub(super) struct NodeContract {
    asked: Asked,
    interface: Interface,
    own: End,
    /// The operator's boot nodes and static nodes: only with them the node deals before the chain is synced, when the contract may be an
    /// old one.
    fixed: Vec<Node>,
    gate: Gate,
    answers: Mutex<Answers>,
}

/// What the contract has answered.
#[derive(Default)]
struct Answers {
    /// In the state of this block,
    head: B256,
    now: HashMap<Remote, bool>,
    /// and in the one that was asked before.
    before: HashMap<Remote, bool>,
    has_warned: bool,
}

impl Answers {
    fn follow(&mut self, head: B256) {
        if self.head != head || self.now.len() >= MAX_ANSWERS {
            self.head = head;
            self.before = std::mem::take(&mut self.now);
            self.has_warned = false;
        }
    }
}

impl NodeContract {
    /// Refuses a contract that does not answer as its interface says.
    fn check(&self) -> Result<()> {
        let own = self.own.clone();
        self.ask(&own, &own).map(drop).map_err(|reason| {
            eyre!(
                "the node permissioning contract at {} does not answer as version {} does: {reason:#}; correct \
                 --permissions-nodes-contract-address or --permissions-nodes-contract-version",
                self.asked.address,
                match self.interface {
                    Interface::Halves => 1,
                    Interface::Texts => 2,
                }
            )
        })
    }

    /// Whether it is asked: not before the chain is synced, if there are nodes to sync from.
    pub(super) fn is_asked(&self) -> bool {
        self.fixed.is_empty() || self.gate.is_open(Instant::now())
    }

    /// Whether a connection may be.
    pub(super) fn allows(&self, remote: &Remote) -> bool {
        let is_allowed = match self.is_asked() {
            true => self.answer(remote),
            false => self.is_fixed(remote),
        };
        count("node_smart_contract", is_allowed);
        is_allowed
    }

    /// The answer in the state of the head. If the contract can't be asked what it said before holds.
    fn answer(&self, remote: &Remote) -> bool {
        let head = self.asked.head();
        let mut answers = lock(&self.answers);
        answers.follow(head);
        if let Some(known) = answers.now.get(remote) {
            return *known;
        }
        let peer = End {
            id: remote.id,
            ip: remote.ip,
            port: remote.port,
        };
        let asked = match remote.is_dialled {
            true => self.ask(&self.own, &peer),
            false => self.ask(&peer, &self.own),
        };
        let is_allowed = asked.unwrap_or_else(|reason| {
            if !std::mem::replace(&mut answers.has_warned, true) {
                warn!(contract = %self.asked.address, "The contract for nodes does not answer, so what it said before holds: {reason:#}");
            }
            answers.before.get(remote).copied().unwrap_or(false)
        });
        answers.now.insert(*remote, is_allowed);
        is_allowed
    }

    /// The port of one that connected may be any.
    fn is_fixed(&self, remote: &Remote) -> bool {
        self.fixed.iter().any(|node| {
            let is_there = match &node.host {
                Host::Ip(own) => *own == remote.ip,
                Host::Name(_) => true,
            };
            let is_port = !remote.is_dialled || node.tcp == remote.port;
            node.id == remote.id && is_port && is_there
        })
    }

    fn ask(&self, source: &End, destination: &End) -> Result<bool> {
        let call = |input| match self.asked.ask(input)? {
            Some(answer) => Ok(answer),
            None => bail!("there is no contract"),
        };
        match self.interface {
            Interface::Halves => read_ones(&call(halves(source, destination))?),
            Interface::Texts => {
                Ok(read_bool(&call(texts(source))?)? && read_bool(&call(texts(destination))?)?)
            }
        }
    }
}

/// Transactions.
pub(super) struct AccountContract {
    asked: Asked,
    was_absent: AtomicBool,
}

impl AccountContract {
    /// Whether a transaction may be sent. Without a contract all may.
    pub(super) fn allows(&self, sender: &Address, tx: &TxEnvelope) -> bool {
        let answer = self.asked.ask(transaction(sender, tx));
        let is_allowed = answer.and_then(|answer| match answer {
            Some(answer) => read_bool(&answer),
            None => {
                self.warn_if_absent();
                Ok(true)
            }
        });
        let is_allowed = is_allowed.unwrap_or_else(|reason| {
            debug!(contract = %self.asked.address, %sender, "The contract for accounts does not answer: {reason:#}");
            false
        });
        count("transaction_smart_contract", is_allowed);
        is_allowed
    }

    /// Says once that all may send.
    fn warn_if_absent(&self) {
        let is_absent = matches!(self.asked.ask(Bytes::new()), Ok(None));
        if is_absent && !self.was_absent.swap(true, Ordering::Relaxed) {
            warn!(
                "There is no contract at {}, so every account may send transactions; see --permissions-accounts-contract-address",
                self.asked.address
            );
        }
    }
}

/// A contract of the chain; the chain's listeners keep the permissions, so these do not keep the chain.
struct Asked {
    chain: Weak<Chain>,
    address: Address,
}

impl Asked {
    fn head(&self) -> B256 {
        let chain = self.chain.upgrade();
        chain.map_or(B256::ZERO, |chain| chain.head().id.hash)
    }

    /// What it answers at the head; `None` if there is none.
    fn ask(&self, input: Bytes) -> Result<Option<Bytes>> {
        let Some(chain) = self.chain.upgrade() else {
            bail!("the node stops");
        };
        match chain.ask_contract(&chain.head(), self.address, input)? {
            Some(ContractAnswer::Output(output)) => Ok(Some(output)),
            Some(ContractAnswer::Absent) => Ok(None),
            Some(ContractAnswer::Failed) => bail!("the call fails"),
            None => bail!("the state of the head is not there"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn selector(signature: &str) -> Vec<u8> {
    keccak256(signature)[..4].to_vec()
}

fn word(number: u64) -> [u8; WORD] {
    U256::from(number).to_be_bytes()
}

/// Bytes with their length, filled up to whole words.
fn counted(bytes: &[u8]) -> Vec<u8> {
    let mut out = word(bytes.len() as u64).to_vec();
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(WORD), 0);
    out
}

fn halves(source: &End, destination: &End) -> Bytes {
    let mut out = selector(
        "connectionAllowed(bytes32,bytes32,bytes16,uint16,bytes32,bytes32,bytes16,uint16)",
    );
    for end in [source, destination] {
        out.extend_from_slice(&end.id.0[..]);
        let ip = match end.ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        out.extend_from_slice(&ip.octets());
        out.resize(out.len() + WORD - ip.octets().len(), 0);
        out.extend_from_slice(&word(end.port.into()));
    }
    out.into()
}

/// An address as Java writes it: all eight parts of IPv6, without leading zeros.
fn host(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => ip.segments().map(|part| format!("{part:x}")).join(":"),
    }
}

fn texts(end: &End) -> Bytes {
    let (id, host) = (hex::encode(end.id.0), host(end.ip));
    let (id, host) = (counted(id.as_bytes()), counted(host.as_bytes()));
    let first = 3 * WORD as u64;
    let heads = [
        word(first),
        word(first + id.len() as u64),
        word(end.port.into()),
    ];
    let mut out = selector("connectionAllowed(string,string,uint16)");
    out.extend_from_slice(heads.as_flattened());
    out.extend([id, host].concat());
    out.into()
}

fn transaction(sender: &Address, tx: &TxEnvelope) -> Bytes {
    let mut out = selector("transactionAllowed(address,address,uint256,uint256,uint256,bytes)");
    out.extend_from_slice(sender.into_word().as_slice());
    out.extend_from_slice(tx.to().unwrap_or_default().into_word().as_slice());
    out.extend_from_slice(&tx.value().to_be_bytes::<WORD>());
    // A transaction with a maximal fee has no gas price.
    let price = U256::from(tx.gas_price().unwrap_or(0));
    out.extend_from_slice(&price.to_be_bytes::<WORD>());
    out.extend_from_slice(&word(tx.gas_limit()));
    out.extend_from_slice(&word(6 * WORD as u64));
    out.extend(counted(tx.input()));
    out.into()
}

/// A word of ones, or the same without its first bit.
fn read_ones(answer: &[u8]) -> Result<bool> {
    let mut no = [0xff; WORD];
    no[0] = 0x7f;
    ensure!(
        answer == [0xff; WORD] || answer == no,
        "{} is no answer",
        hex::encode_prefixed(answer)
    );
    Ok(answer != no)
}

fn read_bool(answer: &[u8]) -> Result<bool> {
    ensure!(
        answer == word(0) || answer == word(1),
        "{} is no answer",
        hex::encode_prefixed(answer)
    );
    Ok(answer == word(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(byte: u8, ip: IpAddr) -> End {
        End {
            id: NodeId([byte; 64].into()),
            ip,
            port: 30_303,
        }
    }

    #[test]
    fn calls_are_encoded_as_besu_does() {
        // `cast calldata` gives the same texts.
        let (one, two) = (
            end(1, [10, 0, 0, 7].into()),
            end(2, "fd00::1".parse().unwrap()),
        );
        let call = halves(&one, &two);
        let both =
            "connectionAllowed(bytes32,bytes32,bytes16,uint16,bytes32,bytes32,bytes16,uint16)";
        let expected = format!(
            "{}{}00000000000000000000ffff0a000007{:0>32}{:0>64x}{}fd000000000000000000000000000001{:0>32}{:0>64x}",
            hex::encode(selector(both)),
            "01".repeat(64),
            "",
            30_303,
            "02".repeat(64),
            "",
            30_303
        );
        assert_eq!(hex::encode(call), expected);
        let call = hex::encode(texts(&one));
        let id: String = hex::encode("01".repeat(64));
        let expected = format!(
            "{}{:0>64x}{:0>64x}{:0>64x}{:0>64x}{id}{:0>64x}{:0<64}",
            hex::encode(selector("connectionAllowed(string,string,uint16)")),
            0x60,
            0x60 + 0x20 + 128,
            30_303,
            128,
            8,
            hex::encode("10.0.0.7")
        );
        assert_eq!(call, expected);
    }

    #[test]
    fn hosts_are_written_as_besu_does() {
        let of = |text: &str| host(text.parse().unwrap());
        assert_eq!(of("fd00::1"), "fd00:0:0:0:0:0:0:1");
        assert_eq!(of("::ffff:10.0.0.7"), "10.0.0.7");
    }

    #[test]
    fn the_gate_opens_once_the_chain_has_been_level_for_two_seconds_and_stays_open() {
        let is_level = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_level);
        let gate = Gate::new(Box::new(move || seen.load(Ordering::Relaxed)));
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!gate.is_open(at(5_000)));
        is_level.store(true, Ordering::Relaxed);
        assert!(!gate.is_open(at(6_000)) && !gate.is_open(at(7_999)));
        is_level.store(false, Ordering::Relaxed);
        assert!(!gate.is_open(at(8_000)));
        is_level.store(true, Ordering::Relaxed);
        assert!(!gate.is_open(at(9_000)) && gate.is_open(at(11_000)));
        is_level.store(false, Ordering::Relaxed);
        assert!(gate.is_open(at(12_000)));
    }

    #[test]
    fn other_answers_than_the_two_of_an_interface_are_none() {
        assert!(read_ones(&[0xff; 32]).unwrap());
        assert!(read_bool(&word(1)).unwrap());
        assert!(!read_bool(&word(0)).unwrap());
        assert!(!read_ones(&[&[0x7f][..], &[0xff; 31]].concat()).unwrap());
        for bad in [&[][..], &[0xff; 31], &word(2), &[0xff; 64]] {
            assert!(read_bool(bad).is_err() && read_ones(bad).is_err());
        }
    }
}
