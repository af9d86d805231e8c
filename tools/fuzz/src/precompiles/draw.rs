//! Random inputs of precompiled contracts: valid, almost valid, and random bytes.

use super::curve::{Point, Wide};
use super::valid::{
    POOLS, PRIMES, Pool, opening, pairs, power, random_bytes, random_number, signature, valid,
    versioned_hash,
};
use alloy_primitives::{U256, uint};
use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};

/// An input of the contract at the address `contract`.
pub(super) fn input(contract: u16, random: &mut SmallRng) -> Vec<u8> {
    let mut input = match contract {
        0x01 => recovery(random),
        0x02..=0x04 => {
            let longest = *[8, 140, 140, 2_000].choose(random).unwrap_or(&0);
            let length = random.random_range(0..=longest);
            random_bytes(random, length)
        }
        0x05 => exponentiation(random),
        0x06 | 0x07 | 0x0b..=0x0e => terms(contract, random),
        0x08 => products(&POOLS.bn254, random),
        0x09 => {
            let rounds = match random.random_range(0..8) {
                0 => 0,
                1 => 12,
                2 => random.random_range(0..2_000),
                _ => random.random_range(0..24),
            };
            let mut input = valid(contract, rounds, random);
            input[212] = *[0, 0, 1, 1, 1, 2, 255].choose(random).unwrap_or(&0);
            input
        }
        0x0a => proof(random),
        0x0f => products(&POOLS.bls, random),
        0x10 | 0x11 => {
            let parts = usize::from(contract - 0x0f);
            let parts = (0..parts).map(|_| part(&POOLS.bls[0], random));
            parts.collect::<Vec<_>>().concat()
        }
        _ => verification(random),
    };
    if random.random_bool(0.2) {
        spoil(&mut input, random);
    }
    input
}

/// Changes some bytes.
fn spoil(input: &mut Vec<u8>, random: &mut SmallRng) {
    let length = input.len();
    match random.random_range(0..7) {
        0 => input.truncate(random.random_range(0..=length)),
        1 => input.truncate(length.saturating_sub(1)),
        2 => {
            let more = random.random_range(1..70);
            input.extend(random_bytes(random, more));
        }
        3 => input.resize(length + random.random_range(1..200), 0),
        _ if length == 0 => {}
        4 => {
            input[random.random_range(0..length)] =
                *[0, 1, 0x7f, 0x80, 0xff].choose(random).unwrap_or(&0)
        }
        5 => {
            let word = random.random_range(0..length) / 32 * 32;
            let end = (word + 32).min(length);
            let byte = *[0, 0xff].choose(random).unwrap_or(&0);
            input[word..end].fill(byte);
        }
        _ => input[random.random_range(0..length)] ^= 1 << random.random_range(0..8),
    }
}

/// A part of a coordinate: in range, at its edges, out of range, or with non-zero padding.
fn part(pool: &Pool, random: &mut SmallRng) -> Vec<u8> {
    let field = pool.curve.field;
    let drawn = Wide::from_limbs(random.random()) % field;
    let small = Wide::from(random.random_range(0..4_u64));
    let number = match random.random_range(0..12) {
        0 => small,
        1 => field - Wide::from(1) - small,
        2 => field + small,
        3 => Wide::MAX - small,
        4 => drawn.wrapping_add(field),
        _ => drawn,
    };
    let mut bytes = Vec::new();
    pool.put(&mut bytes, number);
    if pool.part_bytes() > 48 && random.random_bool(0.03) {
        bytes[random.random_range(0..16)] = 1;
    }
    bytes
}

/// An encoded point; rarely valid if `is_bad`.
fn point(pool: &Pool, is_bad: bool, random: &mut SmallRng) -> Vec<u8> {
    let valid: Point = match random.random_range(0..16) {
        0 => None,
        1 => Some(pool.curve.generator),
        _ => pool.inside(random).1,
    };
    if !is_bad {
        return pool.bytes(valid);
    }
    let parts = pool.parts();
    match random.random_range(0..6) {
        0 => pool.bytes(pool.outside(random)),
        // On another curve, or on none.
        1 => (0..parts).flat_map(|_| part(pool, random)).collect(),
        2 => {
            let mut bytes = pool.bytes(valid);
            let at = random.random_range(0..parts) * pool.part_bytes();
            bytes[at..at + pool.part_bytes()].copy_from_slice(&part(pool, random));
            bytes
        }
        // The same number plus the field's order.
        3 => {
            let Some(coordinates) = valid else {
                let mut bytes = Vec::new();
                (0..parts).for_each(|_| pool.put(&mut bytes, pool.curve.field));
                return bytes;
            };
            let beyond = coordinates.map(|parts| {
                parts.map(|part| match random.random_bool(0.4) {
                    true => part + pool.curve.field,
                    false => part,
                })
            });
            pool.bytes(Some(beyond))
        }
        4 => {
            let mut bytes = pool.bytes(valid);
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
            bytes
        }
        _ => pool.bytes(pool.curve.opposite(valid)),
    }
}

