//! What the methods about peers see of the network, and what they make it do.

use niwaki_network::peers::{BanTarget, Event, PeerView};
use niwaki_network::wire::BlockRange;
use niwaki_network::{Host, Network, Node, NodeId, Peer, RosterReport};
use niwaki_rpc::{
    BanReport, DepartureReport, OwnIpv6, OwnNode, PeerCommand, PeerHooks, PeerReport,
    SyncFailureReport, SyncReport,
};
use niwaki_sync::{SyncMode, SyncStatus, Way};
use std::net::IpAddr;
use std::sync::Arc;

/// The address of a node, without the brackets of a URL.
fn ip(node: &Node) -> String {
    match &node.host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    }
}

/// This node, as it names itself.
fn own(network: &Network) -> OwnNode {
    let enode = network.enode();
    OwnNode {
        id: enode.id.to_string(),
        enode: enode.to_string(),
        enr: network.record().borrow().to_string(),
        host: ip(&enode),
        listen: network.address(),
        discovery_port: enode.udp,
        ipv6: network.enode_ipv6().map(|node| OwnIpv6 {
            enode: node.to_string(),
            host: ip(&node),
            listen: network.address_ipv6(),
            port: node.tcp,
            discovery_port: node.udp,
        }),
    }
}

/// The hooks. They wait for the network on the calling thread.
pub(super) fn peer_hooks(limit: usize, network: &Arc<Network>) -> PeerHooks {
    let counted = network.peers();
    let [own_node, listed, banned, departed, commanded] =
        std::array::from_fn(|_| Arc::clone(network));
    PeerHooks {
        limit,
        count: Box::new(move || counted.borrow().len()),
        own: Box::new(move || own(&own_node)),
        peers: Box::new(move || peers(&listed)),
        bans: Box::new(move || bans(&banned.report_blocking())),
        departures: Box::new(move || departures(&departed.report_blocking())),
        command: Box::new(move |command| run(&commanded, command)),
    }
}

fn peers(network: &Network) -> Vec<PeerReport> {
    let report = network.report_blocking();
    let peers = network.peers();
    let peers = peers.borrow();
    let view_of = |peer: &Peer| {
        let mut views = report.peers.iter();
        views.find(|view| view.conn == peer.info.origin.conn)
    };
    let known = peers.iter().filter_map(|peer| Some((peer, view_of(peer)?)));
    known.map(|(peer, view)| peer_report(peer, view)).collect()
}

fn peer_report(peer: &Peer, view: &PeerView) -> PeerReport {
    let (info, range) = (&peer.info, peer.range());
    let remote = info.origin.remote;
    let node = Node::at(view.id, remote.ip(), remote.port(), remote.port());
    let capabilities = info.capabilities.iter();
    PeerReport {
        id: view.id.to_string(),
        enode: node.to_string(),
        client: info.client.clone(),
        capabilities: capabilities
            .map(|one| format!("{}/{}", one.name, one.version))
            .collect(),
        local: info.origin.local,
        remote,
        is_inbound: view.is_inbound,
        is_static: view.is_static,
        is_trusted: view.is_trusted,
        score: view.score,
        eth_version: info.version.number(),
        snap_version: info.snap.map(|snap| snap.number()),
        // 0 where the peer does not say it.
        blocks: match range.latest {
            BlockRange::UNKNOWN => (0, 0),
            latest => (range.earliest, latest),
        },
        head: range.latest_hash,
    }
}

fn bans(report: &RosterReport) -> Vec<BanReport> {
    let bans = report.bans.iter();
    bans.map(|ban| BanReport {
        target: match ban.target {
            BanTarget::Node(id) => id.to_string(),
            BanTarget::Host(host) => host.to_string(),
        },
        left_s: ban.until_ms.saturating_sub(report.now_ms) / 1_000,
    })
    .collect()
}

fn departures(report: &RosterReport) -> Vec<DepartureReport> {
    let departures = report.departures.iter();
    departures
        .map(|departure| DepartureReport {
            id: departure.id.to_string(),
            remote: departure.address,
            reason: departure.end.to_string(),
            ago_s: report.now_ms.saturating_sub(departure.at_ms) / 1_000,
            up_s: departure.up_ms / 1_000,
        })
        .collect()
}

/// How far the sync is.
pub(super) fn sync_report(status: SyncStatus) -> SyncReport {
    let failures = status.failures.into_iter();
    SyncReport {
        mode: match status.mode {
            SyncMode::Full => "full",
            SyncMode::Snap => "snap",
        },
        state: status.state.name(),
        way: status.way.map(|way| match way {
            Way::Import => "import",
            Way::Locate => "locate",
            Way::Backward => "backward",
            Way::Full => "full",
            Way::Snap => "snap",
        }),
        target: status.target,
        start_block: status.start_block,
        current_block: status.current_block,
        peers: status.peers as u64,
        highest_block: status.highest_block,
        first_block: status.first_block,
        is_history_complete: status.is_history_complete,
        headers: status.headers,
        lowest_header: status.lowest_header,
        open_items: status.open_items,
        pivot: status.pivot,
        accounts: status.state_share.accounts,
        slots: status.state_share.slots,
        codes: status.state_share.codes,
        state_bytes: status.state_share.bytes,
        healed_nodes: status.healed_nodes,
        differing: status.differing,
        blocks_per_s: status.blocks_per_s,
        remaining_s: status.remaining_s,
        waiting_for: status.waiting_for,
        imported: status.imported,
        reached: status.reached,
        failures: failures
            .map(|failure| SyncFailureReport {
                at_s: failure.at_s,
                reason: failure.reason,
            })
            .collect(),
    }
}

/// Carries out a command. Returns whether it changes anything.
fn run(network: &Network, command: PeerCommand<'_>) -> Result<bool, String> {
    let node = |text: &str| text.parse::<Node>().map_err(|error| error.to_string());
    let dialled = |text: &str| {
        let node = node(text)?;
        match node.tcp {
            0 => Err(format!("{text:?} has no port to dial")),
            _ => Ok(node),
        }
    };
    let event = match command {
        PeerCommand::Add(text) => {
            network.add_static(dialled(text)?);
            return Ok(true);
        }
        PeerCommand::Remove(text) => Event::RemoveStatic(node(text)?.id),
        PeerCommand::Trust(text) => {
            network.add_trusted(dialled(text)?);
            return Ok(true);
        }
        PeerCommand::Distrust(text) => Event::RemoveTrusted(node(text)?.id),
        PeerCommand::Unban(text) => {
            let target = ban_target(text)?;
            let mut bans = network.report_blocking().bans.into_iter();
            let is_banned = bans.any(|ban| ban.target == target);
            network.send(Event::Lift(target));
            return Ok(is_banned);
        }
    };
    network.send(event);
    Ok(true)
}

fn ban_target(text: &str) -> Result<BanTarget, String> {
    if let Ok(host) = text.parse::<IpAddr>() {
        return Ok(BanTarget::Host(host));
    }
    if let Ok(node) = text.parse::<Node>() {
        return Ok(BanTarget::Node(node.id));
    }
    let id = text.parse::<NodeId>();
    id.map(BanTarget::Node)
        .map_err(|error| format!("{error}; an address or an enode:// is possible too"))
}
