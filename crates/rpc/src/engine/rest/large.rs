//! Containers with blobs, written in one pass.
//!
//! A writer of nested containers keeps the variable part of each apart until its fixed part is known, and so copies a
//! blob once for each level. Here every length is known beforehand: the bytes go where they belong. A test compares them
//! with the library's.

use niwaki_crypto::{Blob, KzgPoint};
use niwaki_primitives::{Bytes, U256};
use ssz::Encode;

/// Bytes of an offset.
const OFFSET: usize = 4;

/// A buffer whose capacity is reserved up front.
struct Writer(Vec<u8>);

impl Writer {
    fn offset(&mut self, offset: usize) {
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        self.0.extend_from_slice(&offset.to_le_bytes());
    }

    fn points<'p>(&mut self, points: impl Iterator<Item = &'p KzgPoint>) {
        for point in points {
            self.0.extend_from_slice(point.as_slice());
        }
    }
}

/// A `BlobsV2Response`: for each blob itself and its cell proofs, `None` for one that is missing.
pub(super) fn blobs_response(blobs: &[Option<(&Blob, &[KzgPoint])>]) -> Vec<u8> {
    // An entry is a flag, the offset of the contents, the blob, the offset of the proofs, and the proofs.
    let fixed = 1 + OFFSET + size_of::<Blob>() + OFFSET;
    let length_of = |proofs: usize| fixed + proofs * size_of::<KzgPoint>();
    let lengths = blobs
        .iter()
        .map(|blob| length_of(blob.map_or(0, |(_, proofs)| proofs.len())));
    let lengths: Vec<usize> = lengths.collect();
    let all = OFFSET + lengths.iter().map(|length| OFFSET + length).sum::<usize>();
    let mut out = Writer(Vec::with_capacity(all));
    out.offset(OFFSET);
    let mut next = lengths.len() * OFFSET;
    for length in &lengths {
        out.offset(next);
        next += length;
    }
    for blob in blobs {
        out.0.push(u8::from(blob.is_some()));
        out.offset(1 + OFFSET);
        match blob {
            Some((blob, _)) => out.0.extend_from_slice(blob.as_slice()),
            None => out.0.resize(out.0.len() + size_of::<Blob>(), 0),
        }
        out.offset(size_of::<Blob>() + OFFSET);
        out.points(blob.iter().flat_map(|(_, proofs)| proofs.iter()));
    }
    out.0
}

/// Blobs with commitments and proofs, as parts of sidecars.
pub(super) struct Bundle<'s> {
    pub(super) commitments: Vec<&'s KzgPoint>,
    pub(super) proofs: Vec<&'s KzgPoint>,
    pub(super) blobs: Vec<&'s Blob>,
}

impl Bundle<'_> {
    fn length(&self) -> usize {
        let points = self.commitments.len() + self.proofs.len();
        3 * OFFSET + points * size_of::<KzgPoint>() + self.blobs.len() * size_of::<Blob>()
    }
}

