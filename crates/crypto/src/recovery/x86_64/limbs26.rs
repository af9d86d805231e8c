//! Elements of the field as ten limbs of 26 bits, the last of 22: their products are those of 32 bits, which
//! every processor with vectors has.
//!
//! A limb of an element of magnitude 1 may be as large as two of those, so that ten products of limbs of
//! magnitudes up to 6 fit a word.

/// The sum of products of limbs.
macro_rules! products {
    ($add:ident $mul:ident $a:ident $b:ident; $i:literal $j:literal) => {
        $mul($a[$i], $b[$j])
    };
    ($add:ident $mul:ident $a:ident $b:ident; $i:literal $j:literal, $($rest:tt)+) => {
        $add($mul($a[$i], $b[$j]), products!($add $mul $a $b; $($rest)+))
    };
}
pub(super) use products;

/// The items of a width that depend on its limbs; see `width!` in the parent module.
macro_rules! limbs26 {
    (
        $feature:literal, splat $splat:ident, zero $zero:ident, add $add:ident, sub $sub:ident, and $and:ident,
        srl $srl:ident, sll $sll:ident, mul $mul:ident
    ) => {
        const LIMBS: usize = 10;
        const BITS: u32 = 26;
        const MASK: i64 = (1 << BITS) - 1;
        /// The prime.
        const P: [u64; LIMBS] = [
            0x3ff_fc2f, 0x3ff_ffbf, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff, 0x3ff_ffff,
            0x3ff_ffff, 0x3ff_ffff, 0x3f_ffff,
        ];

        impl Fe {
            /// The same, with limbs that fit a factor: all do.
            #[inline]
            #[target_feature(enable = $feature)]
            fn narrow(&self) -> Self {
                *self
            }
        }

        /// Brings 19 columns of products back to an element of magnitude 1.
        #[inline]
        #[target_feature(enable = $feature)]
        fn reduce(mut c: [V; 2 * LIMBS - 1]) -> Fe {
            let mask = $splat(MASK);
            // 2^260 is 16 * (2^32 + 977): 15632, and 1024 one limb up.
            let fold = $splat(0x3d10);
            for k in 9..18 {
                c[k + 1] = $add(c[k + 1], $srl::<26>(c[k]));
                c[k] = $and(c[k], mask);
            }
            let top = $srl::<26>(c[18]);
            c[18] = $and(c[18], mask);
            for k in 0..9 {
                c[k] = $add(c[k], $mul(c[k + 10], fold));
                c[k + 1] = $add(c[k + 1], $sll::<10>(c[k + 10]));
            }
            let top_fold = $mul(top, fold);
            c[9] = $add(c[9], top_fold);
            c[0] = $add(c[0], $sll::<10>(top_fold));
            c[1] = $add(c[1], $sll::<20>(top));
            for k in 0..9 {
                c[k + 1] = $add(c[k + 1], $srl::<26>(c[k]));
                c[k] = $and(c[k], mask);
            }
            // What is above 2^256, times 2^32 + 977.
            let over = $srl::<22>(c[9]);
            c[9] = $and(c[9], $splat((1 << 22) - 1));
            c[0] = $add(c[0], $mul(over, $splat(0x3d1)));
            c[1] = $add(c[1], $sll::<6>(over));
            c[1] = $add(c[1], $srl::<26>(c[0]));
            c[0] = $and(c[0], mask);
            let [a, b, d, e, f, g, h, i, j, k, ..] = c;
            Fe([a, b, d, e, f, g, h, i, j, k])
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        fn mul(a: &Fe, b: &Fe) -> Fe {
            let (a, b) = (&a.0, &b.0);
            reduce([
                products!($add $mul a b; 0 0),
                products!($add $mul a b; 0 1, 1 0),
                products!($add $mul a b; 0 2, 1 1, 2 0),
                products!($add $mul a b; 0 3, 1 2, 2 1, 3 0),
                products!($add $mul a b; 0 4, 1 3, 2 2, 3 1, 4 0),
                products!($add $mul a b; 0 5, 1 4, 2 3, 3 2, 4 1, 5 0),
                products!($add $mul a b; 0 6, 1 5, 2 4, 3 3, 4 2, 5 1, 6 0),
                products!($add $mul a b; 0 7, 1 6, 2 5, 3 4, 4 3, 5 2, 6 1, 7 0),
                products!($add $mul a b; 0 8, 1 7, 2 6, 3 5, 4 4, 5 3, 6 2, 7 1, 8 0),
                products!($add $mul a b; 0 9, 1 8, 2 7, 3 6, 4 5, 5 4, 6 3, 7 2, 8 1, 9 0),
                products!($add $mul a b; 1 9, 2 8, 3 7, 4 6, 5 5, 6 4, 7 3, 8 2, 9 1),
                products!($add $mul a b; 2 9, 3 8, 4 7, 5 6, 6 5, 7 4, 8 3, 9 2),
                products!($add $mul a b; 3 9, 4 8, 5 7, 6 6, 7 5, 8 4, 9 3),
                products!($add $mul a b; 4 9, 5 8, 6 7, 7 6, 8 5, 9 4),
                products!($add $mul a b; 5 9, 6 8, 7 7, 8 6, 9 5),
                products!($add $mul a b; 6 9, 7 8, 8 7, 9 6),
                products!($add $mul a b; 7 9, 8 8, 9 7),
                products!($add $mul a b; 8 9, 9 8),
                products!($add $mul a b; 9 9),
            ])
        }

        #[inline(never)]
        #[target_feature(enable = $feature)]
        fn square(a: &Fe) -> Fe {
            let (twice, a) = (a.add(a).0, &a.0);
            reduce([
                $mul(a[0], a[0]),
                products!($add $mul twice a; 0 1),
                $add(products!($add $mul twice a; 0 2), $mul(a[1], a[1])),
                products!($add $mul twice a; 0 3, 1 2),
                $add(products!($add $mul twice a; 0 4, 1 3), $mul(a[2], a[2])),
                products!($add $mul twice a; 0 5, 1 4, 2 3),
                $add(products!($add $mul twice a; 0 6, 1 5, 2 4), $mul(a[3], a[3])),
                products!($add $mul twice a; 0 7, 1 6, 2 5, 3 4),
                $add(products!($add $mul twice a; 0 8, 1 7, 2 6, 3 5), $mul(a[4], a[4])),
                products!($add $mul twice a; 0 9, 1 8, 2 7, 3 6, 4 5),
                $add(products!($add $mul twice a; 1 9, 2 8, 3 7, 4 6), $mul(a[5], a[5])),
                products!($add $mul twice a; 2 9, 3 8, 4 7, 5 6),
                $add(products!($add $mul twice a; 3 9, 4 8, 5 7), $mul(a[6], a[6])),
                products!($add $mul twice a; 4 9, 5 8, 6 7),
                $add(products!($add $mul twice a; 5 9, 6 8), $mul(a[7], a[7])),
                products!($add $mul twice a; 6 9, 7 8),
                $add(products!($add $mul twice a; 7 9), $mul(a[8], a[8])),
                products!($add $mul twice a; 8 9),
                $mul(a[9], a[9]),
            ])
        }
    };
}
pub(super) use limbs26;
