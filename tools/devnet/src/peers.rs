//! `niwaki-devnet peers`: networks of nodes on loopback, with this tool as the consensus client of all.
//!
//! Each scenario starts nodes as processes, connects them, checks what it claims, prints figures and
//! claims, and fails if a claim does not hold. All nodes end with it.
//!
//! | file | what it is |
//! |---|---|
//! | `sync` | one node has the chain, the other gets it from its peer |
//! | `matrix` | every client from every client, restarted, through reorganisations |
//! | `file` | a chain of a file: imported by one node, fetched by another, compared |
//! | `follow` | two nodes, each block given to one: the other fetches it; transactions reach both |
//! | `blobs` | blob transactions of which some nodes take a few columns |
//! | `backward` | gaps of many sizes, filled while peers come and go |
//! | `ten` | nodes that find each other by discovery alone |
//! | `kill` | the syncing node gets SIGKILL, again and again |
//! | `gossip` | transactions at a rate, spread over several nodes |
//! | `floods` | attackers beside a node that imports blocks |
//! | `idle` | peers that have nothing to say |
//! | `devp2p` | go-ethereum's own test suites for peers |
//! | `hive` | a simulator of hive, with processes in the place of containers |
//! | `chain` | chains to give to a source, built here or read |
//! | `node` | a node of a scenario |
//! | `link` | a slow link to a node |
//! | `raw_peer` | a peer that is no node |
//! | `findings` | figures and claims, printed and as JSON |

mod backward;
mod blobs;
mod chain;
mod devp2p;
mod file;
mod findings;
mod floods;
mod follow;
mod gossip;
mod hive;
mod idle;
mod kill;
mod link;
mod matrix;
mod node;
mod raw_peer;
mod sync;
mod ten;
mod validators;

use crate::process::ClientKind;
use clap::{Args, Subcommand};
use eyre::{Result, eyre};
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
pub(crate) struct PeersOptions {
    #[command(subcommand)]
    scenario: Scenario,
}

#[derive(Debug, Subcommand)]
enum Scenario {
    /// One node has a chain; another gets it from it, and ends with the same head and state root.
    Sync(sync::SyncOptions),
    /// Every client gets the chain from every client: whole, by a late state, restarted, and through a reorganisation.
    Matrix(matrix::MatrixOptions),
    /// Import a chain of a file, then fetch the same chain from the node that has it, and compare the times.
    File(file::FileOptions),
    /// Each block goes to one of two nodes; the other fetches it. Transactions of all types reach both pools.
    Follow(follow::FollowOptions),
    /// Blob transactions among nodes that take the blobs whole and nodes that take the columns they keep (EIP-8070).
    Blobs(blobs::BlobOptions),
    /// A node fetches the blocks up to a head that it is given, while its peers come and go.
    Backward(backward::BackwardOptions),
    /// Nodes that know one boot node find each other by discovery.
    Ten(ten::TenOptions),
    /// Kill a syncing node at random moments, check its database, and let it go on.
    Kill(kill::KillOptions),
    /// Send transactions at a rate to several nodes; all pools must become equal.
    Gossip(gossip::GossipOptions),
    /// Flood a node that imports blocks, and measure its memory and latency.
    Floods(floods::FloodsOptions),
    /// Three peers send messages without content; the node's memory must stay flat.
    Idle(idle::IdleOptions),
    /// Run go-ethereum's test suites for eth and discovery against a node.
    Devp2p(devp2p::Devp2pOptions),
    /// Validators of IBFT 2.0 or QBFT, and a node that follows; each is killed in turn, then all.
    Validators(validators::ValidatorOptions),
    /// Run a simulator of hive against niwaki and geth as local processes.
    Hive(hive::HiveOptions),
}

/// The programs that a scenario starts.
#[derive(Args, Clone, Debug)]
struct Binaries {
    /// Path of the niwaki binary.
    #[arg(long, value_name = "FILE")]
    niwaki: Option<PathBuf>,
    /// Path of a geth 1.17 binary (`cargo xtask peers` builds it).
    #[arg(long, value_name = "FILE")]
    geth: Option<PathBuf>,
    /// Path of a geth of GoQuorum 24.4, for validators.
    #[arg(long, value_name = "FILE")]
    quorum: Option<PathBuf>,
    /// Path of a reth 2.5 binary.
    #[arg(long, value_name = "FILE")]
    reth: Option<PathBuf>,
    /// Path of Besu's start script (bin/besu).
    #[arg(long, value_name = "FILE")]
    besu: Option<PathBuf>,
}

impl Binaries {
    fn of(&self, kind: ClientKind) -> Result<&Path> {
        let (path, flag) = match kind {
            ClientKind::Niwaki => (&self.niwaki, "--niwaki"),
            ClientKind::Geth => (&self.geth, "--geth"),
            ClientKind::Quorum => (&self.quorum, "--quorum"),
            ClientKind::Reth => (&self.reth, "--reth"),
            ClientKind::Besu => (&self.besu, "--besu"),
        };
        path.as_deref()
            .ok_or_else(|| eyre!("{flag} FILE is needed"))
    }

    /// The program that builds chains: niwaki if there is one, because it is faster.
    fn builder(&self) -> Result<(ClientKind, &Path)> {
        let kind = match self.niwaki {
            Some(_) => ClientKind::Niwaki,
            None => ClientKind::Geth,
        };
        Ok((kind, self.of(kind)?))
    }
}

/// Runs a scenario.
///
/// # Errors
/// If a claim of it does not hold.
pub(crate) fn run(options: &PeersOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    match &options.scenario {
        Scenario::Sync(options) => sync::run(options),
        Scenario::Matrix(options) => matrix::run(options),
        Scenario::File(options) => file::run(options),
        Scenario::Follow(options) => follow::run(options),
        Scenario::Blobs(options) => blobs::run(options),
        Scenario::Backward(options) => backward::run(options),
        Scenario::Ten(options) => ten::run(options),
        Scenario::Kill(options) => kill::run(options),
        Scenario::Gossip(options) => gossip::run(options),
        Scenario::Floods(options) => floods::run(options),
        Scenario::Idle(options) => idle::run(options),
        Scenario::Devp2p(options) => devp2p::run(options),
        Scenario::Validators(options) => validators::run(options),
        Scenario::Hive(options) => hive::run(options),
    }
}
