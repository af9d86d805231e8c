//! The start-up check that the compiler has turned the handlers' tail calls into jumps.

use crate::{BlockEnv, Evm, Exit, Message, Table, Target};
use niwaki_primitives::{Account, Address, B256, Bytes, Fault, StateView, U256};

/// Runs a million opcodes on a native stack of 256 KiB. If handlers call each other instead of jumping, this returns
/// false or crashes at start-up, rather than in the middle of a block. Takes a few milliseconds.
///
/// # Panics
/// If the system gives no thread.
pub fn has_tail_calls() -> bool {
    const STACK_BYTES: usize = 256 << 10;
    // PUSH4 n; loop: JUMPDEST; PUSH1 1; SWAP1; SUB; DUP1; PUSH1 loop; JUMPI; STOP
    let code = [
        0x63, 0x00, 0x02, 0x00, 0x00, 0x5b, 0x60, 0x01, 0x90, 0x03, 0x80, 0x60, 0x05, 0x57, 0x00,
    ];
    let run = move || run_alone(&code).is_some_and(Exit::is_success);
    let thread = std::thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(run);
    thread
        .expect("the system gives a thread")
        .join()
        .unwrap_or(false)
}

/// Runs code on an empty state with ample gas; `None` on a fault.
fn run_alone(code: &[u8]) -> Option<Exit> {
    struct Empty;
    impl StateView for Empty {
        fn account(&self, _: &Address) -> Result<Option<Account>, Fault> {
            Ok(None)
        }
        fn storage(&self, _: &Address, _: &U256) -> Result<U256, Fault> {
            Ok(U256::ZERO)
        }
        fn has_storage(&self, _: &Address) -> Result<bool, Fault> {
            Ok(false)
        }
        fn code(&self, hash: &B256) -> Result<Bytes, Fault> {
            Err(Fault::Missing {
                segment: "code",
                key: hash.to_string(),
            })
        }
        fn block_hash(&self, number: u64) -> Result<B256, Fault> {
            Err(Fault::Missing {
                segment: "block hashes",
                key: number.to_string(),
            })
        }
    }
    let table = Table::of(niwaki_primitives::Fork::Frontier);
    let mut evm = Evm::new(&Empty, table, BlockEnv::default());
    let target = Target::Create(Address::with_last_byte(1));
    let input = Bytes::copy_from_slice(code);
    let message = Message {
        caller: Address::ZERO,
        target,
        value: U256::ZERO,
        input,
        gas: u64::MAX / 4,
        reservoir: 0,
    };
    evm.run(&message, None).ok().map(|outcome| outcome.exit)
}
