//! Fused, threaded and looped code give the same result, also where it halts.

use super::*;
use crate::{BlockEnv, Dispatch, Evm, Exit, Message, Target, TxEnv, set_hot_threshold};
use niwaki_primitives::{Address, Bytes, Fork, U256};
use niwaki_testkit::{MemoryAccount, MemoryState};
use proptest::prelude::*;

const CONTRACT: Address = Address::repeat_byte(0xc0);
const JUMPDEST: u8 = 0x5b;

/// Runs `code` on an empty state; returns exit, gas left and output.
fn run(code: &[u8], fork: Fork, gas: u64, dispatch: Dispatch) -> (Exit, u64, Bytes) {
    let mut state = MemoryState::default();
    let code = Bytes::copy_from_slice(code).into();
    let account = MemoryAccount {
        code,
        ..MemoryAccount::default()
    };
    state.insert(CONTRACT, account);
    let mut evm = Evm::new(&state, Table::of(fork), BlockEnv::default());
    evm.set_dispatch(dispatch);
    evm.begin_transaction(TxEnv::default());
    let message = Message {
        caller: Address::ZERO,
        target: Target::Call(CONTRACT),
        value: U256::ZERO,
        input: Bytes::new(),
        gas,
        reservoir: 0,
    };
    let outcome = evm.run(&message, None).expect("memory does not fail");
    (outcome.exit, outcome.gas_left, outcome.output)
}

fn same_everywhere(code: &[u8], fork: Fork, gas: u64) -> (Exit, u64, Bytes) {
    set_hot_threshold(1);
    let [fused, threaded, looped] = Dispatch::ALL.map(|dispatch| run(code, fork, gas, dispatch));
    assert_eq!(
        fused,
        threaded,
        "{fork} {gas} {}",
        Bytes::copy_from_slice(code)
    );
    assert_eq!(
        fused,
        looped,
        "{fork} {gas} {}",
        Bytes::copy_from_slice(code)
    );
    fused
}

/// `code`, then sequences with the given operands, then an end that drops some words and returns eight. A jump leads to
/// the JUMPDEST after its sequence, or to a byte that is none.
fn program(mut code: Vec<u8>, sequences: &[(usize, [u8; 4])], dropped: usize) -> Vec<u8> {
    for (chosen, operands) in sequences {
        let opcodes = PATTERNS[chosen % PATTERNS.len()].opcodes();
        let length: usize = opcodes
            .iter()
            .map(|opcode| 1 + operand_bytes(*opcode))
            .sum();
        let jumps = matches!(opcodes.last(), Some(&(JUMP | JUMPI)));
        // After the sequence come INVALID and a JUMPDEST, which operands of two bytes lead to.
        let landing = code.len() + length + 1;
        let aimed = operands[3] >= 16;
        for (at, opcode) in opcodes.iter().enumerate() {
            code.push(*opcode);
            let bytes = operand_bytes(*opcode);
            let is_target = jumps && aimed && at + 2 == opcodes.len() && bytes > 0;
            let word = match is_target {
                true => U256::from(landing),
                false => U256::from(operands[at % 4] % 40),
            };
            code.extend(&word.to_be_bytes::<32>()[32 - bytes..]);
        }
        if jumps {
            code.extend([if operands[2] % 2 == 0 { INVALID } else { 0x5f }, JUMPDEST]);
        }
    }
    code.extend(vec![0x50; dropped]);
    // Eight words into memory, and out.
    for word in 0..8 {
        code.extend([0x60, word * 32, 0x52]);
    }
    code.extend([0x61, 1, 0, 0x5f, 0xf3]);
    code
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]
    #[test]
    fn sequences_give_what_their_opcodes_give(
        start in prop::collection::vec(0u8..40, 0..24),
        sequences in prop::collection::vec((any::<usize>(), any::<[u8; 4]>()), 1..12),
        gas in prop_oneof![Just(100_000u64), 0u64..400],
        fork in prop_oneof![Just(Fork::Osaka), Just(Fork::Frontier), Just(Fork::Amsterdam)],
    ) {
        let start = start.iter().flat_map(|number| [0x60, *number]).collect();
        same_everywhere(&program(start, &sequences, 0), fork, gas);
    }

    #[test]
    fn any_bytes_give_the_same(code in prop::collection::vec(any::<u8>(), 0..200)) {
        same_everywhere(&code, Fork::Amsterdam, 100_000);
    }
}

