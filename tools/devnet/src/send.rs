//! Transactions of every type to a node that somebody else drives.

use crate::accounts::{self, Account, KINDS, Stock};
use crate::client::Client;
use crate::load::number;
use clap::Args;
use eyre::Result;
use niwaki_rpc::JwtSecret;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct SendOptions {
    /// The port of its JSON-RPC over HTTP, on this machine.
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// How many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    transactions: u64,
    /// Between two of them, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pause_ms: u64,
    /// Where chance begins.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Accounts of which each has a kind of its own: one that delegates may have one in flight.
const ACCOUNTS: u64 = 24;

/// Sends as the options say; the node's chain begins with the genesis file of `play`.
pub(crate) fn run(options: &SendOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let client = Client::new("the node", options.port, 0, JwtSecret::new([0; 32]));
    let mut accounts = accounts::make(ACCOUNTS);
    let mut random = SmallRng::seed_from_u64(options.seed);
    let stock = Stock::new(3)?;
    let (mut sent, mut refused) = ([0_u64; KINDS.len()], 0);
    for _ in 0..options.transactions {
        let index = random.random_range(0..accounts.len());
        let kind = index % KINDS.len();
        let account = &mut accounts[index];
        account.nonce = pending_nonce(&client, account)?;
        let transaction = account.send(index, kind, &stock, &mut random);
        match client.ask("eth_sendRawTransaction", json!([transaction.raw])) {
            Ok(_) => sent[kind] += 1,
            Err(error) => {
                eprintln!("{}: {error:#}", transaction.kind);
                refused += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(options.pause_ms));
    }
    for (kind, count) in KINDS.iter().zip(sent) {
        println!("{count:>6}  {kind}");
    }
    println!("{refused:>6}  refused");
    Ok(())
}

fn pending_nonce(client: &Client, account: &Account) -> Result<u64> {
    let params = json!([account.key.address, "pending"]);
    number(&client.ask("eth_getTransactionCount", params)?)
}
