//! A streaming JSON reader, as far as reading a huge object member by member needs one.
//!
//! In: any reader. Out: keys, and the text of values. Memory is a buffer and whatever the caller keeps. The reader
//! knows the syntax of JSON, not the content of a genesis; values that are not plain strings are validated by
//! `serde_json`.

use super::{GenesisError, ReadError};
use serde_json::value::RawValue;
use std::io::{ErrorKind, Read};

const BUFFER_BYTES: usize = 256 << 10;

/// Most bytes of one value or key: enough for code and comments, not for an alloc.
pub(super) const MAX_VALUE_BYTES: usize = 64 << 20;

/// A JSON reader that moves forward only.
pub(super) struct Scanner<'a> {
    input: &'a mut dyn Read,
    buffer: Box<[u8]>,
    at: usize,
    end: usize,
    /// Bytes before the buffer.
    before: u64,
    /// The text copied so far, and where its continuation in the buffer begins.
    copy: Vec<u8>,
    copy_from: Option<usize>,
}

impl<'a> Scanner<'a> {
    /// Starts at the first byte of `input`, copying the text that is read.
    pub(super) fn new(input: &'a mut dyn Read) -> Self {
        Self {
            input,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            at: 0,
            end: 0,
            before: 0,
            copy: Vec::new(),
            copy_from: Some(0),
        }
    }

    /// Bytes read.
    pub(super) fn offset(&self) -> u64 {
        self.before.saturating_add(self.at as u64)
    }

    /// Reads `count` bytes that are in the buffer.
    fn pass(&mut self, count: usize) {
        self.at = self.at.saturating_add(count);
    }

    /// Stops copying the text that is read.
    pub(super) fn stop_copying(&mut self) {
        if let Some(from) = self.copy_from.take() {
            self.copy.extend_from_slice(&self.buffer[from..self.at]);
        }
    }

    /// Adds `bytes` to the copy instead of the text that was skipped, and continues to copy.
    pub(super) fn resume_copying(&mut self, bytes: &[u8]) {
        self.copy.extend_from_slice(bytes);
        self.copy_from = Some(self.at);
    }

    /// The copied text.
    pub(super) fn into_copy(mut self) -> Vec<u8> {
        self.stop_copying();
        self.copy
    }

