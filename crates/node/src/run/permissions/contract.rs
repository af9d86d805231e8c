//! Contracts that say which connections and which transactions may be, asked in the state of the head: Besu's interfaces up to 25.5.

use super::count;
use crate::run::config::PermissionsConfig;
use eyre::{Result, bail, ensure, eyre};
use niwaki_chain::{Chain, ContractAnswer};
use niwaki_crypto::keccak256;
use niwaki_network::{Host, Node, NodeId};
use niwaki_primitives::{Address, Bytes, Transaction, TxEnvelope, U256, hex};
use niwaki_rpc::{Backend, SyncStatus};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::warn;

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

/// Says whether the chain is where that of the peers is.
type IsSynced = Box<dyn Fn() -> bool + Send + Sync>;

/// The contracts that are enabled.
#[derive(Default)]
pub(crate) struct Contracts {
    pub(super) accounts: Option<AccountContract>,
    pub(super) nodes: Option<NodeContract>,
}

impl Contracts {
    /// Refuses a contract for nodes that does not answer as its interface says.
    pub(crate) fn open(
        config: &PermissionsConfig,
        own: Option<&End>,
        fixed: &[Node],
        chain: &Arc<Chain>,
        backend: &Arc<Backend>,
    ) -> Result<Self> {
        let accounts = config.accounts_contract.map(|address| AccountContract {
            chain: Arc::clone(chain),
            address,
        });
        let nodes = own.zip(config.nodes_contract);
        let nodes = nodes.map(|(own, (address, version))| NodeContract {
            chain: Arc::clone(chain),
            address,
            interface: match version {
                1 => Interface::Halves,
                _ => Interface::Texts,
            },
            own: own.clone(),
            fixed: fixed.to_vec(),
            is_synced: is_synced(backend),
            was_synced: AtomicBool::new(false),
        });
        if let Some(contract) = &nodes {
            contract.check()?;
        }
        Ok(Self { accounts, nodes })
    }
}

/// Whether the chain is where those of the peers are. The backend keeps the pool, which keeps the permissions.
fn is_synced(backend: &Arc<Backend>) -> IsSynced {
    let backend = Arc::downgrade(backend);
    Box::new(move || {
        let backend = backend.upgrade();
        backend.is_some_and(|backend| backend.sync_status() == SyncStatus::Current)
    })
}

/// Connections.
pub(super) struct NodeContract {
    chain: Arc<Chain>,
    address: Address,
    interface: Interface,
    own: End,
    /// The operator's boot nodes and static nodes: they are dialled before the chain is synced, when the contract may be an old one.
    fixed: Vec<Node>,
    is_synced: IsSynced,
    was_synced: AtomicBool,
}

impl NodeContract {
    /// Refuses a contract that does not answer as its interface says.
    fn check(&self) -> Result<()> {
        let own = self.own.clone();
        self.ask(&own, &own).map(drop).map_err(|reason| {
            eyre!(
                "the node permissioning contract at {} does not answer as version {} does: {reason:#}; correct \
                 --permissions-nodes-contract-address or --permissions-nodes-contract-version",
                self.address,
                match self.interface {
                    Interface::Halves => 1,
                    Interface::Texts => 2,
                }
            )
        })
    }

    /// Whether a connection may be. `port` is that of a node that is dialled.
    pub(super) fn allows(&self, id: &NodeId, ip: IpAddr, port: Option<u16>) -> bool {
        if !self.has_synced() && !self.fixed.is_empty() {
            return port.is_some_and(|port| self.is_fixed(id, ip, port));
        }
        let peer = End {
            id: *id,
            ip,
            port: port.unwrap_or(0),
        };
        let asked = match port {
            Some(_) => self.ask(&self.own, &peer),
            None => self.ask(&peer, &self.own),
        };
        let is_allowed = asked.unwrap_or_else(|reason| {
            warn!(contract = %self.address, "No connection to {ip}: the contract does not answer: {reason:#}");
            false
        });
        count("node_smart_contract", is_allowed);
        is_allowed
    }

    fn has_synced(&self) -> bool {
        if !self.was_synced.load(Ordering::Relaxed) && (self.is_synced)() {
            self.was_synced.store(true, Ordering::Relaxed);
        }
        self.was_synced.load(Ordering::Relaxed)
    }

    fn is_fixed(&self, id: &NodeId, ip: IpAddr, port: u16) -> bool {
        self.fixed.iter().any(|node| {
            let is_there = match &node.host {
                Host::Ip(own) => *own == ip,
                Host::Name(_) => true,
            };
            node.id == *id && node.tcp == port && is_there
        })
    }

    fn ask(&self, source: &End, destination: &End) -> Result<bool> {
        let call = |input| match ask(&self.chain, self.address, input)? {
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
    chain: Arc<Chain>,
    address: Address,
}

impl AccountContract {
    /// Whether a transaction may be sent. Without a contract all may.
    pub(super) fn allows(&self, sender: &Address, tx: &TxEnvelope) -> bool {
        let asked = ask(&self.chain, self.address, transaction(sender, tx));
        let asked = asked.and_then(|answer| answer.map_or(Ok(true), |answer| read_bool(&answer)));
        let is_allowed = asked.unwrap_or_else(|reason| {
            warn!(contract = %self.address, "No transaction of {sender}: the contract does not answer: {reason:#}");
            false
        });
        count("transaction_smart_contract", is_allowed);
        is_allowed
    }
}

/// What a contract answers at the head; `None` if there is none.
fn ask(chain: &Chain, contract: Address, input: Bytes) -> Result<Option<Bytes>> {
    let answer = chain.ask_contract(&chain.head(), contract, input)?;
    match answer {
        Some(ContractAnswer::Output(output)) => Ok(Some(output)),
        Some(ContractAnswer::Absent) => Ok(None),
        Some(ContractAnswer::Failed) => bail!("the call fails"),
        None => bail!("the state of the head is not there"),
    }
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

fn texts(end: &End) -> Bytes {
    let (id, host) = (hex::encode(end.id.0), end.ip.to_string());
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
