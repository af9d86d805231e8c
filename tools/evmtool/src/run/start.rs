//! The input of a run: state, block, transaction and message, from options and a genesis.

use super::{RunOptions, fork_of};
use crate::transaction::sign;
use eyre::{Context, Result, ensure, eyre};
use niwaki_evm::{BlockEnv, Message, Target, TxEnv};
use niwaki_execution::block_env;
use niwaki_primitives::{Address, B256, Bytes, Fork, Header, TxKind, TxLegacy, U256, address};
use niwaki_rules::{BlockRules, Genesis, Network, intrinsic_gas};
use niwaki_testkit::{MemoryAccount, MemoryState};
use std::path::Path;

/// Values that the command line does not set.
struct Defaults {
    fork: Fork,
    gas: u64,
    sender: Address,
    receiver: Address,
    /// Wei of the sender.
    balance: U256,
    block: BlockEnv,
}

impl Defaults {
    fn plain(gas: u64) -> Self {
        Self {
            fork: Fork::Osaka,
            gas: 1_000_000_000,
            sender: Address::repeat_byte(0x10),
            receiver: Address::repeat_byte(0xc0),
            balance: U256::from(1) << 128,
            block: BlockEnv {
                number: 1,
                gas_limit: gas,
                chain_id: 1,
                ..BlockEnv::default()
            },
        }
    }

    /// Besu's: "sender" and "receiver" in ASCII, and its built-in genesis.
    fn besu() -> Self {
        Self {
            fork: Fork::Bpo5,
            gas: 10_000_000_000,
            sender: address!("000000000000000000000000000073656e646572"),
            receiver: address!("0000000000000000000000007265636569766572"),
            balance: U256::ZERO,
            block: BlockEnv {
                gas_limit: 10_000_000_000,
                base_fee: 1_000_000_000,
                chain_id: 1337,
                blob_base_fee: U256::from(1),
                ..BlockEnv::default()
            },
        }
    }
}

/// Everything that a run needs.
pub(super) struct RunInput {
    pub(super) fork: Fork,
    pub(super) state: MemoryState,
    pub(super) block: BlockEnv,
    pub(super) tx: TxEnv,
    pub(super) message: Message,
    /// Longest code that can be deployed, bytes, where the genesis file has a limit of its own.
    pub(super) max_code_bytes: Option<usize>,
    /// Warm accounts.
    pub(super) warm: Vec<Address>,
}

impl RunInput {
    pub(super) fn of(options: &RunOptions) -> Result<Self> {
        let defaults = match options.traces.is_besu() {
            true => Defaults::besu(),
            false => Defaults::plain(options.gas.unwrap_or(1_000_000_000)),
        };
        let genesis = genesis_of(options)?;
        let header = genesis.as_ref().map(|genesis| genesis.header(B256::ZERO));
        let fork = match (&options.fork, &genesis, &header) {
            (Some(name), ..) => fork_of(name)?,
            (None, Some(genesis), Some(header)) => genesis.spec.fork_of(header),
            _ => defaults.fork,
        };
        let mut block = match (&genesis, &header) {
            (Some(genesis), Some(header)) => block_of(genesis, header, fork),
            _ => defaults.block,
        };
        if fork < Fork::London {
            block.base_fee = 0;
        }
        block.coinbase = options.coinbase.unwrap_or(block.coinbase);
        block.blob_base_fee = options.blob_price.unwrap_or(block.blob_base_fee);
        let max_code_bytes = genesis
            .as_ref()
            .and_then(|genesis| genesis.spec.max_code_bytes(block.number, fork));
        let mut state = genesis.map(state_of).unwrap_or_default();

        let sender = options.sender.unwrap_or(defaults.sender);
        let receiver = options.receiver.unwrap_or(defaults.receiver);
        let contract = options.contract.unwrap_or(receiver);
        let (code, input) = code_and_input(options, state.accounts.get(&receiver))?;
        if !options.create {
            for address in [contract, receiver] {
                let account = state.accounts.get(&address).cloned().unwrap_or_default();
                let code = code.clone().into();
                state.insert(address, MemoryAccount { code, ..account });
            }
        }
        let nonce = fund(&mut state, sender, defaults.balance.max(options.value));

        let (target, kind, input): (_, _, Bytes) = match options.create {
            true => {
                let target = Target::Create(sender.create(nonce));
                (target, TxKind::Create, [code, input].concat().into())
            }
            false => (Target::Call(receiver), TxKind::Call(receiver), input),
        };
        let mut gas = options.gas.unwrap_or(defaults.gas);
        if options.intrinsic_gas {
            let tx = TxLegacy {
                to: kind,
                value: options.value,
                input: input.clone(),
                ..TxLegacy::default()
            };
            let paid = intrinsic_gas(&sign(tx).into(), sender, fork).intrinsic;
            ensure!(
                gas >= paid,
                "--gas {gas} is less than the {paid} that --intrinsic-gas takes; give more"
            );
            gas -= paid;
        }
        let mut warm = vec![sender, contract];
        if fork >= Fork::Shanghai {
            warm.push(block.coinbase);
        }
        Ok(Self {
            fork,
            state,
            block,
            tx: TxEnv {
                origin: sender,
                gas_price: options.price,
                ..TxEnv::default()
            },
            message: Message {
                caller: sender,
                target,
                value: options.value,
                input,
                gas,
                reservoir: 0,
            },
            max_code_bytes,
            warm,
        })
    }
}

