//! Inputs that precompiled contracts accept: points of the groups, signatures, proofs.

use super::curve::{Curve, Point, TAU, Wide, compressed, decompressed};
use alloy_primitives::{U256, hex};
use rand::{Rng, SeedableRng, rngs::SmallRng};
use std::sync::LazyLock;

/// Points per pool.
const POINTS: usize = 48;

/// A curve with precomputed points; inputs use sums of two of them.
pub(super) struct Pool {
    pub(super) curve: Curve,
    /// Points of the group, with their multiple of the generator.
    inside: Vec<(U256, Point)>,
    /// Points of the curve, most of them not in the group.
    outside: Vec<Point>,
    /// Bytes per part of a coordinate, and whether the second part comes first.
    part_bytes: usize,
    is_swapped: bool,
}

impl Pool {
    fn new(curve: Curve, part_bytes: usize, is_swapped: bool) -> Self {
        let mut random = SmallRng::seed_from_u64(1);
        let generator = Some(curve.generator);
        let mut factor = random_number(&mut random) % curve.order;
        let mut point = curve.multiple(generator, factor);
        let mut inside = Vec::new();
        for _ in 0..POINTS {
            inside.push((factor, point));
            let one = U256::from(1);
            factor = factor
                .add_mod(factor, curve.order)
                .add_mod(one, curve.order);
            point = curve.sum(curve.sum(point, point), generator);
        }
        let mut outside = Vec::new();
        while outside.len() < POINTS / 2 {
            let mut part = || Wide::from_limbs(random.random()) % curve.field;
            let (first, second) = (part(), part());
            let second = if curve.is_extension {
                second
            } else {
                Wide::ZERO
            };
            outside.extend(curve.point_at([first, second]).map(Some));
        }
        Self {
            curve,
            inside,
            outside,
            part_bytes,
            is_swapped,
        }
    }

    /// A point of the group other than infinity, and its multiple of the generator.
    pub(super) fn inside(&self, random: &mut SmallRng) -> (U256, Point) {
        let [(a, p), (b, q)] =
            [(); 2].map(|()| self.inside[random.random_range(0..self.inside.len())]);
        match self.curve.sum(p, q) {
            None => (a, p),
            sum => (a.add_mod(b, self.curve.order), sum),
        }
    }

    /// A point of the curve.
    pub(super) fn outside(&self, random: &mut SmallRng) -> Point {
        let point = self.outside[random.random_range(0..self.outside.len())];
        let (_, other) = self.inside(random);
        self.curve.sum(point, other)
    }

    pub(super) fn parts(&self) -> usize {
        if self.curve.is_extension { 4 } else { 2 }
    }

    /// The point as contracts encode it.
    pub(super) fn bytes(&self, point: Point) -> Vec<u8> {
        let Some(coordinates) = point else {
            return vec![0; self.parts() * self.part_bytes];
        };
        let mut bytes = Vec::new();
        for [first, second] in coordinates {
            match (self.curve.is_extension, self.is_swapped) {
                (false, _) => self.put(&mut bytes, first),
                (true, false) => [first, second]
                    .iter()
                    .for_each(|part| self.put(&mut bytes, *part)),
                (true, true) => [second, first]
                    .iter()
                    .for_each(|part| self.put(&mut bytes, *part)),
            }
        }
        bytes
    }

    /// Appends a part of a coordinate as contracts encode it.
    pub(super) fn put(&self, bytes: &mut Vec<u8>, part: Wide) {
        let wide = part.to_be_bytes::<48>();
        match self.part_bytes.checked_sub(wide.len()) {
            Some(zeros) => {
                bytes.resize(bytes.len() + zeros, 0);
                bytes.extend(wide);
            }
            None => bytes.extend(&wide[wide.len() - self.part_bytes..]),
        }
    }

    pub(super) fn part_bytes(&self) -> usize {
        self.part_bytes
    }
}

/// The points for all inputs.
pub(super) struct Pools {
    pub(super) p256: Pool,
    pub(super) bn254: [Pool; 2],
    pub(super) bls: [Pool; 2],
    /// `[1]`, `[tau]` and `[tau^2]`.
    powers: [Point; 3],
}

pub(super) static POOLS: LazyLock<Pools> = LazyLock::new(|| {
    let g1 = Curve::bls12_381_g1();
    let [first, second] = TAU.map(|bytes| decompressed(&g1, bytes));
    Pools {
        p256: Pool::new(Curve::p256(), 32, false),
        bn254: [
            Pool::new(Curve::bn254_g1(), 32, false),
            Pool::new(Curve::bn254_g2(), 32, true),
        ],
        powers: [Some(g1.generator), first, second],
        bls: [
            Pool::new(g1, 64, false),
            Pool::new(Curve::bls12_381_g2(), 64, false),
        ],
    }
});

pub(super) fn random_number(random: &mut SmallRng) -> U256 {
    U256::from_limbs(random.random())
}

