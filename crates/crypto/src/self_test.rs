//! Known vectors, tried at start: a library that gives another result is not used. Together about
//! ten milliseconds.

use alloy_primitives::{B256, hex, keccak256 as hash};
use revm_precompile::Crypto;
use revm_precompile::bls12_381::{G1Point, G2Point};

/// Whether a primitive gives what it must.
pub(crate) type SelfTest = fn(&dyn Crypto) -> bool;

/// Recovers the signer of the first transaction of EIP-155's example.
pub(crate) fn recovery(crypto: &dyn Crypto) -> bool {
    let hash = hex!("daf5a779ae972f972197303d7b574746c7ef83eadac0f2791ad23db92e4c8e53");
    let signature = hex!(
        "28ef61340bd939bc2195fe537567866003e1a15d3c71ff63e1590620aa636276"
        "67cbe9d8997f761aecb703304b3800ccf555c9f3dc64214b297fb1966a3b6d83"
    );
    let signer = hex!("0000000000000000000000009d8a62f656a8d1615c1294fd71e9cfb3e4855a4f");
    crypto.secp256k1_ecrecover(&signature, 0, &hash) == Ok(signer)
}

/// The zero polynomial opens to zero everywhere, and to nothing else.
pub(crate) fn kzg(crypto: &dyn Crypto) -> bool {
    let mut infinity = [0; 48];
    infinity[0] = 0xc0;
    let z = B256::with_last_byte(5).0;
    let one = B256::with_last_byte(1).0;
    let opens_to = |y| crypto.verify_kzg_proof(&z, y, &infinity, &infinity).is_ok();
    opens_to(&[0; 32]) && !opens_to(&one)
}

const G1: G1Point = (
    hex!(
        "17f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac58"
        "6c55e83ff97a1aeffb3af00adb22c6bb"
    ),
    hex!(
        "08b3f481e3aaa0f1a09e30ed741d8ae4fcf5e095d5d00af600db18cb2c04b3ed"
        "d03cc744a2888ae40caa232946c5e7e1"
    ),
);
const MINUS_G1_Y: [u8; 48] = hex!(
    "114d1d6855d545a8aa7d76c8cf2e21f267816aef1db507c96655b9d5caac4236"
    "4e6f38ba0ecb751bad54dcd6b939c2ca"
);
const G2: G2Point = (
    hex!(
        "024aa2b2f08f0a91260805272dc51051c6e47ad4fa403b02b4510b647ae3d177"
        "0bac0326a805bbefd48056c8c121bdb8"
    ),
    hex!(
        "13e02b6052719f607dacd3a088274f65596bd0d09920b61ab5da61bbdc7f5049"
        "334cf11213945d57e5ac7d055d042b7e"
    ),
    hex!(
        "0ce5d527727d6e118cc9cdc6da2e351aadfd9baa8cbdd3a76d429a695160d12c"
        "923ac9cc3baca289e193548608b82801"
    ),
    hex!(
        "0606c4a02ea734cc32acd2b02bc28b99cb3e287e85a763af267492ab572e99ab"
        "3f370d275cec1da1aaa9075ff05f79be"
    ),
);

/// A generator and its opposite cancel out, in the group and under the pairing.
pub(crate) fn bls12_381(crypto: &dyn Crypto) -> bool {
    let opposite = (G1.0, MINUS_G1_Y);
    let two = B256::with_last_byte(2).0;
    let twice = crypto.bls12_381_g1_msm(&mut [Ok((G1, two))].into_iter());
    let twice_of_g2 = crypto.bls12_381_g2_msm(&mut [Ok((G2, two))].into_iter());
    crypto.bls12_381_pairing_check(&[(G1, G2), (opposite, G2)]) == Ok(true)
        && crypto.bls12_381_pairing_check(&[(G1, G2), (G1, G2)]) == Ok(false)
        && crypto.bls12_381_g1_add(G1, opposite) == Ok([0; 96])
        && crypto.bls12_381_g1_add(G1, G1) == twice
        && crypto.bls12_381_g2_add(G2, G2) == twice_of_g2
}

