//! Four validators in one process: each with its chain, its threads and its records.

#[cfg(unix)]
mod killed;

use super::*;
use niwaki_chain::{ChainConfig, GenesisBlock, StateOptions, StorageOptions};
use niwaki_primitives::{U256, hex};
use niwaki_rules::{BftExtra, Genesis};
use std::path::Path;
use std::sync::Weak;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tempfile::TempDir;

const VALIDATORS: usize = 4;

fn key(number: usize) -> B256 {
    B256::from(U256::from(number + 1))
}

fn address(number: usize) -> Address {
    niwaki_crypto::address_of_secret_key(&key(number)).unwrap()
}

/// A chain of these validators, a block every 100 ms. From block `qbft_from` on it is one of QBFT.
fn genesis(protocol: BftProtocol, count: usize, qbft_from: Option<u64>) -> Genesis {
    let extra = BftExtra {
        vanity: B256::ZERO.0.into(),
        validators: (0..count).map(address).collect(),
        ..BftExtra::default()
    };
    let rules = r#"{"epochlength": 30000, "blockperiodseconds": 1, "xblockperiodmilliseconds": 100, "requesttimeoutseconds": 1}"#;
    let config = match (protocol, qbft_from) {
        (BftProtocol::Qbft, _) => format!(r#""qbft": {rules}"#),
        (BftProtocol::Ibft2, None) => format!(r#""ibft2": {rules}"#),
        (BftProtocol::Ibft2, Some(from)) => {
            let next = rules.replacen('{', &format!(r#"{{"startBlock": {from}, "#), 1);
            format!(r#""ibft2": {rules}, "qbft": {next}"#)
        }
    };
    let json = format!(
        r#"{{"config": {{"chainId": 1337, "berlinBlock": 0, "londonBlock": 0, "shanghaiTime": 0, "zeroBaseFee": true, {config}}},
        "nonce": "0x0", "timestamp": "0x58ee40ba", "extraData": "0x{}", "gasLimit": "0x1c9c380", "difficulty": "0x1",
        "mixHash": "0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365",
        "coinbase": "0x0000000000000000000000000000000000000000", "alloc": {{}}}}"#,
        hex::encode(extra.encode(protocol))
    );
    Genesis::from_json(&json).unwrap()
}

fn open(genesis: &Genesis, data_path: Option<PathBuf>) -> Arc<Chain> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto).unwrap();
    let config = ChainConfig {
        data_path,
        genesis: GenesisBlock::from(genesis),
        spec: Arc::new(genesis.spec.clone()),
        storage: StorageOptions {
            memory_budget_bytes: 16 << 20,
            ..StorageOptions::default()
        },
        state: StateOptions {
            cache_bytes: 1 << 20,
            ..StateOptions::default()
        },
    };
    Arc::new(Chain::open(config).unwrap())
}

/// Which validators run, and whether each reaches each, or only its neighbours in a ring.
#[derive(Default)]
struct Wires {
    up: Mutex<Vec<Option<Weak<Service>>>>,
    is_ring: bool,
    /// Blocks that were built before they were due, and when they were.
    ahead: AtomicUsize,
    at_once: AtomicUsize,
    /// So many, the first ones, vote for no block of another.
    refusing: usize,
}

impl Wires {
    fn others(&self, own: usize) -> Vec<(usize, Arc<Service>)> {
        let all = lock(&self.up);
        let is_wired = |number: usize| {
            let distance = number.abs_diff(own);
            distance != 0 && (!self.is_ring || distance != VALIDATORS / 2)
        };
        let up = all
            .iter()
            .enumerate()
            .filter(|(number, _)| is_wired(*number));
        up.filter_map(|(number, one)| Some((number, one.as_ref()?.upgrade()?)))
            .collect()
    }
}

/// What the node of a validator does.
struct Host {
    number: usize,
    chain: Arc<Chain>,
    wires: Arc<Wires>,
    sources: Vec<Arc<Chain>>,
    done: Sender<u64>,
}

impl ValidatorHost for Host {
    fn may_vote(&self, _: &Block) -> bool {
        self.number >= self.wires.refusing
    }

    fn senders(&self, _: &Block) -> Vec<Option<Address>> {
        Vec::new()
    }

    fn build(&self, template: BlockTemplate) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        self.wires.at_once.fetch_add(1, Ordering::Relaxed);
        self.chain.build_judged(template, &mut |_| None)
    }

    fn build_ahead(
        &self,
        template: BlockTemplate,
        should_end: &dyn Fn() -> bool,
    ) -> Result<(BuiltBlock, JudgedBlock), BuildError> {
        while !should_end() {
            thread::sleep(Duration::from_millis(1));
        }
        self.wires.ahead.fetch_add(1, Ordering::Relaxed);
        self.chain.build_judged(template, &mut |_| None)
    }

    fn send(&self, protocol: BftProtocol, to: Option<Address>, code: u8, bytes: &Bytes) {
        for (other, service) in self.wires.others(self.number) {
            if to.is_none_or(|to| to == address(other)) {
                let from = address(self.number);
                service.receive(from, protocol, code, bytes.clone());
            }
        }
    }

    fn sync(&self, _: Option<u64>) {
        catch_up(&self.chain, &self.sources);
    }

    fn imported(&self, header: &Header, _: &Imported) {
        let _ = self.done.send(header.number);
    }
}

