//! The TransactionTests of ethereum-tests: some are stored here, all run if the corpus is installed.

use super::*;
use niwaki_primitives::Decodable2718;
use serde_json::Value;

/// Hash, sender and intrinsic gas of an encoded transaction in a block of `fork`.
fn verdict(bytes: &[u8], fork: Fork) -> Option<(B256, Address, u64)> {
    let tx = TxEnvelope::decode_2718_exact(bytes).ok()?;
    let mut rules = rules(fork);
    rules.base_fee = None;
    let gas =
        check_transaction(&tx, SENDER, &rules, GasAvailable::both(u64::MAX), u64::MAX).ok()?;
    upfront_cost(&tx)?;
    let signature = tx.signature();
    let hash = tx.signature_hash();
    let (r, s) = (signature.r(), signature.s());
    let sender = niwaki_crypto::recover_signer(&hash, &r, &s, signature.v()).ok()?;
    Some((*tx.tx_hash(), sender, gas.intrinsic))
}

/// Formally valid, with a gas price of 2^128 wei or more. Prices have 128 bits here, so such a transaction can't be
/// decoded; an account that could pay for it would hold 10^15 times the existing ether.
const PRICED_BEYOND_128_BITS: [&str; 2] = [
    "GasLimitPriceProductOverflowtMinusOne",
    "TransactionWithHighGasPrice",
];

/// Checks every transaction of a file under every fork. Returns their number and the mismatches.
fn run_file(text: &str) -> (usize, Vec<String>) {
    let tests: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
    let (mut count, mut wrong) = (0, Vec::new());
    for (name, test) in tests {
        let bytes = test["txbytes"].as_str().unwrap().parse::<Bytes>().unwrap();
        for (fork, want) in test["result"].as_object().unwrap() {
            let got = verdict(&bytes, Fork::from_name(fork).unwrap());
            let field = |key: &str| want[key].as_str().map(str::to_owned);
            let payable = !PRICED_BEYOND_128_BITS.contains(&name.as_str());
            let want = field("sender").filter(|_| payable).map(|sender| {
                let gas = field("intrinsicGas").unwrap();
                (
                    field("hash").unwrap().parse::<B256>().unwrap(),
                    sender.parse::<Address>().unwrap(),
                    crate::json::parse_u256(&gas).unwrap().to::<u64>(),
                )
            });
            count += 1;
            if got != want {
                wrong.push(format!("{name} {fork}: {got:?}, not {want:?}"));
            }
        }
    }
    (count, wrong)
}

#[test]
fn kept_transactions_are_judged_alike_under_every_fork() {
    let kept = include_str!("../../../testdata/transaction-tests.json");
    assert_eq!(run_file(kept), (512, Vec::new()));
}

#[test]
fn every_transaction_test_of_the_corpus_is_judged_alike() {
    let Some(root) = niwaki_testkit::corpus("basic-tests/ethereum-tests/TransactionTests") else {
        return;
    };
    let (mut count, mut wrong) = (0, Vec::new());
    for folder in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let (cases, others) = run_file(&text);
            count += cases;
            wrong.extend(others);
        }
    }
    assert!(wrong.is_empty(), "{} of {count}: {:#?}", wrong.len(), wrong);
    assert!(count > 2000, "{count}");
}
