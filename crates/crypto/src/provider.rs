//! Which implementation of each primitive is installed, decided once at start.

use crate::modexp::modexp;
use crate::self_test::SelfTest;
use crate::{SignatureError, bls_pure, bn254, p256, self_test};
use alloy_primitives::{B256, B512};
use revm_precompile::bls12_381::{G1Point, G1PointScalar, G2Point, G2PointScalar};
use revm_precompile::{Crypto, PrecompileHalt, kzg_point_evaluation, secp256k1 as recovery};
use std::cell::Cell;
use std::sync::OnceLock;

/// Which implementations the operator prefers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preference {
    /// The fast library, native where that is compiled in, if it passes its self-test, else the plain one.
    #[default]
    Auto,
    /// The fast library, or an error.
    Native,
    /// The plain libraries in pure Rust.
    Pure,
}

/// The library of one primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The primitive, such as `secp256k1`.
    pub primitive: &'static str,
    /// The library behind it.
    pub library: &'static str,
    /// Whether that library is C or assembly.
    pub native: bool,
    /// Whether it is the one that is tried first; what it falls back to is slower.
    pub fast: bool,
}

/// The preferred implementation is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InstallError {
    /// Native libraries are required, but the program was built without the feature `native`.
    #[error("native cryptography was asked for, but this build has none; use auto or pure")]
    NotCompiled,
    /// A known vector gave another result.
    #[error("self-test of {primitive} ({library}) failed; use pure or reinstall the program")]
    SelfTest {
        /// The primitive.
        primitive: &'static str,
        /// The library.
        library: &'static str,
    },
}

static CHOSEN: OnceLock<Vec<Backend>> = OnceLock::new();

/// Tests each primitive on known vectors and installs the outcome for the whole process. The first call decides; later
/// ones return its outcome.
///
/// # Errors
/// [`InstallError`] if `preference` can't be met.
pub fn install(preference: Preference) -> Result<&'static [Backend], InstallError> {
    if let Some(chosen) = CHOSEN.get() {
        return Ok(chosen);
    }
    let chosen = choose(preference)?;
    Ok(CHOSEN.get_or_init(|| {
        let is_fast = |primitive| {
            let mut backends = chosen.iter();
            backends.any(|b: &Backend| b.primitive == primitive && b.fast)
        };
        #[cfg(target_arch = "x86_64")]
        if is_fast(SECP256K1) {
            // At start, not in the first block.
            crate::recovery::width();
        }
        if is_fast(P256) {
            p256::prepare();
        }
        revm_precompile::install_crypto(Provider {
            native_recovery: is_fast(SECP256K1),
            native_bls: is_fast(BLS12_381),
            native_kzg: is_fast(KZG),
            own_bn254: is_fast(BN254),
            own_modexp: is_fast(MODEXP),
            own_p256: is_fast(P256),
        });
        chosen
    }))
}

/// The installed backends; installs [`Preference::Auto`] if [`install`] was not called yet.
///
/// # Panics
/// If even the pure implementations fail their self-test.
pub fn backend() -> &'static [Backend] {
    install(Preference::Auto).expect("pure Rust passes its known vectors")
}

/// Whether the fast library of `primitive` is installed.
pub(crate) fn is_fast(primitive: &str) -> bool {
    backend().iter().any(|b| b.primitive == primitive && b.fast)
}

/// The address, left-padded to 32 bytes, that signed `hash`.
pub(crate) fn ecrecover(
    signature: &[u8; 64],
    y_parity: u8,
    hash: &[u8; 32],
) -> Result<[u8; 32], SignatureError> {
    backend();
    revm_precompile::crypto()
        .secp256k1_ecrecover(signature, y_parity, hash)
        .map_err(|_| SignatureError)
}

pub(crate) const SECP256K1: &str = "secp256k1";
pub(crate) const BLS12_381: &str = "bls12-381";
pub(crate) const KZG: &str = "kzg";
pub(crate) const BN254: &str = "bn254";
pub(crate) const P256: &str = "p256";
pub(crate) const MODEXP: &str = "modexp";
pub(crate) const SHA256: &str = "sha256";

