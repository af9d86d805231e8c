//! Sends transactions of every type to a node that another consensus client drives.

use crate::accounts::{self, Account, BlobSidecars, KINDS};
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
    /// Port of the node's JSON-RPC over HTTP, on this machine.
    #[arg(long, value_name = "PORT")]
    port: u16,
    /// Number of transactions to send.
    #[arg(long, value_name = "N", default_value_t = 100)]
    transactions: u64,
    /// Pause between two transactions, milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pause_ms: u64,
    /// Seed of the random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Each account sends one kind of transaction only: one that delegates may have one in flight.
const ACCOUNTS: u64 = 24;

/// Sends the transactions; the node must run on the genesis file of `play`.
pub(crate) fn run(options: &SendOptions) -> Result<()> {
    niwaki_crypto::install(niwaki_crypto::Preference::Auto)?;
    let client = Client::new("the node", options.port, 0, JwtSecret::new([0; 32]));
    let mut accounts = accounts::make(ACCOUNTS);
    let mut random = SmallRng::seed_from_u64(options.seed);
    let sidecars = BlobSidecars::new(3)?;
    let (mut sent, mut refused) = ([0_u64; KINDS.len()], 0);
    for _ in 0..options.transactions {
        let index = random.random_range(0..accounts.len());
        let kind = index % KINDS.len();
        let account = &mut accounts[index];
        account.nonce = pending_nonce(&client, account)?;
        let transaction = account.send(index, kind, &sidecars, &mut random);
        match client.call("eth_sendRawTransaction", json!([transaction.raw])) {
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
    number(&client.call("eth_getTransactionCount", params)?)
}
