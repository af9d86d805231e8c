//! Which queued hashes a peer is asked for.

use super::{Meta, Peer, Stage, Wanted};
use crate::peers::ConnId;
use crate::wire::Announced;
use niwaki_primitives::B256;
use niwaki_primitives::map::HashMap;
use std::collections::btree_map::Values;

/// Hashes in a request.
pub(super) const MAX_ASKED: usize = 256;
/// Bytes that a request asks for, unless one transaction is larger.
const MAX_ASKED_BYTES: usize = 128 * 1024;
/// What a transaction is reckoned to have whose size was not announced.
const UNTYPED_BYTES: usize = 512;

/// A peer that is free, while hashes are dealt out.
pub(super) struct Taker<'a> {
    pub(super) conn: ConnId,
    peer: &'a Peer,
    hashes: Values<'a, u64, B256>,
    pub(super) asked: Vec<(B256, Meta)>,
    bytes: usize,
    pub(super) is_done: bool,
}

impl<'a> Taker<'a> {
    pub(super) fn new(conn: ConnId, peer: &'a Peer) -> Self {
        Self {
            conn,
            hashes: peer.by_age.values(),
            peer,
            asked: Vec::new(),
            bytes: 0,
            is_done: false,
        }
    }

    /// Takes the oldest hash that it announced and that is queued, unless its request is full.
    pub(super) fn take_one(&mut self, wanted: &mut HashMap<B256, Wanted>) {
        self.is_done = self.asked.len() >= MAX_ASKED;
        while !self.is_done {
            let Some(hash) = self.hashes.next() else {
                self.is_done = true;
                return;
            };
            let wanted = wanted.get_mut(hash);
            let (Some(wanted), Some(meta)) = (
                wanted.filter(|wanted| wanted.stage == Stage::Queued),
                self.peer.announced.get(hash),
            ) else {
                continue;
            };
            let size = match meta.tx_type {
                Announced::UNTYPED => UNTYPED_BYTES,
                _ => meta.size as usize,
            };
            let bytes = self.bytes.saturating_add(size);
            if bytes > MAX_ASKED_BYTES && !self.asked.is_empty() {
                self.is_done = true;
                return;
            }
            wanted.stage = Stage::Asked(self.conn);
            self.bytes = bytes;
            self.asked.push((*hash, *meta));
            return;
        }
    }
}