pub(super) fn random_bytes(random: &mut SmallRng, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    random.fill(&mut bytes[..]);
    bytes
}

/// An input that the contract at the address `contract` accepts, of `items` items: bytes for hashes and copies,
/// bytes of each operand for powers, rounds, points to be multiplied, pairs. Pairs cancel out if there are two or
/// more. The same for the same seed.
///
/// # Panics
/// If there is no such contract.
pub fn valid_input(contract: u16, items: usize, seed: u64) -> Vec<u8> {
    valid(contract, items, &mut SmallRng::seed_from_u64(seed))
}

pub(super) fn valid(contract: u16, items: usize, random: &mut SmallRng) -> Vec<u8> {
    let pools = &*POOLS;
    match contract {
        0x01 => recovery(random),
        0x02..=0x04 => random_bytes(random, items),
        0x05 => {
            let mut operands = [(); 3].map(|()| random_bytes(random, items));
            if let Some(last) = operands[2].last_mut() {
                *last |= 1;
            }
            power(&operands)
        }
        0x06 | 0x0b | 0x0d => {
            let pool = match contract {
                0x06 => &pools.bn254[0],
                _ => &pools.bls[usize::from(contract == 0x0d)],
            };
            [(); 2].map(|()| pool.bytes(pool.inside(random).1)).concat()
        }
        0x07 => term(&pools.bn254[0], random),
        0x08 => pairs(&pools.bn254, items, random).concat(),
        0x09 => {
            let rounds = u32::try_from(items).unwrap_or(u32::MAX).to_be_bytes();
            [&rounds[..], &random_bytes(random, 208), &[1]].concat()
        }
        0x0a => opening(random).to_vec(),
        0x0c | 0x0e => {
            let pool = &pools.bls[usize::from(contract == 0x0e)];
            (0..items).flat_map(|_| term(pool, random)).collect()
        }
        0x0f => pairs(&pools.bls, items, random).concat(),
        0x10 | 0x11 => {
            let mut bytes = Vec::new();
            let pool = &pools.bls[0];
            for _ in 0x0f..contract {
                pool.put(
                    &mut bytes,
                    Wide::from_limbs(random.random()) % pool.curve.field,
                );
            }
            bytes
        }
        0x100 => signature(random).to_vec(),
        _ => panic!("there is no contract at {contract:#x}"),
    }
}

/// Half of all x coordinates belong to a point, so half of these signatures have a signer.
fn recovery(random: &mut SmallRng) -> Vec<u8> {
    let mut input = random_bytes(random, 128);
    input[32..63].fill(0);
    input[63] = random.random_range(27..=28);
    // Both below the order.
    (input[64], input[96]) = (input[64] & 0x7f, input[96] & 0x7f);
    input
}

/// The operands, prefixed by their lengths.
pub(super) fn power(operands: &[Vec<u8>; 3]) -> Vec<u8> {
    let lengths = operands
        .each_ref()
        .map(|part| U256::from(part.len()).to_be_bytes::<32>());
    [lengths.concat(), operands.concat()].concat()
}

/// A point and its factor.
fn term(pool: &Pool, random: &mut SmallRng) -> Vec<u8> {
    let mut bytes = pool.bytes(pool.inside(random).1);
    bytes.extend(random_bytes(random, 32));
    bytes
}

/// Pairs of points, whose product is one if there are two or more: `(P, Q)` and `(-P, Q)`, and of every three
/// `(P, Q)`, `(P, R)` and `(-P, Q + R)` or `(P, Q)`, `(R, Q)` and `(-P - R, Q)`.
pub(super) fn pairs([g1, g2]: &[Pool; 2], count: usize, random: &mut SmallRng) -> Vec<Vec<u8>> {
    let pair = |p: Point, q: Point| [g1.bytes(p), g2.bytes(q)].concat();
    let mut pairs = Vec::new();
    let mut rest = count;
    while rest > 0 {
        let ((_, p), (_, q)) = (g1.inside(random), g2.inside(random));
        let minus_p = g1.curve.opposite(p);
        if rest == 3 || (rest > 4 && random.random_bool(0.5)) {
            if random.random_bool(0.5) {
                let (_, r) = g2.inside(random);
                let sum = g2.curve.sum(q, r);
                pairs.extend([pair(p, q), pair(p, r), pair(minus_p, sum)]);
            } else {
                let (_, r) = g1.inside(random);
                let opposite = g1.curve.opposite(g1.curve.sum(p, r));
                pairs.extend([pair(p, q), pair(r, q), pair(opposite, q)]);
            }
            rest -= 3;
        } else if rest > 1 {
            pairs.extend([pair(p, q), pair(minus_p, q)]);
            rest -= 2;
        } else {
            pairs.push(pair(p, q));
            rest -= 1;
        }
    }
    pairs
}

