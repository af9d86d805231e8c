//! The parameters of a call, read one by one.
//!
//! Error messages are geth's, since clients match on them.

use crate::json_reader::{self, Reader};
use crate::quantity;
use crate::response_stream::ResponseStream;
use crate::{RpcError, RpcResult};
use niwaki_primitives::{B256, U256};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::time::Instant;

pub(crate) use crate::quantity::{Count, Number, Quantity};

/// The parameters of one call.
#[derive(Debug)]
pub struct Params<'a> {
    values: Vec<&'a RawValue>,
    /// When the caller stops waiting.
    pub deadline: Instant,
    /// Where the response goes while it is written, if the client takes it in chunks.
    pub(crate) stream: Option<&'a ResponseStream>,
}

impl<'a> Params<'a> {
    /// Reads the `params` member; one that is absent or null has no parameters.
    ///
    /// # Errors
    /// -32602 if it is no array.
    pub fn new(raw: Option<&'a str>, deadline: Instant) -> Result<Self, RpcError> {
        let values = match raw {
            None | Some("null") => Vec::new(),
            Some(raw) => serde_json::from_str(raw)
                .map_err(|_| RpcError::invalid_params("params must be an array"))?,
        };
        Ok(Self {
            values,
            deadline,
            stream: None,
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The parameter `index`, which must be there.
    ///
    /// # Errors
    /// -32602 if it is missing, null or not what it must be.
    pub fn required<T: Deserialize<'a>>(&self, index: usize) -> Result<T, RpcError> {
        self.optional(index)?.ok_or_else(|| missing(index))
    }

    /// The parameter `index`, if it is there and not null.
    ///
    /// # Errors
    /// -32602 if it is not what it must be.
    pub fn optional<T: Deserialize<'a>>(&self, index: usize) -> Result<Option<T>, RpcError> {
        self.read(index, &[])
    }

    /// As [`Params::optional`], of a type that is not ours: values of the keys `quantities`, at any depth,
    /// must be QUANTITYs or null.
    ///
    /// # Errors
    /// -32602 if it is not what it must be.
    pub(crate) fn read<T: Deserialize<'a>>(
        &self,
        index: usize,
        quantities: &'static [&'static str],
    ) -> Result<Option<T>, RpcError> {
        let read = self
            .raw(index)
            .map(|raw| json_reader::read_with(raw, quantities));
        read.transpose().map_err(|error| {
            RpcError::invalid_params(format!("invalid argument {index}: {}", plain(&error)))
        })
    }

    /// The hash that is parameter `index`: 0x and 64 digits.
    ///
    /// # Errors
    /// -32602 if it is missing or no hash.
    pub fn hash(&self, index: usize) -> Result<B256, RpcError> {
        let text: Cow<'_, str> = self.required(index)?;
        let hash = text.strip_prefix("0x").map(str::parse);
        let reason = match hash {
            Some(Ok(hash)) => return Ok(hash),
            Some(Err(_)) => "want 64 hex digits for a hash",
            None => "hex string without 0x prefix",
        };
        let message = format!("invalid argument {index}: {reason}");
        Err(RpcError::invalid_params(message))
    }

    /// The JSON of the parameter `index`, if it is there and not null.
    pub fn raw(&self, index: usize) -> Option<&'a str> {
        let raw = self.values.get(index)?.get();
        (raw != "null").then_some(raw)
    }

    /// Sends what `out` holds as a chunk, if it has the size of one and the client takes chunks.
    ///
    /// # Errors
    /// -32000 if the client has gone or reads too slowly.
    pub(crate) fn flush(&self, out: &mut Vec<u8>) -> RpcResult {
        match self.stream {
            Some(stream) => stream.flush(out, self.deadline),
            None => Ok(()),
        }
    }

    /// Fails once the caller has stopped waiting.
    ///
    /// # Errors
    /// -32000.
    pub fn check_deadline(&self) -> RpcResult {
        if Instant::now() > self.deadline {
            return Err(RpcError::server("request timed out"));
        }
        Ok(())
    }
}

/// The error for a call without the parameter `index`.
pub(crate) fn missing(index: usize) -> RpcError {
    RpcError::invalid_params(format!("missing value for required argument {index}"))
}

/// The error's message without line and column: the caller has never seen the text that they refer to.
pub(crate) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Which block a caller means by number or tag; the head if it names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockTag {
    /// The block with this number.
    Number(u64),
    /// The genesis block.
    Earliest,
    /// The head.
    #[default]
    Latest,
    /// The block that would follow the head; answered as the head.
    Pending,
    /// The newest block that the consensus client calls safe.
    Safe,
    /// The newest block that the consensus client calls finalized.
    Finalized,
}

impl<'de> Deserialize<'de> for BlockTag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        parse_tag(&text).map_err(D::Error::custom)
    }
}

fn parse_tag(text: &str) -> Result<BlockTag, &'static str> {
    Ok(match text {
        "earliest" => BlockTag::Earliest,
        "latest" => BlockTag::Latest,
        "pending" => BlockTag::Pending,
        "safe" => BlockTag::Safe,
        "finalized" => BlockTag::Finalized,
        number => BlockTag::Number(quantity::number(number)?),
    })
}

/// Which block a caller means by number, tag or hash (EIP-1898).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRef {
    /// By number or tag.
    Tag(BlockTag),
    /// By hash.
    Hash {
        /// The hash.
        hash: B256,
        /// Whether a block that is not canonical is refused.
        require_canonical: bool,
    },
}

