//! Threaded handlers must end in a jump: the language does not promise it, so the machine code is
//! looked at.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use niwaki_evm::{Flow, Meta, Table};
use niwaki_primitives::Fork;
use std::process::Command;

/// STOP, RETURN, REVERT, SELFDESTRUCT, INVALID, and the calls and creations, which leave the
/// interpreter for the driver.
const WITHOUT_SUCCESSOR: usize = 11;

/// What names handlers: of opcodes, of sequences, of the way back from those, and of a host's own opcodes.
const HANDLERS: [&str; 5] = [
    "niwaki_evm::interpreter::threaded",
    "niwaki_evm::fused::fused",
    "niwaki_evm::fused::unfused",
    "niwaki_evm::overrides::replaced",
    "niwaki_evm::overrides::guarded",
];

#[test]
fn every_handler_jumps_to_the_next_and_none_calls_it() {
    assert!(
        niwaki_evm::dispatch_is_flat(),
        "links the interpreter into this program"
    );
    let mut own = Table::of(Fork::Osaka).clone();
    own.set_guard(0x0c, |_| Ok(()));
    assert_eq!(own.mnemonic(0x0c), None, "a guard makes no opcode");
    let meta = Meta {
        mnemonic: "OWN",
        input: 0,
        output: 0,
        immediate: 0,
    };
    own.set_opcode(0x0d, meta, 0, |_| Ok(Flow::Next));
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
        // Slow paths are called by name; a register or the table is called by a handler that
        // should have jumped.
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
