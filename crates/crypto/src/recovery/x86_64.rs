//! Public keys of several signatures at once, each in a lane of vector registers.
//!
//! Elements of the field are ten limbs of 26 bits, the last of 22, that may be larger than that for a
//! while: an element of magnitude `m` has limbs of at most `2 * m` times as much. Products are of
//! magnitude 1, and the magnitudes of two factors are at most 6 here, so that ten products of limbs fit
//! a word. Points are Jacobian. What an addition can't do (a point with itself or with its opposite)
//! leaves a point whose last coordinate is zero, and so are all that come of it: whoever sees that
//! in the end does it another way.

use super::multiples::{
    BETA, DIGIT, DIGITS, LIMB_BITS, LIMBS, LONG_DIGIT, MULTIPLES, ONE, P, Row, SEVEN, generators,
    limbs, number,
};
use super::{Key, Task};
use alloy_primitives::U256;

/// The sum of products of limbs.
macro_rules! column {
    ($add:ident $mul:ident $a:ident $b:ident; $i:literal $j:literal) => {
        $mul($a[$i], $b[$j])
    };
    ($add:ident $mul:ident $a:ident $b:ident; $i:literal $j:literal, $($rest:tt)+) => {
        $add($mul($a[$i], $b[$j]), column!($add $mul $a $b; $($rest)+))
    };
}