const BN254_G2: [u8; 128] = hex!(
    "198e9393920d483a7260bfb731fb5d25f1aa493335a9e71297e485b7aef312c2"
    "1800deef121f1e76426a00665e5c4479674322d4f75edadd46debd5cd992f6ed"
    "090689d0585ff075ec9e99ad690c3395bc4b313370b38ef355acdadcd122975b"
    "12c85ea5db8c6deb4aab71808dcb408fe3d1e7690c43d37b4ce6cc0166fa7daa"
);

/// Twice the generator (1, 2) of bn254; its opposite, and its pairing with a generator of G2.
pub(crate) fn bn254(crypto: &dyn Crypto) -> bool {
    let twice = hex!(
        "030644e72e131a029b85045b68181585d97816a916871ca8d3c208c16d87cfd3"
        "15ed738c0e0a7c92e7845f96b2ae9c0a68a6a449e3538fc7ff3ebf7a5a18a2c4"
    );
    let mut generator = [0; 64];
    (generator[31], generator[63]) = (1, 2);
    let two = B256::with_last_byte(2).0;
    // The group's order less one.
    let minus_one = hex!("30644e72e131a029b85045b68181585d2833e84879b9709143e1f593f0000000");
    let opposite = crypto.bn254_g1_mul(&generator, &minus_one);
    let opposite = opposite.unwrap_or([0; 64]);
    let pairs_with = |other: &[u8; 64]| {
        crypto.bn254_pairing_check(&[(&generator, &BN254_G2), (other, &BN254_G2)])
    };
    crypto.bn254_g1_add(&generator, &generator) == Ok(twice)
        && crypto.bn254_g1_mul(&generator, &two) == Ok(twice)
        && crypto.bn254_g1_add(&generator, &opposite) == Ok([0; 64])
        && pairs_with(&opposite) == Ok(true)
        && pairs_with(&generator) == Ok(false)
}

/// The example of EIP-7951.
pub(crate) fn p256(crypto: &dyn Crypto) -> bool {
    let message = hex!("4cee90eb86eaa050036147a12d49004b6b9c72bd725d39d4785011fe190f0b4d");
    let signature = hex!(
        "a73bd4903f0ce3b639bbbf6e8e80d16931ff4bcf5993d58468e8fb19086e8cac"
        "36dbcd03009df8c59286b162af3bd7fcc0450c9aa81be5d10d312af6c66b1d60"
    );
    let key = hex!(
        "4aebd3099c618202fcfe16ae7770b0c49ab5eadf74b754204a3bb6060e44eff3"
        "7618b065f9832de4ca6ca971a7a1adc826d0f7c00181a5fb2ddf79ae00b4e10e"
    );
    crypto.secp256r1_verify_signature(&message, &signature, &key)
        && !crypto.secp256r1_verify_signature(&[0; 32], &signature, &key)
}

/// 3^5 modulo 7 and modulo 8; Fermat's theorem; the order of 3 modulo 2^256; a round trip modulo 2^2048 - 1.
pub(crate) fn modexp(crypto: &dyn Crypto) -> bool {
    let is = |base: &[u8], exponent: &[u8], modulus: &[u8], expected: u8| {
        let power = crypto.modexp(base, exponent, modulus).unwrap_or_default();
        let zeros = power.iter().take_while(|byte| **byte == 0).count();
        power[zeros..] == [expected]
    };
    let mut prime = [0xff; 32];
    (prime[0], prime[31]) = (0x7f, 0xed);
    let mut below = prime;
    below[31] -= 1;
    let mut power_of_two = [0; 33];
    power_of_two[0] = 1;
    let mut order = [0; 32];
    order[0] = 0x40;
    is(&[3], &[5], &[7], 5)
        && is(&[3], &[5], &[8], 3)
        && is(&[3], &below, &prime, 1)
        && is(&[3], &order, &power_of_two, 1)
        && is(&[2], &[8, 5], &[0xff; 256], 32)
}

/// Of nothing.
pub(crate) fn sha256(crypto: &dyn Crypto) -> bool {
    let digest = hex!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    crypto.sha256(&[]) == digest && crate::sha256(&[]) == digest
}

/// Of nothing.
pub(crate) fn keccak256(_: &dyn Crypto) -> bool {
    hash([]).0 == hex!("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470")
}
