//! What goes out: new transactions in full to some peers, by hash to the others.

use super::{Action, Gossip, cut_by_bytes};
use crate::gossip::BLOB_TYPE;
use crate::gossip::pool::{Announceable, NewTransaction};
use crate::gossip::send::Outgoing;
use crate::key::NodeId;
use crate::peers::ConnId;
use crate::wire::limits::MAX_ANNOUNCED;
use crate::wire::{Announced, Announcement, CellMask, EthVersion};
use niwaki_primitives::Bytes;
use std::collections::BTreeMap;

/// Bytes of transactions in a message.
const SENT_BYTES: usize = 100 * 1024;
/// Announcements wait so long for others, unless so many wait.
const ANNOUNCE_MS: u64 = 100;
const ANNOUNCE_COUNT: usize = 256;

impl Gossip {
    /// The pool has new transactions, those of a sender in the order of their nonces.
    pub(in crate::gossip) fn broadcast(
        &mut self,
        all: &[NewTransaction],
        now_ms: u64,
    ) -> Vec<Action> {
        if self.is_syncing {
            return Vec::new();
        }
        let (conns, nodes): (Vec<ConnId>, Vec<NodeId>) = self
            .peers
            .iter()
            .map(|(conn, peer)| (*conn, peer.node))
            .unzip();
        let mut sending: BTreeMap<ConnId, Vec<Bytes>> = BTreeMap::new();
        for new in all {
            let hash = new.announceable.hash;
            self.fetcher.received(&hash);
            self.cells.forget(&hash);
            let outgoing = Outgoing {
                sender: new.sender,
                tx_type: new.announceable.tx_type,
                bytes: new.encoded.as_ref().map_or(usize::MAX, |bytes| bytes.len()),
                is_private: false,
                spread: new.spread,
            };
            let knows = |index: usize| {
                let peer = conns.get(index).and_then(|conn| self.peers.get(conn));
                peer.is_none_or(|peer| peer.known.contains(&hash))
            };
            let recipients = self.secret.recipients(&outgoing, &nodes, knows);
            let of = |index: &usize| conns.get(*index).copied();
            for conn in recipients.full.iter().filter_map(of) {
                self.peers
                    .get_mut(&conn)
                    .map(|peer| peer.known.insert(&hash));
                sending.entry(conn).or_default().extend(new.encoded.clone());
            }
            for conn in recipients.hash.iter().filter_map(of) {
                self.queue_announcement(conn, new.announceable, now_ms);
            }
        }
        let mut actions = Vec::new();
        for (conn, transactions) in sending {
            let messages = cut_by_bytes(transactions, usize::MAX, SENT_BYTES, |bytes| bytes.len());
            actions.extend(
                messages
                    .into_iter()
                    .map(|transactions| Action::Send { conn, transactions }),
            );
        }
        self.flush(now_ms, &mut actions);
        actions
    }

    /// Announces at most [`MAX_ANNOUNCED`] transactions once more, also to those who have heard of them: they may have had no room for them.
    pub(in crate::gossip) fn remind(&mut self, all: &[Announceable]) -> Vec<Action> {
        if self.is_syncing {
            return Vec::new();
        }
        let all = &all[..all.len().min(MAX_ANNOUNCED)];
        let mut actions = Vec::new();
        for (conn, peer) in &mut self.peers {
            all.iter().for_each(|tx| _ = peer.known.insert(&tx.hash));
            let messages = announcements(all.iter().copied(), peer.version);
            actions.extend(messages.map(|announcement| Action::Announce {
                conn: *conn,
                announcement,
            }));
        }
        actions
    }

    /// What the pool has for a peer that is new.
    pub(in crate::gossip) fn announce_pending(
        &mut self,
        conn: ConnId,
        all: &[Announceable],
        now_ms: u64,
    ) {
        if self.is_syncing {
            return;
        }
        for announceable in all.iter().take(MAX_ANNOUNCED) {
            self.queue_announcement(conn, *announceable, now_ms);
        }
    }

    fn queue_announcement(&mut self, conn: ConnId, announceable: Announceable, now_ms: u64) {
        let Some(peer) = self.peers.get_mut(&conn) else {
            return;
        };
        if peer.known.contains(&announceable.hash) {
            return;
        }
        if peer.announcing.is_empty() {
            peer.since_ms = now_ms;
        }
        if peer.announcing.len() >= MAX_ANNOUNCED {
            peer.announcing.pop_front();
        }
        peer.announcing.push_back(announceable);
    }

    /// Announces what has waited long enough.
    pub(super) fn flush(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        for (conn, peer) in &mut self.peers {
            let waited_ms = now_ms.saturating_sub(peer.since_ms);
            let count = peer.announcing.len();
            if count < ANNOUNCE_COUNT && (count == 0 || waited_ms < ANNOUNCE_MS) {
                continue;
            }
            // Some it may have sent or got meanwhile.
            let mut all = std::mem::take(&mut peer.announcing);
            all.retain(|announceable| peer.known.insert(&announceable.hash));
            for announcement in announcements(all, peer.version) {
                actions.push(Action::Announce {
                    conn: *conn,
                    announcement,
                });
            }
        }
    }
}

/// The messages that announce transactions to a peer of this version. On eth/72 a message has one mask for all blobs in it, and other
/// transactions have none: they go apart. Before eth/72 a blob transaction is sent with its blobs, so those that are sampled here are not
/// announced.
fn announcements(
    all: impl IntoIterator<Item = Announceable>,
    version: EthVersion,
) -> impl Iterator<Item = Announcement> {
    let has_masks = version >= EthVersion::Eth72;
    let mut plain = Announcement::default();
    let mut by_columns: BTreeMap<u128, Announcement> = BTreeMap::new();
    // Who does not know types knows no blobs.
    let has_types = version.has_typed_announcements();
    let all = all.into_iter();
    let is_announced = |tx: &Announceable| match tx.tx_type {
        BLOB_TYPE if has_masks => tx.columns.count() > 0,
        BLOB_TYPE => has_types && tx.columns == CellMask::ALL,
        _ => true,
    };
    for tx in all.filter(is_announced) {
        let size = match has_masks {
            true => tx.size_without_blobs,
            false => tx.size_with_blobs,
        };
        let message = match has_masks && tx.tx_type == BLOB_TYPE {
            true => by_columns.entry(tx.columns.bits()).or_default(),
            false => &mut plain,
        };
        message.transactions.push(Announced {
            hash: tx.hash,
            tx_type: tx.tx_type,
            size,
        });
    }
    let blobs = by_columns
        .into_iter()
        .map(|(columns, message)| Announcement {
            columns: Some(CellMask::from_bits(columns)),
            ..message
        });
    let plain = (!plain.transactions.is_empty()).then_some(plain);
    plain.into_iter().chain(blobs)
}
