//! Elements of the field as five limbs of 52 bits, the last of 48: a processor with AVX512-IFMA adds the lower
//! or the upper half of such a product at once.
//!
//! It takes no more than 52 bits of a factor's limb, so sums are made [narrow](super) before they become one:
//! then no limb but the last has more, and that has them for magnitudes up to 7.

/// The items of a width that depend on its limbs; see `width!` in the parent module.
macro_rules! limbs52 {
    (
        $feature:literal, splat $splat:ident, zero $zero:ident, add $add:ident, sub $sub:ident, and $and:ident,
        srl $srl:ident, sll $sll:ident, low $low:ident, high $high:ident
    ) => {
        const LIMBS: usize = 5;
        const BITS: u32 = 52;
        const MASK: i64 = (1 << BITS) - 1;
        /// The prime.
        const P: [u64; LIMBS] = [
            0xf_fffe_ffff_fc2f,
            0xf_ffff_ffff_ffff,
            0xf_ffff_ffff_ffff,
            0xf_ffff_ffff_ffff,
            0xffff_ffff_ffff,
        ];

        impl Fe {
            /// The same, with limbs that fit a factor.
            #[inline]
            #[target_feature(enable = $feature)]
            fn narrow(&self) -> Self {
                let mut all = *self;
                carry(&mut all.0);
                all
            }
        }

        /// Moves what is above 52 bits one limb up, but for the last.
        #[inline]
        #[target_feature(enable = $feature)]
        fn carry(limbs: &mut [V]) {
            let mask = $splat(MASK);
            for at in 1..limbs.len() {
                limbs[at] = $add(limbs[at], $srl::<52>(limbs[at - 1]));
                limbs[at - 1] = $and(limbs[at - 1], mask);
            }
        }

        /// Brings columns of halves of products back to an element of magnitude 1.
        #[inline]
        #[target_feature(enable = $feature)]
        fn reduce(mut all: [V; 2 * LIMBS]) -> Fe {
            let (below, above) = all.split_at_mut(LIMBS);
            carry(above);
            // 2^260 is 16 * (2^32 + 977).
            let fold = $splat(0x10_0000_3d10);
            let mut top = $zero();
            for at in 0..LIMBS {
                below[at] = $low(below[at], above[at], fold);
                let next = below.get_mut(at + 1).unwrap_or(&mut top);
                *next = $high(*next, above[at], fold);
            }
            // What is above 2^256 by now, times 2^32 + 977. What is carried there later is little.
            let over = $add($srl::<48>(below[4]), $sll::<4>(top));
            below[4] = $and(below[4], $splat((1 << 48) - 1));
            let fold = $splat(0x1_0000_03d1);
            below[0] = $low(below[0], over, fold);
            below[1] = $high(below[1], over, fold);
            carry(below);
            Fe(std::array::from_fn(|at| below[at]))
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        fn mul(a: &Fe, b: &Fe) -> Fe {
            let mut all = [$zero(); 2 * LIMBS];
            for i in 0..LIMBS {
                for j in 0..LIMBS {
                    all[i + j] = $low(all[i + j], a.0[i], b.0[j]);
                    all[i + j + 1] = $high(all[i + j + 1], a.0[i], b.0[j]);
                }
            }
            reduce(all)
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        fn square(a: &Fe) -> Fe {
            let mut all = [$zero(); 2 * LIMBS];
            for i in 0..LIMBS {
                for j in i + 1..LIMBS {
                    all[i + j] = $low(all[i + j], a.0[i], a.0[j]);
                    all[i + j + 1] = $high(all[i + j + 1], a.0[i], a.0[j]);
                }
            }
            for column in &mut all {
                *column = $add(*column, *column);
            }
            for i in 0..LIMBS {
                all[2 * i] = $low(all[2 * i], a.0[i], a.0[i]);
                all[2 * i + 1] = $high(all[2 * i + 1], a.0[i], a.0[i]);
            }
            reduce(all)
        }
    };
}
pub(super) use limbs52;