    /// The next byte that is not white space, without consuming it; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<u8>, ReadError> {
        loop {
            while self.at < self.end {
                let byte = self.buffer[self.at];
                if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                    return Ok(Some(byte));
                }
                self.pass(1);
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Reads `byte`, which must come next after white space. `path` names it in errors.
    pub(super) fn expect(&mut self, byte: u8, path: &dyn Fn() -> String) -> Result<(), ReadError> {
        if self.peek()? == Some(byte) {
            self.pass(1);
            return Ok(());
        }
        Err(self.bad(path, &format!("expected '{}'", char::from(byte))))
    }

    /// Reads the next key of an object and its colon; `None` after the last one and the closing brace. `is_first` tells
    /// whether it is the first key.
    pub(super) fn next_key(
        &mut self,
        is_first: &mut bool,
        path: &dyn Fn() -> String,
    ) -> Result<Option<String>, ReadError> {
        let next = self.peek()?;
        if next == Some(b'}') {
            self.pass(1);
            return Ok(None);
        }
        if !std::mem::take(is_first) {
            if next != Some(b',') {
                return Err(self.bad(path, "expected ',' or '}'"));
            }
            self.pass(1);
        }
        if self.peek()? != Some(b'"') {
            return Err(self.bad(path, "expected a key"));
        }
        let mut text = Vec::new();
        let is_plain = self.string(&mut text, path)?;
        let key = if is_plain {
            // Without the quotes.
            text.pop();
            text.remove(0);
            String::from_utf8(text).map_err(|error| self.bad(path, &error.to_string()))?
        } else {
            serde_json::from_slice(&text).map_err(|error| self.bad(path, &error.to_string()))?
        };
        self.expect(b':', path)?;
        Ok(Some(key))
    }

    /// The text of the next value, as it is written.
    pub(super) fn value(&mut self, path: &dyn Fn() -> String) -> Result<String, ReadError> {
        let mut text = Vec::new();
        let is_plain = match self.peek()? {
            Some(b'"') => self.string(&mut text, path)?,
            Some(b'{' | b'[') => {
                self.nested(&mut text, path)?;
                false
            }
            Some(_) => {
                self.scalar(&mut text)?;
                false
            }
            None => return Err(self.bad(path, "the file ends")),
        };
        if !is_plain && let Err(error) = serde_json::from_slice::<&RawValue>(&text) {
            return Err(self.bad(path, &error.to_string()));
        }
        String::from_utf8(text).map_err(|error| self.bad(path, &error.to_string()))
    }

    /// Copies a string with its quotes; says whether it is plain, which is without escapes.
    fn string(&mut self, text: &mut Vec<u8>, path: &dyn Fn() -> String) -> Result<bool, ReadError> {
        let mut is_plain = true;
        self.pass(1);
        text.push(b'"');
        loop {
            let rest = &self.buffer[self.at..self.end];
            let stop = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
            text.extend_from_slice(&rest[..stop.unwrap_or(rest.len())]);
            if text.len() > MAX_VALUE_BYTES {
                return Err(self.too_long(path));
            }
            let Some(stop) = stop else {
                self.at = self.end;
                if !self.fill()? {
                    return Err(self.bad(path, "the file ends in a string"));
                }
                continue;
            };
            self.pass(stop);
            match self.buffer[self.at] {
                b'"' => {
                    self.pass(1);
                    text.push(b'"');
                    return Ok(is_plain);
                }
                b'\\' => {
                    is_plain = false;
                    text.push(b'\\');
                    self.pass(1);
                    if self.at == self.end && !self.fill()? {
                        return Err(self.bad(path, "the file ends in a string"));
                    }
                    text.push(self.buffer[self.at]);
                    self.pass(1);
                }
                _ => return Err(self.bad(path, "a control character in a string")),
            }
        }
    }

    /// Copies an object or an array.
    fn nested(&mut self, text: &mut Vec<u8>, path: &dyn Fn() -> String) -> Result<(), ReadError> {
        let mut depth = 0_u32;
        loop {
            let Some(byte) = self.peek()? else {
                return Err(self.bad(path, "the file ends in a value"));
            };
            if byte == b'"' {
                self.string(text, path)?;
                continue;
            }
            // White space keeps numbers and words apart.
            text.push(b' ');
            if matches!(byte, b'{' | b'[' | b'}' | b']' | b',' | b':') {
                text.push(byte);
                self.pass(1);
            } else {
                self.scalar(text)?;
            }
            match byte {
                b'{' | b'[' => depth = depth.saturating_add(1),
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                return Ok(());
            }
            if text.len() > MAX_VALUE_BYTES {
                return Err(self.too_long(path));
            }
        }
    }

    /// Copies what is neither a string nor nested: up to the next mark or white space.
    fn scalar(&mut self, text: &mut Vec<u8>) -> Result<(), ReadError> {
        loop {
            while self.at < self.end {
                let byte = self.buffer[self.at];
                if matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | b',' | b':' | b'"')
                    || matches!(byte, b'{' | b'}' | b'[' | b']')
                {
                    return Ok(());
                }
                text.push(byte);
                self.pass(1);
            }
            if text.len() > MAX_VALUE_BYTES || !self.fill()? {
                return Ok(());
            }
        }
    }

    /// Refills the buffer once all of it was read; `false` at the end.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if let Some(from) = &mut self.copy_from {
            self.copy.extend_from_slice(&self.buffer[*from..self.end]);
            *from = 0;
            if self.copy.len() > MAX_VALUE_BYTES {
                return Err(self.too_long(&|| "the file without its alloc".to_owned()));
            }
        }
        self.before = self.before.saturating_add(self.end as u64);
        (self.at, self.end) = (0, 0);
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(read) => {
                    self.end = read;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::Io(error)),
            }
        }
    }

    /// The error at this position.
    pub(super) fn bad(&self, path: &dyn Fn() -> String, reason: &str) -> ReadError {
        ReadError::Genesis(GenesisError::Json {
            at: path(),
            reason: format!("{reason}, at byte {}", self.offset()),
        })
    }

    fn too_long(&self, path: &dyn Fn() -> String) -> ReadError {
        self.bad(path, &format!("more than {MAX_VALUE_BYTES} bytes"))
    }
}