/// A network in this process.
struct Rig {
    wires: Arc<Wires>,
    chains: Vec<Arc<Chain>>,
    services: Vec<Option<Arc<Service>>>,
    folder: TempDir,
    /// The numbers of blocks that were imported.
    imported: Receiver<u64>,
    done: Sender<u64>,
}

impl Rig {
    fn new(genesis: &Genesis) -> Self {
        Self::with(genesis, Wires::default())
    }

    fn with(genesis: &Genesis, wires: Wires) -> Self {
        let chains = (0..VALIDATORS).map(|_| open(genesis, None)).collect();
        Self::of(chains, wires)
    }

    fn of(chains: Vec<Arc<Chain>>, wires: Wires) -> Self {
        let (done, imported) = channel();
        let mut rig = Self {
            wires: Arc::new(wires),
            chains,
            services: (0..VALIDATORS).map(|_| None).collect(),
            folder: tempfile::tempdir().unwrap(),
            imported,
            done,
        };
        lock(&rig.wires.up).resize(VALIDATORS, None);
        (0..VALIDATORS).for_each(|number| rig.start(number));
        rig
    }

    fn options(&self, number: usize) -> Options {
        Options {
            key: key(number),
            digest: DigestForm::OwnRound,
            has_access_list: true,
            max_round_timeout_ms: 60_000,
            folder: self.records(number),
            journal_sync: JournalSync::Sync,
            accepts_missing_journal: false,
            vanity: B256::ZERO,
            target_gas_limit: None,
        }
    }

    fn records(&self, number: usize) -> PathBuf {
        Path::new(self.folder.path()).join(number.to_string())
    }

    fn start(&mut self, number: usize) {
        let chain = Arc::clone(&self.chains[number]);
        let host = Host {
            number,
            chain: Arc::clone(&chain),
            wires: Arc::clone(&self.wires),
            sources: self.chains.clone(),
            done: self.done.clone(),
        };
        let service = Service::start(&chain, self.options(number), Arc::new(host)).unwrap();
        let service = Arc::new(service);
        lock(&self.wires.up)[number] = Some(Arc::downgrade(&service));
        for (other, peer) in self.wires.others(number) {
            service.peer_up(address(other));
            peer.peer_up(address(number));
        }
        service.set_level(true);
        self.services[number] = Some(service);
    }

    fn stop(&mut self, number: usize) {
        lock(&self.wires.up)[number] = None;
        for (_, peer) in self.wires.others(number) {
            peer.peer_down(address(number));
        }
        let service = self.services[number].take().unwrap();
        service.stop();
    }

    /// Waits until all that run have imported a block of this number.
    fn reach(&self, number: u64) {
        let up = |node: &usize| self.services[*node].is_some();
        let is_there = || {
            let mut up = (0..VALIDATORS).filter(up);
            up.all(|node| self.chains[node].head().id.number >= number)
        };
        while !is_there() {
            let next = self.imported.recv_timeout(Duration::from_secs(60));
            if next.is_err() && !is_there() {
                let all = self.services.iter().flatten();
                let all: Vec<Status> = all.map(|service| service.status()).collect();
                panic!("no block {number}: {all:?}");
            }
        }
    }

    /// All chains are the same up to the shortest one.
    fn check_equal(&self) {
        let heads = self.chains.iter().map(|chain| chain.head().id.number);
        let lowest = heads.min().unwrap();
        for number in 1..=lowest {
            let hashes = self.chains.iter().map(|chain| {
                let header = chain.header_at(number).unwrap().unwrap();
                header.id.hash
            });
            let hashes: Vec<B256> = hashes.collect();
            assert!(
                hashes.iter().all(|hash| *hash == hashes[0]),
                "block {number}"
            );
        }
    }

