//! `niwaki operator generate-blockchain-config` and `niwaki rlp`: what a network of validators begins with, in Besu's files.
//!
//! ```text
//! DIR/genesis.json               the genesis file, with the validators in its extra data
//! DIR/keys/0x<address>/key.priv  the key of a validator: --node-private-key-file
//!                     /key.pub   its public key
//! ```

use crate::Outcome;
use crate::options::{GenerateOptions, OperatorCommand, RlpCommand};
use eyre::{Result, WrapErr, ensure, eyre};
use niwaki_network::{NodeId, NodeKey};
use niwaki_primitives::{Address, hex};
use niwaki_rules::{BftExtra, BftProtocol, VANITY_BYTES};
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The most keys that are made.
const MAX_NODES: u64 = 1_000;

pub(crate) fn run(command: &OperatorCommand) -> Result<Outcome> {
    match command {
        OperatorCommand::GenerateBlockchainConfig(options) => generate(options),
    }
}

fn generate(options: &GenerateOptions) -> Result<Outcome> {
    let file = options.config_file.display();
    let text =
        fs::read_to_string(&options.config_file).wrap_err_with(|| format!("can't read {file}"))?;
    let config: Value =
        serde_json::from_str(&text).wrap_err_with(|| format!("{file} is no JSON"))?;
    let mut genesis = config["genesis"].clone();
    let protocol = protocol_of(&genesis).wrap_err_with(|| format!("{file}"))?;
    let to = &options.to;
    ensure!(
        fs::read_dir(to).map_or(true, |mut entries| entries.next().is_none()),
        "{} is not empty: name a new folder",
        to.display()
    );
    let nodes = &config["blockchain"]["nodes"];
    let validators = match (nodes["generate"] == true, &nodes["count"], &nodes["keys"]) {
        (true, Value::Number(count), _) => make_keys(options, count.as_u64())?,
        (_, _, Value::Array(keys)) => write_public_keys(options, keys)?,
        _ => {
            return Err(eyre!(
                "{file}: blockchain.nodes needs {{\"generate\": true, \"count\": N}} or {{\"keys\": [..]}}"
            ));
        }
    };
    let extra = genesis_extra(validators.clone()).encode(protocol);
    genesis["extraData"] = Value::from(extra.to_string());
    write(
        &to.join(&options.genesis_file_name),
        &format!("{genesis:#}\n"),
    )?;
    println!("{} validators of {}", validators.len(), protocol.name());
    Ok(Outcome::Done)
}

/// Which of the two the genesis file has; QBFT if both, as a chain begins with IBFT 2.0 then.
fn protocol_of(genesis: &Value) -> Result<BftProtocol> {
    let config = genesis["config"].as_object();
    let has = |name: &str| {
        config.is_some_and(|config| config.keys().any(|key| key.eq_ignore_ascii_case(name)))
    };
    match (has("ibft2"), has("qbft")) {
        (true, _) => Ok(BftProtocol::Ibft2),
        (false, true) => Ok(BftProtocol::Qbft),
        (false, false) => Err(eyre!("genesis.config has neither qbft nor ibft2")),
    }
}

fn genesis_extra(validators: Vec<Address>) -> BftExtra {
    BftExtra {
        vanity: vec![0; VANITY_BYTES].into(),
        validators,
        ..BftExtra::default()
    }
}

fn make_keys(options: &GenerateOptions, count: Option<u64>) -> Result<Vec<Address>> {
    let count = count.filter(|count| (1..=MAX_NODES).contains(count));
    let count =
        count.ok_or_else(|| eyre!("blockchain.nodes.count: 1 to {MAX_NODES} are possible"))?;
    let keys = options.to.join("keys");
    fs::create_dir_all(&keys).wrap_err_with(|| format!("can't make {}", keys.display()))?;
    // Where a key belongs is known once it is made.
    let new = keys.join("new");
    let make = |_| {
        let id = NodeKey::load_or_create(&new)?.id();
        let private = key_folder(options, id)?.join(&options.private_key_file_name);
        fs::rename(&new, &private)
            .wrap_err_with(|| format!("can't write {}", private.display()))?;
        Ok(id.address())
    };
    (0..count).map(make).collect()
}

fn write_public_keys(options: &GenerateOptions, keys: &[Value]) -> Result<Vec<Address>> {
    let write = |key: &Value| {
        let bytes = key.as_str().and_then(|text| hex::decode(text).ok());
        let bytes = bytes.and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        let id = bytes.map(|bytes| NodeId(bytes.into()));
        let id = id.filter(NodeId::is_on_curve);
        let id =
            id.ok_or_else(|| eyre!("{key} is no public key: 64 bytes of a point are needed"))?;
        key_folder(options, id)?;
        Ok(id.address())
    };
    keys.iter().map(write).collect()
}

/// Makes the folder of a key, with its public part.
fn key_folder(options: &GenerateOptions, id: NodeId) -> Result<std::path::PathBuf> {
    let folder = options.to.join("keys").join(format!("{:#x}", id.address()));
    fs::create_dir_all(&folder).wrap_err_with(|| format!("can't make {}", folder.display()))?;
    write(
        &folder.join(&options.public_key_file_name),
        &format!("0x{id}"),
    )?;
    Ok(folder)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).wrap_err_with(|| format!("can't write {}", path.display()))
}

