//! Simple RIPEMD-160 and BLAKE2 F, since those contracts have only one library.

use std::array;

/// The contract's output: 12 zero bytes and the digest.
pub(super) fn ripemd160(message: &[u8]) -> Vec<u8> {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_le_bytes());
    let mut state: [u32; 5] = [
        0x6745_2301,
        0xefcd_ab89,
        0x98ba_dcfe,
        0x1032_5476,
        0xc3d2_e1f0,
    ];
    for block in padded.as_chunks::<64>().0 {
        let words: [u32; 16] = array::from_fn(|at| {
            u32::from_le_bytes(*block[4 * at..].first_chunk().expect("16 words"))
        });
        let left = line(state, &words, false);
        let right = line(state, &words, true);
        state = array::from_fn(|at| {
            let [a, b, c] = [state[(at + 1) % 5], left[(at + 2) % 5], right[(at + 3) % 5]];
            a.wrapping_add(b).wrapping_add(c)
        });
    }
    let mut digest = vec![0; 12];
    digest.extend(state.iter().flat_map(|word| word.to_le_bytes()));
    digest
}

/// The word of each step: powers of rho, on pi for the right line.
const RHO: [usize; 16] = [7, 4, 13, 1, 10, 6, 15, 3, 12, 0, 9, 5, 2, 14, 11, 8];

/// Rotations of each round, by word.
const SHIFTS: [[u32; 16]; 5] = [
    [11, 14, 15, 12, 5, 8, 7, 9, 11, 13, 14, 15, 6, 7, 9, 8],
    [12, 13, 11, 15, 6, 9, 9, 7, 12, 15, 11, 13, 7, 8, 7, 7],
    [13, 15, 14, 11, 7, 7, 6, 8, 13, 14, 13, 12, 5, 5, 6, 9],
    [14, 11, 12, 14, 8, 6, 5, 5, 15, 12, 15, 14, 9, 9, 8, 6],
    [15, 12, 13, 13, 9, 5, 8, 6, 14, 11, 12, 11, 8, 6, 5, 5],
];

/// One of the two lines of a block.
fn line(state: [u32; 5], words: &[u32; 16], is_right: bool) -> [u32; 5] {
    const LEFT: [u32; 5] = [0, 0x5a82_7999, 0x6ed9_eba1, 0x8f1b_bcdc, 0xa953_fd4e];
    const RIGHT: [u32; 5] = [0x50a2_8be6, 0x5c4d_d124, 0x6d70_3ef3, 0x7a6d_76e9, 0];
    let [mut a, mut b, mut c, mut d, mut e] = state;
    let mut order: [usize; 16] = array::from_fn(|at| if is_right { (9 * at + 5) % 16 } else { at });
    for round in 0..5 {
        let (function, constant) = match is_right {
            true => (4 - round, RIGHT[round]),
            false => (round, LEFT[round]),
        };
        for word in order {
            let mixed = match function {
                0 => b ^ c ^ d,
                1 => (b & c) | (!b & d),
                2 => (b | !c) ^ d,
                3 => (b & d) | (c & !d),
                _ => b ^ (c | !d),
            };
            let sum = a
                .wrapping_add(mixed)
                .wrapping_add(words[word])
                .wrapping_add(constant);
            let turned = sum.rotate_left(SHIFTS[round][word]).wrapping_add(e);
            (a, b, c, d, e) = (e, turned, b, c.rotate_left(10), d);
        }
        order = order.map(|word| RHO[word]);
    }
    [a, b, c, d, e]
}

/// EIP-152; `None` if the input is invalid.
pub(super) fn blake2f(input: &[u8]) -> Option<Vec<u8>> {
    let rounds = u32::from_be_bytes(*input.first_chunk().filter(|_| input.len() == 213)?);
    let is_last = match input[212] {
        0 => false,
        1 => true,
        _ => return None,
    };
    let words: Vec<u64> = input[4..212]
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect();
    let (state, message, offset) = (&words[..8], &words[8..24], &words[24..]);
    const INITIAL: [u64; 8] = [
        0x6a09_e667_f3bc_c908,
        0xbb67_ae85_84ca_a73b,
        0x3c6e_f372_fe94_f82b,
        0xa54f_f53a_5f1d_36f1,
        0x510e_527f_ade6_82d1,
        0x9b05_688c_2b3e_6c1f,
        0x1f83_d9ab_fb41_bd6b,
        0x5be0_cd19_137e_2179,
    ];
    let mut v: Vec<u64> = [state, &INITIAL].concat();
    v[12] ^= offset[0];
    v[13] ^= offset[1];
    if is_last {
        v[14] = !v[14];
    }
    for round in 0..rounds {
        let order = &SIGMA[round as usize % 10];
        for (at, [a, b, c, d]) in QUARTERS.into_iter().enumerate() {
            for (place, turns) in [(2 * at, [32, 24]), (2 * at + 1, [16, 63])] {
                v[a] = v[a].wrapping_add(v[b]).wrapping_add(message[order[place]]);
                v[d] = (v[d] ^ v[a]).rotate_right(turns[0]);
                v[c] = v[c].wrapping_add(v[d]);
                v[b] = (v[b] ^ v[c]).rotate_right(turns[1]);
            }
        }
    }
    let mixed = (0..8).flat_map(|at| (state[at] ^ v[at] ^ v[at + 8]).to_le_bytes());
    Some(mixed.collect())
}

/// Columns, then diagonals.
const QUARTERS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::hex;

    #[test]
    fn digests_match_published_vectors() {
        let digest = |message: &str| hex::encode(&ripemd160(message.as_bytes())[12..]);
        assert_eq!(digest(""), "9c1185a5c5e9fc54612808977ee8f548b2258d31");
        assert_eq!(digest("abc"), "8eb208f7e05d987a9b044a8e98c6b087f15a0bfc");
        let long = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        assert_eq!(digest(long), "b0e20b6e3116640286ed3a87a5713079b21f5189");
    }

    /// The fifth vector of EIP-152: BLAKE2b of "abc".
    #[test]
    fn fifth_vector_of_eip_152() {
        let mut input = hex!(
            "0000000c48c9bdf267e6096a3ba7ca8485ae67bb2bf894fe72f36e3cf1361d5f3af54fa5d182e6ad7f520e511f6c3e2b8c68059b"
            "6bbd41fbabd9831f79217e1319cde05b"
        )
        .to_vec();
        input.extend(b"abc");
        input.resize(4 + 64 + 128, 0);
        input.extend([3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let expected = hex!(
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923"
        );
        assert_eq!(blake2f(&input), Some(expected.to_vec()));
        input[212] = 2;
        assert_eq!(blake2f(&input), None);
        assert_eq!(blake2f(&input[1..]), None);
    }
}