    fn stop_all(mut self) {
        for number in 0..VALIDATORS {
            if self.services[number].is_some() {
                self.stop(number);
            }
        }
        self.check_equal();
    }
}

/// What a sync does: the blocks of the longest chain.
fn catch_up(own: &Arc<Chain>, sources: &[Arc<Chain>]) {
    let longest = sources.iter().max_by_key(|chain| chain.head().id.number);
    let Some(source) = longest else {
        return;
    };
    for number in own.head().id.number + 1..=source.head().id.number {
        let header = source.header_at(number).unwrap().unwrap();
        let block = source.block(&header.id.hash).unwrap().unwrap();
        own.import(block).unwrap();
    }
}

#[test]
fn four_validators_agree_and_three_go_on_without_the_fourth_which_comes_back() {
    for protocol in [BftProtocol::Qbft, BftProtocol::Ibft2] {
        let mut rig = Rig::new(&genesis(protocol, VALIDATORS, None));
        rig.reach(8);
        rig.stop(3);
        let height = rig.chains[0].head().id.number;
        rig.reach(height + 8);
        catch_up(&rig.chains[3], &rig.chains);
        rig.start(3);
        let height = rig.chains[0].head().id.number;
        rig.reach(height + 8);
        rig.stop_all();
    }
}

#[test]
fn each_block_is_executed_once_by_each_validator() {
    let rig = Rig::new(&genesis(BftProtocol::Qbft, VALIDATORS, None));
    rig.reach(12);
    for (service, chain) in rig.services.iter().flatten().zip(&rig.chains) {
        // Before the head, which goes on meanwhile.
        let executed = service.status().executions;
        let head = chain.head().id.number;
        let later_rounds: u64 = (1..=head)
            .map(|number| {
                let header = chain.header_at(number).unwrap().unwrap().header;
                let extra = BftExtra::decode(BftProtocol::Qbft, &header.extra_data);
                u64::from(extra.unwrap().round)
            })
            .sum();
        // A block that is not finished yet, and one for each round that was given up.
        assert!(
            executed <= head + 1 + later_rounds,
            "{executed} for {head} blocks"
        );
        assert!(executed >= 12, "{executed}");
    }
    rig.stop_all();
}

#[test]
fn blocks_that_an_operator_refuses_get_no_vote_and_are_imported_if_a_quorum_seals_them() {
    // Two vote for their own blocks only: with the two others that is a quorum, and those two alone are none.
    let wires = Wires {
        refusing: 2,
        ..Wires::default()
    };
    let rig = Rig::with(&genesis(BftProtocol::Qbft, VALIDATORS, None), wires);
    rig.reach(4);
    for number in 1..=4 {
        let header = rig.chains[3].header_at(number).unwrap().unwrap().header;
        assert!(
            [address(0), address(1)].contains(&header.beneficiary),
            "block {number}"
        );
    }
    rig.stop_all();
}

#[test]
fn the_proposer_fills_its_block_before_it_is_due() {
    let mut genesis = genesis(BftProtocol::Qbft, VALIDATORS, None);
    genesis.spec.bft_rules[0].period_ms = None;
    let rig = Rig::new(&genesis);
    let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    // The first block has been due for years.
    rig.reach(1);
    assert!(count(&rig.wires.at_once) >= 1);
    // A block that comes late in its second, or one of a later round, leaves no time for the next one.
    let is_only_ahead = (2..20).any(|height| {
        let before = count(&rig.wires.at_once);
        rig.reach(height);
        count(&rig.wires.at_once) == before
    });
    assert!(is_only_ahead);
    assert!(count(&rig.wires.ahead) >= 1);
    rig.stop_all();
}

#[test]
fn all_stop_and_start_again_and_go_on() {
    let mut rig = Rig::new(&genesis(BftProtocol::Qbft, VALIDATORS, None));
    for _ in 0..3 {
        let height = rig.chains[0].head().id.number;
        rig.reach(height + 3);
        (0..VALIDATORS).for_each(|number| rig.stop(number));
        (0..VALIDATORS).for_each(|number| rig.start(number));
    }
    let height = rig.chains[0].head().id.number;
    rig.reach(height + 3);
    rig.stop_all();
}