/// A `BuiltPayload` from Cancun on: payload, value, blobs, requests from Prague on, and that no builder is overridden.
pub(super) fn built_payload(
    payload: &impl Encode,
    value: &U256,
    bundle: &Bundle<'_>,
    requests: Option<&[Bytes]>,
) -> Vec<u8> {
    let payload = payload.as_ssz_bytes();
    let offsets = 2 + usize::from(requests.is_some());
    let fixed = offsets * OFFSET + size_of::<U256>() + 1;
    let requests_length = requests.iter().copied().flatten();
    let requests_length: usize = requests_length.map(|request| OFFSET + request.len()).sum();
    let bundle_at = fixed + payload.len();
    let requests_at = bundle_at + bundle.length();
    let mut out = Writer(Vec::with_capacity(requests_at + requests_length));
    out.offset(fixed);
    out.0.extend_from_slice(&value.to_le_bytes::<32>());
    out.offset(bundle_at);
    if requests.is_some() {
        out.offset(requests_at);
    }
    out.0.push(0);
    out.0.extend_from_slice(&payload);

    let proofs_at = 3 * OFFSET + bundle.commitments.len() * size_of::<KzgPoint>();
    out.offset(3 * OFFSET);
    out.offset(proofs_at);
    out.offset(proofs_at + bundle.proofs.len() * size_of::<KzgPoint>());
    out.points(bundle.commitments.iter().copied());
    out.points(bundle.proofs.iter().copied());
    for blob in &bundle.blobs {
        out.0.extend_from_slice(blob.as_slice());
    }
    let requests = requests.unwrap_or_default();
    let mut next = requests.len() * OFFSET;
    for request in requests {
        out.offset(next);
        next += request.len();
    }
    for request in requests {
        out.0.extend_from_slice(request);
    }
    out.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_rpc_types_engine::ssz_engine_types as containers;
    use alloy_rpc_types_engine::{BlobsBundleV1, BlobsBundleV2, ExecutionPayloadV3};
    use niwaki_primitives::{BlobAndProofV2, Requests};

    fn blob(byte: u8) -> Box<Blob> {
        Box::new(Blob::repeat_byte(byte))
    }

    #[test]
    fn blobs_have_the_bytes_of_the_library() {
        let proofs: Vec<KzgPoint> = (0..128).map(KzgPoint::repeat_byte).collect();
        let blobs = [blob(1), blob(2)];
        for present in [[true, true], [true, false], [false, true], [false, false]] {
            let found = present.iter().zip(&blobs);
            let found: Vec<_> = found
                .map(|(present, blob)| present.then_some(blob))
                .collect();
            let entries = found.iter().map(|blob| {
                blob.map(|blob| BlobAndProofV2 {
                    blob: blob.clone(),
                    proofs: proofs.clone(),
                })
            });
            let want = containers::BlobsV3Response::try_from(entries.collect::<Vec<_>>()).unwrap();
            let found = found
                .iter()
                .map(|blob| blob.map(|blob| (&**blob, &proofs[..])));
            let got = blobs_response(&found.collect::<Vec<_>>());
            assert!(got == want.as_ssz_bytes(), "{present:?}");
        }
        let none = containers::BlobsV3Response { entries: vec![] };
        assert_eq!(blobs_response(&[]), none.as_ssz_bytes());
    }

    #[test]
    fn built_payloads_have_the_bytes_of_the_library() {
        let payload = ExecutionPayloadV3::from_block_slow(&niwaki_primitives::Block::default());
        let value = U256::from(123_456_789_u64) << 100;
        let points: Vec<KzgPoint> = (0..128).map(KzgPoint::repeat_byte).collect();
        let blobs = [*blob(1), *blob(2)];
        for count in 0..=2 {
            let requests: Vec<Bytes> = (1..=count).map(|kind| vec![kind; 70].into()).collect();
            let blobs = &blobs[..usize::from(count)];
            let (commitments, proofs) = (&points[..blobs.len()], &points[..blobs.len() * 64]);
            let bundle = Bundle {
                commitments: commitments.iter().collect(),
                proofs: proofs.iter().collect(),
                blobs: blobs.iter().collect(),
            };
            let osaka = containers::BuiltPayloadOsaka {
                payload: payload.clone(),
                block_value: value,
                blobs_bundle: BlobsBundleV2 {
                    commitments: commitments.to_vec(),
                    proofs: proofs.to_vec(),
                    blobs: blobs.to_vec(),
                },
                execution_requests: Requests::new(requests.clone()),
                should_override_builder: false,
            };
            let got = built_payload(&payload, &value, &bundle, Some(&requests));
            assert!(got == osaka.as_ssz_bytes(), "{count}");
            let cancun = containers::BuiltPayloadCancun {
                execution_payload: payload.clone(),
                block_value: value,
                blobs_bundle: BlobsBundleV1 {
                    commitments: commitments.to_vec(),
                    proofs: proofs.to_vec(),
                    blobs: blobs.to_vec(),
                },
                should_override_builder: false,
            };
            let got = built_payload(&payload, &value, &bundle, None);
            assert!(got == cancun.as_ssz_bytes(), "{count}");
        }
    }
}
