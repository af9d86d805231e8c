//! VM tests: code without a transaction, by Frontier's rules.

use crate::cases::{Selection, Verdict, catch_panic};
use crate::logs_hash::logs_hash;
use alloy_primitives::keccak256;
use niwaki_evm::{BlockEnv, Evm, Message, Table, Target, TxEnv};
use niwaki_primitives::{Bytes, Fork};
use niwaki_testkit::fixtures::VmTest;
use niwaki_testkit::{MemoryAccount, MemoryState};

/// Runs a VM test.
pub(crate) fn run(test: &VmTest, selection: &Selection) -> Option<Verdict> {
    let fork = Fork::Frontier.name();
    selection.selects_fork(fork).then(|| Verdict {
        name: test.name.clone(),
        fork: fork.to_owned(),
        outcome: catch_panic(|| check(test, selection)),
    })
}

fn check(test: &VmTest, selection: &Selection) -> Result<(), String> {
    let exec = &test.exec;
    let mut state = MemoryState::default();
    for (address, account) in &test.pre {
        state.insert(*address, account.clone());
    }
    let runner = state
        .accounts
        .get(&exec.address)
        .cloned()
        .unwrap_or_default();
    state.insert(
        exec.address,
        MemoryAccount {
            code: exec.code.clone().into(),
            ..runner
        },
    );
    for number in test.env.number.saturating_sub(256)..test.env.number {
        let hash = keccak256(number.to_string());
        state.block_hashes.insert(number, hash);
    }
    // CALLVALUE is set but no value moves in the fixture: the caller is given the value before, and the target's
    // balance is reduced by it.
    let caller = state.accounts.entry(exec.caller).or_default();
    caller.balance = caller.balance.saturating_add(exec.value);
    let runner = state.accounts.entry(exec.address).or_default();
    runner.balance = runner.balance.saturating_sub(exec.value);

    let block = BlockEnv {
        number: test.env.number,
        timestamp: test.env.timestamp,
        coinbase: test.env.coinbase,
        gas_limit: test.env.gas_limit,
        prev_randao: test.env.difficulty,
        chain_id: 1,
        ..BlockEnv::default()
    };
    let mut evm = Evm::new(&state, Table::of(Fork::Frontier), block);
    evm.set_dispatch(selection.dispatch);
    evm.begin_transaction(TxEnv {
        origin: exec.origin,
        gas_price: exec.gas_price,
        blob_hashes: Vec::new(),
    });
    let message = Message {
        caller: exec.caller,
        target: Target::Call(exec.address),
        value: exec.value,
        input: exec.data.clone(),
        gas: exec.gas,
        reservoir: 0,
    };
    let outcome = evm.run(&message, None).map_err(|fault| fault.to_string())?;
    let logs = evm.world().take_logs();
    let Some((gas, out, hash, post)) = &test.expect else {
        return if outcome.exit.is_success() {
            Err("succeeded, must fail".to_owned())
        } else {
            Ok(())
        };
    };
    if !outcome.exit.is_success() {
        return Err(format!("failed: {:?}", outcome.exit));
    }
    if outcome.gas_left != *gas {
        return Err(format!("gas left is {}, must be {gas}", outcome.gas_left));
    }
    compare("output", &outcome.output, out)?;
    compare("hash of logs", &logs_hash(&logs), hash)?;
    evm.world().end_transaction();
    let diff = evm.world().diff();
    drop(evm);
    state.apply(&diff);
    for (address, want) in post {
        let got = state.accounts.get(address).cloned().unwrap_or_default();
        compare(
            &format!("storage of {address}"),
            &got.storage,
            &want.storage,
        )?;
        if *address != exec.caller || exec.caller == exec.address {
            compare(
                &format!("balance of {address}"),
                &got.balance,
                &want.balance,
            )?;
        }
        let (got, want): (&Bytes, &Bytes) = (&got.code, &want.code);
        compare(&format!("code of {address}"), got, want)?;
    }
    Ok(())
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what} is {got:?}, must be {want:?}"))
}
