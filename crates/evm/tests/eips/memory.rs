//! Memory: its price, its zeros, copies.

use crate::machine::Machine;
use niwaki_evm::{Exit, HaltReason};
use niwaki_primitives::{Fork, U256};

#[test]
fn memory_costs_3_a_word_and_a_512th_of_the_square() {
    Machine::new(Fork::Osaka, "600051").costs(3 + 3 + 3);
    // Word 1000: 3 * 1000 + 1000 * 1000 / 512.
    Machine::new(Fork::Osaka, "617ce051").costs(3 + 3 + 3_000 + 1_953);
    // An empty range costs nothing at any offset.
    Machine::new(Fork::Osaka, &format!("60007f{}20", "ff".repeat(32))).costs(3 + 3 + 30);
}

#[test]
fn offset_beyond_2_40_runs_out_of_gas() {
    for offset in ["64ffffffffff", "67ffffffffffffffff"] {
        assert!(
            Machine::new(Fork::Osaka, &format!("{offset}51"))
                .run()
                .ran_out_of_gas()
        );
    }
    let far = format!("7f{}51", "ff".repeat(32));
    assert!(
        Machine::new(Fork::Osaka, &far)
            .run_with(u64::MAX / 4)
            .ran_out_of_gas()
    );
}

#[test]
fn memory_of_a_second_run_on_the_thread_is_zero() {
    // Twice on the same thread, so that the second run finds the first one's pages.
    let dirty = Machine::new(Fork::Osaka, &format!("7f{}60005260005100", "ff".repeat(32)));
    assert_eq!(dirty.run().exit, Exit::Stop);
    let clean = Machine::new(Fork::Osaka, "60005160005260206000f3");
    assert_eq!(clean.run().number(), U256::ZERO);
}

#[test]
fn mcopy_moves_overlapping_ranges() {
    // mstore8(0, 1); mstore8(1, 2); mcopy(1, 0, 2); return mem[0..3]
    let ran = Machine::new(
        Fork::Cancun,
        "60016000536002600153600260006001 5e60036000f3"
            .replace(' ', "")
            .as_str(),
    )
    .run();
    assert_eq!(ran.output.as_ref(), [1, 1, 2]);
    // Memory to the farther end is charged: 64 bytes copied from 0 to 32 end in word 3.
    Machine::new(Fork::Cancun, "6040600060205e").costs(3 * 3 + 3 + 2 * 3 + 3 * 3);
}

#[test]
fn return_data_beyond_its_end_halts() {
    let copy = |length: &str| Machine::new(Fork::Byzantium, &format!("{length}600060003e")).run();
    assert_eq!(copy("6000").exit, Exit::Stop);
    assert_eq!(
        copy("6001").exit,
        Exit::Halt(HaltReason::ReturnDataOutOfBounds)
    );
}

#[test]
fn bytes_beyond_code_and_call_data_are_zero() {
    let ran = Machine::new(Fork::Osaka, "602060006000396020600060003960206000f3").run();
    assert_eq!(ran.output.len(), 32);
    assert_eq!(ran.output[..2], [0x60, 0x20]);
    let ran = Machine::new(
        Fork::Osaka,
        &format!("7f{}3560005260206000f3", "ff".repeat(32)),
    )
    .run();
    assert_eq!(ran.number(), U256::ZERO);
}