#[test]
fn every_sequence_agrees_at_both_stack_limits_with_0_to_39_gas() {
    let mut ended_well = 0;
    for (chosen, pattern) in PATTERNS.iter().enumerate() {
        for height in [0, 1, 2, 3, 4, 5, 9, 1020, 1021, 1022, 1023, 1024] {
            let dropped = if height > 1000 { 3 } else { 0 };
            let code = program(vec![0x5f; height], &[(chosen, [7, 3, 1, 99])], dropped);
            let pushed = 2 * height as u64;
            for gas in (pushed..pushed + 40).chain([100_000]) {
                let (exit, ..) = same_everywhere(&code, Fork::Osaka, gas);
                ended_well += u32::from(exit.is_success());
            }
        }
        let fused = fuse(
            &program(Vec::new(), &[(chosen, [7, 3, 1, 99])], 0),
            40,
            |_| true,
        );
        assert_eq!(
            fused[0], pattern.code,
            "a sequence is fused into its own byte"
        );
    }
    assert!(ended_well > 200, "{ended_well}");
}

#[test]
fn each_sequence_has_its_own_unused_byte_and_only_stack_and_memory_opcodes() {
    let harmless = |opcode: u8| matches!(opcode, 0x01..=0x03 | 0x10..=0x17 | 0x1b..=0x1d | 0x34 | 0x50..=0x52 | 0x56 | 0x57 | 0x5f..=0x9f);
    let mut codes = std::collections::BTreeSet::new();
    let mut sequences = std::collections::BTreeSet::new();
    for pattern in &PATTERNS {
        let opcodes = pattern.opcodes();
        assert!(
            opcodes.len() > 1 && opcodes.iter().all(|opcode| harmless(*opcode)),
            "{opcodes:x?}"
        );
        assert!(is_free(pattern.code) && pattern.code != INVALID);
        assert!(codes.insert(pattern.code) && sequences.insert(opcodes));
    }
    for fork in Fork::ALL {
        let known = |code: &u8| Table::of(fork).info(*code).is_some();
        assert!(
            (0..INVALID).filter(known).all(|code| !is_free(code)),
            "{fork}"
        );
    }
}

#[test]
fn unused_bytes_halt_as_undefined_opcodes_0x0c_0xa5_0xef_0xfe() {
    for code in [0x0c, 0xa5, 0xef, INVALID] {
        let (exit, left, _) = same_everywhere(&[0x5f, code], Fork::Osaka, 1000);
        assert_eq!(exit, Exit::Halt(crate::HaltReason::UndefinedOpcode(code)));
        assert_eq!(left, 0);
    }
}

#[test]
fn jump_is_fused_only_to_a_jumpdest_within_distance() {
    let is_jumpdest = |at| at == 4;
    let code = [0x61, 0, 4, JUMP, JUMPDEST, 0x61, 0, 5, JUMP];
    let fused = fuse(&code, 40, is_jumpdest);
    assert_eq!(fused[..9], [0x0d, 5, 0, 0, JUMPDEST, 0x61, 0, 5, JUMP]);
    assert_eq!(fused.len(), code.len() + 40);
    // Too far for the two bytes of operand and JUMP.
    let mut far = vec![0; 40_000];
    far.extend([0x60, 4, JUMP]);
    assert_eq!(fuse(&far, 40, is_jumpdest)[40_000..40_003], [0x60, 4, JUMP]);
}

#[test]
fn dupn_operand_0x50_is_not_fused_as_pop() {
    // DUPN with an operand that would be POP, then POP POP.
    let fused = fuse(&[0xe6, 0x50, 0x50, 0x50], 40, |_| false);
    assert_eq!(fused[..4], [0xe6, 0x50, 0xbf, 0x50]);
}
