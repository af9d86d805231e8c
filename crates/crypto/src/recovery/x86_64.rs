//! Public keys of several signatures at once, each in a lane of vector registers.
//!
//! Elements of the field are limbs that may be larger than their bits for a while: an element of magnitude `m` has
//! limbs of at most `2 * m` times as much. Products are of magnitude 1, and the magnitudes of two factors are at most
//! 6 here. Some limbs take as a factor only what is *narrow*. Points are Jacobian. An addition that the formulas
//! don't cover (a point with itself or with its opposite) gives a point whose last coordinate is zero, and so are all
//! sums that follow from it: the caller checks for that at the end and uses the library.

mod limbs26;
mod limbs52;

use super::multiples::{
    BETA, DIGIT, DIGITS, LONG_DIGIT, MULTIPLES, Row, limbs, number, rows_of_generators,
};
use super::{Key, Task};
use alloy_primitives::U256;
use limbs26::{limbs26, products};
use limbs52::limbs52;
use std::sync::OnceLock;

/// One module for each width and its limbs, which have products of their own.
macro_rules! width {
    (
        $name:ident, $lanes:literal, $feature:literal, $vector:ident, splat $splat:ident, zero $zero:ident,
        add $add:ident, sub $sub:ident, and $and:ident, xor $xor:ident, srl $srl:ident, sll $sll:ident,
        load $load:ident, store $store:ident, $limbs:ident $($product:ident $by:ident),+
    ) => {
        pub(super) mod $name {
            use super::*;
            use std::arch::x86_64::*;

            pub(in crate::recovery) const LANES: usize = $lanes;
            type V = $vector;
            type Words = [[u64; LANES]; LIMBS];

            #[derive(Clone, Copy)]
            struct Fe([V; LIMBS]);

            $limbs! {
                $feature, splat $splat, zero $zero, add $add, sub $sub, and $and, srl $srl, sll $sll,
                $($product $by),+
            }

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
                fn small(number: u64) -> Self {
                    let mut limbs = [0; LIMBS];
                    limbs[0] = number;
                    Self::splat(limbs)
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
                            let is_odd = $sub($zero(), $and(even.0[i + 1], one));
                            let top = $and(is_odd, $splat(1 << (BITS - 1)));
                            half.0[i] = $add(half.0[i], top);
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
            }

            #[inline]
            #[target_feature(enable = $feature)]
            fn mul_each<const COUNT: usize>(a: &[Fe; COUNT], b: &[Fe; COUNT]) -> [Fe; COUNT] {
                let mut all = *a;
                for (a, b) in all.iter_mut().zip(b) {
                    *a = mul(a, b);
                }
                all
            }

            /// Squares each element `times` times; the chains are independent, so their latencies overlap.
            #[target_feature(enable = $feature)]
            fn squared<const COUNT: usize>(a: &[Fe; COUNT], times: usize) -> [Fe; COUNT] {
                let mut all = *a;
                for _ in 0..times {
                    for a in &mut all {
                        *a = square(a);
                    }
                }
                all
            }

            /// Each to the power of 2^223 - 1 and of 2^22 - 1, 2^2 - 1.
            #[target_feature(enable = $feature)]
            fn powers<const COUNT: usize>(a: &[Fe; COUNT]) -> [[Fe; COUNT]; 3] {
                let up = |a: &[Fe; COUNT], times: usize, b: &[Fe; COUNT]| mul_each(&squared(a, times), b);
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

            /// Numbers whose squares are `a`, if there are any: `a` to the power of (p + 1) / 4.
            #[target_feature(enable = $feature)]
            fn roots_of<const COUNT: usize>(a: &[Fe; COUNT]) -> [Fe; COUNT] {
                let [a223, a22, a2] = powers(a);
                let roots = mul_each(&squared(&a223, 23), &a22);
                squared(&mul_each(&squared(&roots, 6), &a2), 2)
            }

            /// A root of each point's `y2`, two at a time.
            #[target_feature(enable = $feature)]
            fn roots(points: &[(Fe, Fe)]) -> Vec<Fe> {
                let mut roots = Vec::with_capacity(points.len());
                let (pairs, rest) = points.as_chunks();
                for [(_, first), (_, second)] in pairs {
                    roots.extend(roots_of(&[*first, *second]));
                }
                for (_, y2) in rest {
                    roots.extend(roots_of(&[*y2]));
                }
                roots
            }

            /// The inverse of `a`, or zero: `a` to the power of p - 2.
            #[target_feature(enable = $feature)]
            fn inverse(a: &Fe) -> Fe {
                let a = &[*a];
                let [a223, a22, a2] = powers(a);
                let inverse = mul_each(&squared(&a223, 23), &a22);
                let inverse = mul_each(&squared(&inverse, 5), a);
                let inverse = mul_each(&squared(&inverse, 3), &a2);
                let [inverse] = mul_each(&squared(&inverse, 2), a);
                inverse
            }

            #[derive(Clone, Copy)]
            struct Point {
                /// Of magnitude 4 at most, and narrow.
                x: Fe,
                /// Of magnitude 3 at most, and narrow.
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
                    let slope = x2.add(&x2).add(&x2).half().narrow();
                    let t = mul(&y2.opposite(1).narrow(), &self.x);
                    let x = square(&slope).add(&t).add(&t).narrow();
                    let t = x.add(&t).narrow();
                    let y = mul(&slope, &t).add(&square(&y2)).opposite(2).narrow();
                    Self { x, y, z }
                }

                /// The sum with a point of narrow coordinates of magnitudes 1 and 2, and by what the last
                /// coordinate has been multiplied.
                #[target_feature(enable = $feature)]
                fn plus(&self, x: &Fe, y: &Fe) -> (Self, Fe) {
                    let z2 = square(&self.z);
                    let u = mul(x, &z2);
                    let s = mul(&mul(y, &z2), &self.z);
                    let h = self.x.opposite(4).add(&u).narrow();
                    let i = s.opposite(1).add(&self.y).narrow();
                    let z = mul(&self.z, &h);
                    let h2 = square(&h).opposite(1).narrow();
                    let h3 = mul(&h2, &h);
                    let t = mul(&self.x, &h2);
                    let x = square(&i).add(&h3).add(&t).add(&t).narrow();
                    let y = mul(&t.add(&x).narrow(), &i).add(&mul(&h3, &self.y)).narrow();
                    (Self { x, y, z }, h)
                }
            }

            /// Odd multiples of each lane's point, and the same times lambda.
            struct Table {
                rows: [[[Row<LIMBS>; MULTIPLES]; LANES]; 2],
            }

            impl Table {
                /// As affine points of the curve onto which `factor` takes the coordinates: x by its square,
                /// y by its cube.
                #[target_feature(enable = $feature)]
                fn of(x: &Fe, y: &Fe) -> (Box<Self>, Fe) {
                    let one = Fe::small(1);
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

            fn generators() -> &'static [Vec<Row<LIMBS>>; 2] {
                static ROWS: OnceLock<[Vec<Row<LIMBS>>; 2]> = OnceLock::new();
                ROWS.get_or_init(rows_of_generators)
            }

            /// The point that each lane has chosen, or its opposite.
            #[inline]
            #[target_feature(enable = $feature)]
            fn fetch<'a>(choose: impl Fn(usize) -> (&'a Row<LIMBS>, bool)) -> (Fe, Fe) {
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
                (Fe::of(&x), y.or_where($load(&mask), &y.opposite(1)).narrow())
            }

            /// The x coordinate of each lane's point, and the square of its y coordinate.
            #[target_feature(enable = $feature)]
            fn x_and_y2(tasks: &[Task; LANES]) -> (Fe, Fe) {
                let mut x = [[0; LANES]; LIMBS];
                for (lane, task) in tasks.iter().enumerate() {
                    for (limb, value) in x.iter_mut().zip(limbs::<LIMBS>(&task.x)) {
                        limb[lane] = value;
                    }
                }
                let x = Fe::of(&x);
                (x, mul(&square(&x), &x).add(&Fe::small(7)).narrow())
            }

            /// The key of each lane: a Jacobian point, and whether there is one at all. `y` is a root of `y2`
            /// where that has one.
            #[target_feature(enable = $feature)]
            fn add_up(tasks: &[Task; LANES], x: Fe, y2: Fe, y: Fe) -> (Point, [bool; LANES]) {
                let (is_on_curve, is_odd) = (square(&y).numbers(), y.numbers());
                let y2 = y2.numbers();
                let is_on_curve = std::array::from_fn(|lane| is_on_curve[lane] == y2[lane]);
                let mask: [u64; LANES] = std::array::from_fn(|lane| {
                    u64::from(is_odd[lane].bit(0) != tasks[lane].is_odd).wrapping_neg()
                });
                let y = y.or_where($load(&mask), &y.opposite(1)).narrow();

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
                let z = Fe::small(1);
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
                let points: Vec<(Fe, Fe)> = tasks.iter().map(|tasks| x_and_y2(tasks)).collect();
                for ((tasks, (x, y2)), y) in tasks.iter().zip(&points).zip(roots(&points)) {
                    sums.push(add_up(tasks, *x, *y2, y));
                }
                // One inversion for all of a lane, which must not be of zero.
                let one = Fe::small(1);
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
    sub _mm256_sub_epi64, and _mm256_and_si256, xor _mm256_xor_si256, srl _mm256_srli_epi64,
    sll _mm256_slli_epi64, load load4, store store4, limbs26 mul _mm256_mul_epu32
}

width! {
    eight, 8, "avx512f", __m512i, splat _mm512_set1_epi64, zero _mm512_setzero_si512, add _mm512_add_epi64,
    sub _mm512_sub_epi64, and _mm512_and_si512, xor _mm512_xor_si512, srl _mm512_srli_epi64,
    sll _mm512_slli_epi64, load load8, store store8, limbs26 mul _mm512_mul_epu32
}

width! {
    eight_ifma, 8, "avx512f,avx512ifma", __m512i, splat _mm512_set1_epi64, zero _mm512_setzero_si512,
    add _mm512_add_epi64, sub _mm512_sub_epi64, and _mm512_and_si512, xor _mm512_xor_si512,
    srl _mm512_srli_epi64, sll _mm512_slli_epi64, load load8, store store8,
    limbs52 low _mm512_madd52lo_epu64, high _mm512_madd52hi_epu64
}

use std::arch::x86_64::{__m256i, __m512i};

#[inline]
#[target_feature(enable = "avx2")]
fn load4(words: &[u64; 4]) -> __m256i {
    // SAFETY: 32 bytes are there; no alignment is required.
    unsafe { std::arch::x86_64::_mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load8(words: &[u64; 8]) -> __m512i {
    // SAFETY: 64 bytes are there; no alignment is required.
    unsafe { std::arch::x86_64::_mm512_loadu_si512(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store4(words: &mut [u64; 4], vector: __m256i) {
    // SAFETY: the place has 32 bytes; no alignment is required.
    unsafe { std::arch::x86_64::_mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store8(words: &mut [u64; 8], vector: __m512i) {
    // SAFETY: the place has 64 bytes; no alignment is required.
    unsafe { std::arch::x86_64::_mm512_storeu_si512(words.as_mut_ptr().cast(), vector) };
}
