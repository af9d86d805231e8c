//! Builders of small programs.

use niwaki_primitives::Address;

/// The most gas that a call can request.
pub(crate) const ALL: u32 = 0x00ff_ffff;

/// `PUSH1`, 3 gas.
pub(crate) fn push(value: u8) -> Vec<u8> {
    vec![0x60, value]
}

/// `SSTORE`, with 6 gas of pushes.
pub(crate) fn sstore(key: u8, value: u8) -> Vec<u8> {
    [push(value), push(key), vec![0x55]].concat()
}

/// A call of `opcode` without input or output; whether it succeeded is left on the stack. Pushes cost
/// 8 gas and 3 for each of address, gas and, where there is one, value.
pub(crate) fn call_by(opcode: u8, to: Address, value: u8, gas: u32) -> Vec<u8> {
    let mut code = vec![0x5f, 0x5f, 0x5f, 0x5f];
    if opcode < 0xf3 {
        code.extend(push(value));
    }
    code.push(0x73);
    code.extend(to);
    code.push(0x63);
    code.extend(gas.to_be_bytes());
    code.push(opcode);
    code
}

/// `CALL`, with 17 gas of pushes.
pub(crate) fn call(to: Address, value: u8, gas: u32) -> Vec<u8> {
    call_by(0xf1, to, value, gas)
}

/// An opcode on an address, whose result is popped: 5 gas besides the opcode.
pub(crate) fn query(opcode: u8, of: Address) -> Vec<u8> {
    [&[0x73][..], of.as_slice(), &[opcode, 0x50]].concat()
}

/// Logs the top word.
pub(crate) fn log_top() -> Vec<u8> {
    vec![0x5f, 0x52, 0x60, 0x20, 0x5f, 0xa0]
}

/// Logs the gas of `body`, and 2 for GAS. It must leave the stack unchanged.
pub(crate) fn measure(body: &[u8]) -> Vec<u8> {
    [&[0x5a], body, &[0x5a, 0x90, 0x03], &log_top()].concat()
}

/// Init code that deploys `code`, at most 32 bytes.
pub(crate) fn deploy(code: &[u8]) -> Vec<u8> {
    let mut word = [0; 32];
    word[..code.len()].copy_from_slice(code);
    let length = u8::try_from(code.len()).unwrap();
    [
        &[0x7f],
        word.as_slice(),
        &[0x5f, 0x52, 0x60, length, 0x5f, 0xf3],
    ]
    .concat()
}

/// `CREATE` (0xf0) or `CREATE2` (0xf5, salt 0) of `init`, at most 32 bytes; the address is left on
/// the stack.
pub(crate) fn create_by(opcode: u8, init: &[u8], value: u8) -> Vec<u8> {
    let mut word = [0; 32];
    word[..init.len()].copy_from_slice(init);
    let mut code = [&[0x7f], word.as_slice(), &[0x5f, 0x52]].concat();
    if opcode == 0xf5 {
        code.push(0x5f);
    }
    code.extend([0x60, u8::try_from(init.len()).unwrap(), 0x5f, 0x60, value]);
    code.push(opcode);
    code
}

/// `SELFDESTRUCT` to an address.
pub(crate) fn destroy(to: Address) -> Vec<u8> {
    [&[0x73][..], to.as_slice(), &[0xff]].concat()
}
