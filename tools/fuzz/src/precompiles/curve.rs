//! Simple curve arithmetic for drawing inputs: affine points over a field or its extension by a root of -1.
//!
//! It gives points on and off the curve and its group. It is slow, and shares no code with the libraries that are
//! fuzzed.

use alloy_primitives::{U256, Uint, hex};

/// A number wide enough for every field.
pub(super) type Wide = Uint<384, 6>;

/// `a + b * i` with `i * i = -1`; in the field itself `b` is zero.
pub(super) type Element = [Wide; 2];

/// An affine point; `None` is the one at infinity.
pub(super) type Point = Option<[Element; 2]>;

/// `y^2 = x^3 + a * x + b`, over a field whose order is 3 modulo 4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Curve {
    pub(super) field: Wide,
    a: Element,
    b: Element,
    /// The order of the group that the contract accepts.
    pub(super) order: U256,
    pub(super) generator: [Element; 2],
    /// Whether coordinates are in the extension field.
    pub(super) is_extension: bool,
}

fn number(text: &str) -> Wide {
    Wide::from_str_radix(text, 16).expect("a constant in hex")
}

const BN254: &str = "30644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd47";
const BN254_ORDER: &str = "30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000001";
const BLS12_381: &str = "1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab";
const BLS12_381_ORDER: &str = "73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001";

impl Curve {
    fn new(field: &str, [a, b]: [Element; 2], order: &str, [x, y]: [Element; 2]) -> Self {
        Self {
            field: number(field),
            a,
            b,
            order: U256::from_str_radix(order, 16).expect("a constant in hex"),
            generator: [x, y],
            is_extension: !(x[1].is_zero() && y[1].is_zero()),
        }
    }

    pub(super) fn p256() -> Self {
        let field = "ffffffff00000001000000000000000000000000ffffffffffffffffffffffff";
        let minus_three = number(field) - Wide::from(3);
        Self::new(
            field,
            [
                flat(minus_three),
                flat(number(
                    "5ac635d8aa3a93e7b3ebbd55769886bc651d06b0cc53b0f63bce3c3e27d2604b",
                )),
            ],
            "ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551",
            [
                flat(number(
                    "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
                )),
                flat(number(
                    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
                )),
            ],
        )
    }

    pub(super) fn bn254_g1() -> Self {
        let [one, two, three] = [1, 2, 3].map(|n| flat(Wide::from(n)));
        Self::new(BN254, [flat(Wide::ZERO), three], BN254_ORDER, [one, two])
    }

    pub(super) fn bn254_g2() -> Self {
        let b = [
            number("2b149d40ceb8aaae81be18991be06ac3b5b4c5e559dbefa33267e6dc24a138e5"),
            number("009713b03af0fed4cd2cafadeed8fdf4a74fa084e52d1852e4a2bd0685c315d2"),
        ];
        let x = [
            number("1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed"),
            number("198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2"),
        ];
        let y = [
            number("12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa"),
            number("090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b"),
        ];
        Self::new(BN254, [flat(Wide::ZERO), b], BN254_ORDER, [x, y])
    }

    pub(super) fn bls12_381_g1() -> Self {
        let x = number(
            "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb",
        );
        let y = number(
            "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1",
        );
        let four = flat(Wide::from(4));
        Self::new(
            BLS12_381,
            [flat(Wide::ZERO), four],
            BLS12_381_ORDER,
            [flat(x), flat(y)],
        )
    }

    pub(super) fn bls12_381_g2() -> Self {
        let x = [
            number(
                "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8",
            ),
            number(
                "13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e",
            ),
        ];
        let y = [
            number(
                "0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801",
            ),
            number(
                "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be",
            ),
        ];
        let four = [Wide::from(4); 2];
        Self::new(BLS12_381, [flat(Wide::ZERO), four], BLS12_381_ORDER, [x, y])
    }

    fn add(&self, a: Element, b: Element) -> Element {
        [0, 1].map(|at| a[at].add_mod(b[at], self.field))
    }

    fn negated(&self, a: Element) -> Element {
        a.map(|part| (self.field - part) % self.field)
    }

    fn less(&self, a: Element, b: Element) -> Element {
        self.add(a, self.negated(b))
    }

    fn times(&self, a: Element, b: Element) -> Element {
        let product = |a: Wide, b: Wide| a.mul_mod(b, self.field);
        if a[1].is_zero() && b[1].is_zero() {
            return flat(product(a[0], b[0]));
        }
        let minus = (self.field - product(a[1], b[1])) % self.field;
        let cross = product(a[0], b[1]).add_mod(product(a[1], b[0]), self.field);
        [product(a[0], b[0]).add_mod(minus, self.field), cross]
    }

    /// `None` for zero.
    fn inverse(&self, a: Element) -> Option<Element> {
        let [re, im] = a.map(|part| part.mul_mod(part, self.field));
        let inverse = re.add_mod(im, self.field).inv_mod(self.field)?;
        let minus = (self.field - a[1]) % self.field;
        Some([a[0], minus].map(|part| part.mul_mod(inverse, self.field)))
    }