fn scalar(order: U256, random: &mut SmallRng) -> [u8; 32] {
    let small = U256::from(random.random_range(0..4_u64));
    let number = match random.random_range(0..10) {
        0 => small,
        1 => order.wrapping_sub(small),
        2 => order.wrapping_add(small),
        3 => U256::MAX - small,
        4 => U256::from(1) << random.random_range(0..256),
        5 => random_number(random) >> random.random_range(0..256),
        _ => random_number(random),
    };
    number.to_be_bytes()
}

/// Sums and multiples of one, two or more points.
fn terms(contract: u16, random: &mut SmallRng) -> Vec<u8> {
    let pool = match contract {
        0x06 | 0x07 => &POOLS.bn254[0],
        0x0b | 0x0c => &POOLS.bls[0],
        _ => &POOLS.bls[1],
    };
    let is_bad = random.random_bool(0.35);
    let mut one = || {
        let is_bad = is_bad && random.random_bool(0.6);
        point(pool, is_bad, random)
    };
    if matches!(contract, 0x06 | 0x0b | 0x0d) {
        let first = one();
        let second = one();
        return match random.random_range(0..10) {
            0 => [first.clone(), first].concat(),
            // A point and its opposite, if the first one is valid.
            1 => {
                let (_, valid) = pool.inside(random);
                [pool.bytes(valid), pool.bytes(pool.curve.opposite(valid))].concat()
            }
            _ => [first, second].concat(),
        };
    }
    let count = match contract {
        0x07 => 1,
        _ if random.random_bool(0.01) => random.random_range(8..=40),
        _ => *[1, 1, 1, 2, 2, 3, 5].choose(random).unwrap_or(&1),
    };
    let mut input = Vec::new();
    for _ in 0..count {
        let is_bad = is_bad && random.random_bool(0.6);
        input.extend(point(pool, is_bad, random));
        input.extend(scalar(pool.curve.order, random));
    }
    input
}

fn products(pools: &[Pool; 2], random: &mut SmallRng) -> Vec<u8> {
    let count = match random.random_range(0..10) {
        0 => 0,
        1..=3 => 1,
        9 => random.random_range(3..=5),
        _ => 2,
    };
    let mut input = pairs(pools, count, random).concat();
    if count > 0 && random.random_bool(0.5) {
        let lengths = pools
            .each_ref()
            .map(|pool| pool.parts() * pool.part_bytes());
        let start = random.random_range(0..count) * (lengths[0] + lengths[1]);
        let is_bad = random.random_bool(0.7);
        let (at, pool) = match random.random_bool(0.5) {
            true => (start, &pools[0]),
            false => (start + lengths[0], &pools[1]),
        };
        let point = point(pool, is_bad, random);
        input[at..at + point.len()].copy_from_slice(&point);
    }
    input
}

const SECP256K1_ORDER: U256 =
    uint!(0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141_U256);

fn recovery(random: &mut SmallRng) -> Vec<u8> {
    let mut input = random_bytes(random, 128);
    input[32..63].fill(0);
    input[63] = match random.random_range(0..8) {
        0 => *[0, 1, 26, 29, 255].choose(random).unwrap_or(&0),
        _ => random.random_range(27..=28),
    };
    if random.random_bool(0.05) {
        input[random.random_range(32..63)] = 1;
    }
    for at in [0, 64, 96] {
        if random.random_bool(0.15) {
            input[at..at + 32].copy_from_slice(&scalar(SECP256K1_ORDER, random));
        }
        // A small second number.
        if at == 96 && random.random_bool(0.3) {
            input[at] &= 0x7f;
        }
    }
    input
}

fn verification(random: &mut SmallRng) -> Vec<u8> {
    let pool = &POOLS.p256;
    let mut input = signature(random).to_vec();
    let order = pool.curve.order;
    match random.random_range(0..10) {
        0 => {
            let at = 32 * random.random_range(0..3);
            input[at..at + 32].copy_from_slice(&scalar(order, random));
        }
        // The other signature of the same hash by the same key.
        1 => {
            let s = order - U256::from_be_slice(&input[64..96]);
            input[64..96].copy_from_slice(&s.to_be_bytes::<32>());
        }
        2 => {
            let key = point(pool, true, random);
            input[96..].copy_from_slice(&key);
        }
        // A key that is the generator or its opposite: sums of equal and of opposite points.
        3 => {
            let generator = Some(pool.curve.generator);
            let key = match random.random_bool(0.5) {
                true => generator,
                false => pool.curve.opposite(generator),
            };
            input[96..].copy_from_slice(&pool.bytes(key));
            if random.random_bool(0.5) {
                input.copy_within(0..32, 32);
            }
        }
        4 => {
            let r = U256::from_be_slice(&input[32..64]);
            let beyond = r.wrapping_add(order);
            input[32..64].copy_from_slice(&beyond.to_be_bytes::<32>());
        }
        5 => input[random.random_range(0..160)] ^= 1 << random.random_range(0..8),
        _ => {}
    }
    input
}