thread_local! {
    /// What this thread prefers at the moment; with `Auto`, what is installed.
    static PREFERENCE: Cell<Preference> = const { Cell::new(Preference::Auto) };
}

/// Runs `work` on this thread with the fast library of each primitive, or with the plain one, whatever is installed.
pub(crate) fn with_preference<T>(library: Preference, work: impl FnOnce() -> T) -> T {
    struct Restored(Preference);
    impl Drop for Restored {
        fn drop(&mut self) {
            PREFERENCE.set(self.0);
        }
    }
    backend();
    let _restored = Restored(PREFERENCE.replace(library));
    work()
}

/// Whether to use the fast library of a primitive for which the installed choice is `chosen`.
fn uses_fast(chosen: bool) -> bool {
    match PREFERENCE.get() {
        Preference::Auto => chosen,
        Preference::Native => true,
        Preference::Pure => false,
    }
}

/// The names of a primitive's fast and plain library, as far as they are compiled in.
pub(crate) fn libraries(primitive: &str) -> [&'static str; 2] {
    let mut rows = LIBRARIES.iter();
    let row = rows.find(|(name, _, _)| *name == primitive);
    let (_, [fast, plain], _) = row.expect("every primitive has a row");
    let fast = if fast.is_compiled_in() { fast } else { plain };
    [fast.name(), plain.name()]
}

/// The installed choice of each primitive that has two libraries; the others have no choice.
#[derive(Debug)]
pub(crate) struct Provider {
    native_recovery: bool,
    native_bls: bool,
    native_kzg: bool,
    own_bn254: bool,
    own_modexp: bool,
    own_p256: bool,
}

impl Provider {
    pub(crate) fn all(fast: bool) -> Self {
        Self {
            native_recovery: fast,
            native_bls: fast,
            native_kzg: fast,
            own_bn254: fast,
            own_modexp: fast,
            own_p256: fast,
        }
    }
}

/// The defaults of the precompile library: with the feature `native`, blst.
#[derive(Debug)]
pub(crate) struct Stock;

impl Crypto for Stock {}

impl Crypto for Provider {
    fn secp256k1_ecrecover(
        &self,
        signature: &[u8; 64],
        y_parity: u8,
        hash: &[u8; 32],
    ) -> Result<[u8; 32], PrecompileHalt> {
        let recovered = if uses_fast(self.native_recovery) {
            native_ecrecover(signature, y_parity, hash)
        } else {
            pure_ecrecover(signature, y_parity, hash)
        };
        recovered.ok_or(PrecompileHalt::Secp256k1RecoverFailed)
    }

    fn verify_kzg_proof(
        &self,
        z: &[u8; 32],
        y: &[u8; 32],
        commitment: &[u8; 48],
        proof: &[u8; 48],
    ) -> Result<(), PrecompileHalt> {
        let verify = if uses_fast(self.native_kzg) {
            native_kzg
        } else {
            pure_kzg
        };
        let verified = verify(commitment, z, y, proof);
        if verified {
            Ok(())
        } else {
            Err(PrecompileHalt::BlobVerifyKzgProofFailed)
        }
    }

    fn bn254_g1_add(&self, a: &[u8], b: &[u8]) -> Result<[u8; 64], PrecompileHalt> {
        if uses_fast(self.own_bn254) {
            bn254::g1_add(a, b)
        } else {
            Stock.bn254_g1_add(a, b)
        }
    }

    fn bn254_g1_mul(&self, point: &[u8], scalar: &[u8]) -> Result<[u8; 64], PrecompileHalt> {
        if uses_fast(self.own_bn254) {
            bn254::g1_mul(point, scalar)
        } else {
            Stock.bn254_g1_mul(point, scalar)
        }
    }

    fn bn254_pairing_check(&self, pairs: &[(&[u8], &[u8])]) -> Result<bool, PrecompileHalt> {
        if uses_fast(self.own_bn254) {
            bn254::pairing_check(pairs)
        } else {
            Stock.bn254_pairing_check(pairs)
        }
    }

