//! revm in this process: all of `transact`, on a database in memory.

use super::{CALLER, CONTRACT, Contender, GAS, Program};
use eyre::{ensure, eyre};
use revm::{
    Context, ExecuteEvm, MainBuilder, MainContext,
    bytecode::Bytecode,
    context::TxEnv,
    database::{CacheDB, EmptyDB, WrapDatabaseRef},
    primitives::{TxKind, U256, hardfork::SpecId},
    state::AccountInfo,
};
use std::time::Instant;

pub(super) fn contender(program: &Program) -> Contender<'_> {
    let mut state = CacheDB::new(EmptyDB::default());
    let code = Bytecode::new_raw(program.code.clone());
    state.insert_account_info(CONTRACT, AccountInfo::default().with_code(code));
    let rich = AccountInfo::default().with_balance(U256::from(1) << 128);
    state.insert_account_info(CALLER, rich);
    let tx = TxEnv {
        caller: CALLER,
        kind: TxKind::Call(CONTRACT),
        data: program.input.clone(),
        gas_limit: GAS,
        gas_price: 0,
        ..TxEnv::default()
    };
    // Intrinsic gas, subtracted from the gas used.
    let zeros = u64::try_from(program.input.iter().filter(|b| **b == 0).count()).unwrap_or(0);
    let others = program.input.len() as u64 - zeros;
    let intrinsic = 21_000 + 4 * zeros + 16 * others;
    Box::new(move |times| {
        let start = Instant::now();
        let mut used = 0;
        for _ in 0..times {
            let mut evm = Context::mainnet()
                .modify_cfg_chained(|cfg| {
                    cfg.set_spec_and_mainnet_gas_params(SpecId::OSAKA);
                    cfg.tx_gas_limit_cap = Some(u64::MAX);
                })
                .modify_block_chained(|block| block.gas_limit = GAS)
                .with_db(WrapDatabaseRef(&state))
                .build_mainnet();
            let result = evm
                .transact(tx.clone())
                .map_err(|e| eyre!("revm: {e:?}"))?
                .result;
            ensure!(result.is_success(), "revm: the program failed: {result:?}");
            used = result.gas().total_gas_spent() - intrinsic;
        }
        Ok((start.elapsed(), used))
    })
}
