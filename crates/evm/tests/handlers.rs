//! Threaded handlers must end in a jump. The language does not guarantee it, so this reads the machine code.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use niwaki_evm::{Flow, OpcodeInfo, Table};
use niwaki_primitives::Fork;
use std::process::Command;

/// STOP, RETURN, REVERT, SELFDESTRUCT, INVALID, and the calls and creations, which leave the
/// interpreter for the driver.
const WITHOUT_SUCCESSOR: usize = 11;

/// Symbols of handlers: opcodes, superinstructions, their fallback, host opcodes and guards.
const HANDLERS: [&str; 5] = [
    "niwaki_evm::interpreter::threaded",
    "niwaki_evm::fused::fused",
    "niwaki_evm::fused::unfused",
    "niwaki_evm::overrides::replaced",
    "niwaki_evm::overrides::guarded",
];

#[test]
fn over_230_handlers_jump_to_the_next_and_none_calls_it() {
    assert!(
        niwaki_evm::has_tail_calls(),
        "links the interpreter into this program"
    );
    let mut table = Table::of(Fork::Osaka).clone();
    table.set_guard(0x0c, |_| Ok(()));
    assert_eq!(table.mnemonic(0x0c), None, "a guard makes no opcode");
    let info = OpcodeInfo {
        mnemonic: "HOST",
        input: 0,
        output: 0,
        immediate: 0,
    };
    table.set_opcode(0x0d, info, 0, |_| Ok(Flow::Next));
    let this = std::env::current_exe().expect("a test is a file");
    let output = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg(&this)
        .output()
        .expect("objdump comes with the linker (Debian: binutils)");
    let text = String::from_utf8_lossy(&output.stdout);
    for handler in HANDLERS {
        assert!(text.contains(handler), "{handler} is not in this program");
    }
    let (mut jumping, mut leaving) = (0, 0);
    for function in text.split("\n\n") {
        let Some((name, body)) = function.split_once(">:\n") else {
            continue;
        };
        if !HANDLERS.iter().any(|handler| name.contains(handler)) {
            continue;
        }
        // Out-of-line functions are called by name. A call of a register or of the table should have been a jump.
        let calls_next = body.lines().any(|line| {
            let instruction = line.split('\t').nth(1).unwrap_or("").trim();
            instruction.starts_with("call") && instruction.contains("*%r")
        });
        assert!(!calls_next, "{name} calls its successor:\n{body}");
        if body.contains("jmp    *%r") || body.contains("jmp    *(%r") {
            jumping += 1;
        } else {
            leaving += 1;
        }
    }
    assert_eq!(leaving, WITHOUT_SUCCESSOR, "handlers that never jump");
    assert!(jumping > 230, "only {jumping} handlers were found");
}
