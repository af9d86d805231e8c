//! VM tests: code without a transaction, by Frontier's rules.

use crate::cases::{Selection, Verdict, catch_panic};
use crate::logs_hash::logs_hash;
use alloy_primitives::keccak256;
use niwaki_evm::{BlockEnv, Evm, Message, Table, Target, TxEnv};
use niwaki_primitives::Fork;
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
    let (address, caller, value) = (exec.address.0, exec.caller.0, exec.value.0);
    let mut state: MemoryState = test.pre.clone().into_iter().collect();
    let runner = state.accounts.get(&address).cloned().unwrap_or_default();
    let code = exec.code.0.clone().into();
    state.insert(address, MemoryAccount { code, ..runner });
    for number in test.env.number.saturating_sub(256)..test.env.number {
        let hash = keccak256(number.to_string());
        state.block_hashes.insert(number, hash);
    }
    // CALLVALUE is set but no value moves in the fixture: the caller is given the value before, and the target's
    // balance is reduced by it.
    let payer = state.accounts.entry(caller).or_default();
    payer.balance = payer.balance.saturating_add(value);
    let runner = state.accounts.entry(address).or_default();
    runner.balance = runner.balance.saturating_sub(value);

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
        origin: exec.origin.0,
        gas_price: exec.gas_price.0,
        blob_hashes: Vec::new(),
    });
    let message = Message {
        caller,
        target: Target::Call(address),
        value,
        input: exec.data.0.clone(),
        gas: exec.gas.u64().map_err(|error| error.to_string())?,
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
    for (account, want) in post {
        let got = state.accounts.get(account).cloned().unwrap_or_default();
        let of = |what: &str| format!("{what} of {account}");
        compare(&of("storage"), &got.storage, &want.storage)?;
        if *account != caller || caller == address {
            compare(&of("balance"), &got.balance, &want.balance)?;
        }
        compare(&of("code"), &*got.code, &*want.code)?;
    }
    Ok(())
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what} is {got:?}, must be {want:?}"))
}
