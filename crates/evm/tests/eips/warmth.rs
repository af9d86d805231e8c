//! EIP-2929: what costs more the first time.

use crate::machine::{Machine, OTHER, push};
use niwaki_primitives::Fork;

#[test]
fn sload_of_a_cold_slot_costs_2100_and_of_a_warm_one_100() {
    Machine::new(Fork::Berlin, "5f54".replace("5f", "6000").as_str()).costs(3 + 2_100);
    Machine::new(Fork::Berlin, "600054600054").costs(3 + 2_100 + 3 + 100);
    Machine::new(Fork::Istanbul, "600054").costs(3 + 800);
}

#[test]
fn account_reads_cost_2600_cold_and_100_warm() {
    for opcode in ["31", "3b", "3f"] {
        let read = format!("{}{opcode}", push(OTHER));
        Machine::new(Fork::Berlin, &read).costs(3 + 2_600);
        Machine::new(Fork::Berlin, &format!("{read}{read}")).costs(3 + 2_600 + 3 + 100);
    }
}

#[test]
fn precompiled_contracts_and_the_callee_itself_are_warm() {
    Machine::new(Fork::Berlin, "600131").costs(3 + 100);
    Machine::new(Fork::Berlin, "3031").costs(2 + 100);
    // 0x0a is no contract before Cancun, so it is an account like any other.
    Machine::new(Fork::Shanghai, "600a31").costs(3 + 2_600);
    Machine::new(Fork::Cancun, "600a31").costs(3 + 100);
}

#[test]
fn what_a_reverted_frame_warmed_is_cold_again() {
    // The inner call reads slot 0 of itself and reverts; the outer read is cold still.
    let inner = "5f545f5ffd";
    let warms = format!("{}31", push(niwaki_primitives::Address::repeat_byte(0x77)));
    let outer = format!(
        "6000600060006000600073{}61fffff150{warms}00",
        niwaki_primitives::hex::encode(OTHER),
    );
    let reverting = Machine::new(Fork::Shanghai, &outer).with(OTHER, 0, &format!("{warms}{inner}"));
    let keeping = Machine::new(Fork::Shanghai, &outer).with(OTHER, 0, &format!("{warms}5f54"));
    let (reverted, kept) = (reverting.run().gas_used, keeping.run().gas_used);
    // The reverting callee also pays two PUSH0 for its REVERT.
    assert_eq!(reverted - kept, 2_500 + 4, "{reverted} against {kept}");
}
