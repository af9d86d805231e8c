//! The inputs: typical ones of real blocks, and those that take most time for their gas.

use niwaki_fuzz::{CONTRACTS, valid_input};
use niwaki_primitives::{Address, U256, hex};

/// One input of one contract, or of KECCAK256.
pub(super) struct Case {
    pub(super) name: String,
    /// `None` for KECCAK256.
    pub(super) address: Option<Address>,
    pub(super) input: Vec<u8>,
    /// Whether the contract caches prepared points.
    pub(super) caches_points: bool,
}

/// Input sizes of each contract; zero if there is only one size.
const SIZES: [(u16, &[usize]); 17] = [
    (0x01, &[0]),
    (0x02, &[0, 64, 128, 1_024, 65_536]),
    (0x03, &[0, 64, 128, 1_024, 65_536]),
    (0x04, &[0, 64, 128, 1_024, 65_536]),
    (0x06, &[0]),
    (0x07, &[0]),
    (0x08, &[1, 2, 4, 8]),
    (0x09, &[0, 1, 12, 1_000, 100_000]),
    (0x0a, &[0]),
    (0x0b, &[0]),
    (0x0c, &[1, 2, 4, 16, 64, 128, 256]),
    (0x0d, &[0]),
    (0x0e, &[1, 2, 4, 16, 64, 128, 256]),
    (0x0f, &[1, 2, 4, 8]),
    (0x10, &[0]),
    (0x11, &[0]),
    (0x100, &[0]),
];

/// Bytes of messages for KECCAK256.
const MESSAGES: [usize; 6] = [0, 32, 64, 136, 1_000, 65_536];

/// All cases.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (contract, name) in CONTRACTS {
        if contract == 0x05 {
            cases.extend(powers());
        }
        let sizes = SIZES.iter().find(|(address, _)| *address == contract);
        for size in sizes.map_or(&[][..], |(_, sizes)| sizes) {
            let mut input = valid_input(contract, *size, 20);
            if contract == 0x01 {
                input.copy_from_slice(&SIGNED);
            }
            let has_sizes = sizes.is_some_and(|(_, sizes)| sizes.len() > 1);
            let name = match has_sizes {
                true => format!("{name}-{size}"),
                false => name.to_owned(),
            };
            cases.push(Case::new(name, contract, input));
        }
        cases.extend(others(contract, name));
    }
    for bytes in MESSAGES {
        cases.push(Case {
            name: format!("keccak256-{bytes}"),
            address: None,
            input: vec![0x5a; bytes],
            caches_points: false,
        });
    }
    cases
}

impl Case {
    fn new(name: String, contract: u16, input: Vec<u8>) -> Self {
        let mut address = Address::ZERO;
        address.0[18..].copy_from_slice(&contract.to_be_bytes());
        Self {
            name,
            address: Some(address),
            input,
            caches_points: contract == 0x08,
        }
    }
}

/// Edge cases: the largest scalars and numbers, and inputs that need no work.
fn others(contract: u16, name: &str) -> Vec<Case> {
    let case = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut input = valid_input(contract, 1, 21);
        change(&mut input);
        Case::new(format!("{name}-{what}"), contract, input)
    };
    match contract {
        0x01 => vec![case("no-signer", &|input| {
            input.copy_from_slice(&SIGNED);
            input[64..96].copy_from_slice(&UNSIGNED_R);
        })],
        0x06 => vec![
            case("twice", &|input| input.copy_within(..64, 64)),
            case("infinity", &|input| input.fill(0)),
        ],
        0x07 => vec![
            case("most", &|input| input[64..].fill(0xff)),
            case("two", &|input| {
                input[64..].fill(0);
                input[95] = 2;
            }),
        ],
        0x0c | 0x0e => vec![case("1-most", &|input| {
            let scalar = input.len() - 32;
            input[scalar..].fill(0xff);
        })],
        0x100 => vec![case("wrong", &|input| input[31] ^= 1)],
        _ => Vec::new(),
    }
}

/// The example of EIP-155 as input of the contract.
const SIGNED: [u8; 128] = hex!(
    "daf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53"
    "000000000000000000000000000000000000000000000000000000000000001b"
    "28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276"
    "67cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"
);

/// 5 is no first coordinate of a point of secp256k1.
const UNSIGNED_R: [u8; 32] =
    hex!("0000000000000000000000000000000000000000000000000000000000000005");

/// MODEXP: inverses, as real blocks compute them, and the shapes of EIP-7883's vectors.
fn powers() -> Vec<Case> {
    const ORDER: [u8; 32] =
        hex!("30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001");
    const RSA: [u8; 3] = hex!("010001");
    let below = U256::from_be_bytes(ORDER) - U256::from(2);
    let mut cases = vec![power(
        "inverse-bn254",
        &[0x5a; 32],
        &below.to_be_bytes::<32>(),
        &ORDER,
    )];
    let full = |bytes: usize, last: u8| {
        let mut number = vec![0xff; bytes];
        number[bytes - 1] = last;
        number
    };
    // Bytes of base and modulus, the exponent, and whether the modulus is even.
    let shapes: [(&str, usize, Vec<u8>, u8); 20] = [
        ("32-one-byte", 32, vec![0xff], 0xfd),
        ("32-odd", 32, vec![0xff; 32], 0xfd),
        ("32-even", 32, vec![0xff; 32], 0xfe),
        ("nagydani-1-square", 64, vec![2], 0xfd),
        ("nagydani-1-qube", 64, vec![3], 0xfd),
        ("nagydani-1-pow0x10001", 64, RSA.to_vec(), 0xfd),
        ("nagydani-2-square", 128, vec![2], 0xfd),
        ("nagydani-2-pow0x10001", 128, RSA.to_vec(), 0xfd),
        ("nagydani-3-square", 256, vec![2], 0xfd),
        ("nagydani-3-pow0x10001", 256, RSA.to_vec(), 0xfd),
        ("nagydani-4-square", 512, vec![2], 0xfd),
        ("nagydani-4-pow0x10001", 512, RSA.to_vec(), 0xfd),
        ("nagydani-5-square", 1_024, vec![2], 0xfd),
        ("nagydani-5-qube", 1_024, vec![3], 0xfd),
        ("nagydani-5-pow0x10001", 1_024, RSA.to_vec(), 0xfd),
        ("guido-1-even", 64, vec![0xff; 40], 0xfe),
        ("guido-4-even", 8, vec![0xff; 81], 0xfe),
        ("pawel-2", 8, vec![0xff; 112], 0xfd),
        ("256-exponent-256", 256, vec![0xff; 256], 0xfd),
        ("1024-exponent-32", 1_024, vec![0xff; 32], 0xfd),
    ];
    for (name, bytes, exponent, last) in shapes {
        cases.push(power(
            name,
            &vec![0xfe; bytes],
            &exponent,
            &full(bytes, last),
        ));
    }
    cases
}

fn power(name: &str, base: &[u8], exponent: &[u8], modulus: &[u8]) -> Case {
    let parts = [base, exponent, modulus];
    let lengths = parts.map(|part| U256::from(part.len()).to_be_bytes::<32>());
    let input = [lengths.concat(), parts.concat()].concat();
    Case::new(format!("modexp-{name}"), 0x05, input)
}
