//! Beginning from a file, small or large, gives the same chain; a known file is not read again.

use super::*;
use alloy_primitives::Address;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A genesis file of `accounts` accounts, every tenth with code and slots.
fn text(accounts: u32, gas_limit: u64) -> String {
    let mut text = r#"{"config": {"chainId": 7, "londonBlock": 0}, "alloc": {"#.to_owned();
    for at in 0..accounts {
        let hash = keccak256(at.to_be_bytes());
        let address = alloy_primitives::hex::encode(&hash[..20]);
        let comma = if at == 0 { "" } else { "," };
        write!(text, "{comma}\n\"{address}\": {{\"balance\": {at}").unwrap();
        if at % 10 == 0 {
            let slots: Vec<_> = (0..5)
                .map(|slot| format!("\"{slot:x}\": \"{hash:x}\""))
                .collect();
            let slots = slots.join(", ");
            write!(
                text,
                ", \"code\": \"0x60{at:08x}\", \"storage\": {{{slots}}}"
            )
            .unwrap();
        }
        text.push('}');
    }
    write!(text, "}}, \"gasLimit\": {gas_limit}}}").unwrap();
    text
}

struct Place(TempDir);

impl Place {
    fn new(text: &str) -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.file(), text).unwrap();
        place
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("genesis.json")
    }

    fn config(&self) -> GenesisFileConfig {
        GenesisFileConfig {
            fixed_base_fee: 0,
            data_path: self.0.path().join("data"),
            file: self.file(),
            storage: StorageOptions::default(),
            state: StateOptions::default(),
        }
    }

    /// Opens, and counts how often it was told of a loading.
    fn open(&self) -> (Result<Chain, OpenError>, u32) {
        let mut reports = 0;
        let chain = Chain::open_genesis_file(&self.config(), &mut |_| {
            reports += 1;
            true
        });
        (chain, reports)
    }

    /// Gives the file back the time of change that it had before `change`.
    fn disguised(&self, change: impl FnOnce(&Path)) {
        let time = fs::metadata(self.file()).unwrap().modified().unwrap();
        change(&self.file());
        set_time(&self.file(), time);
    }
}

fn set_time(file: &Path, time: SystemTime) {
    let file = fs::OpenOptions::new().append(true).open(file).unwrap();
    file.set_modified(time).unwrap();
}

fn rows(chain: &Chain) -> Vec<Vec<niwaki_storage::Row>> {
    let all = |segment| {
        let rows = chain.database().prefix(segment, &[]);
        rows.map(Result::unwrap)
            .filter(|(key, _)| **key != *GENESIS_FILE)
            .collect()
    };
    Segment::ALL.map(all).to_vec()
}

/// Replaces one byte of the file.
fn replace_byte(file: &Path, at: usize, byte: u8) {
    let mut bytes = fs::read(file).unwrap();
    assert_ne!(bytes[at], byte);
    bytes[at] = byte;
    fs::write(file, bytes).unwrap();
}

/// Of a consortium (besu#1891); geth and Besu open it, and give it this hash.
#[test]
fn an_address_with_and_without_0x_is_one_account() {
    let text = r#"{
        "config": {"chainId": 20, "muirglacierblock": 0, "contractSizeLimit": 2147483647,
            "ibft2": {"blockperiodseconds": 2, "epochlength": 30000, "requesttimeoutseconds": 4}},
        "gasLimit": "0x1fffffffffffff", "difficulty": "0x1", "nonce": "0x0",
        "timestamp": "0x58ee40ba", "extraData": "0x",
        "mixHash": "0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365",
        "alloc": {
            "AbCdEf0123456789aBcDeF0123456789AbCdEf01": {"balance": "0x100"},
            "0xAbCdEf0123456789aBcDeF0123456789AbCdEf01": {"balance": "0x100"}
        }}"#;
    let hash = Place::new(text).open().0.unwrap().genesis_hash();
    let right = "0x1ab04bd735258997709b64ec28caef78b30a176a9485831fb39a6cbfc64ca470";
    assert_eq!(hash.to_string(), right);
}

