//! A validator in a process of its own, killed at any moment and started again, among three that want it to sign twice.
//!
//! The process is this program, run again for one "test" ([`validator`]): a whole service with its threads and its records on the disk. The
//! three others are one adversary with their keys. It shows the validator another block of the same round after each start, as far as the
//! protocol lets it: after round 0 with a quorum of round changes.

use super::{VALIDATORS, address, genesis, key, open};
use crate::journal::JournalSync;
use crate::machine::{Candidate, DigestForm, Head};
use crate::service::{Options, Service, ValidatorHost, next_head, now_ms};
use crate::wire::{
    CommitPayload, Form, Kind, Message, PreparePayload, Proposal, RoundChange, RoundChangePayload,
    Signed, Signer, View,
};
use niwaki_chain::{BlockTemplate, BuildError, BuiltBlock, Chain, Imported, JudgedBlock};
use niwaki_primitives::{Address, B256, Block, Bytes, Header};
use niwaki_rules::{BftExtra, BftProtocol};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The one that is killed.
const OWN: usize = VALIDATORS - 1;
/// How often the same one is started.
const LIVES: usize = 25;
/// The folder of the validator in the process that is killed.
const FOLDER: &str = "NIWAKI_TEST_VALIDATOR";
const PROTOCOL: &str = "NIWAKI_TEST_PROTOCOL";
/// How often it is killed.
const KILLS: &str = "NIWAKI_KILLS";

/// From whom a message is, its number and its bytes: in one write, so half of one is seldom seen.
fn write_message(mut to: &UnixStream, from: usize, code: u8, bytes: &[u8]) {
    let mut frame = vec![u8::try_from(from).unwrap(), code];
    frame.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_le_bytes());
    frame.extend_from_slice(bytes);
    // The other one may be gone.
    let _ = to.write_all(&frame);
}

/// `None`: the other one is gone.
fn read_message(mut from: &UnixStream) -> Option<(usize, u8, Vec<u8>)> {
    let mut head = [0; 6];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_le_bytes(head[2..].try_into().unwrap());
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes).ok()?;
    Some((usize::from(head[0]), head[1], bytes))
}

struct Host {
    chain: Arc<Chain>,
    adversary: UnixStream,
}

impl ValidatorHost for Host {
    fn may_vote(&self, _: &Block) -> bool {
        true
    }

    fn senders(&self, _: &Block) -> Vec<Option<Address>> {
        Vec::new()
    }

    fn build(&self, template: BlockTemplate) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        self.chain.build_judged(template, &mut |_| None)
    }

    fn build_ahead(
        &self,
        template: BlockTemplate,
        _: &dyn Fn() -> bool,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        self.build(template)
    }

    fn send(&self, _: BftProtocol, _: Option<Address>, code: u8, bytes: &Bytes) {
        write_message(&self.adversary, OWN, code, bytes);
    }

    fn sync(&self, _: Option<u64>) {}

    fn imported(&self, _: &Header, _: &Imported) {}
}

/// The process that is killed; on its own it checks nothing.
#[test]
fn validator() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let protocol = match std::env::var(PROTOCOL).unwrap() == "QBFT" {
        true => BftProtocol::Qbft,
        false => BftProtocol::Ibft2,
    };
    let chain = open(&genesis(protocol, VALIDATORS, None), None);
    let adversary = UnixStream::connect(folder.join("socket")).unwrap();
    let host = Host {
        chain: Arc::clone(&chain),
        adversary: adversary.try_clone().unwrap(),
    };
    let options = Options {
        key: key(OWN),
        digest: DigestForm::OwnRound,
        has_access_list: true,
        max_round_timeout_ms: 60_000,
        folder: folder.join("bft"),
        // What was written outlives the process in any case.
        journal_sync: match protocol {
            BftProtocol::Qbft => JournalSync::Sync,
            BftProtocol::Ibft2 => JournalSync::Async,
        },
        accepts_missing_journal: false,
        vanity: B256::ZERO,
        target_gas_limit: None,
    };
    let service = Service::start(&chain, options, Arc::new(host)).unwrap();
    (0..OWN).for_each(|other| service.peer_up(address(other)));
    service.set_level(true);
    while let Some((from, code, bytes)) = read_message(&adversary) {
        service.receive(address(from), protocol, code, bytes.into());
    }
    service.stop();
}

