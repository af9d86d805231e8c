//! Verification compared with the crate `p256`, on valid and invalid signatures and at every edge.

use super::*;
use crate::provider::Stock;
use alloy_primitives::keccak256;
use revm_precompile::Crypto;

/// A hash, a signature and a key.
type Case = ([u8; 32], [U256; 2], [U256; 2]);

fn number(seed: u64) -> U256 {
    U256::from_be_bytes(keccak256(seed.to_be_bytes()).0)
}

/// `a * G + b * Q`.
fn point(a: U256, b: U256, key: [U256; 2]) -> [U256; 2] {
    let point = sum::of(a, b, key.map(Element::of)).expect("not at infinity");
    let inverse = point.z.inverse();
    let x = point.x * inverse.square();
    // One of both, which is enough for a nonce; a key takes the other coordinate from `key_of`.
    [x.number(), U256::ZERO]
}

/// The public key of `secret`, by double-and-add.
fn key_of(secret: U256) -> [U256; 2] {
    let mut key: Option<[U256; 2]> = None;
    for bit in (0..secret.bit_len()).rev() {
        key = key.and_then(|key| plain_sum(key, key));
        if secret.bit(bit) {
            key = match key {
                None => Some(G),
                Some(key) => plain_sum(key, G),
            };
        }
    }
    key.expect("not at infinity")
}

const G: [U256; 2] = [
    uint!(0x6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296_U256),
    uint!(0x4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5_U256),
];

/// By the chord or the tangent, on numbers.
fn plain_sum([ax, ay]: [U256; 2], [bx, by]: [U256; 2]) -> Option<[U256; 2]> {
    let minus = |a: U256, b: U256| a.add_mod(FIELD - b, FIELD);
    let times = |a: U256, b: U256| a.mul_mod(b, FIELD);
    let slope = if ax != bx {
        times(minus(by, ay), minus(bx, ax).inv_mod(FIELD)?)
    } else if ay == by {
        let above = minus(times(U256::from(3), times(ax, ax)), U256::from(3));
        times(above, ay.add_mod(ay, FIELD).inv_mod(FIELD)?)
    } else {
        return None;
    };
    let x = minus(minus(times(slope, slope), ax), bx);
    Some([x, minus(times(slope, minus(ax, x)), ay)])
}

fn signed(seed: u64, secret: U256, key: [U256; 2]) -> Case {
    let hash = number(2 * seed);
    let nonce = number(2 * seed + 1) % ORDER;
    let [x, _] = point(nonce, U256::ZERO, key);
    let r = x % ORDER;
    let sum = (hash % ORDER).add_mod(r.mul_mod(secret, ORDER), ORDER);
    let s = sum.mul_mod(nonce.inv_mod(ORDER).expect("a prime"), ORDER);
    (hash.to_be_bytes(), [r, s], key)
}

fn both([first, second]: [U256; 2]) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&first.to_be_bytes::<32>());
    bytes[32..].copy_from_slice(&second.to_be_bytes::<32>());
    bytes
}

/// Whether the signature verifies; both libraries must agree.
#[track_caller]
fn verifies(case: &Case) -> bool {
    let (hash, signature, key) = case;
    let (signature, key) = (both(*signature), both(*key));
    let ours = is_signed(hash, &signature, &key);
    let theirs = Stock.secp256r1_verify_signature(hash, &signature, &key);
    assert_eq!(ours, theirs, "{hash:?} {signature:?} {key:?}");
    ours
}

#[test]
fn valid_signatures_verify_and_changed_ones_do_not() {
    for seed in 0..40 {
        let secret = number(1_000 + seed) % ORDER;
        let key = key_of(secret);
        for n in 0..50 {
            let case = signed(100 * seed + n, secret, key);
            assert!(verifies(&case));
            let (hash, [r, s], [x, y]) = case;
            assert!(verifies(&(hash, [r, ORDER - s], [x, y])));
            let bit = U256::from(1) << (number(n) % U256::from(256)).to::<usize>();
            let mut other = hash;
            other[usize::try_from(n % 32).expect("small")] ^= 1;
            for changed in [
                (other, [r, s], [x, y]),
                (hash, [r ^ bit, s], [x, y]),
                (hash, [r, s ^ bit], [x, y]),
                (hash, [r, s], [x ^ bit, y]),
                (hash, [r, s], [x, y ^ bit]),
                (hash, [r, s], [x, FIELD - y]),
                (hash, [s, r], [x, y]),
            ] {
                assert!(!verifies(&changed));
            }
        }
    }
}

