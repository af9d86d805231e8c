//! Coverage of the fixtures in `testdata`: every opcode, precompiled contract, fork and transition.

use niwaki_evm::{Step, Table, Tracer};
use niwaki_evmtool::trace_post;
use niwaki_primitives::{Address, Fork, TxKind};
use niwaki_testkit::fixtures::{BlockExpectation, Fixture, load_fixtures};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn testdata(file: &str) -> Vec<Fixture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    load_fixtures(&folder.join(file)).expect("a kept file is well-formed")
}

/// What ran in one fork.
#[derive(Default)]
struct Reached {
    opcodes: BTreeSet<u8>,
    called: BTreeSet<Address>,
}

impl Tracer for Reached {
    fn step(&mut self, step: &Step<'_>) {
        let opcode = step.opcode();
        self.opcodes.insert(opcode);
        if matches!(opcode, 0xf1 | 0xf2 | 0xf4 | 0xfa)
            && let [.., target, _gas] = step.stack()[..]
        {
            self.called.insert(Address::from_word(target.into()));
        }
    }
}

#[test]
fn testdata_state_tests_run_every_opcode_and_precompile_of_every_fork() {
    let mut reached: BTreeMap<Fork, Reached> = BTreeMap::new();
    for fixture in testdata("state-tests.json") {
        let Fixture::State(test) = fixture else {
            continue;
        };
        for post in &test.posts {
            let fork = Fork::from_name(&post.fork).expect("state tests have plain forks");
            let reached = reached.entry(fork).or_default();
            trace_post(&test, post, reached).expect("it can be run");
            if let (TxKind::Call(to), None) = (test.transaction.to, &post.exception) {
                reached.called.insert(to);
            }
        }
    }
    let forks: Vec<&str> = reached.keys().map(|fork| fork.name()).collect();
    assert_eq!(forks, FORKS);
    let mut missing = Vec::new();
    for (fork, reached) in &reached {
        let table = Table::of(*fork);
        if let Some((_, all)) = PARTLY.iter().find(|(partly, _)| partly == fork) {
            let known = |opcode: &&u8| table.mnemonic(**opcode).is_some();
            assert_eq!(reached.opcodes.iter().filter(known).count(), *all, "{fork}");
            continue;
        }
        for opcode in (0..=u8::MAX).filter(|opcode| !reached.opcodes.contains(opcode)) {
            if let Some(mnemonic) = table.mnemonic(opcode) {
                missing.push(format!("{fork}: {mnemonic}"));
            }
        }
        for address in table.precompiles().addresses() {
            if !reached.called.contains(&address) {
                missing.push(format!("{fork}: precompile {address}"));
            }
        }
    }
    assert!(missing.is_empty(), "never reached:\n{}", missing.join("\n"));
}

/// Forks in which the published state tests (of reasonable size) do not run every opcode, and how many they run.
const PARTLY: [(Fork, usize); 4] = [
    (Fork::Frontier, 108),
    (Fork::TangerineWhistle, 96),
    (Fork::SpuriousDragon, 92),
    (Fork::Prague, 148),
];

/// The forks of the published state tests.
const FORKS: [&str; 15] = [
    "Frontier",
    "Homestead",
    "TangerineWhistle",
    "SpuriousDragon",
    "Byzantium",
    "Constantinople",
    "Petersburg",
    "Istanbul",
    "Berlin",
    "London",
    "Paris",
    "Shanghai",
    "Cancun",
    "Prague",
    "Osaka",
];

/// The transitions of the published blockchain tests.
const TRANSITIONS: [&str; 13] = [
    "ArrowGlacierToParisAtDiffC0000",
    "BPO1ToBPO2AtTime15k",
    "BerlinToLondonAt5",
    "ByzantiumToConstantinopleFixAt5",
    "CancunToPragueAtTime15k",
    "EIP158ToByzantiumAt5",
    "FrontierToHomesteadAt5",
    "HomesteadToDaoAt5",
    "HomesteadToEIP150At5",
    "OsakaToBPO1AtTime15k",
    "ParisToShanghaiAtTime15k",
    "PragueToOsakaAtTime15k",
    "ShanghaiToCancunAtTime15k",
];

#[test]
fn testdata_blockchain_tests_have_every_fork_and_transition_valid_and_invalid() {
    let (mut networks, mut reasons) = (BTreeSet::new(), BTreeSet::new());
    let (mut good, mut bad) = (0, 0);
    for fixture in testdata("blockchain-tests.json") {
        let Fixture::Block(test) = fixture else {
            panic!("{} is no blockchain test", fixture.name());
        };
        networks.insert(test.network.clone());
        for block in &test.cases {
            match &block.expect {
                BlockExpectation::Valid => good += 1,
                BlockExpectation::Invalid(reason) => {
                    bad += 1;
                    reasons.extend(reason.clone());
                }
            }
        }
    }
    let forks = FORKS.map(|fork| match fork {
        "TangerineWhistle" => "EIP150",
        "SpuriousDragon" => "EIP158",
        "Petersburg" => "ConstantinopleFix",
        fork => fork,
    });
    for network in forks.iter().chain(&TRANSITIONS) {
        assert!(networks.contains(*network), "{network} is missing");
    }
    assert!(good > 100 && bad > 70, "{good} good blocks, {bad} bad ones");
    assert!(reasons.len() > 70, "only {} reasons", reasons.len());
}