/// The three others.
struct Adversary {
    protocol: BftProtocol,
    signers: Vec<Signer>,
    chain: Arc<Chain>,
    /// The genesis block, and who validates the next one.
    head: Head,
    /// Two blocks of each round.
    blocks: BTreeMap<(u32, u8), Arc<Candidate>>,
    rng: SmallRng,
}

impl Adversary {
    fn new(protocol: BftProtocol, seed: u64) -> Self {
        let form = Form {
            protocol,
            has_access_list: true,
        };
        let signers = (0..OWN).map(|number| Signer::new(form, key(number)).unwrap());
        let chain = open(&genesis(protocol, VALIDATORS, None), None);
        Self {
            protocol,
            signers: signers.collect(),
            head: next_head(&chain, &chain.head()).unwrap().unwrap(),
            chain,
            blocks: BTreeMap::new(),
            rng: SmallRng::seed_from_u64(seed),
        }
    }

    /// The one who proposes in a round of the first height.
    fn proposer(&self, round: u32) -> Address {
        let Head {
            validators,
            coinbase,
            ..
        } = &self.head;
        validators.proposer(coinbase, round).unwrap()
    }

    /// One of the two blocks of a round, the same one each time.
    fn block(&mut self, round: u32, which: u8) -> Arc<Candidate> {
        if let Some(known) = self.blocks.get(&(round, which)) {
            return Arc::clone(known);
        }
        let extra = BftExtra {
            vanity: vec![which; 32].into(),
            validators: self.head.validators.as_slice().to_vec(),
            round,
            ..BftExtra::default()
        };
        let template = BlockTemplate {
            parent: self.head.hash,
            coinbase: self.proposer(round),
            timestamp: now_ms() / 1_000,
            extra_data: extra.encode(self.protocol),
            ..BlockTemplate::default()
        };
        let (built, _) = self.chain.build_judged(template, &mut |_| None).unwrap();
        let candidate = Candidate::new(
            self.protocol,
            Arc::new(built.block),
            built.block_access_list,
        );
        let candidate = Arc::new(candidate.unwrap());
        self.blocks.insert((round, which), Arc::clone(&candidate));
        candidate
    }

    /// What leads a validator to sign all it can in a round, but for the quorum of commits that would end the height.
    fn attack(&mut self, round: u32) -> Vec<(usize, Message)> {
        let view = View { height: 1, round };
        let bare = RoundChangePayload {
            view,
            prepared: None,
        };
        let changes: Vec<Signed<RoundChangePayload>> = match round {
            0 => Vec::new(),
            _ => {
                let changes = self.signers.iter();
                let changes = changes.map(|signer| signer.round_change(bare.clone()).unwrap());
                changes.collect()
            }
        };
        let mut messages = Vec::new();
        for (from, signed) in changes.iter().enumerate() {
            let change = RoundChange {
                signed: signed.clone(),
                block: None,
                access_list: None,
                prepares: Vec::new(),
            };
            messages.push((from, Message::RoundChange(Box::new(change))));
        }
        let which = self.rng.random_range(0..2);
        let candidate = self.block(round, which);
        let digest = candidate.digest(DigestForm::OwnRound, round);
        let proposer = self.proposer(round);
        for (from, signer) in self.signers.iter().enumerate() {
            if signer.address() == proposer {
                let list = candidate.access_list.as_ref();
                let signed = signer.proposal(view, &candidate.block, list, digest);
                let proposal = Proposal {
                    signed: signed.unwrap(),
                    block: Arc::clone(&candidate.block),
                    access_list: candidate.access_list.clone(),
                    round_changes: changes.clone(),
                    prepares: Vec::new(),
                };
                messages.push((from, Message::Proposal(Box::new(proposal))));
            }
        }
        for (from, signer) in self.signers.iter().enumerate() {
            let prepare = signer.prepare(PreparePayload { view, digest }).unwrap();
            messages.push((from, Message::Prepare(prepare)));
        }
        let signer = &self.signers[0];
        let seal = signer.seal(&candidate.seal_hash(round)).unwrap();
        let commit = CommitPayload { view, digest, seal };
        messages.push((0, Message::Commit(signer.commit(commit).unwrap())));
        messages
    }
}

/// What a validator has signed in all its lives.
#[derive(Default)]
struct Seen {
    signed: BTreeMap<(View, Kind), Bytes>,
    last: View,
    messages: usize,
}