#[test]
fn of_an_address_given_twice_the_last_counts_in_a_file_of_any_size() {
    let hash = keccak256(0_u32.to_be_bytes());
    let address = alloy_primitives::hex::encode(&hash[..20]);
    let last = format!(r#""0X{address}": {{"balance": "0x1", "storage": {{"0x07": "0x1"}}}}"#);
    for accounts in [20, 60_000] {
        let once = text(accounts, 5000);
        let twice = once.replacen(
            "}}, \"gasLimit\"",
            &format!("}}, {last}}}, \"gasLimit\""),
            1,
        );
        assert_ne!(once, twice);
        assert_eq!(twice.len() as u64 > SMALL_BYTES, accounts > 20);
        let (_, alloc) = Genesis::parts_from_json(twice.as_bytes()).unwrap();
        let account = &alloc[&Address::from_slice(&hash[..20])];
        assert!(account.code.is_empty() && account.storage.len() == 1);
        let root = niwaki_state::genesis_root(alloc.iter().map(|(address, account)| {
            let slots = account.storage.iter();
            niwaki_state::GenesisAccount {
                address: *address,
                nonce: account.nonce,
                balance: account.balance,
                code: account.code.clone(),
                storage: slots.map(|(slot, value)| (*slot, *value)).collect(),
            }
        }));
        let chain = Place::new(&twice).open().0.unwrap();
        assert_eq!(chain.head().header.state_root, root, "{accounts}");
    }
}

/// Makes a block without transactions, 12 seconds after the head.
fn extend(chain: &Chain) {
    let head = chain.head();
    let template = crate::BlockTemplate {
        parent: head.id.hash,
        timestamp: head.header.timestamp + 12,
        ..crate::BlockTemplate::default()
    };
    let built = chain.build(template, Vec::new()).unwrap();
    chain.import(built.block).unwrap();
}

#[test]
fn stored_rules_are_compared_with_a_genesis_file_and_a_named_network_alike() {
    let merged = |config: &str| {
        format!(
            r#"{{"config": {{"chainId": 7, "terminalTotalDifficulty": 0, "londonBlock": 0, {config}}},
                "gasLimit": 30000000, "difficulty": 0}}"#
        )
    };
    let place = Place::new(&merged("\"shanghaiTime\": 0, \"cancunTime\": 24"));
    let chain = place.open().0.unwrap();
    assert!(chain.rule_changes().is_empty());
    extend(&chain);
    drop(chain);
    let by_network = |text: &str| {
        let genesis = Genesis::from_json(text).unwrap();
        let place = place.config();
        Chain::open(crate::ChainConfig {
            data_path: Some(place.data_path),
            genesis: GenesisBlock::from(&genesis),
            spec: Arc::new(genesis.spec),
            storage: place.storage,
            state: place.state,
        })
    };
    // Cancun lies ahead of the head's time, 12, and may move; not to where the head is.
    let later = merged("\"shanghaiTime\": 0, \"cancunTime\": 36");
    let past = merged("\"shanghaiTime\": 0, \"cancunTime\": 12");
    let told = |error: OpenError| match error {
        OpenError::OtherRules { change, head } => (change.to_string(), head),
        other => panic!("{other}"),
    };
    let refused = ("cancunTime was 24 and is 12".to_owned(), 1);
    assert_eq!(told(by_network(&past).unwrap_err()), refused);
    fs::write(place.file(), &past).unwrap();
    assert_eq!(told(place.open().0.unwrap_err()), refused);
    drop(by_network(&later).unwrap());

    // A limit is told, and nothing is refused; what was taken last is what counts then.
    let limited = merged("\"shanghaiTime\": 0, \"cancunTime\": 36, \"contractSizeLimit\": 64");
    fs::write(place.file(), &limited).unwrap();
    let chain = place.open().0.unwrap();
    let changes: Vec<_> = chain
        .rule_changes()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(changes, ["contractSizeLimit was absent and is 64"]);
    drop(chain);
    assert!(place.open().0.unwrap().rule_changes().is_empty());
    assert!(by_network(&limited).unwrap().rule_changes().is_empty());

    // Without a file that tells, as of a version that kept none, everything is taken.
    let database = Database::open(&place.config().data_path, &place.config().storage).unwrap();
    let mut batch = Batch::new();
    batch.delete(Segment::Meta, GENESIS_FILE);
    database.write(batch, true).unwrap();
    drop(database);
    assert!(by_network(&past).is_ok());
}

#[test]
fn a_large_file_gives_the_rows_of_the_same_genesis_in_memory_and_is_read_once() {
    let text = text(60_000, 5000);
    assert!(text.len() as u64 > SMALL_BYTES);
    let place = Place::new(&text);
    let genesis = Genesis::from_json(&text).unwrap();
    let in_memory = Chain::open(crate::ChainConfig {
        data_path: None,
        genesis: GenesisBlock::from(&genesis),
        spec: Arc::new(genesis.spec),
        storage: StorageOptions::default(),
        state: StateOptions::default(),
    });
    let in_memory = in_memory.unwrap();
    let (chain, reports) = place.open();
    let chain = chain.unwrap();
    assert!(reports > 0);
    assert_eq!(chain.check_head().unwrap(), None);
    assert!(rows(&chain) == rows(&in_memory));
    drop(chain);

    let (chain, reports) = place.open();
    let chain = chain.unwrap();
    assert_eq!(reports, 0, "a known file is not read again");
    assert_eq!(chain.genesis_hash(), in_memory.genesis_hash());
    assert_eq!(chain.spec(), in_memory.spec());
    let problems = chain.check(&mut |problem| panic!("{problem}")).unwrap();
    assert_eq!(problems.problems, 0);
}