#[test]
fn numbers_out_of_range_and_points_off_the_curve_are_refused() {
    let secret = number(3);
    let key = key_of(secret % ORDER);
    let (hash, [r, s], [x, y]) = signed(5, secret % ORDER, key);
    let one = U256::from(1);
    let edges = [
        U256::ZERO,
        one,
        ORDER - one,
        ORDER,
        ORDER + one,
        FIELD - one,
        FIELD,
        FIELD + one,
        U256::MAX,
    ];
    for edge in edges {
        assert!(!verifies(&(hash, [edge, s], key)), "{edge}");
        assert!(!verifies(&(hash, [r, edge], key)), "{edge}");
        assert!(!verifies(&(hash, [r, s], [edge, y])), "{edge}");
        assert!(!verifies(&(hash, [r, s], [x, edge])), "{edge}");
        for other in edges {
            assert!(!verifies(&(hash, [edge, other], key)));
            assert!(!verifies(&(hash, [r, s], [edge, other])));
        }
    }
    // The same number modulo the order, or modulo the field's.
    assert!(!verifies(&(hash, [r.wrapping_add(ORDER), s], key)));
    assert!(!verifies(&(hash, [r, s.wrapping_add(ORDER)], key)));
    let small = (0..)
        .map(U256::from)
        .find_map(|x| Some([x, root(right_side(x))?]));
    let [x, y] = small.expect("half of all numbers");
    assert!(x + FIELD > x && !verifies(&(hash, [r, s], [x + FIELD, y])));
}

fn right_side(x: U256) -> U256 {
    let square = x.mul_mod(x, FIELD).add_mod(FIELD - U256::from(3), FIELD);
    square.mul_mod(x, FIELD).add_mod(B, FIELD)
}

fn root(square: U256) -> Option<U256> {
    let root = square.pow_mod((FIELD >> 2) + U256::from(1), FIELD);
    (root.mul_mod(root, FIELD) == square).then_some(root)
}

/// A key and a signature whose sum is any given point: with a known secret, `u1 + u2 * secret = 0` gives infinity,
/// `u1 = u2 * secret` a doubling at the end.
#[test]
fn sums_at_infinity_are_refused_and_equal_terms_are_doubled() {
    for seed in 0..200 {
        let secret = match seed {
            0 => U256::from(1),
            1 => ORDER - U256::from(1),
            2 => U256::from(2),
            _ => number(seed) % ORDER,
        };
        let key = key_of(secret);
        let (r, s) = (number(seed + 7) % ORDER, number(seed + 8) % ORDER);
        let hash = (ORDER - r.mul_mod(secret, ORDER)) % ORDER;
        assert!(!verifies(&(hash.to_be_bytes(), [r, s], key)));

        // The nonce is twice `u1`, where `u1 = hash / s` and `u2 * secret = r * secret / s` is the same.
        let nonce = number(seed + 9) % ORDER;
        let r = point(nonce, U256::ZERO, key)[0] % ORDER;
        let hash = r.mul_mod(secret, ORDER);
        let inverse = nonce.inv_mod(ORDER).expect("a prime");
        let s = hash.add_mod(hash, ORDER).mul_mod(inverse, ORDER);
        assert!(verifies(&(hash.to_be_bytes(), [r, s], key)));
    }
}

#[test]
fn hashes_of_zero_of_the_order_and_beyond_are_numbers_modulo_it() {
    let secret = number(11) % ORDER;
    let key = key_of(secret);
    for hash in [
        U256::ZERO,
        U256::from(1),
        ORDER - U256::from(1),
        ORDER,
        ORDER + U256::from(1),
        U256::MAX,
    ] {
        let nonce = number(12) % ORDER;
        let r = point(nonce, U256::ZERO, key)[0] % ORDER;
        let sum = (hash % ORDER).add_mod(r.mul_mod(secret, ORDER), ORDER);
        let s = sum.mul_mod(nonce.inv_mod(ORDER).expect("a prime"), ORDER);
        assert!(verifies(&(hash.to_be_bytes(), [r, s], key)));
    }
}

/// A point whose first coordinate is not below the order: found upward from the order, made a signature by the choice
/// of the key, `Q = (s * R - hash * G) / r`.
#[test]
fn a_first_coordinate_beyond_the_order_is_taken_modulo_it() {
    let minus = |a: U256, b: U256| a.add_mod(FIELD - b, FIELD);
    let mut found = 0;
    for above in 1..60_u64 {
        let r = U256::from(above);
        let x = ORDER + r;
        let Some(y) = root(right_side(x)) else {
            continue;
        };
        // With `s = r` and `hash = r * t` the key is `R - t * G`.
        let t = U256::from(17 + above);
        let [gx, gy] = key_of(t);
        let key = plain_sum([x, y], [gx, minus(U256::ZERO, gy)]).expect("not at infinity");
        let hash = r.mul_mod(t, ORDER);
        assert!(verifies(&(hash.to_be_bytes(), [r, r], key)));
        assert!(!verifies(&(
            hash.to_be_bytes(),
            [r + U256::from(1), r],
            key
        )));
        found += 1;
    }
    assert!(found > 15, "{found}");
}