impl Default for BlockRef {
    /// The head.
    fn default() -> Self {
        Self::Tag(BlockTag::default())
    }
}

impl<'de> Deserialize<'de> for BlockRef {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BlockRefVisitor)
    }
}

struct BlockRefVisitor;

impl<'de> Visitor<'de> for BlockRefVisitor {
    type Value = BlockRef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number, tag or hash of a block, or an object with one of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<BlockRef, E> {
        if text.len() == 66 && text.starts_with("0x") {
            let hash = text.parse().map_err(E::custom)?;
            return Ok(BlockRef::Hash {
                hash,
                require_canonical: false,
            });
        }
        parse_tag(text).map(BlockRef::Tag).map_err(E::custom)
    }

    /// EIP-1898. An unknown key is refused: it could have meant another block.
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<BlockRef, A::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct ByObject {
            block_number: Option<BlockTag>,
            block_hash: Option<B256>,
            #[serde(default)]
            require_canonical: bool,
        }
        let by = ByObject::deserialize(Reader::new(MapAccessDeserializer::new(map)))?;
        match (by.block_hash, by.block_number) {
            (Some(hash), None) => Ok(BlockRef::Hash {
                hash,
                require_canonical: by.require_canonical,
            }),
            (None, Some(tag)) => Ok(BlockRef::Tag(tag)),
            (None, None) => Err(A::Error::custom(
                "must specify either BlockHash or BlockNumber",
            )),
            (Some(_), Some(_)) => Err(A::Error::custom(
                "cannot specify both BlockHash and BlockNumber, choose one or the other",
            )),
        }
    }
}

/// A storage key: up to 32 bytes, leading zeros or not.
///
/// # Errors
/// -32602.
pub(crate) fn storage_key(text: &str) -> Result<U256, RpcError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let digits = digits.unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let message = format!("invalid hex in storage key: {text:?}");
        return Err(RpcError::invalid_params(message));
    }
    if digits.len() > 64 {
        let message = format!("storage key too long (want at most 32 bytes): {text:?}");
        return Err(RpcError::invalid_params(message));
    }
    U256::from_str_radix(digits, 16)
        .map_err(|error| RpcError::invalid_params(format!("invalid storage key: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(json: &str) -> Params<'_> {
        Params::new(Some(json), Instant::now()).unwrap()
    }

    #[test]
    fn blocks_are_named_by_number_tag_hash_or_object() {
        let hash = B256::repeat_byte(7);
        for (json, want) in [
            ("[\"0x10\"]", BlockRef::Tag(BlockTag::Number(16))),
            ("[\"latest\"]", BlockRef::Tag(BlockTag::Latest)),
            ("[\"finalized\"]", BlockRef::Tag(BlockTag::Finalized)),
            (
                "[{\"blockNumber\":\"0x1\"}]",
                BlockRef::Tag(BlockTag::Number(1)),
            ),
            (
                "[{\"blocknumber\":\"0x1\"}]",
                BlockRef::Tag(BlockTag::Number(1)),
            ),
            (
                &format!("[\"{hash}\"]"),
                BlockRef::Hash {
                    hash,
                    require_canonical: false,
                },
            ),
            (
                &format!("[{{\"blockHash\":\"{hash}\",\"requireCanonical\":true}}]"),
                BlockRef::Hash {
                    hash,
                    require_canonical: true,
                },
            ),
        ] {
            assert_eq!(params(json).required::<BlockRef>(0), Ok(want), "{json}");
        }
        for (json, word) in [
            ("[\"2h\"]", "without 0x prefix"),
            ("[\"12\"]", "without 0x prefix"),
            ("[\"0x\"]", "hex string"),
            ("[\"0x1ffffffffffffffff\"]", "> 64 bits"),
            ("[{}]", "must specify either BlockHash or BlockNumber"),
            (
                &format!("[{{\"blockHash\":\"{hash}\",\"blockNumber\":\"0x1\"}}]"),
                "cannot specify both BlockHash and BlockNumber",
            ),
            ("[{\"blockNumbr\":\"0x1\"}]", "unknown field `blockNumbr`"),
            ("[\"\"]", "empty hex string"),
            ("[\"0x+1\"]", "invalid hex string"),
            ("[\"0x01\"]", "leading zero digits"),
            ("[\"Latest\"]", "without 0x prefix"),
            ("[7]", "invalid type: integer `7`"),
            ("[null]", "missing value for required argument 0"),
            ("[]", "missing value for required argument 0"),
        ] {
            let error = params(json).required::<BlockRef>(0).unwrap_err();
            assert_eq!(error.code, -32602, "{json}");
            assert!(error.message.contains(word), "{json}: {}", error.message);
        }
    }

    #[test]
    fn params_that_are_no_array_are_refused() {
        for json in ["{}", "7", "\"x\"", "[1", ""] {
            let refused = Params::new(Some(json), Instant::now()).unwrap_err();
            assert_eq!(refused.code, -32602, "{json}");
        }
        assert_eq!(Params::new(None, Instant::now()).unwrap().len(), 0);
    }

    #[test]
    fn storage_keys_have_up_to_32_bytes() {
        assert_eq!(storage_key("0x1"), Ok(U256::from(1)));
        assert_eq!(storage_key(&format!("0x{:064x}", 5)), Ok(U256::from(5)));
        for key in ["0xasdf", "", "0x", &format!("0x{:065x}", 1)] {
            assert_eq!(storage_key(key).unwrap_err().code, -32602, "{key}");
        }
    }
}
