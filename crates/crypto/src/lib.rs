//! Cryptography: hashes, signatures, KZG and the precompiled contracts. The only crate that calls native libraries.
//!
//! Every primitive has a pure Rust implementation that is always compiled and, with the feature `native` (on by
//! default), a C or assembly one. [`install`] decides once at start which one is used: the native one is tested on
//! known vectors first and dropped if it fails. The one exception: commitments and proofs of blobs are made by the
//! native library only. Nothing here knows of chains, state or gas schedules beyond the precompiled contracts' own.
//!
//! | file | what it is |
//! |---|---|
//! | `provider` | [`install`]: which library implements each primitive |
//! | `self_test` | known vectors that a library must pass |
//! | `keccak` | Keccak-256 of many messages at once |
//! | `signature` | secp256k1: senders from signatures, one by one |
//! | `keys` | secp256k1 between peers: public keys, shared secrets, the key behind a signature |
//! | `recovery` | the same of many signatures at once, in vector registers |
//! | `precompile` | [`PrecompileSet`]: the precompiled contracts of a fork; cached results |
//! | `modexp` | 0x05: modular exponentiation |
//! | `bn254` | 0x06 to 0x08: additions, multiplications and pairings |
//! | `bls_pure` | 0x0b to 0x11: BLS12-381 in pure Rust |
//! | `p256` | 0x100: signatures on P-256 |
//! | `kzg` | KZG commitments, proofs and cells of blobs |
//! | `kzg_pure` | the same in pure Rust, verification only |
//! | `kzg_setup` | the trusted setup that cells are verified with |

mod bls_pure;
mod bn254;
mod keccak;
mod keys;
mod kzg;
mod kzg_pure;
mod kzg_setup;
mod modexp;
mod p256;
mod precompile;
mod provider;
#[cfg(target_arch = "x86_64")]
mod recovery;
mod self_test;
mod signature;

pub use alloy_primitives::{Keccak256, keccak256};
pub use keccak::{Lanes, keccak256_batch, keccak256_batch_by};
pub use keys::{KeyError, public_key, recover_public_key, shared_secret};
pub use kzg::{
    Blob, CELLS_PER_EXT_BLOB, Cell, KzgError, KzgPoint, blob_cells, blob_commitment, blob_proof,
    cell_proofs, load_kzg_setup, verify_blob_proofs, verify_cell_proofs, verify_cells,
};
pub use precompile::{
    PrecompileHalt, PrecompileSet, Precompiled, forget_precompile_results,
    precompile_result_look_ups, set_precompile_result_bytes,
};
pub use provider::{Backend, InstallError, Preference, backend, install};
pub use signature::{
    SignatureError, Signed, address_of_secret_key, recover_signer, recover_signers, sign,
};

use alloy_primitives::B256;

/// SHA-256 of `data`.
pub fn sha256(data: &[u8]) -> B256 {
    use sha2::Digest;
    B256::new(sha2::Sha256::digest(data).into())
}