#[test]
fn a_file_that_looks_different_is_read_again_and_must_make_the_same_genesis() {
    for accounts in [50, 60_000] {
        let place = Place::new(&text(accounts, 5000));
        drop(place.open().0.unwrap());
        let is_large = accounts > 50;

        // The same bytes at another time: read once more, then known.
        set_time(
            &place.file(),
            SystemTime::UNIX_EPOCH + Duration::from_secs(9),
        );
        for is_read in [is_large, false] {
            let (chain, reports) = place.open();
            drop(chain.unwrap());
            assert_eq!(reports > 0, is_read);
        }

        // Another fork is another file, but the same genesis, and takes effect.
        let changed = text(accounts, 5000).replacen(
            "londonBlock",
            "arrowGlacierBlock\": 9, \"londonBlock",
            1,
        );
        fs::write(place.file(), changed).unwrap();
        let spec = place.open().0.unwrap().spec().clone();
        let fork = niwaki_primitives::Fork::ArrowGlacier;
        assert_eq!(spec.activation(fork), niwaki_rules::Activation::Block(9));

        fs::write(place.file(), text(accounts - 1, 5000)).unwrap();
        let error = place.open().0.unwrap_err();
        assert!(matches!(error, OpenError::OtherGenesis { .. }), "{error}");
        fs::write(place.file(), text(accounts, 5001)).unwrap();
        let error = place.open().0.unwrap_err();
        assert!(matches!(error, OpenError::OtherGenesis { .. }), "{error}");
        fs::write(place.file(), text(accounts, 5000)).unwrap();
        drop(place.open().0.unwrap());
    }
}

#[test]
fn a_changed_genesis_file_of_the_same_size_and_time_is_found() {
    let text = text(60_000, 5000);
    let place = Place::new(&text);
    drop(place.open().0.unwrap());
    // The last digit of the gas limit: the size and the time of change stay.
    place.disguised(|file| replace_byte(file, text.len() - 2, b'1'));
    let error = place.open().0.unwrap_err();
    assert!(matches!(error, OpenError::OtherGenesis { .. }), "{error}");
    place.disguised(|file| replace_byte(file, text.len() - 2, b'0'));
    // The first account, which a sample shows.
    let at = text.find("alloc").unwrap() + 12;
    let byte = text.as_bytes()[at];
    place.disguised(|file| replace_byte(file, at, if byte == b'0' { b'1' } else { b'0' }));
    let error = place.open().0.unwrap_err();
    assert!(matches!(error, OpenError::OtherGenesis { .. }), "{error}");
}

#[test]
fn a_stopped_genesis_load_restarts() {
    let text = text(60_000, 5000);
    let place = Place::new(&text);
    let config = place.config();
    let reading = &mut |loading| !matches!(loading, Loading::Reading(done, _) if done > 1 << 20);
    let writing = &mut |loading| !matches!(loading, Loading::Writing(done, _) if done > 20_000);
    let stops: [&mut LoadingReport<'_>; 2] = [reading, writing];
    for stop in stops {
        let stopped = Chain::open_genesis_file(&config, stop);
        assert!(matches!(stopped, Err(OpenError::Stopped)));
    }
    let chain = place.open().0.unwrap();
    let whole = Place::new(&text);
    assert!(rows(&chain) == rows(&whole.open().0.unwrap()));
}

#[test]
fn a_large_file_that_is_no_good_is_refused_with_the_key_and_can_be_mended() {
    let good = text(60_000, 5000);
    let place = Place::new(&good.replacen("\"balance\": 59999", "\"balance\": -9999", 1));
    let error = place.open().0.unwrap_err().to_string();
    assert!(error.contains(".balance = -9999"), "{error}");
    fs::write(place.file(), good).unwrap();
    assert_eq!(place.open().0.unwrap().check_head().unwrap(), None);
}

#[test]
fn a_small_file_that_is_no_good_leaves_no_data_path() {
    let place = Place::new("{}");
    assert!(matches!(place.open().0, Err(OpenError::Genesis(_))));
    assert!(!place.config().data_path.exists());
}
