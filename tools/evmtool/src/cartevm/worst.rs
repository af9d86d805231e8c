//! Known attacks that make blocks slow, each as one program that loops over a few opcodes while there is gas.

use super::program::{GAS, GT, JUMPDEST, JUMPI, POP, STATICCALL, STOP, address_word, push, word};
use niwaki_primitives::{Address, Bytes, Fork, U256, address, hex};

const ADD: u8 = 0x01;
const AND: u8 = 0x16;
const ADDRESS: u8 = 0x30;
const BALANCE: u8 = 0x31;
const CALLER: u8 = 0x33;
const EXTCODESIZE: u8 = 0x3b;
const EXTCODECOPY: u8 = 0x3c;
const EXTCODEHASH: u8 = 0x3f;
const MSTORE: u8 = 0x52;
const MSTORE8: u8 = 0x53;
const SLOAD: u8 = 0x54;
const SSTORE: u8 = 0x55;
const DUP1: u8 = 0x80;
const LOG4: u8 = 0xa4;
const CREATE: u8 = 0xf0;
const CALL: u8 = 0xf1;
const CREATE2: u8 = 0xf5;
const INVALID: u8 = 0xfe;
const SELFDESTRUCT: u8 = 0xff;

/// Gas with which no program starts another iteration: more than any body costs.
pub(super) const MARGIN: u64 = 1_000_000;
/// First address of the sequence of contracts.
const FIRST: Address = address!("00000000000000000000c0de0000000000000000");
/// Their count; a power of two.
const CONTRACTS: u64 = 512;
/// Another contract.
const ALONE: Address = address!("00000000000000000000a10e0000000000000000");
/// Size limits of deployed code (EIP-170) and of init code (EIP-3860), bytes.
const MAX_CODE: u64 = 24_576;
const MAX_INIT_CODE: u64 = 2 * MAX_CODE;

/// A program and its contracts.
#[derive(Clone, Debug)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    since: Fork,
    pub(super) code: Bytes,
    /// Offset of its body, which is entered once per counted iteration.
    pub(super) start: usize,
    pub(super) contracts: Vec<(Address, Bytes)>,
}

/// A code builder.
#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn push(mut self, value: u64) -> Self {
        push(&mut self.0, word(value));
        self
    }

    fn push_all(self, values: &[u64]) -> Self {
        values.iter().fold(self, |code, value| code.push(*value))
    }

    fn push_address(mut self, address: Address) -> Self {
        push(&mut self.0, address_word(address));
        self
    }

    fn ops(mut self, opcodes: &[u8]) -> Self {
        self.0.extend_from_slice(opcodes);
        self
    }

    /// Pushes the address of the next contract, from the counter that is below `above` words.
    fn next_contract(self, above: u8) -> Self {
        let counter = self.ops(&[DUP1 + above]).push(CONTRACTS - 1).ops(&[AND]);
        counter.push_address(FIRST).ops(&[ADD])
    }

    /// Writes bytes to memory from its start.
    fn store(self, bytes: &[u8]) -> Self {
        (0..)
            .zip(bytes.chunks(32))
            .fold(self, |mut code, (at, chunk)| {
                let mut word = [0; 32];
                word[..chunk.len()].copy_from_slice(chunk);
                push(&mut code.0, U256::from_be_bytes(word));
                code.push(32 * at).ops(&[MSTORE])
            })
    }
}

fn ops(opcodes: &[u8]) -> Code {
    Code(opcodes.to_vec())
}

fn push_all(values: &[u64]) -> Code {
    Code::default().push_all(values)
}

impl Attack {
    /// A program that loops over `body`. A counter from 1 is at the bottom of the stack.
    fn new(name: &'static str, since: Fork, body: Code) -> Self {
        Self::after(Code::default(), name, since, body)
    }

    /// The same with code that runs once before the loop.
    fn after(setup: Code, name: &'static str, since: Fork, body: Code) -> Self {
        let mut code = Code::default().push(1).ops(&setup.0);
        let start = code.0.len();
        code = code.ops(&[JUMPDEST]).ops(&body.0).push(1).ops(&[ADD]);
        code = code.push(MARGIN).ops(&[GAS, GT]).push(start as u64);
        Self {
            name,
            since,
            code: code.ops(&[JUMPI, STOP]).0.into(),
            start,
            contracts: Vec::new(),
        }
    }

    fn with(mut self, contracts: impl IntoIterator<Item = (Address, Bytes)>) -> Self {
        self.contracts.extend(contracts);
        self
    }

