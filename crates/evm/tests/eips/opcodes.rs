//! Opcodes that a fork brought.

use crate::machine::Machine;
use niwaki_evm::{Exit, HaltReason};
use niwaki_primitives::{Fork, U256};

/// The opcode is undefined in `before` and runs in `since`.
fn begins(since: Fork, before: Fork, code: &str, opcode: u8) {
    let early = Machine::new(before, code).run();
    assert_eq!(
        early.exit,
        Exit::Halt(HaltReason::UndefinedOpcode(opcode)),
        "{code} in {before}"
    );
    assert!(
        Machine::new(since, code).run().exit.is_success(),
        "{code} in {since}"
    );
}

#[test]
fn each_opcode_begins_with_its_fork() {
    begins(Fork::Byzantium, Fork::SpuriousDragon, "3d", 0x3d); // EIP-211
    begins(Fork::Constantinople, Fork::Byzantium, "600160011b", 0x1b); // EIP-145
    begins(Fork::Constantinople, Fork::Byzantium, "303f", 0x3f); // EIP-1052
    begins(Fork::Istanbul, Fork::Petersburg, "46", 0x46); // EIP-1344
    begins(Fork::Istanbul, Fork::Petersburg, "47", 0x47); // EIP-1884
    begins(Fork::London, Fork::Berlin, "48", 0x48); // EIP-3198
    begins(Fork::Shanghai, Fork::Paris, "5f", 0x5f); // EIP-3855
    begins(Fork::Cancun, Fork::Shanghai, "60005c", 0x5c); // EIP-1153
    begins(Fork::Cancun, Fork::Shanghai, "6000600060005e", 0x5e); // EIP-5656
    begins(Fork::Cancun, Fork::Shanghai, "600049", 0x49); // EIP-4844
    begins(Fork::Cancun, Fork::Shanghai, "4a", 0x4a); // EIP-7516
    begins(Fork::Osaka, Fork::Prague, "60011e", 0x1e); // EIP-7939
}

#[test]
fn clz_counts_leading_zeros_and_256_for_zero() {
    let clz = |word: &str| Machine::new(Fork::Osaka, &format!("{word}1e60005260206000f3")).run();
    assert_eq!(clz("6000").number(), U256::from(256));
    assert_eq!(clz("6001").number(), U256::from(255));
    assert_eq!(
        clz(&format!("7f80{}", "00".repeat(31))).number(),
        U256::ZERO
    );
    Machine::new(Fork::Osaka, "60011e").costs(3 + 5);
}

#[test]
fn push0_costs_2_and_pushes_zero() {
    Machine::new(Fork::Shanghai, "5f").costs(2);
    assert_eq!(
        Machine::new(Fork::Shanghai, "5f60005260206000f3")
            .run()
            .number(),
        U256::ZERO
    );
}

#[test]
fn exp_costs_by_the_bytes_of_its_exponent() {
    // 2 ** 0x0100: two bytes.
    Machine::new(Fork::Homestead, "61010060020a").costs(3 + 3 + 10 + 2 * 10);
    Machine::new(Fork::SpuriousDragon, "61010060020a").costs(3 + 3 + 10 + 2 * 50); // EIP-160
}

#[test]
fn a_push_at_the_end_of_code_reads_zeros() {
    assert_eq!(Machine::new(Fork::Osaka, "60").run().exit, Exit::Stop);
    assert_eq!(Machine::new(Fork::Osaka, "7f01").run().exit, Exit::Stop);
}

#[test]
fn the_stack_holds_1024_words_and_no_more() {
    let pushes = |count: usize| "5f".repeat(count);
    assert_eq!(
        Machine::new(Fork::Osaka, &pushes(1024)).run().exit,
        Exit::Stop
    );
    let over = Machine::new(Fork::Osaka, &pushes(1025)).run();
    assert_eq!(over.exit, Exit::Halt(HaltReason::StackOverflow));
    let dup = Machine::new(Fork::Osaka, &format!("{}80", pushes(1024))).run();
    assert_eq!(dup.exit, Exit::Halt(HaltReason::StackOverflow));
    let swap = Machine::new(Fork::Osaka, &format!("{}90", pushes(1024))).run();
    assert_eq!(swap.exit, Exit::Stop);
}

#[test]
fn an_opcode_without_its_words_underflows() {
    for code in [
        "01",
        "5f01",
        "50",
        "80",
        "5f90",
        "5f5f08",
        "5ff3",
        "5f5f5f5f5f5ff1",
    ] {
        let ran = Machine::new(Fork::Osaka, code).run();
        assert_eq!(ran.exit, Exit::Halt(HaltReason::StackUnderflow), "{code}");
    }
}

#[test]
fn jumps_lead_to_jumpdests_only() {
    let jump = |code: &str| Machine::new(Fork::Osaka, code).run().exit;
    assert_eq!(jump("6003565b"), Exit::Stop);
    assert_eq!(jump("60035600"), Exit::Halt(HaltReason::InvalidJump));
    // Into the operand of a PUSH1.
    assert_eq!(jump("600456605b"), Exit::Halt(HaltReason::InvalidJump));
    // Far beyond the code, and beyond 64 bits.
    assert_eq!(jump("61ffff56"), Exit::Halt(HaltReason::InvalidJump));
    assert_eq!(
        jump(&format!("7f{}56", "ff".repeat(32))),
        Exit::Halt(HaltReason::InvalidJump)
    );
    // A condition of zero does not look at the target.
    assert_eq!(jump("5f61ffff57"), Exit::Stop);
}