    fn modexp(
        &self,
        base: &[u8],
        exponent: &[u8],
        modulus: &[u8],
    ) -> Result<Vec<u8>, PrecompileHalt> {
        if uses_fast(self.own_modexp) {
            Ok(modexp(base, exponent, modulus))
        } else {
            Stock.modexp(base, exponent, modulus)
        }
    }

    fn secp256r1_verify_signature(
        &self,
        hash: &[u8; 32],
        signature: &[u8; 64],
        key: &[u8; 64],
    ) -> bool {
        if uses_fast(self.own_p256) {
            p256::is_signed(hash, signature, key)
        } else {
            Stock.secp256r1_verify_signature(hash, signature, key)
        }
    }

    fn bls12_381_g1_add(&self, a: G1Point, b: G1Point) -> Result<[u8; 96], PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_g1_add(a, b)
        } else {
            bls_pure::g1_add(a, b)
        }
    }

    fn bls12_381_g1_msm(
        &self,
        pairs: &mut dyn Iterator<Item = Result<G1PointScalar, PrecompileHalt>>,
    ) -> Result<[u8; 96], PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_g1_msm(pairs)
        } else {
            bls_pure::g1_msm(pairs)
        }
    }

    fn bls12_381_g2_add(&self, a: G2Point, b: G2Point) -> Result<[u8; 192], PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_g2_add(a, b)
        } else {
            bls_pure::g2_add(a, b)
        }
    }

    fn bls12_381_g2_msm(
        &self,
        pairs: &mut dyn Iterator<Item = Result<G2PointScalar, PrecompileHalt>>,
    ) -> Result<[u8; 192], PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_g2_msm(pairs)
        } else {
            bls_pure::g2_msm(pairs)
        }
    }

    fn bls12_381_pairing_check(
        &self,
        pairs: &[(G1Point, G2Point)],
    ) -> Result<bool, PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_pairing_check(pairs)
        } else {
            bls_pure::pairing_check(pairs)
        }
    }

    fn bls12_381_fp_to_g1(&self, fp: &[u8; 48]) -> Result<[u8; 96], PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_fp_to_g1(fp)
        } else {
            bls_pure::fp_to_g1(fp)
        }
    }

    fn bls12_381_fp2_to_g2(&self, fp2: ([u8; 48], [u8; 48])) -> Result<[u8; 192], PrecompileHalt> {
        if uses_fast(self.native_bls) {
            Stock.bls12_381_fp2_to_g2(fp2)
        } else {
            bls_pure::fp2_to_g2(&fp2)
        }
    }
}

fn pure_ecrecover(signature: &[u8; 64], y_parity: u8, hash: &[u8; 32]) -> Option<[u8; 32]> {
    let (signature, hash) = (B512::new(*signature), B256::new(*hash));
    recovery::k256::ecrecover(&signature, y_parity, &hash)
        .ok()
        .map(|address| address.0)
}

#[cfg(feature = "native")]
fn native_ecrecover(signature: &[u8; 64], y_parity: u8, hash: &[u8; 32]) -> Option<[u8; 32]> {
    use secp256k1::{
        Message,
        ecdsa::{RecoverableSignature, RecoveryId},
    };
    let id = RecoveryId::try_from(i32::from(y_parity)).ok()?;
    let signature = RecoverableSignature::from_compact(signature, id).ok()?;
    let key = signature.recover(Message::from_digest(*hash)).ok()?;
    let mut address = alloy_primitives::keccak256(&key.serialize_uncompressed()[1..]);
    address[..12].fill(0);
    Some(address.0)
}

#[cfg(not(feature = "native"))]
fn native_ecrecover(signature: &[u8; 64], y_parity: u8, hash: &[u8; 32]) -> Option<[u8; 32]> {
    pure_ecrecover(signature, y_parity, hash)
}

/// Verifying one opening takes a pairing and one point of the trusted setup, so the setup is not loaded.
#[cfg(feature = "native")]
use kzg_point_evaluation::blst::verify_kzg_proof as native_kzg;

#[cfg(not(feature = "native"))]
use pure_kzg as native_kzg;

