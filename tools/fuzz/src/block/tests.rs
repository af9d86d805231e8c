//! Drawn blocks, and reports of differences.

use super::*;
use niwaki_primitives::Transaction;
use niwaki_rules::recover_sender;
use serde_json::json;

const SEEDS: std::ops::Range<u64> = 0..40;

#[test]
fn seed_determines_the_block() {
    for seed in SEEDS {
        let [a, b] = [(); 2].map(|()| Plan::of(seed, Fork::Osaka).sign());
        assert_eq!(a.header, b.header, "seed {seed}");
        assert_eq!(a.state, b.state, "seed {seed}");
        assert_eq!(a.transactions, b.transactions, "seed {seed}");
        assert_eq!(a.withdrawals, b.withdrawals, "seed {seed}");
    }
}

#[test]
fn senders_match_the_signatures() {
    for seed in SEEDS {
        for (tx, sender) in Plan::of(seed, Fork::Osaka).sign().transactions {
            assert_eq!(recover_sender(&tx).ok(), Some(sender), "seed {seed}");
        }
    }
}

#[test]
fn blocks_have_transactions_of_every_type_that_succeed_fail_and_are_invalid() {
    let mut tally = Tally::default();
    let mut types = std::collections::BTreeSet::new();
    let mut requests = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let case = Plan::of(seed, Fork::Osaka).sign();
        let (Verdict::Done(done), _) = ours::run(&case, Mode::Sequential(Dispatch::Threaded))
        else {
            continue;
        };
        count(&mut tally, &case, &done);
        types.extend(done.receipts.iter().map(|receipt| receipt.tx_type));
        requests.extend(done.requests.iter().map(|request| request[0]));
    }
    assert_eq!(types.into_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(requests.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    let all = tally.succeeded + tally.reverted + tally.refused;
    assert!(tally.succeeded > all / 4, "{tally:?}");
    assert!(tally.reverted > all / 8, "{tally:?}");
    assert!(tally.refused > all / 20, "{tally:?}");
}

#[test]
fn speculative_execution_gives_the_sequential_result() {
    for fork in BLOCK_FORKS {
        for seed in 0..100 {
            let mut tally = Tally::default();
            let checked = check_block(seed, fork, None, Dispatch::Threaded, &mut tally);
            assert!(checked.is_ok(), "{checked:?}");
        }
    }
}

#[test]
fn most_authorizations_are_valid() {
    let (mut valid, mut count) = (0, 0);
    for seed in 0..300 {
        let case = Plan::of(seed, Fork::Osaka).sign();
        let (Verdict::Done(_), after) = ours::run(&case, Mode::Sequential(Dispatch::Threaded))
        else {
            continue;
        };
        for (tx, _) in &case.transactions {
            for authorization in tx.authorization_list().into_iter().flatten() {
                let Some(authority) = niwaki_rules::recover_authority(authorization) else {
                    continue;
                };
                count += 1;
                let account = after.accounts.get(&authority);
                valid += u32::from(account.is_some_and(|a| a.nonce > authorization.nonce));
            }
        }
    }
    assert!(valid > count / 2 && valid < count, "{valid}/{count}");
}

/// A program that responds to every block with `response`.
#[cfg(unix)]
fn program(folder: &std::path::Path, response: &serde_json::Value) -> T8n {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("evm");
    std::fs::write(
        &path,
        format!("#!/bin/sh\ncat >/dev/null\necho '{response}'\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    T8n::new(path, folder.to_owned())
}

#[test]
#[cfg(unix)]
fn difference_has_both_results_and_is_shrunk() {
    let folder = tempfile::tempdir().unwrap();
    let response = json!({"result": {
        "stateRoot": B256::repeat_byte(1),
        "logsBloom": Bloom::ZERO,
        "gasUsed": "0x5",
        "blobGasUsed": "0x0",
        "receipts": [],
        "requests": [],
    }, "alloc": {}});
    let peer = program(folder.path(), &response);
    let mut tally = Tally::default();
    let found =
        check_block(7, Fork::Osaka, Some(&peer), Dispatch::Threaded, &mut tally).unwrap_err();
    assert_eq!((found.seed, found.fork), (7, Fork::Osaka));
    assert!(
        found.what.contains("gas used:\n  niwaki 0\n  geth   5"),
        "{found:?}"
    );
    assert!(found.what.contains("state root:"), "{found:?}");
    // No transaction is left, since any block differs.
    let kept = folder.path().join("t8n-osaka-7");
    let transactions = std::fs::read_to_string(kept.join("txs.rlp")).unwrap();
    assert_eq!(transactions, "\"0xc0\"");
    assert!(kept.join("alloc.json").is_file() && kept.join("env.json").is_file());
}

#[test]
#[cfg(unix)]
#[should_panic(expected = "stateRoot")]
fn malformed_response_panics() {
    let folder = tempfile::tempdir().unwrap();
    let response =
        json!({"result": {"gasUsed": "0x0", "blobGasUsed": "0x0", "logsBloom": Bloom::ZERO}});
    program(folder.path(), &response).run(&Plan::of(0, Fork::Osaka).sign());
}
