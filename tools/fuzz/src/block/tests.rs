//! What drawn blocks are like, and what is said of two machines that do not agree.

use super::*;
use niwaki_primitives::Transaction;
use niwaki_rules::recover_sender;
use serde_json::json;

const SEEDS: std::ops::Range<u64> = 0..40;

#[test]
fn a_seed_gives_the_same_block_every_time() {
    for seed in SEEDS {
        let [a, b] = [(); 2].map(|()| Plan::of(seed, Fork::Osaka).sign());
        assert_eq!(a.header, b.header, "seed {seed}");
        assert_eq!(a.state, b.state, "seed {seed}");
        assert_eq!(a.transactions, b.transactions, "seed {seed}");
        assert_eq!(a.withdrawals, b.withdrawals, "seed {seed}");
    }
}

#[test]
fn senders_are_who_signed() {
    for seed in SEEDS {
        for (tx, sender) in Plan::of(seed, Fork::Osaka).sign().transactions {
            assert_eq!(recover_sender(&tx).ok(), Some(sender), "seed {seed}");
        }
    }
}

#[test]
fn blocks_have_transactions_of_every_type_that_succeed_fail_and_are_refused() {
    let mut tally = Tally::default();
    let mut types = std::collections::BTreeSet::new();
    let mut requests = std::collections::BTreeSet::new();
    for seed in 0..300 {
        let case = Plan::of(seed, Fork::Osaka).sign();
        let (Verdict::Done(done), _) = ours::run(&case, Way::InTurn(Dispatch::Threaded)) else {
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
fn transactions_ahead_of_their_turn_change_nothing() {
    for fork in BLOCK_FORKS {
        for seed in 0..100 {
            let mut tally = Tally::default();
            let checked = check_block(seed, fork, None, Dispatch::Threaded, &mut tally);
            assert!(checked.is_ok(), "{checked:?}");
        }
    }
}

#[test]
fn promises_are_kept_more_often_than_broken() {
    let (mut kept, mut promised) = (0, 0);
    for seed in 0..300 {
        let case = Plan::of(seed, Fork::Osaka).sign();
        let (Verdict::Done(_), after) = ours::run(&case, Way::InTurn(Dispatch::Threaded)) else {
            continue;
        };
        for (tx, _) in &case.transactions {
            for promise in tx.authorization_list().into_iter().flatten() {
                let Some(authority) = niwaki_rules::recover_authority(promise) else {
                    continue;
                };
                promised += 1;
                let account = after.accounts.get(&authority);
                kept += u32::from(account.is_some_and(|a| a.nonce > promise.nonce));
            }
        }
    }
    assert!(kept > promised / 2 && kept < promised, "{kept}/{promised}");
}

/// A program that answers every block with `answer`.
#[cfg(unix)]
fn program(folder: &std::path::Path, answer: &serde_json::Value) -> T8n {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("evm");
    std::fs::write(
        &path,
        format!("#!/bin/sh\ncat >/dev/null\necho '{answer}'\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    T8n::new(path, folder.to_owned())
}

#[test]
#[cfg(unix)]
fn a_difference_is_told_with_what_each_says_and_cut_down() {
    let folder = tempfile::tempdir().unwrap();
    let answer = json!({"result": {
        "stateRoot": B256::repeat_byte(1),
        "logsBloom": Bloom::ZERO,
        "gasUsed": "0x5",
        "blobGasUsed": "0x0",
        "receipts": [],
        "requests": [],
    }, "alloc": {}});
    let peer = program(folder.path(), &answer);
    let mut tally = Tally::default();
    let found =
        check_block(7, Fork::Osaka, Some(&peer), Dispatch::Threaded, &mut tally).unwrap_err();
    assert_eq!((found.seed, found.fork), (7, Fork::Osaka));
    assert!(
        found.what.contains("gas used:\n  niwaki 0\n  geth   5"),
        "{found:?}"
    );
    assert!(found.what.contains("state root:"), "{found:?}");
    // Nothing is left of the transactions, since any block differs.
    let kept = folder.path().join("t8n-osaka-7");
    let transactions = std::fs::read_to_string(kept.join("txs.rlp")).unwrap();
    assert_eq!(transactions, "\"0xc0\"");
    assert!(kept.join("alloc.json").is_file() && kept.join("env.json").is_file());
}

#[test]
#[cfg(unix)]
#[should_panic(expected = "stateRoot")]
fn an_answer_of_another_form_is_no_agreement() {
    let folder = tempfile::tempdir().unwrap();
    let answer =
        json!({"result": {"gasUsed": "0x0", "blobGasUsed": "0x0", "logsBloom": Bloom::ZERO}});
    program(folder.path(), &answer).run(&Plan::of(0, Fork::Osaka).sign());
}