/// `niwaki rlp`.
pub(crate) fn rlp(command: &RlpCommand) -> Result<Outcome> {
    let (options, is_encoded) = match command {
        RlpCommand::Encode(options) => (options, true),
        RlpCommand::Decode(options) => (options, false),
    };
    let text = match &options.from {
        Some(path) => {
            fs::read_to_string(path).wrap_err_with(|| format!("can't read {}", path.display()))?
        }
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
    };
    let (protocol, text) = (options.kind.into(), text.trim());
    let converted = match is_encoded {
        true => encode(protocol, text),
        false => decode(protocol, text),
    }?;
    match &options.to {
        Some(path) => write(path, &converted)?,
        None => println!("{converted}"),
    }
    Ok(Outcome::Done)
}

fn encode(protocol: BftProtocol, text: &str) -> Result<String> {
    let validators: Vec<Address> =
        serde_json::from_str(text).wrap_err("want a JSON array of addresses")?;
    Ok(genesis_extra(validators).encode(protocol).to_string())
}

fn decode(protocol: BftProtocol, text: &str) -> Result<String> {
    let bytes = hex::decode(text).wrap_err("want extra data in hex")?;
    let extra = BftExtra::decode(protocol, &bytes)
        .wrap_err("want extra data; --type says of which protocol")?;
    let validators = extra.validators.iter();
    let validators: Vec<String> = validators.map(|one| format!("{one:#x}")).collect();
    Ok(format!("[{}]", validators.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use niwaki_primitives::B256;

    /// What Besu's commands print.
    fn recorded(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/bft/rlp");
        let text = fs::read_to_string(folder.join(name)).unwrap();
        text.trim().to_owned()
    }

    #[test]
    fn extra_data_is_encoded_and_decoded_as_besu_does() {
        for (prefix, protocol) in [("IBFT", BftProtocol::Ibft2), ("QBFT", BftProtocol::Qbft)] {
            for count in [0, 1, 4] {
                let encoded = recorded(&format!("{prefix}-validators{count}.hex"));
                let json = recorded(&format!("validators{count}.json"));
                assert_eq!(encode(protocol, &json).unwrap(), encoded);
                let decoded = recorded(&format!("{prefix}-validators{count}.decoded"));
                assert_eq!(decode(protocol, &encoded).unwrap(), decoded);
            }
            for live in ["genesis", "round2", "vote-add", "vote-remove"] {
                let [hex, decoded] = ["hex", "decoded"]
                    .map(|kind| recorded(&format!("{prefix}-live-{live}.{kind}")));
                assert_eq!(decode(protocol, &hex).unwrap(), decoded);
            }
            assert!(decode(protocol, "0x").is_err());
            assert!(decode(protocol, "7").is_err());
            assert!(encode(protocol, "{}").is_err());
        }
    }

    fn options(folder: &Path, config: &str) -> GenerateOptions {
        let config_file = folder.join("config.json");
        fs::write(&config_file, config).unwrap();
        GenerateOptions {
            config_file,
            to: folder.join("network"),
            genesis_file_name: "genesis.json".to_owned(),
            private_key_file_name: "key".to_owned(),
            public_key_file_name: "key.pub".to_owned(),
        }
    }

    #[test]
    fn a_network_has_a_key_for_each_validator_of_its_genesis_file() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"genesis": {"config": {"chainId": 7, "qbft": {}}, "gasLimit": "0x47b760"},
            "blockchain": {"nodes": {"generate": true, "count": 4}}}"#;
        let options = options(folder.path(), config);
        generate(&options).unwrap();
        let text = fs::read_to_string(options.to.join("genesis.json")).unwrap();
        let genesis: Value = serde_json::from_str(&text).unwrap();
        let extra = hex::decode(genesis["extraData"].as_str().unwrap()).unwrap();
        let extra = BftExtra::decode(BftProtocol::Qbft, &extra).unwrap();
        assert_eq!(extra.validators.len(), 4);
        for validator in &extra.validators {
            let own = options.to.join("keys").join(format!("{validator:#x}"));
            let key = NodeKey::load_or_create(&own.join("key")).unwrap();
            assert_eq!(key.id().address(), *validator);
            let public = fs::read_to_string(own.join("key.pub")).unwrap();
            assert_eq!(public, format!("0x{}", key.id()));
        }
        let again = generate(&options).unwrap_err().to_string();
        assert!(again.contains("not empty"), "{again}");
    }

    #[test]
    fn public_keys_of_others_make_a_network_too_and_what_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let key = NodeKey::new(B256::repeat_byte(7)).unwrap();
        let config = |keys: &str| {
            format!(
                r#"{{"genesis": {{"config": {{"ibft2": {{}}}}}}, "blockchain": {{"nodes": {keys}}}}}"#
            )
        };
        let named = options(
            folder.path(),
            &config(&format!(r#"{{"keys": ["0x{}"]}}"#, key.id())),
        );
        generate(&named).unwrap();
        let text = fs::read_to_string(named.to.join("genesis.json")).unwrap();
        assert!(text.contains(&hex::encode(key.id().address())));
        for (bad, words) in [
            (config(r#"{"keys": ["0x12"]}"#), "no public key"),
            (config(r#"{"generate": true, "count": 0}"#), "1 to 1000"),
            (config("{}"), "needs"),
            ("{".to_owned(), "no JSON"),
            (
                r#"{"genesis": {}, "blockchain": {"nodes": {}}}"#.to_owned(),
                "neither qbft nor ibft2",
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let error = generate(&options(folder.path(), &bad)).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
    }
}