#[test]
fn a_chain_of_ibft_2_goes_on_as_one_of_qbft() {
    let rig = Rig::new(&genesis(BftProtocol::Ibft2, VALIDATORS, Some(5)));
    rig.reach(10);
    let form = |number| {
        let header = rig.chains[0].header_at(number).unwrap().unwrap().header;
        [BftProtocol::Ibft2, BftProtocol::Qbft]
            .map(|protocol| BftExtra::decode(protocol, &header.extra_data).is_ok())
    };
    assert_eq!([form(4), form(5)], [[true, false], [false, true]]);
    rig.stop_all();
}

#[test]
fn a_validator_whose_records_are_lost_abstains_for_some_blocks() {
    let mut rig = Rig::new(&genesis(BftProtocol::Qbft, VALIDATORS, None));
    rig.reach(3);
    rig.stop(2);
    std::fs::remove_dir_all(rig.records(2)).unwrap();
    catch_up(&rig.chains[2], &rig.chains);
    rig.start(2);
    let height = rig.chains[0].head().id.number;
    rig.reach(height + 8);
    rig.stop_all();
}

/// The memory of this process, and the bytes of all files in a folder.
#[cfg(target_os = "linux")]
fn footprint(folder: &Path) -> (u64, u64) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    let files = std::fs::read_dir(folder).unwrap();
    let bytes = files.map(|file| file.unwrap().metadata().unwrap().len());
    (pages * 4_096, bytes.sum())
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "50,000 blocks: minutes; prints what it measures"]
fn empty_blocks_leave_memory_and_records_as_they_are() {
    const EVERY: usize = 5_000;
    let mut genesis = genesis(BftProtocol::Qbft, VALIDATORS, None);
    genesis.spec.bft_rules[0].period_ms = Some(5);
    let disk = tempfile::tempdir().unwrap();
    let path = |number: usize| disk.path().join(number.to_string());
    let chains = (0..VALIDATORS).map(|number| open(&genesis, Some(path(number))));
    let rig = Rig::of(chains.collect(), Wires::default());
    let (mut warm, mut largest_records) = (0, 0);
    for number in (EVERY..=50_000).step_by(EVERY) {
        rig.reach(number as u64);
        let (memory, records) = footprint(&rig.records(0));
        println!(
            "block {number}: {} MiB, records {records} bytes",
            memory >> 20
        );
        if number == 2 * EVERY {
            warm = memory;
        }
        largest_records = records.max(largest_records);
        assert!(
            warm == 0 || memory < warm + (64 << 20),
            "block {number}: {memory}, was {warm}"
        );
    }
    assert!(largest_records < 8 << 20, "{largest_records}");
    rig.stop_all();
}

#[test]
fn validators_that_are_connected_through_others_agree() {
    let wires = Wires {
        is_ring: true,
        ..Wires::default()
    };
    let rig = Rig::with(&genesis(BftProtocol::Qbft, VALIDATORS, None), wires);
    rig.reach(6);
    rig.stop_all();
}

/// How long the child of block 9 waits whose time is this, with a transition at 1,800,000,000.
fn next_period_ms(first: &str, then: &str, timestamp: u64) -> u64 {
    let json = format!(
        r#"{{"config": {{"chainId": 1, "londonBlock": 0, "shanghaiTime": 0, "qbft": {{{first}}},
            "transitions": {{"qbft": [{{"block": 1800000000, {then}}}]}}}}, "gasLimit": "0x1000000", "difficulty": "0x1"}}"#
    );
    let spec = Genesis::from_json(&json).unwrap().spec;
    let parent = Header {
        number: 9,
        timestamp,
        ..Header::default()
    };
    next_rules(&spec, &parent).unwrap().block_period_ms()
}

#[test]
fn the_longer_period_holds_where_a_transition_by_time_lies_between_two_blocks() {
    let (one, four) = (r#""blockPeriodSeconds": 1"#, r#""blockPeriodSeconds": 4"#);
    let periods = |first, then, times: [u64; 3]| {
        times.map(|before| next_period_ms(first, then, 1_800_000_000 - before))
    };
    assert_eq!(periods(one, four, [2, 1, 0]), [1_000, 4_000, 4_000]);
    assert_eq!(periods(four, one, [5, 4, 0]), [4_000, 4_000, 1_000]);
    let half = r#""xBlockPeriodMilliseconds": 500"#;
    let none = r#""xBlockPeriodMilliseconds": 0, "blockPeriodSeconds": 4"#;
    assert_eq!(periods(half, none, [2, 1, 0]), [500, 4_000, 4_000]);
    assert_eq!(periods(one, half, [2, 1, 0]), [1_000, 1_000, 500]);
}
