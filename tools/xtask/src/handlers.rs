//! Whether the interpreter's handlers end in jumps, by the machine code of a program.
//!
//! A handler reaches the next through a table of 256. Where the compiler could not make a jump of that call,
//! each opcode of that kind leaves its frame on the native stack, and long code overflows it.

use std::path::Path;
use std::process::Command;

/// What names handlers in the symbols of a program: of opcodes, of sequences of them, of the way back from
/// those, and of a host's own opcodes, where there are any.
const HANDLERS: [&str; 5] = [
    "niwaki_evm::interpreter::threaded",
    "niwaki_evm::fused::fused",
    "niwaki_evm::fused::unfused",
    "niwaki_evm::overrides::replaced",
    "niwaki_evm::overrides::guarded",
];
/// Fewer than there are opcodes and sequences: a program that has fewer handlers is none to judge.
const FEWEST: usize = 230;

/// Disassembles `program` and says how many handlers it has.
///
/// # Errors
/// Which of them call the next one, or why that can't be known.
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
    let (handlers, calls) = judge(&disassembly);
    if handlers < FEWEST {
        return Err(format!(
            "{shown} has {handlers} handlers of opcodes; give a release build for x86-64 that has its symbols"
        ));
    }
    match calls.as_slice() {
        [] => Ok(format!("handlers: {handlers} of {shown} end in jumps")),
        _ => Err(format!(
            "{} of the handlers of {shown} call the next one, which ends in an overflow of the stack: keep what \
             needs a frame in a function of its own, never inlined:\n{}",
            calls.len(),
            calls.join("\n")
        )),
    }
}

/// How many handlers there are, and the calls through a table in them.
fn judge(disassembly: &str) -> (usize, Vec<&str>) {
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

/// Whether a line calls what stands in a table, or what was loaded from one. Functions of their own are called by
/// name, or through a table of names that stands beside the code (`%rip`).
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
        assert_eq!(judge(JUMPS), (1, vec![]));
        let calls = vec!["5ae1ec:\tcall   *(%rbx,%rax,8)", "5ae1ee:\tcall   *%rax"];
        assert_eq!(judge(CALLS), (1, calls));
        assert_eq!(judge(&[JUMPS, CALLS, JUMPS].concat()).0, 3);
    }

    #[test]
    fn a_program_without_handlers_is_none_to_judge() {
        let own = std::env::current_exe().unwrap();
        let error = check(&own).unwrap_err();
        assert!(
            error.contains("objdump") || error.contains("has 0 handlers"),
            "{error}"
        );
    }
}