pub(crate) use kzg_point_evaluation::arkworks::verify_kzg_proof as pure_kzg;

const NATIVE: bool = cfg!(feature = "native");

/// Each primitive with its fast and its plain library, which is pure Rust; where they are the same, there is only one.
const LIBRARIES: [(&str, [Library; 2], SelfTest); 8] = [
    (
        SECP256K1,
        [C("libsecp256k1"), Rust("k256")],
        self_test::recovery,
    ),
    (
        BLS12_381,
        [C("blst"), Rust("arkworks")],
        self_test::bls12_381,
    ),
    (KZG, [C("blst"), Rust("arkworks")], self_test::kzg),
    (
        BN254,
        [Rust("niwaki on arkworks"), Rust("arkworks")],
        self_test::bn254,
    ),
    (P256, [Rust("niwaki"), Rust("p256")], self_test::p256),
    (MODEXP, [Rust("niwaki"), Rust("aurora")], self_test::modexp),
    (SHA256, [Rust("sha2"); 2], self_test::sha256),
    ("keccak256", [Rust("keccak-asm"); 2], self_test::keccak256),
];

/// A library: the language it is written in, and its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Library {
    C(&'static str),
    Rust(&'static str),
}
use Library::{C, Rust};

impl Library {
    fn is_compiled_in(self) -> bool {
        matches!(self, Rust(_)) || NATIVE
    }

    fn name(self) -> &'static str {
        let (C(name) | Rust(name)) = self;
        name
    }
}

fn choose(preference: Preference) -> Result<Vec<Backend>, InstallError> {
    if preference == Preference::Native && !NATIVE {
        return Err(InstallError::NotCompiled);
    }
    let (fast, plain) = (Provider::all(true), Provider::all(false));
    LIBRARIES
        .into_iter()
        .map(|(primitive, libraries, passes)| {
            pick(preference, primitive, libraries, |is_fast| {
                passes(if is_fast { &fast } else { &plain })
            })
        })
        .collect()
}

/// Picks between the fast and the plain library of a primitive by its self-test.
fn pick(
    preference: Preference,
    primitive: &'static str,
    [fast, plain]: [Library; 2],
    passes: impl Fn(bool) -> bool,
) -> Result<Backend, InstallError> {
    let failure = |library: Library| {
        Err(InstallError::SelfTest {
            primitive,
            library: library.name(),
        })
    };
    let backend = |library: Library, fast| Backend {
        primitive,
        library: library.name(),
        native: matches!(library, C(_)),
        fast,
    };
    if fast.is_compiled_in() && fast != plain && preference != Preference::Pure {
        if passes(true) {
            return Ok(backend(fast, true));
        }
        if preference == Preference::Native {
            return failure(fast);
        }
    }
    if passes(false) {
        return Ok(backend(plain, false));
    }
    failure(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_and_plain_libraries_pass_every_self_test() {
        for is_fast in [true, false] {
            let provider = Provider::all(is_fast);
            for (primitive, _, passes) in LIBRARIES {
                assert!(passes(&provider), "{primitive}, fast {is_fast}");
            }
        }
    }

    #[test]
    fn a_failing_fast_library_is_replaced_unless_required() {
        let broken = |is_fast: bool| !is_fast;
        for fast in [C("fast"), Rust("fast")] {
            let libraries = [fast, Rust("plain")];
            let picked = pick(Preference::Auto, "p", libraries, broken).unwrap();
            assert_eq!((picked.library, picked.fast), ("plain", false));
            if fast.is_compiled_in() {
                let demanded = pick(Preference::Native, "p", libraries, broken);
                let error = InstallError::SelfTest {
                    primitive: "p",
                    library: "fast",
                };
                assert_eq!(demanded, Err(error));
                let picked = pick(Preference::Auto, "p", libraries, |_| true).unwrap();
                assert_eq!((picked.library, picked.native), ("fast", fast == C("fast")));
            }
            let picked = pick(Preference::Pure, "p", libraries, |_| true).unwrap();
            assert_eq!(picked.library, "plain");
        }
    }
}
