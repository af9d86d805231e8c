//! Frames: what a connection carries after the handshake, encrypted and authenticated.
//!
//! ```text
//! header 16 | its MAC 16 | data, padded to 16 | its MAC 16          header = size of the data 3 | c2 80 80 | zeros
//! ```
//!
//! Both directions use one cipher key with streams of their own, and a MAC that is the state of a running Keccak-256.
//!
//! Spec: devp2p `rlpx.md`, "Framing".

use aes::Aes256Enc;
use aes::cipher::{BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};
use niwaki_crypto::Keccak256;
use niwaki_primitives::B256;

/// Bytes of a frame's header with its MAC.
pub(crate) const HEADER_BYTES: usize = 32;
const MAC_BYTES: usize = 16;

type Aes256Ctr = ctr::Ctr128BE<aes::Aes256>;

/// The keys of a connection, as one side holds them.
pub(crate) struct FrameKeys {
    pub(crate) cipher: B256,
    pub(crate) egress: MacState,
    pub(crate) ingress: MacState,
}

impl FrameKeys {
    /// The two directions.
    pub(crate) fn split(self) -> (FrameEncoder, FrameDecoder) {
        let stream = || Aes256Ctr::new(&self.cipher.0.into(), &[0; 16].into());
        let encoder = FrameEncoder {
            cipher: stream(),
            mac: self.egress,
        };
        let decoder = FrameDecoder {
            cipher: stream(),
            mac: self.ingress,
        };
        (encoder, decoder)
    }
}

/// The MAC of one direction.
pub(crate) struct MacState {
    cipher: Aes256Enc,
    pub(super) state: Keccak256,
}

impl MacState {
    /// The state after the handshake: of the key, the other side's nonce, and the message that was sent in this direction.
    pub(crate) fn new(key: B256, nonce: B256, message: &[u8]) -> Self {
        let mut state = Keccak256::new();
        state.update(key ^ nonce);
        state.update(message);
        Self {
            cipher: Aes256Enc::new(&key.0.into()),
            state,
        }
    }

    fn digest(&self) -> [u8; MAC_BYTES] {
        let mut first = [0; MAC_BYTES];
        first.copy_from_slice(&self.state.clone().finalize()[..MAC_BYTES]);
        first
    }

    /// The MAC of a header.
    fn of_header(&mut self, header: &[u8; 16]) -> [u8; MAC_BYTES] {
        self.mix(*header)
    }

    /// The MAC of a frame's data.
    fn of_data(&mut self, data: &[u8]) -> [u8; MAC_BYTES] {
        self.state.update(data);
        let digest = self.digest();
        self.mix(digest)
    }

    fn mix(&mut self, seed: [u8; 16]) -> [u8; MAC_BYTES] {
        let mut block = self.digest().into();
        self.cipher.encrypt_block(&mut block);
        for (byte, seed) in block.iter_mut().zip(seed) {
            *byte ^= seed;
        }
        self.state.update(block);
        self.digest()
    }
}

/// A frame that was changed on its way, or is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame has the wrong MAC")]
pub struct FrameError;

/// Writes frames.
pub(crate) struct FrameEncoder {
    cipher: Aes256Ctr,
    mac: MacState,
}

impl FrameEncoder {
    /// Appends the frame of `data`, less than 16 MiB, to `out`.
    pub(crate) fn encode(&mut self, data: &[&[u8]], out: &mut Vec<u8>) {
        let size: usize = data.iter().map(|part| part.len()).sum();
        out.reserve(HEADER_BYTES + size.next_multiple_of(16) + MAC_BYTES);
        let size_bytes = u32::try_from(size)
            .expect("messages are bounded")
            .to_be_bytes();
        let mut header = [0; 16];
        header[..3].copy_from_slice(&size_bytes[1..]);
        header[3..6].copy_from_slice(&[0xc2, 0x80, 0x80]);
        self.cipher.apply_keystream(&mut header);
        out.extend_from_slice(&header);
        out.extend_from_slice(&self.mac.of_header(&header));
        let start = out.len();
        for part in data {
            out.extend_from_slice(part);
        }
        out.resize(start + size.next_multiple_of(16), 0);
        self.cipher.apply_keystream(&mut out[start..]);
        let mac = self.mac.of_data(&out[start..]);
        out.extend_from_slice(&mac);
    }
}

/// Reads frames: a header, then as many bytes as it says.
pub(crate) struct FrameDecoder {
    cipher: Aes256Ctr,
    mac: MacState,
}

impl FrameDecoder {
    /// The size of the data after a header.
    pub(crate) fn header(&mut self, bytes: &[u8; HEADER_BYTES]) -> Result<usize, FrameError> {
        let (header, mac) = bytes.split_at(16);
        let mut header: [u8; 16] = header.try_into().expect("half of 32 bytes");
        if self.mac.of_header(&header) != *mac {
            return Err(FrameError);
        }
        self.cipher.apply_keystream(&mut header);
        let size = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        Ok(size as usize)
    }

    /// How many bytes follow the header of a frame with so much data.
    pub(crate) fn body_bytes(size: usize) -> usize {
        size.next_multiple_of(16) + MAC_BYTES
    }

    /// Decrypts what follows a header in place, and cuts it to the data.
    pub(crate) fn body(&mut self, size: usize, body: &mut Vec<u8>) -> Result<(), FrameError> {
        let text = size.next_multiple_of(16);
        let (data, mac) = body.split_at_mut_checked(text).ok_or(FrameError)?;
        if self.mac.of_data(data) != *mac {
            return Err(FrameError);
        }
        self.cipher.apply_keystream(data);
        body.truncate(size);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(egress: u8, ingress: u8) -> FrameKeys {
        let state = |n| MacState::new(B256::repeat_byte(1), B256::repeat_byte(n), b"message");
        FrameKeys {
            cipher: B256::repeat_byte(2),
            egress: state(egress),
            ingress: state(ingress),
        }
    }

    fn decode(decoder: &mut FrameDecoder, frame: &[u8]) -> Result<Vec<u8>, FrameError> {
        let (header, body) = frame.split_first_chunk().unwrap();
        let size = decoder.header(header)?;
        let mut body = body.to_vec();
        assert_eq!(body.len(), FrameDecoder::body_bytes(size));
        decoder.body(size, &mut body)?;
        Ok(body)
    }

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..10)) {
            let mut encoder = keys(1, 2).split().0;
            let mut decoder = keys(2, 1).split().1;
            for data in all {
                let mut frame = Vec::new();
                let (first, rest) = data.split_at(data.len() / 2);
                encoder.encode(&[first, rest], &mut frame);
                prop_assert_eq!(decode(&mut decoder, &frame), Ok(data));
            }
        }

        #[test]
        fn a_changed_frame_is_refused(data in prop::collection::vec(any::<u8>(), 0..100), at in any::<prop::sample::Index>(), bit in 0..8) {
            let mut frame = Vec::new();
            keys(1, 2).split().0.encode(&[&data], &mut frame);
            let at = at.index(frame.len());
            frame[at] ^= 1_u8 << bit;
            let mut decoder = keys(2, 1).split().1;
            prop_assert_eq!(decode(&mut decoder, &frame), Err(FrameError));
        }
    }

    #[test]
    fn a_frame_does_not_count_twice() {
        let mut frame = Vec::new();
        keys(1, 2).split().0.encode(&[b"once"], &mut frame);
        let mut decoder = keys(2, 1).split().1;
        assert_eq!(decode(&mut decoder, &frame).unwrap(), b"once");
        assert_eq!(decode(&mut decoder, &frame), Err(FrameError));
    }
}