    /// A root, if there is one.
    fn root(&self, square: Element) -> Option<Element> {
        let [re, im] = square;
        let root = |of: Wide| {
            let root = of.pow_mod((self.field + Wide::from(1)) >> 2, self.field);
            (root.mul_mod(root, self.field) == of).then_some(root)
        };
        if im.is_zero() {
            return match root(re) {
                Some(root) => Some(flat(root)),
                None if self.is_extension => {
                    Some([Wide::ZERO, root((self.field - re) % self.field)?])
                }
                None => None,
            };
        }
        let product = |a: Wide, b: Wide| a.mul_mod(b, self.field);
        let norm = root(product(re, re).add_mod(product(im, im), self.field))?;
        let half = (self.field + Wide::from(1)) >> 1;
        // One of the two halves is a square.
        let halves = [norm, (self.field - norm) % self.field];
        halves.into_iter().find_map(|norm| {
            let first = root(product(re.add_mod(norm, self.field), half))?;
            let second = product(product(im, half), first.inv_mod(self.field)?);
            Some([first, second])
        })
    }

    fn right_side(&self, x: Element) -> Element {
        let cube = self.times(self.times(x, x), x);
        self.add(self.add(cube, self.times(self.a, x)), self.b)
    }

    /// A point with this first coordinate, of the group or not.
    pub(super) fn point_at(&self, x: Element) -> Point {
        Some([x, self.root(self.right_side(x))?])
    }

    pub(super) fn opposite(&self, point: Point) -> Point {
        point.map(|[x, y]| [x, self.negated(y)])
    }

    pub(super) fn sum(&self, a: Point, b: Point) -> Point {
        let (Some([ax, ay]), Some([bx, by])) = (a, b) else {
            return a.or(b);
        };
        let slope = if ax != bx {
            let inverse = self.inverse(self.less(bx, ax))?;
            self.times(self.less(by, ay), inverse)
        } else if ay == by {
            let square = self.times(ax, ax);
            let above = self.add(self.add(square, square), self.add(square, self.a));
            self.times(above, self.inverse(self.add(ay, ay))?)
        } else {
            return None;
        };
        let x = self.less(self.less(self.times(slope, slope), ax), bx);
        let y = self.less(self.times(slope, self.less(ax, x)), ay);
        Some([x, y])
    }

    pub(super) fn multiple(&self, point: Point, factor: U256) -> Point {
        let bits = (0..factor.bit_len()).rev();
        bits.fold(None, |sum, bit| {
            let twice = self.sum(sum, sum);
            match factor.bit(bit) {
                true => self.sum(twice, point),
                false => twice,
            }
        })
    }
}

/// An element of the field itself.
pub(super) fn flat(number: Wide) -> Element {
    [number, Wide::ZERO]
}

/// `[tau]` and `[tau^2]` of the trusted setup of EIP-4844, by their first coordinates and signs as compressed.
pub(super) const TAU: [[u8; 48]; 2] = [
    hex!(
        "ad3eb50121139aa34db1d545093ac9374ab7bca2c0f3bf28e27c8dcd8fc7cb42d25926fc0c97b336e9f0fb35e5a04c81"
    ),
    hex!(
        "8029c8ce0d2dce761a7f29c2df2290850c85bdfaec2955626d7acc8864aeb01fe16c9e156863dc63b6c22553910e27c1"
    ),
];

/// A point of BLS12-381's G1 in 48 bytes: flags of compression, infinity and the greater second coordinate.
pub(super) fn compressed(curve: &Curve, point: Point) -> [u8; 48] {
    let Some([x, y]) = point else {
        let mut infinity = [0; 48];
        infinity[0] = 0xc0;
        return infinity;
    };
    let mut bytes = x[0].to_be_bytes::<48>();
    bytes[0] |= 0x80;
    if y[0] > curve.field - y[0] {
        bytes[0] |= 0x20;
    }
    bytes
}

/// The point of 48 compressed bytes.
pub(super) fn decompressed(curve: &Curve, mut bytes: [u8; 48]) -> Point {
    let is_greater = bytes[0] & 0x20 != 0;
    bytes[0] &= 0x1f;
    let point = curve.point_at(flat(Wide::from_be_bytes(bytes)));
    let matches = |[_, y]: [Element; 2]| (y[0] > curve.field - y[0]) == is_greater;
    match point {
        Some(point) if !matches(point) => curve.opposite(Some(point)),
        point => point,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_times_order_is_infinity_and_roots_give_points() {
        for curve in [
            Curve::p256(),
            Curve::bn254_g1(),
            Curve::bn254_g2(),
            Curve::bls12_381_g1(),
            Curve::bls12_381_g2(),
        ] {
            let generator = Some(curve.generator);
            let [x, y] = curve.generator;
            assert_eq!(curve.times(y, y), curve.right_side(x));
            assert_eq!(curve.multiple(generator, curve.order), None);
            let below = curve.multiple(generator, curve.order - U256::from(1));
            assert_eq!(below, curve.opposite(generator));
            let found = (1..40).filter_map(|n| {
                let second = if curve.is_extension { 7 } else { 0 };
                let [x, y] = curve.point_at([Wide::from(n), Wide::from(second)])?;
                assert_eq!(curve.times(y, y), curve.right_side(x));
                Some(())
            });
            assert!(found.count() > 5);
        }
    }

    #[test]
    fn compressed_points_decompress_to_themselves() {
        let curve = Curve::bls12_381_g1();
        for bytes in TAU {
            assert_eq!(compressed(&curve, decompressed(&curve, bytes)), bytes);
        }
    }
}