    /// Calls of [`ALONE`], which has this code, without value and data.
    fn calling_alone(name: &'static str, gas: u64, code: Vec<u8>) -> Self {
        let body = push_all(&[0; 5]).push_address(ALONE).push(gas);
        let attack = Self::new(name, Fork::TangerineWhistle, body.ops(&[CALL, POP]));
        attack.with([(ALONE, code.into())])
    }

    /// Calls of a precompiled contract with `input`; a failure ends the program.
    fn precompiled(name: &'static str, since: Fork, number: u64, input: &[u8]) -> Self {
        let setup = Code::default().store(input);
        let call = push_all(&[0, 0, input.len() as u64, 0, number]);
        let mut body = call.ops(&[GAS, STATICCALL]);
        // The counter, the setup and a JUMPDEST precede it; it jumps over the jump and the INVALID.
        let body_at = 2 + setup.0.len() + 1;
        let target = body_at + body.0.len() + 5;
        let target = u16::try_from(target).expect("within a contract");
        let [high, low] = target.to_be_bytes();
        body = body.ops(&[0x61, high, low, JUMPI, INVALID, JUMPDEST]);
        Self::after(setup, name, since, body)
    }
}

/// The address of contract `at` of the sequence.
fn numbered(at: u64) -> Address {
    let number = address_word(FIRST) + word(at);
    Address::from_word(number.into())
}

/// Contracts of the largest size: STOP, a distinct number, and JUMPDESTs.
fn big_contracts() -> impl Iterator<Item = (Address, Bytes)> {
    (0..CONTRACTS).map(|at| {
        let size = usize::try_from(MAX_CODE).expect("small");
        let mut code = vec![JUMPDEST; size];
        code[0] = STOP;
        code[1..9].copy_from_slice(&at.to_be_bytes());
        (numbered(at), code.into())
    })
}

/// Accounts that delegate to `to` of their number (EIP-7702).
fn delegating(to: impl Fn(u64) -> Address) -> impl Iterator<Item = (Address, Bytes)> {
    (0..CONTRACTS).map(move |at| {
        let code = [&[0xef, 0x01, 0x00], to(at).as_slice()].concat();
        (numbered(at), code.into())
    })
}

/// The attacks of `fork`.
pub(super) fn attacks(fork: Fork) -> Vec<Attack> {
    let mut all = state();
    all.extend(code());
    all.extend(frames());
    all.extend(precompiled());
    all.retain(|attack| attack.since <= fork);
    all
}

/// Cold accounts and slots.
fn state() -> Vec<Attack> {
    let sweep = |name, opcode, since| {
        let body = ops(&[DUP1]).push_address(ALONE).ops(&[ADD, opcode, POP]);
        Attack::new(name, since, body)
    };
    let log = push_all(&[4, 3, 2, 1, 16_384, 0]).ops(&[LOG4]);
    vec![
        Attack::new("cold-sload", Fork::Frontier, ops(&[DUP1, SLOAD, POP])),
        Attack::new("cold-sstore", Fork::Frontier, ops(&[DUP1, DUP1, SSTORE])),
        sweep("cold-balance", BALANCE, Fork::Frontier),
        sweep("cold-extcodehash", EXTCODEHASH, Fork::Petersburg),
        Attack::new("log4-16k", Fork::Frontier, log),
        Attack::calling_alone("selfdestruct", 50_000, vec![CALLER, SELFDESTRUCT]),
    ]
}

/// Large code, deployed and as init code.
fn code() -> Vec<Attack> {
    let of_big = |name, since, body: Code| Attack::new(name, since, body).with(big_contracts());
    let one = |opcode| Code::default().next_contract(0).ops(&[opcode, POP]);
    let copied = push_all(&[MAX_CODE, 0, 0]).next_contract(3);
    // The largest init code: STOP, and JUMPDESTs but for the counter.
    let halves = [0, MAX_CODE].into_iter().fold(Code::default(), |code, to| {
        let code = code.push_all(&[MAX_CODE, 0, to]).push_address(numbered(0));
        code.ops(&[EXTCODECOPY])
    });
    let created = ops(&[DUP1]).push(32).ops(&[MSTORE]);
    let created = created.push_all(&[MAX_INIT_CODE, 0, 0]).ops(&[CREATE, POP]);
    let called = push_all(&[0; 5])
        .next_contract(5)
        .push(100)
        .ops(&[CALL, POP]);
    let wall = ops(&[JUMPDEST; 24_000]);
    vec![
        of_big("big-extcodesize", Fork::Frontier, one(EXTCODESIZE)),
        of_big("big-extcodehash", Fork::Petersburg, one(EXTCODEHASH)),
        of_big(
            "big-extcodecopy",
            Fork::Frontier,
            copied.ops(&[EXTCODECOPY]),
        ),
        of_big("big-call", Fork::Frontier, called),
        Attack::after(halves, "big-initcode", Fork::Shanghai, created)
            .with(big_contracts().take(1)),
        Attack::new("jumpdest-wall", Fork::Frontier, wall),
    ]
}