impl Seen {
    /// Takes a message; whether the validator may sign it after what it has signed.
    fn add(&mut self, message: &Message) -> bool {
        if message.author() != address(OWN) {
            // It relays those of others.
            return true;
        }
        let bytes = match message {
            Message::Proposal(proposal) => proposal.signed.bytes(),
            Message::Prepare(prepare) => prepare.bytes(),
            Message::Commit(commit) => commit.bytes(),
            Message::RoundChange(change) => change.signed.bytes(),
        };
        self.messages += 1;
        let view = message.view();
        let known = self.signed.entry((view, message.kind()));
        let is_same = *known.or_insert_with(|| bytes.clone()) == *bytes;
        let is_later = view >= self.last;
        self.last = view.max(self.last);
        is_same && is_later
    }
}

fn spawn(folder: &Path, protocol: BftProtocol) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "service::tests::killed::validator"])
        .env(FOLDER, folder)
        .env(PROTOCOL, protocol.name())
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

/// One life of the validator: it is attacked, and killed after some messages or some time. Whether all that it signed was right.
fn live(folder: &Path, adversary: &mut Adversary, seen: &mut Seen) -> bool {
    let socket = folder.join("socket");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).unwrap();
    let mut child = spawn(folder, adversary.protocol);
    let (validator, _) = listener.accept().unwrap();
    let form = adversary.signers[0].form();
    let last = seen.last.round;
    let round = *[last, last, last, last + 1, last.saturating_sub(1)]
        .choose(&mut adversary.rng)
        .unwrap();
    for (from, message) in adversary.attack(round) {
        let code = message.kind().code(form.protocol);
        write_message(&validator, from, code, &message.encode(form));
    }
    // It says seven things at most.
    let wanted = adversary.rng.random_range(0..8);
    let jitter = Duration::from_micros(adversary.rng.random_range(0..2_000));
    let ended = Instant::now() + Duration::from_millis(adversary.rng.random_range(1..200));
    let mut is_right = true;
    let mut check = |message: Option<(usize, u8, Vec<u8>)>| {
        let message = message.map(|(_, code, bytes)| Message::decode(form.protocol, code, &bytes));
        let is_message = message.is_some();
        is_right &= message.is_none_or(|message| seen.add(&message.unwrap()));
        is_message
    };
    let mut received = 0;
    while received < wanted && Instant::now() < ended {
        let left = ended.saturating_duration_since(Instant::now());
        let left = left.max(Duration::from_millis(1));
        validator.set_read_timeout(Some(left)).unwrap();
        received += usize::from(check(read_message(&validator)));
    }
    thread::sleep(jitter);
    child.kill().unwrap();
    child.wait().unwrap();
    // What had left it.
    validator.set_read_timeout(None).unwrap();
    while check(read_message(&validator)) {}
    is_right
}

/// Lives of one validator, at most so many, until it signs what it must not. Gives how many there were, and what it signed.
fn lives(seed: u64, count: usize, keeps_records: bool) -> (usize, Seen, bool) {
    let folder = tempfile::tempdir().unwrap();
    let protocol = match seed % 2 {
        0 => BftProtocol::Qbft,
        _ => BftProtocol::Ibft2,
    };
    let (mut adversary, mut seen) = (Adversary::new(protocol, seed), Seen::default());
    for life in 1..=count {
        if !live(folder.path(), &mut adversary, &mut seen) {
            return (life, seen, false);
        }
        if !keeps_records {
            // It may have been killed before it made them.
            let _ = std::fs::remove_dir_all(folder.path().join("bft"));
        }
    }
    (count, seen, true)
}

#[test]
fn a_validator_that_is_killed_never_signs_twice() {
    let kills: usize = std::env::var(KILLS).map_or(50, |kills| kills.parse().unwrap());
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let left = kills.saturating_sub(number * LIVES);
            if left == 0 {
                return;
            }
            let (life, seen, is_right) = lives(number as u64, left.min(LIVES), true);
            assert!(is_right, "network {number}, life {life}: {:?}", seen.last);
            all.lock().unwrap().push(seen);
        }
    };
    thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    let mut signed: BTreeMap<Kind, usize> = BTreeMap::new();
    let all = all.into_inner().unwrap();
    for (_, kind) in all.iter().flat_map(|seen| seen.signed.keys()) {
        *signed.entry(*kind).or_default() += 1;
    }
    let messages: usize = all.iter().map(|seen| seen.messages).sum();
    println!("{kills} kills, {messages} messages, of these different: {signed:?}");
    assert_eq!(signed.len(), 4, "{signed:?}");
}

#[test]
fn without_its_records_it_is_led_to_sign_twice() {
    let (_, seen, is_right) = lives(0, 200, false);
    assert!(!is_right, "{} messages", seen.messages);
}