/// Hash, point, value, commitment and proof of a polynomial of the second degree, `a * x^2 + b * x + c`, with small
/// `a` and `b`: its quotient by `x - z` is `a * x + a * z + b`.
pub(super) fn opening(random: &mut SmallRng) -> [u8; 192] {
    let pools = &*POOLS;
    let Pool { curve, .. } = pools.bls[0];
    let [one, tau, square] = pools.powers;
    let times = |point, factor: u64| curve.multiple(point, U256::from(factor));
    // A constant opens at any point.
    let is_constant = random.random_bool(0.25);
    let most = if is_constant { 1 } else { 16 };
    let (a, b) = (random.random_range(0..most), random.random_range(0..most));
    // The commitment's last term is a point of the pool, whose factor is known.
    let (c, constant) = pools.bls[0].inside(random);
    let z = match random.random_range(0..4) {
        0 => 0,
        1 => random.random_range(1..256),
        _ => random.random_range(0..1 << 20),
    };
    let commitment = curve.sum(curve.sum(times(square, a), times(tau, b)), constant);
    let proof = curve.sum(times(tau, a), times(one, a * z + b));
    let value = c.add_mod(U256::from(a * z * z + b * z), curve.order);
    let z = match is_constant {
        true => random_number(random) % curve.order,
        false => U256::from(z),
    };
    let commitment = compressed(&curve, commitment);
    let mut input = [0; 192];
    input[..32].copy_from_slice(versioned_hash(&commitment).as_slice());
    input[32..64].copy_from_slice(&z.to_be_bytes::<32>());
    input[64..96].copy_from_slice(&value.to_be_bytes::<32>());
    input[96..144].copy_from_slice(&commitment);
    input[144..].copy_from_slice(&compressed(&curve, proof));
    input
}

pub(super) fn versioned_hash(commitment: &[u8]) -> [u8; 32] {
    let mut hash = niwaki_crypto::sha256(commitment).0;
    hash[0] = 1;
    hash
}

/// A hash, its signature on P-256 and the key; both of the signature's key and point are sums of known multiples.
pub(super) fn signature(random: &mut SmallRng) -> [u8; 160] {
    let pool = &POOLS.p256;
    let order = pool.curve.order;
    loop {
        let ((secret, key), (nonce, point)) = (pool.inside(random), pool.inside(random));
        let hash = random_number(random);
        let (Some([x, _]), Some(inverse)) = (point, nonce.inv_mod(order)) else {
            continue;
        };
        let r = U256::from(x[0]) % order;
        let sum = (hash % order).add_mod(r.mul_mod(secret, order), order);
        let s = sum.mul_mod(inverse, order);
        if s.is_zero() || r.is_zero() {
            continue;
        }
        let mut input = [0; 160];
        input[..32].copy_from_slice(&hash.to_be_bytes::<32>());
        input[32..64].copy_from_slice(&r.to_be_bytes::<32>());
        input[64..96].copy_from_slice(&s.to_be_bytes::<32>());
        input[96..].copy_from_slice(&pool.bytes(key));
        return input;
    }
}

/// Primes p whose p - 2 real blocks use as exponent, and similar ones.
pub(super) const PRIMES: [[u8; 32]; 3] = [
    hex!("30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001"),
    hex!("30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47"),
    hex!("fffffffffffffffffffffffffffffffffffffffffffffffffffffffefffffc2f"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::Address;
    use niwaki_crypto::PrecompileSet;

    /// The output of a contract of Osaka.
    fn output(contract: u16, input: &[u8]) -> Vec<u8> {
        let address = Address::with_last_byte(0).into_word().0;
        let mut address = Address::from_slice(&address[12..]);
        address.0[18..].copy_from_slice(&contract.to_be_bytes());
        let contract = PrecompileSet::Osaka.get(&address).expect("of Osaka");
        let outcome = contract.run(input, u64::MAX);
        outcome.expect("a valid input").1.to_vec()
    }

    #[test]
    fn contracts_accept_valid_inputs() {
        let mut random = SmallRng::seed_from_u64(7);
        for _ in 0..8 {
            for (contract, items) in [(8, 2), (8, 3), (8, 5), (0x0f, 2), (0x0f, 3), (0x0f, 6)] {
                let input = valid(contract, items, &mut random);
                assert_eq!(output(contract, &input)[31], 1, "{contract:#x} {items}");
            }
            for contract in [6, 7, 9, 0x0b, 0x0c, 0x0d, 0x0e, 0x10, 0x11] {
                let input = valid(contract, 3, &mut random);
                assert!(output(contract, &input).iter().any(|byte| *byte != 0));
            }
            let opening = valid(0x0a, 1, &mut random);
            assert_eq!(output(0x0a, &opening).len(), 64);
            assert_eq!(output(0x100, &valid(0x100, 1, &mut random))[31], 1);
        }
        let signed = (0..40).filter(|_| !output(1, &valid(1, 1, &mut random)).is_empty());
        assert!((8..32).contains(&signed.count()));
    }
}