/// One module for each width.
macro_rules! width {
    (
        $name:ident, $lanes:literal, $feature:literal, $vector:ident, splat $splat:ident, zero $zero:ident,
        add $add:ident, sub $sub:ident, mul $mul:ident, and $and:ident, xor $xor:ident,
        srl $srl:ident, sll $sll:ident, load $load:ident, store $store:ident
    ) => {
        pub(super) mod $name {
            use super::*;
            use std::arch::x86_64::*;

            pub(in crate::recovery) const LANES: usize = $lanes;
            type V = $vector;
            type Words = [[u64; LANES]; LIMBS];

            #[derive(Clone, Copy)]
            struct Fe([V; LIMBS]);

            const MASK: i64 = (1 << LIMB_BITS) - 1;

            impl Fe {
                #[inline]
                #[target_feature(enable = $feature)]
                fn splat(limbs: [u64; LIMBS]) -> Self {
                    let mut all = [$zero(); LIMBS];
                    for (limb, value) in all.iter_mut().zip(limbs) {
                        *limb = $splat(value.cast_signed());
                    }
                    Self(all)
                }

                #[inline]
                #[target_feature(enable = $feature)]
                fn of(words: &Words) -> Self {
                    let mut all = [$zero(); LIMBS];
                    for (limb, words) in all.iter_mut().zip(words) {
                        *limb = $load(words);
                    }
                    Self(all)
                }

                #[inline]
                #[target_feature(enable = $feature)]
                fn words(&self) -> Words {
                    let mut words = [[0; LANES]; LIMBS];
                    for (limb, words) in self.0.iter().zip(&mut words) {
                        $store(words, *limb);
                    }
                    words
                }

                /// Each lane's number, fully reduced.
                #[inline]
                #[target_feature(enable = $feature)]
                fn numbers(&self) -> [U256; LANES] {
                    let limbs = self.words();
                    std::array::from_fn(|lane| number(&limbs.map(|limb| limb[lane])))
                }

                #[inline]
                #[target_feature(enable = $feature)]
                fn add(&self, other: &Self) -> Self {
                    let mut sum = *self;
                    for (limb, other) in sum.0.iter_mut().zip(other.0) {
                        *limb = $add(*limb, other);
                    }
                    sum
                }

                /// The opposite of an element of `magnitude`, which is of one more.
                #[inline]
                #[target_feature(enable = $feature)]
                fn opposite(&self, magnitude: u64) -> Self {
                    let mut all = *self;
                    for (limb, prime) in all.0.iter_mut().zip(P) {
                        *limb = $sub($splat((2 * (magnitude + 1) * prime).cast_signed()), *limb);
                    }
                    all
                }

                /// Half of it, of half its magnitude and one.
                #[inline]
                #[target_feature(enable = $feature)]
                fn half(&self) -> Self {
                    let one = $splat(1);
                    let is_odd = $sub($zero(), $and(self.0[0], one));
                    let mut even = *self;
                    for (limb, prime) in even.0.iter_mut().zip(P) {
                        *limb = $add(*limb, $and(is_odd, $splat(prime.cast_signed())));
                    }
                    let mut half = even;
                    for i in 0..LIMBS {
                        half.0[i] = $srl::<1>(even.0[i]);
                        if i + 1 < LIMBS {
                            let low = $and(even.0[i + 1], one);
                            half.0[i] = $add(half.0[i], $sll::<25>(low));
                        }
                    }
                    half
                }

                /// The other where `mask` is set.
                #[inline]
                #[target_feature(enable = $feature)]
                fn or_where(&self, mask: V, other: &Self) -> Self {
                    let mut all = *self;
                    for (limb, other) in all.0.iter_mut().zip(other.0) {
                        *limb = $xor(*limb, $and($xor(*limb, other), mask));
                    }
                    all
                }

                #[target_feature(enable = $feature)]
                fn squared(&self, times: usize) -> Self {
                    let mut all = *self;
                    for _ in 0..times {
                        all = square(&all);
                    }
                    all
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
                    column!($add $mul a b; 0 0),
                    column!($add $mul a b; 0 1, 1 0),
                    column!($add $mul a b; 0 2, 1 1, 2 0),
                    column!($add $mul a b; 0 3, 1 2, 2 1, 3 0),
                    column!($add $mul a b; 0 4, 1 3, 2 2, 3 1, 4 0),
                    column!($add $mul a b; 0 5, 1 4, 2 3, 3 2, 4 1, 5 0),
                    column!($add $mul a b; 0 6, 1 5, 2 4, 3 3, 4 2, 5 1, 6 0),
                    column!($add $mul a b; 0 7, 1 6, 2 5, 3 4, 4 3, 5 2, 6 1, 7 0),
                    column!($add $mul a b; 0 8, 1 7, 2 6, 3 5, 4 4, 5 3, 6 2, 7 1, 8 0),
                    column!($add $mul a b; 0 9, 1 8, 2 7, 3 6, 4 5, 5 4, 6 3, 7 2, 8 1, 9 0),
                    column!($add $mul a b; 1 9, 2 8, 3 7, 4 6, 5 5, 6 4, 7 3, 8 2, 9 1),
                    column!($add $mul a b; 2 9, 3 8, 4 7, 5 6, 6 5, 7 4, 8 3, 9 2),
                    column!($add $mul a b; 3 9, 4 8, 5 7, 6 6, 7 5, 8 4, 9 3),
                    column!($add $mul a b; 4 9, 5 8, 6 7, 7 6, 8 5, 9 4),
                    column!($add $mul a b; 5 9, 6 8, 7 7, 8 6, 9 5),
                    column!($add $mul a b; 6 9, 7 8, 8 7, 9 6),
                    column!($add $mul a b; 7 9, 8 8, 9 7),
                    column!($add $mul a b; 8 9, 9 8),
                    column!($add $mul a b; 9 9),
                ])
            }

            #[inline(never)]
            #[target_feature(enable = $feature)]
            fn square(a: &Fe) -> Fe {
                let (twice, a) = (a.add(a).0, &a.0);
                reduce([
                    $mul(a[0], a[0]),
                    column!($add $mul twice a; 0 1),
                    $add(column!($add $mul twice a; 0 2), $mul(a[1], a[1])),
                    column!($add $mul twice a; 0 3, 1 2),
                    $add(column!($add $mul twice a; 0 4, 1 3), $mul(a[2], a[2])),
                    column!($add $mul twice a; 0 5, 1 4, 2 3),
                    $add(column!($add $mul twice a; 0 6, 1 5, 2 4), $mul(a[3], a[3])),
                    column!($add $mul twice a; 0 7, 1 6, 2 5, 3 4),
                    $add(column!($add $mul twice a; 0 8, 1 7, 2 6, 3 5), $mul(a[4], a[4])),
                    column!($add $mul twice a; 0 9, 1 8, 2 7, 3 6, 4 5),
                    $add(column!($add $mul twice a; 1 9, 2 8, 3 7, 4 6), $mul(a[5], a[5])),
                    column!($add $mul twice a; 2 9, 3 8, 4 7, 5 6),
                    $add(column!($add $mul twice a; 3 9, 4 8, 5 7), $mul(a[6], a[6])),
                    column!($add $mul twice a; 4 9, 5 8, 6 7),
                    $add(column!($add $mul twice a; 5 9, 6 8), $mul(a[7], a[7])),
                    column!($add $mul twice a; 6 9, 7 8),
                    $add(column!($add $mul twice a; 7 9), $mul(a[8], a[8])),
                    column!($add $mul twice a; 8 9),
                    $mul(a[9], a[9]),
                ])
            }

            /// `a` to the power of 2^223 - 1 and of 2^22 - 1, 2^2 - 1.
            #[target_feature(enable = $feature)]
            fn powers(a: &Fe) -> [Fe; 3] {
                let up = |a: &Fe, times: usize, b: &Fe| mul(&a.squared(times), b);
                let a2 = up(a, 1, a);
                let a3 = up(&a2, 1, a);
                let a6 = up(&a3, 3, &a3);
                let a9 = up(&a6, 3, &a3);
                let a11 = up(&a9, 2, &a2);
                let a22 = up(&a11, 11, &a11);
                let a44 = up(&a22, 22, &a22);
                let a88 = up(&a44, 44, &a44);
                let a176 = up(&a88, 88, &a88);
                let a220 = up(&a176, 44, &a44);
                let a223 = up(&a220, 3, &a3);
                [a223, a22, a2]
            }

            /// A number whose square is `a`, if there is one: `a` to the power of (p + 1) / 4.
            #[target_feature(enable = $feature)]
            fn root(a: &Fe) -> Fe {
                let [a223, a22, a2] = powers(a);
                let root = mul(&a223.squared(23), &a22);
                mul(&root.squared(6), &a2).squared(2)
            }

            /// One by `a`, or zero: `a` to the power of p - 2.
            #[target_feature(enable = $feature)]
            fn inverse(a: &Fe) -> Fe {
                let [a223, a22, a2] = powers(a);
                let inverse = mul(&a223.squared(23), &a22);
                let inverse = mul(&inverse.squared(5), a);
                mul(&mul(&inverse.squared(3), &a2).squared(2), a)
            }

            #[derive(Clone, Copy)]
            struct Point {
                /// Of magnitude 4 at most.
                x: Fe,
                /// Of magnitude 3 at most.
                y: Fe,
                /// Of magnitude 1.
                z: Fe,
            }

            impl Point {
                #[target_feature(enable = $feature)]
                fn double(&self) -> Self {
                    let z = mul(&self.y, &self.z);
                    let y2 = square(&self.y);
                    let x2 = square(&self.x);
                    let slope = x2.add(&x2).add(&x2).half();
                    let t = mul(&y2.opposite(1), &self.x);
                    let x = square(&slope).add(&t).add(&t);
                    let t = x.add(&t);
                    let y = mul(&slope, &t).add(&square(&y2)).opposite(2);
                    Self { x, y, z }
                }

                /// The sum with a point of coordinates of magnitudes 1 and 2, and by what the last
                /// coordinate has been multiplied.
                #[target_feature(enable = $feature)]
                fn plus(&self, x: &Fe, y: &Fe) -> (Self, Fe) {
                    let z2 = square(&self.z);
                    let u = mul(x, &z2);
                    let s = mul(&mul(y, &z2), &self.z);
                    let h = self.x.opposite(4).add(&u);
                    let i = s.opposite(1).add(&self.y);
                    let z = mul(&self.z, &h);
                    let h2 = square(&h).opposite(1);
                    let h3 = mul(&h2, &h);
                    let t = mul(&self.x, &h2);
                    let x = square(&i).add(&h3).add(&t).add(&t);
                    let y = mul(&t.add(&x), &i).add(&mul(&h3, &self.y));
                    (Self { x, y, z }, h)
                }
            }

            /// Odd multiples of each lane's point, and the same times lambda.
            struct Table {
                rows: [[[Row; MULTIPLES]; LANES]; 2],
            }

            impl Table {
                /// As affine points of the curve onto which `factor` takes the coordinates: x by its square,
                /// y by its cube.
                #[target_feature(enable = $feature)]
                fn of(x: &Fe, y: &Fe) -> (Box<Self>, Fe) {
                    let one = Fe::splat(ONE);
                    let point = Point { x: *x, y: *y, z: one };
                    // On a curve on which its double is affine.
                    let twice = point.double();
                    let z2 = square(&twice.z);
                    let first = Point {
                        x: mul(x, &z2),
                        y: mul(y, &mul(&z2, &twice.z)),
                        z: one,
                    };
                    // Brought to magnitudes 1 and 2.
                    let (twice_x, twice_y) = (mul(&twice.x, &one), mul(&twice.y, &one));
                    let mut multiples = [(first, one); MULTIPLES];
                    for i in 1..MULTIPLES {
                        multiples[i] = multiples[i - 1].0.plus(&twice_x, &twice_y);
                    }
                    let beta = Fe::splat(limbs(&BETA));
                    let mut table = Box::new(Self { rows: [[[[[0; LIMBS]; 2]; MULTIPLES]; LANES]; 2] });
                    let factor = mul(&multiples[MULTIPLES - 1].0.z, &twice.z);
                    let mut by = one;
                    for (i, (multiple, grown)) in multiples.iter().enumerate().rev() {
                        let by2 = square(&by);
                        let x = mul(&multiple.x, &by2);
                        let y = mul(&multiple.y, &mul(&by2, &by));
                        let xs = [x.words(), mul(&x, &beta).words()];
                        let y = y.words();
                        for (rows, x) in table.rows.iter_mut().zip(xs) {
                            for (lane, rows) in rows.iter_mut().enumerate() {
                                for limb in 0..LIMBS {
                                    rows[i][0][limb] = x[limb][lane];
                                    rows[i][1][limb] = y[limb][lane];
                                }
                            }
                        }
                        by = mul(&by, grown);
                    }
                    (table, factor)
                }
            }

            /// The point that each lane has chosen, or its opposite.
            #[inline]
            #[target_feature(enable = $feature)]
            fn fetch<'a>(choose: impl Fn(usize) -> (&'a Row, bool)) -> (Fe, Fe) {
                let (mut x, mut y) = ([[0; LANES]; LIMBS], [[0; LANES]; LIMBS]);
                let mut mask = [0; LANES];
                for lane in 0..LANES {
                    let (row, is_negative) = choose(lane);
                    for limb in 0..LIMBS {
                        x[limb][lane] = row[0][limb];
                        y[limb][lane] = row[1][limb];
                    }
                    mask[lane] = u64::from(is_negative).wrapping_neg();
                }
                let y = Fe::of(&y);
                (Fe::of(&x), y.or_where($load(&mask), &y.opposite(1)))
            }

            /// The key of each lane: a Jacobian point, and whether there is one at all.
            #[target_feature(enable = $feature)]
            fn add_up(tasks: &[Task; LANES]) -> (Point, [bool; LANES]) {
                let mut x = [[0; LANES]; LIMBS];
                for (lane, task) in tasks.iter().enumerate() {
                    for (limb, value) in x.iter_mut().zip(limbs(&task.x.to_be_bytes())) {
                        limb[lane] = value;
                    }
                }
                let x = Fe::of(&x);
                let seven = Fe::splat(SEVEN);
                let y2 = mul(&square(&x), &x).add(&seven);
                let y = root(&y2);
                let (is_on_curve, is_odd) = (square(&y).numbers(), y.numbers());
                let y2 = y2.numbers();
                let is_on_curve = std::array::from_fn(|lane| is_on_curve[lane] == y2[lane]);
                let mask: [u64; LANES] = std::array::from_fn(|lane| {
                    u64::from(is_odd[lane].bit(0) != tasks[lane].is_odd).wrapping_neg()
                });
                let y = y.or_where($load(&mask), &y.opposite(1));

                let (table, factor) = Table::of(&x, &y);
                let factor2 = square(&factor);
                let factor3 = mul(&factor2, &factor);
                let generators = generators();
                let own = |half: usize, digit: usize| {
                    fetch(|lane| {
                        let (at, is_negative) = tasks[lane].halves[2 + half].digit(DIGIT, digit);
                        (&table.rows[half][lane][at], is_negative)
                    })
                };
                let (x, y) = own(0, DIGITS - 1);
                let z = Fe::splat(ONE);
                let mut sum = Point { x, y, z };
                for digit in (0..DIGITS).rev() {
                    if digit < DIGITS - 1 {
                        for _ in 0..DIGIT {
                            sum = sum.double();
                        }
                        let (x, y) = own(0, digit);
                        (sum, _) = sum.plus(&x, &y);
                    }
                    let (x, y) = own(1, digit);
                    (sum, _) = sum.plus(&x, &y);
                    if digit % 2 == 0 {
                        for half in 0..2 {
                            let (x, y) = fetch(|lane| {
                                let (at, is_negative) = tasks[lane].halves[half].digit(LONG_DIGIT, digit / 2);
                                (&generators[half][at], is_negative)
                            });
                            (sum, _) = sum.plus(&mul(&x, &factor2), &mul(&y, &factor3));
                        }
                    }
                }
                sum.z = mul(&sum.z, &factor);
                (sum, is_on_curve)
            }

            /// The key of each task.
            #[target_feature(enable = $feature)]
            pub(in crate::recovery) fn keys(tasks: &[[Task; LANES]]) -> Vec<[Key; LANES]> {
                let mut sums: Vec<(Point, [bool; LANES])> = Vec::with_capacity(tasks.len());
                for tasks in tasks {
                    sums.push(add_up(tasks));
                }
                // One inversion for all of a lane, which must not be of zero.
                let one = Fe::splat(ONE);
                let (mut product, mut before) = (one, Vec::with_capacity(tasks.len()));
                for (sum, is_there) in &mut sums {
                    let z = sum.z.numbers();
                    let mut mask = [0; LANES];
                    for lane in 0..LANES {
                        is_there[lane] &= !z[lane].is_zero();
                        mask[lane] = u64::from(z[lane].is_zero()).wrapping_neg();
                    }
                    sum.z = sum.z.or_where($load(&mask), &one);
                    before.push(product);
                    product = mul(&product, &sum.z);
                }
                let mut inverse = inverse(&product);
                let mut keys = vec![[None; LANES]; tasks.len()];
                for (((sum, is_there), before), keys) in sums.iter().zip(&before).zip(&mut keys).rev() {
                    let of_z = mul(&inverse, before);
                    inverse = mul(&inverse, &sum.z);
                    let of_z2 = square(&of_z);
                    let x = mul(&sum.x, &of_z2).numbers();
                    let y = mul(&sum.y, &mul(&of_z2, &of_z)).numbers();
                    for lane in 0..LANES {
                        keys[lane] = is_there[lane].then(|| [x[lane], y[lane]]);
                    }
                }
                keys
            }
        }
    };
}