/// Raises the balance of the account to at least `wei`; returns its nonce.
fn fund(state: &mut MemoryState, address: Address, wei: U256) -> u64 {
    let account = state.accounts.get(&address).cloned().unwrap_or_default();
    let nonce = account.nonce;
    if account.balance < wei {
        let balance = wei;
        state.insert(address, MemoryAccount { balance, ..account });
    }
    nonce
}

fn code_and_input(
    options: &RunOptions,
    receiver: Option<&MemoryAccount>,
) -> Result<(Bytes, Bytes)> {
    let given = options.code.as_ref().or(options.code_option.as_ref());
    let code = match (given, &options.codefile, receiver) {
        (Some(text), ..) => bytes_of("--code", text)?,
        (None, Some(path), _) => bytes_in("--codefile", path)?,
        (None, None, Some(account)) if !account.code.is_empty() => Bytes::clone(&account.code),
        _ => {
            return Err(eyre!(
                "there is no code to run; give it in hex, or a --genesis in which --receiver has some"
            ));
        }
    };
    let input = match &options.inputfile {
        Some(path) => bytes_in("--inputfile", path)?,
        None => bytes_of("--input", &options.input)?,
    };
    Ok((code, input))
}

fn genesis_of(options: &RunOptions) -> Result<Option<Genesis>> {
    if let Some(path) = &options.genesis {
        let text = read(path, "--genesis")?;
        let genesis = Genesis::from_json(&text).wrap_err_with(|| {
            let path = path.display();
            format!("--genesis {path} is no genesis in the format of geth or Besu; correct it")
        })?;
        return Ok(Some(genesis));
    }
    let Some(name) = &options.chain else {
        return Ok(None);
    };
    let network = Network::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Network::ALL.iter().map(|chain| chain.name()).collect();
        eyre!(
            "--chain {name} is not built in; use one of {}, or --genesis",
            names.join(", ")
        )
    })?;
    Ok(Some(network.genesis()))
}

fn block_of(genesis: &Genesis, header: &Header, fork: Fork) -> BlockEnv {
    let rules = BlockRules::new(&genesis.spec, header);
    let block = block_env(&genesis.spec, &rules, header);
    BlockEnv {
        prev_randao: match fork >= Fork::Paris {
            true => U256::from_be_bytes(header.mix_hash.0),
            false => header.difficulty,
        },
        ..block
    }
}

fn state_of(genesis: Genesis) -> MemoryState {
    let accounts = genesis.alloc.into_iter().map(|(address, account)| {
        let account = MemoryAccount {
            nonce: account.nonce,
            balance: account.balance,
            code: account.code.into(),
            storage: account.storage,
        };
        (address, account)
    });
    accounts.collect()
}

fn read(path: &Path, option: &str) -> Result<String> {
    let text = match path.to_str() {
        Some("-") => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(path),
    };
    let path = path.display();
    text.wrap_err_with(|| format!("can't read {path}, which {option} names; check the path"))
}

/// The hex content of a file.
fn bytes_in(option: &str, path: &str) -> Result<Bytes> {
    bytes_of(option, &read(Path::new(path), option)?)
}

/// Hex, or `@FILE`.
fn bytes_of(option: &str, text: &str) -> Result<Bytes> {
    if let Some(path) = text.strip_prefix('@') {
        return bytes_in(option, path);
    }
    let digits: String = text.split_whitespace().collect();
    let bytes = hex::decode(digits).wrap_err_with(|| {
        format!("{option} is not hex; give an even number of hex digits or @FILE")
    })?;
    Ok(bytes.into())
}

/// An address of at most 40 digits, padded with zeros on the left.
pub(super) fn address(text: &str) -> Result<Address, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let padded = format!("{digits:0>40}");
    padded
        .parse()
        .map_err(|_| "an address has at most 40 hex digits".to_owned())
}

/// A number, decimal or hex after `0x`.
pub(super) fn number(text: &str) -> Result<U256, String> {
    text.parse()
        .map_err(|_| "give a number below 2^256, in decimal or in hex after 0x".to_owned())
}
