//! Which messages of peers reach the machine.
//!
//! One that was seen is dropped by its bytes; then one of an author who is no validator, before its other signatures are recovered; then
//! what does not fit into the queue.

use super::lock;
use super::metrics::{self, Fate};
use crate::wire::{Message, author_of};
use niwaki_crypto::keccak256;
use niwaki_primitives::{Address, B256};
use niwaki_rules::{BftProtocol, ValidatorSet};
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Messages that are remembered.
const SEEN: usize = 1_000;
/// Messages that wait for the machine.
const MAX_WAITING: usize = 1_000;

#[derive(Debug, Default)]
struct Seen {
    hashes: HashSet<B256>,
    oldest_first: VecDeque<B256>,
}

impl Seen {
    /// Whether it is new.
    fn add(&mut self, hash: B256) -> bool {
        let is_new = self.hashes.insert(hash);
        if is_new {
            self.oldest_first.push_back(hash);
            if self.oldest_first.len() > SEEN
                && let Some(oldest) = self.oldest_first.pop_front()
            {
                self.hashes.remove(&oldest);
            }
        }
        is_new
    }
}

#[derive(Debug)]
struct Validators {
    protocol: BftProtocol,
    all: ValidatorSet,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Door {
    own: Address,
    seen: Mutex<Seen>,
    validators: Mutex<Validators>,
    waiting: AtomicUsize,
}

impl Door {
    pub(super) fn new(own: Address, protocol: BftProtocol, validators: &ValidatorSet) -> Self {
        Self {
            own,
            seen: Mutex::default(),
            validators: Mutex::new(Validators {
                protocol,
                all: validators.clone(),
            }),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The head has moved.
    pub(super) fn set_validators(&self, protocol: BftProtocol, validators: &ValidatorSet) {
        let all = validators.clone();
        let before = std::mem::replace(&mut *lock(&self.validators), Validators { protocol, all });
        // A message of a new validator may have been dropped; it comes again.
        if before.protocol != protocol || before.all != *validators {
            *lock(&self.seen) = Seen::default();
        }
    }

    /// The message, if it is for the machine. [`Door::taken`] follows it.
    pub(super) fn open(&self, protocol: BftProtocol, code: u8, bytes: &[u8]) -> Option<Message> {
        match self.admit(protocol, code, bytes) {
            Ok(message) => {
                metrics::received(Fate::Taken);
                Some(message)
            }
            Err(fate) => {
                metrics::received(fate);
                None
            }
        }
    }

    fn admit(&self, protocol: BftProtocol, code: u8, bytes: &[u8]) -> Result<Message, Fate> {
        if self.waiting() >= MAX_WAITING {
            return Err(Fate::Full);
        }
        if !lock(&self.seen).add(keccak256(bytes)) {
            return Err(Fate::Seen);
        }
        let author = author_of(protocol, code, bytes).map_err(|_| Fate::Malformed)?;
        let is_wanted = {
            let validators = lock(&self.validators);
            validators.protocol == protocol && validators.all.contains(&author)
        };
        if !is_wanted && author != self.own {
            return Err(Fate::Stranger);
        }
        let message = Message::decode(protocol, code, bytes).map_err(|_| Fate::Malformed)?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Ok(message)
    }

    /// How many messages wait for the machine.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The machine has got a message.
    pub(super) fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