/// Calls and creations.
fn frames() -> Vec<Attack> {
    let creation = |name, init: &[u8]| {
        // The init code is at the start of the word.
        let body = ops(&[DUP1]).push_all(&[init.len() as u64, 0, 0]);
        let body = body.ops(&[CREATE2, POP]);
        Attack::after(Code::default().store(init), name, Fork::Petersburg, body)
    };
    // The counter is the init code: zeros first, which stop.
    let other = ops(&[DUP1]).push(0).ops(&[MSTORE, DUP1]);
    let other = other.push_all(&[32, 0, 0]).ops(&[CREATE2, POP]);
    let itself = push_all(&[0; 5]).ops(&[ADDRESS, GAS, CALL, POP]);
    let expands = push_all(&[1, 0x3_ffff]).ops(&[MSTORE8]);
    let delegated = |name| {
        let code = push_all(&[0; 5]).next_contract(5).push(100);
        Attack::new(name, Fork::Prague, code.ops(&[CALL, POP]))
    };
    vec![
        creation("create2", &hex!("60016000f3")),
        creation("create2-selfdestruct", &[CALLER, SELFDESTRUCT]),
        Attack::new("create2-other", Fork::Petersburg, other),
        Attack::calling_alone("deep-calls", 900_000, itself.0),
        Attack::calling_alone("memory-256k", 900_000, expands.0),
        delegated("delegated-calls")
            .with(delegating(|_| ALONE))
            .with([(ALONE, vec![STOP].into())]),
        delegated("delegation-chain").with(delegating(|at| numbered((at + 1) % CONTRACTS))),
    ]
}

/// Precompiled contracts that cost much time for their gas.
fn precompiled() -> Vec<Attack> {
    let modexp = |size: usize, exponent: &[u8], last: u8| {
        let mut modulus = vec![0xff; size];
        modulus[size - 1] = last;
        let sizes = [size, exponent.len(), size];
        let sizes = sizes.map(|size| U256::from(size).to_be_bytes::<32>());
        [&sizes.concat()[..], &vec![0xfe; size], exponent, &modulus].concat()
    };
    let full = [0xff; 32];
    let power = |name, input: &[u8]| Attack::precompiled(name, Fork::Byzantium, 5, input);
    let blake = [&100_000u32.to_be_bytes()[..], &[0xa5; 208], &[1]].concat();
    vec![
        power("modexp-32-odd", &modexp(32, &full, 0xff)),
        power("modexp-32-even", &modexp(32, &full, 0xfe)),
        power("modexp-1024-square", &modexp(1_024, &[2], 0xff)),
        Attack::precompiled("pairing-bn254", Fork::Byzantium, 8, &BN254_PAIRS),
        Attack::precompiled("blake2f-100k", Fork::Istanbul, 9, &blake),
        Attack::precompiled("point-evaluation", Fork::Cancun, 10, &POINT_EVALUATION),
        Attack::precompiled("pairing-bls12-381", Fork::Prague, 15, &bls12_pair()),
    ]
}

/// The generators of both groups, and the same with the first one negated: a product of one.
const BN254_PAIRS: [u8; 384] = hex!(
    "0000000000000000000000000000000000000000000000000000000000000001"
    "0000000000000000000000000000000000000000000000000000000000000002"
    "198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2"
    "1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed"
    "090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b"
    "12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa"
    "0000000000000000000000000000000000000000000000000000000000000001"
    "30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd45"
    "198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2"
    "1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed"
    "090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b"
    "12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa"
);

/// The commitment of the polynomial zero, which is zero at 7: hash, 7, 0, commitment and proof.
const POINT_EVALUATION: [u8; 192] = hex!(
    "010657f37554c781402a22917dee2f75def7ab966d7b770905398eba3c444014"
    "0000000000000000000000000000000000000000000000000000000000000007"
    "0000000000000000000000000000000000000000000000000000000000000000"
    "c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "c00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
);

/// The generators of both groups of BLS12-381, each coordinate of 64 bytes.
fn bls12_pair() -> Vec<u8> {
    const COORDINATES: [[u8; 48]; 6] = [
        hex!(
            "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb"
        ),
        hex!(
            "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1"
        ),
        hex!(
            "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8"
        ),
        hex!(
            "13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e"
        ),
        hex!(
            "0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801"
        ),
        hex!(
            "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be"
        ),
    ];
    COORDINATES
        .map(|coordinate| [&[0; 16][..], &coordinate].concat())
        .concat()
}
