//! Checks in the machine code of a program that the interpreter's handlers end in jumps.
//!
//! A handler calls the next through a table of 256. If the compiler does not turn that call into a jump, each opcode of
//! that kind leaves its frame on the native stack, and long code overflows it.

use std::path::Path;
use std::process::Command;

/// Names in the symbols of handlers: of opcodes, of fused sequences, of the return from those to single opcodes, and of
/// a host's own opcodes.
const HANDLERS: [&str; 5] = [
    "niwaki_evm::interpreter::threaded",
    "niwaki_evm::fused::fused",
    "niwaki_evm::fused::unfused",
    "niwaki_evm::overrides::replaced",
    "niwaki_evm::overrides::guarded",
];
/// Fewer than there are opcodes and sequences: a program with fewer handlers can't be checked.
const MIN_HANDLERS: usize = 230;

/// Disassembles `program` and returns a message with the number of its handlers.
///
/// # Errors
/// The calls with which handlers call the next one, or why the program can't be checked.
pub(crate) fn check(program: &Path) -> Result<String, String> {
    let shown = program.display();
    let output = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg(program)
        .output()
        .map_err(|error| format!("can't run objdump (package binutils): {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("objdump {shown}: {}", errors.trim()));
    }
    let disassembly = String::from_utf8_lossy(&output.stdout);
    let (handlers, calls) = find_calls(&disassembly);
    if handlers < MIN_HANDLERS {
        return Err(format!(
            "{shown} has {handlers} handlers of opcodes; give a release build for x86-64 that has its symbols"
        ));
    }
    match calls.as_slice() {
        [] => Ok(format!("handlers: {handlers} of {shown} end in jumps")),
        _ => Err(format!(
            "{} of the handlers of {shown} call the next one, which overflows the stack: move what needs a \
             frame into a function of its own that is never inlined:\n{}",
            calls.len(),
            calls.join("\n")
        )),
    }
}

/// The number of handlers, and the calls through a table in them.
fn find_calls(disassembly: &str) -> (usize, Vec<&str>) {
    let (mut handlers, mut is_handler) = (0, false);
    let mut calls = Vec::new();
    for line in disassembly.lines() {
        if line.ends_with(">:") {
            is_handler = HANDLERS.iter().any(|handler| line.contains(handler));
            handlers += usize::from(is_handler);
        } else if is_handler && is_call_of_table(line) {
            calls.push(line.trim());
        }
    }
    (handlers, calls)
}

/// Whether a line calls an entry of a table, or an address loaded from one. Other functions are called by name, or
/// through the global offset table (`%rip`).
fn is_call_of_table(line: &str) -> bool {
    let target = line
        .split_once("call")
        .map_or("", |(_, target)| target.trim());
    target.starts_with("*%") || target.starts_with('*') && target.ends_with(",8)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUMPS: &str = "\
00000000005ad000 <niwaki_evm::interpreter::threaded>:
  5ad000:\tsub    0x808(%r8),%rdx
  5ad010:\tcall   *0x3e04b6(%rip)        # 98d440 <niwaki_evm::ops::memory::expand>
  5ad018:\tjmp    *(%r8,%rax,8)
";
    const CALLS: &str = "\
00000000005ae000 <niwaki_evm::interpreter::threaded>:
  5ae1ec:\tcall   *(%rbx,%rax,8)
  5ae1ee:\tcall   *%rax
  5ae1ef:\tret
00000000005ae200 <niwaki_evm::interpreter::run>:
  5ae210:\tcall   *(%rbx,%rax,8)
";

    #[test]
    fn a_call_through_the_table_is_found_in_handlers_only() {
        assert_eq!(find_calls(JUMPS), (1, vec![]));
        let calls = vec!["5ae1ec:\tcall   *(%rbx,%rax,8)", "5ae1ee:\tcall   *%rax"];
        assert_eq!(find_calls(CALLS), (1, calls));
        assert_eq!(find_calls(&[JUMPS, CALLS, JUMPS].concat()).0, 3);
    }

    #[test]
    fn a_program_without_handlers_is_an_error() {
        let own = std::env::current_exe().unwrap();
        let error = check(&own).unwrap_err();
        assert!(
            error.contains("objdump") || error.contains("has 0 handlers"),
            "{error}"
        );
    }
}