width! {
    four, 4, "avx2", __m256i, splat _mm256_set1_epi64x, zero _mm256_setzero_si256, add _mm256_add_epi64,
    sub _mm256_sub_epi64, mul _mm256_mul_epu32, and _mm256_and_si256, xor _mm256_xor_si256,
    srl _mm256_srli_epi64, sll _mm256_slli_epi64, load load4, store store4
}

width! {
    eight, 8, "avx512f", __m512i, splat _mm512_set1_epi64, zero _mm512_setzero_si512, add _mm512_add_epi64,
    sub _mm512_sub_epi64, mul _mm512_mul_epu32, and _mm512_and_si512, xor _mm512_xor_si512,
    srl _mm512_srli_epi64, sll _mm512_slli_epi64, load load8, store store8
}

use std::arch::x86_64::{__m256i, __m512i};

#[inline]
#[target_feature(enable = "avx2")]
fn load4(words: &[u64; 4]) -> __m256i {
    // SAFETY: 32 bytes are there; no alignment is asked for.
    unsafe { std::arch::x86_64::_mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load8(words: &[u64; 8]) -> __m512i {
    // SAFETY: 64 bytes are there; no alignment is asked for.
    unsafe { std::arch::x86_64::_mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store4(words: &mut [u64; 4], vector: __m256i) {
    // SAFETY: the place has 32 bytes; no alignment is asked for.
    unsafe { std::arch::x86_64::_mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store8(words: &mut [u64; 8], vector: __m512i) {
    // SAFETY: the place has 64 bytes; no alignment is asked for.
    unsafe { std::arch::x86_64::_mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
}