fn proof(random: &mut SmallRng) -> Vec<u8> {
    let mut input = opening(random).to_vec();
    let order = POOLS.bls[0].curve.order;
    match random.random_range(0..8) {
        0 => {
            let at = *[32, 64].choose(random).unwrap_or(&32);
            input[at..at + 32].copy_from_slice(&scalar(order, random));
        }
        // Another point, flag or infinity as commitment or proof.
        1 | 2 => {
            let other = opening(random);
            let at = *[96, 144].choose(random).unwrap_or(&96);
            let other = &other[at..at + 48];
            input[at..at + 48].copy_from_slice(other);
            match random.random_range(0..4) {
                0 => input[at] ^= 0x20,
                1 => input[at] ^= *[0x80, 0x40, 0xc0].choose(random).unwrap_or(&0x80),
                2 => input[at + random.random_range(0..48)] ^= 1 << random.random_range(0..8),
                _ => {}
            }
            if random.random_bool(0.8) {
                let hash = versioned_hash(&input[96..144]);
                input[..32].copy_from_slice(&hash);
            }
        }
        // On the curve, most likely not in the group.
        3 => {
            let pool = &POOLS.bls[0];
            let at = *[96, 144].choose(random).unwrap_or(&96);
            let bytes = super::curve::compressed(&pool.curve, pool.outside(random));
            input[at..at + 48].copy_from_slice(&bytes);
            let hash = versioned_hash(&input[96..144]);
            input[..32].copy_from_slice(&hash);
        }
        _ => {}
    }
    input
}

/// Bytes of the longest operand; longer ones get shorter exponents.
fn exponentiation(random: &mut SmallRng) -> Vec<u8> {
    const EDGES: [usize; 16] = [0, 1, 2, 7, 8, 9, 16, 24, 31, 32, 32, 33, 40, 63, 64, 65];
    const LONG: [usize; 9] = [96, 127, 128, 129, 255, 256, 257, 512, 1_024];
    let mut length = || match random.random_range(0..40) {
        0 => *LONG.choose(random).unwrap_or(&96),
        1..=3 => random.random_range(0..=72),
        _ => *EDGES.choose(random).unwrap_or(&32),
    };
    let modulus = length();
    let base = match length() {
        _ if random.random_bool(0.5) => modulus,
        other => other,
    };
    let exponent = match base.max(modulus) {
        0..=72 => *EDGES.choose(random).unwrap_or(&1),
        73..=300 => random.random_range(0..=8),
        _ => random.random_range(0..=3),
    };
    let mut operands = [base, exponent, modulus].map(|length| operand(length, random));
    if modulus == 32 && random.random_bool(0.3) {
        let prime = *PRIMES.choose(random).unwrap_or(&PRIMES[0]);
        let prime = U256::from_be_bytes(prime);
        operands[2] = prime.to_be_bytes::<32>().to_vec();
        if random.random_bool(0.7) {
            let below = prime - U256::from(random.random_range(1..=3_u64));
            operands[1] = below.to_be_bytes::<32>().to_vec();
        }
    } else if random.random_bool(0.5)
        && let Some(last) = operands[2].last_mut()
    {
        *last |= 1;
    }
    let mut input = power(&operands);
    // A length that does not match what follows.
    if random.random_bool(0.04) {
        let at = 32 * random.random_range(0..3);
        let claimed = match random.random_range(0..5) {
            0 => scalar(U256::from(1_024), random),
            1 => U256::from(u64::MAX).to_be_bytes(),
            2 => U256::from(random.random_range(1_020..=1_030_u64)).to_be_bytes(),
            _ => U256::from(random.random_range(0..=80_u64)).to_be_bytes(),
        };
        input[at..at + 32].copy_from_slice(&claimed);
    }
    input
}

/// Bytes of one operand: random, or at an edge.
fn operand(length: usize, random: &mut SmallRng) -> Vec<u8> {
    let mut bytes = random_bytes(random, length);
    if length == 0 {
        return bytes;
    }
    match random.random_range(0..14) {
        0 => bytes.fill(0),
        1 => bytes.fill(0xff),
        2 => {
            bytes.fill(0);
            bytes[length - 1] = random.random_range(0..4);
        }
        // A power of two, or one less.
        3 => {
            let at = random.random_range(0..length);
            bytes.fill(0);
            bytes[at] = 1 << random.random_range(0..8);
        }
        4 => {
            let at = random.random_range(0..length);
            bytes[..at].fill(0);
            bytes[at..].fill(0xff);
        }
        // An odd number times a power of two.
        5 => {
            let at = random.random_range(0..length);
            bytes[at..].fill(0);
        }
        // Short, with zeros before.
        6 => {
            let at = random.random_range(0..length);
            bytes[..at].fill(0);
        }
        // Limbs of ones and zeros.
        7 => bytes.chunks_mut(8).for_each(|limb| {
            if random.random_bool(0.7) {
                limb.fill(*[0, 0xff].choose(random).unwrap_or(&0));
            }
        }),
        _ => {}
    }
    bytes
}
