//! A reader of certificates (RFC 5280): names, dates, key.

use super::der::Der;

/// Fields of a certificate; its signature is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Certificate<'a> {
    /// The issuer, DER.
    pub(crate) issuer: &'a [u8],
    /// The subject, DER.
    pub(crate) subject: &'a [u8],
    /// Valid from, seconds since 1970.
    pub(crate) not_before: u64,
    /// Valid until, seconds since 1970.
    pub(crate) not_after: u64,
    /// The `SubjectPublicKeyInfo`, DER.
    pub(crate) public_key: &'a [u8],
}

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

impl<'a> Certificate<'a> {
    /// Reads DER.
    pub(crate) fn read(der: &'a [u8]) -> Option<Self> {
        let mut fields = Der::new(der).sequence()?.sequence()?;
        let _version = fields.context(0);
        let _serial = fields.integer()?;
        let _algorithm = fields.sequence()?;
        let issuer = fields.element()?.whole;
        let mut validity = fields.sequence()?;
        Some(Self {
            issuer,
            not_before: time(&mut validity)?,
            not_after: time(&mut validity)?,
            subject: fields.element()?.whole,
            public_key: fields.element()?.whole,
        })
    }
}

/// Whether a certificate may sign others: `cA` of its basic constraints (RFC 5280, 4.2.1.9).
pub(crate) fn is_authority(der: &[u8]) -> bool {
    fn says_so(der: &[u8]) -> Option<bool> {
        const EXTENSIONS: u8 = 0xa3;
        const BOOLEAN: u8 = 1;
        /// 2.5.29.19
        const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];
        let mut fields = Der::new(der).sequence()?.sequence()?;
        let mut field = fields.element()?;
        while field.tag != EXTENSIONS {
            field = fields.element()?;
        }
        let mut extensions = Der::new(field.content).sequence()?;
        loop {
            let mut extension = extensions.sequence()?;
            if extension.element()?.content != BASIC_CONSTRAINTS {
                continue;
            }
            let mut value = extension.element()?;
            if value.tag == BOOLEAN {
                value = extension.element()?; // The first was the flag `critical`.
            }
            let first = Der::new(value.content).sequence()?.element()?;
            return Some(first.tag == BOOLEAN && first.content == [0xff]);
        }
    }
    says_so(der).unwrap_or(false)
}

/// `YYMMDDHHMMSSZ`, or with a year of four digits.
fn time(der: &mut Der<'_>) -> Option<u64> {
    let element = der.element()?;
    let text = std::str::from_utf8(element.content)
        .ok()?
        .strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match element.tag {
        UTC_TIME => {
            let (year, rest) = text.split_at_checked(2)?;
            let year: u64 = year.parse().ok()?;
            (if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = text.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let (hour, minute, second) = (two(4)?, two(6)?, two(8)?);
    if rest.len() != 10 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Times before 1970 count as 1970.
    let days = days_since_1970(year, month, day).unwrap_or(0);
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// In the Gregorian calendar, with years that begin in March so that the leap day comes last.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let years = if month < 3 {
        year.checked_sub(1)?
    } else {
        year
    };
    let months = (month + 9) % 12;
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (months * 153 + 2) / 5 + day;
    days.checked_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_both_forms_are_seconds_since_1970() {
        let read = |tag: u8, text: &str| {
            let mut der = vec![tag, u8::try_from(text.len()).unwrap()];
            der.extend_from_slice(text.as_bytes());
            time(&mut Der::new(&der))
        };
        assert_eq!(read(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(read(UTC_TIME, "240229120000Z"), Some(1_709_208_000));
        assert_eq!(read(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(read(UTC_TIME, "500101000000Z"), Some(0));
        assert_eq!(
            read(GENERALIZED_TIME, "20500101000000Z"),
            Some(2_524_608_000)
        );
        assert_eq!(
            read(GENERALIZED_TIME, "99991231235959Z"),
            Some(253_402_300_799)
        );
        for text in [
            "",
            "Z",
            "2402291200Z",
            "241301000000Z",
            "24022912000Z",
            "2402291200+1Z",
        ] {
            assert_eq!(read(UTC_TIME, text), None, "{text}");
        }
    }
}
