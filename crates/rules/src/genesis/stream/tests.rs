//! A genesis read in pieces equals one read from memory, for any split and any order of keys.

use super::*;
use crate::genesis::Genesis;
use proptest::prelude::*;

/// A reader that returns a few bytes at a time.
struct Slow<'a>(&'a [u8], usize);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = self.1.min(buffer.len());
        self.0.read(&mut buffer[..most])
    }
}

const CONFIG: &str = r#""config": {"chainId": 7, "londonBlock": 0, "comment": "a \" b } \\"}"#;

/// Head and alloc of `text` read `step` bytes at a time.
fn read(
    text: &str,
    step: usize,
) -> Result<(GenesisHead, BTreeMap<Address, GenesisAccount>), GenesisError> {
    let mut collected = CollectedAlloc::default();
    let outcome = read_genesis(&mut Slow(text.as_bytes(), step), &mut |item| {
        collected.add(item);
        true
    });
    collected.finish(outcome)
}

fn refusal(alloc: &str) -> String {
    let text = format!(r#"{{{CONFIG}, "gasLimit": 1, "alloc": {alloc}}}"#);
    let whole = Genesis::from_json(&text).expect_err(alloc).to_string();
    assert_eq!(read(&text, 1).expect_err(alloc).to_string(), whole);
    whole
}

const A: &str = "0x00000000000000000000000000000000000000aa";

#[test]
fn a_refusal_of_an_account_names_the_path_of_the_key() {
    for (alloc, words) in [
        (
            format!(r#"{{"{A}": {{"balance": "x"}}}}"#),
            "alloc.0x00000000000000000000000000000000000000aa.balance = \"x\"",
        ),
        (
            format!(r#"{{"{A}": {{"Nonce": "0x10000000000000000"}}}}"#),
            "Nonce = \"0x10000000000000000\" does not fit in 64 bits",
        ),
        (
            format!(r#"{{"{A}": {{"code": "0xg"}}}}"#),
            "aa.code = \"0xg\" is not hex",
        ),
        (
            format!(r#"{{"{A}": {{"storage": {{"0xg": "0x1"}}}}}}"#),
            "aa.storage.0xg",
        ),
        (
            format!(r#"{{"{A}": {{"storage": {{"0x1": "0xg"}}}}}}"#),
            "aa.storage.0x1 = \"0xg\"",
        ),
        (
            format!(r#"{{"{A}": {{"storage": [1]}}}}"#),
            "aa.storage is not a JSON object",
        ),
        (format!(r#"{{"{A}": 7}}"#), "aa is not a JSON object"),
        (format!(r#"{{"{A}bb": {{}}}}"#), "aabb has 21 bytes, not 20"),
        (
            format!(r#"{{"{A}": {{"nonce": 1 "code": ""}}}}"#),
            "expected ',' or '}'",
        ),
        (
            format!(r#"{{"{A}": {{"x": tru}}}}"#),
            "aa.x is not a JSON object",
        ),
        (format!(r#"{{"{A}": {{"x": "\q"}}}}"#), "invalid escape"),
        (format!(r#"{{"{A}": {{}}"#), "expected ',' or '}'"),
        ("[]".to_owned(), "alloc is not a JSON object"),
    ] {
        let refusal = refusal(&alloc);
        assert!(refusal.contains(words), "{alloc}: {refusal}");
    }
}

#[test]
fn the_last_of_duplicate_accounts_counts() {
    let word = |n: u64| U256::from(n);
    let alloc = format!(
        r#"{{"{A}": {{"nonce": 5, "code": "0x01", "storage": {{"0x9": "0x9"}}}},
            "00000000000000000000000000000000000000AA": {{"balance": 1, "Balance": "0x2",
                "storage": {{"0x1": "0x1", "0x01": "0x2", "0x3": "0x3", "3": "0x0"}}}}}}"#
    );
    let text = format!(r#"{{{CONFIG}, "gasLimit": 1, "alloc": {alloc}}}"#);
    let right = GenesisAccount {
        balance: word(2),
        storage: [(word(1), word(2))].into(),
        ..GenesisAccount::default()
    };
    for step in [1, 1000] {
        let (_, alloc) = read(&text, step).unwrap();
        assert_eq!(
            (alloc.len(), alloc.first_key_value().unwrap().1),
            (1, &right)
        );
    }
}

#[test]
fn a_genesis_malformed_outside_alloc_is_refused() {
    for text in [
        "",
        "[]",
        r#"{"config": {"chainId": 1}, "gasLimit": 1"#,
        r#"{"config": {"chainId": 1}, "gasLimit": 1} 2"#,
        r#"{"config": {"chainId": 1}, "gasLimit": 1, "alloc": {}, "alloc": {}}"#,
        r#"{"config": {"chainId": 1}, "gasLimit": 1, "alloc": {}, "Alloc": {}}"#,
        "{\"config\": {\"chainId\": 1}, \"gasLimit\": \"1\n\"}",
        r#"{"config": {"chainId": 1}, "gasLimit": 1, "x": {"#,
        r#"{"config": {"chainId": 1}, "gasLimit": 1, "x": "#,
        r#"{"config": {"chainId": 1}, "gasLimit": 1, "x"#,
        r#"{"config": {"chainId": 1}, "gasLimit": 1, "x\"#,
    ] {
        assert!(Genesis::from_json(text).is_err(), "{text}");
        assert!(read(text, 1).is_err(), "{text}");
    }
}

#[test]
fn the_genesis_text_outside_alloc_is_kept_byte_for_byte() {
    for (before, after) in [
        (
            format!("{{ {CONFIG} ,\n\"gasLimit\":1, \"AlloC\" :  "),
            " } ",
        ),
        (
            "{\"alloc\":".to_owned(),
            ",\"gasLimit\": 1, \"config\": {\"chainId\": 7}}\n",
        ),
    ] {
        let alloc = format!("{{\"{A}\": {{\"balance\": 5}} }}");
        let text = format!("{before}{alloc}{after}");
        let (head, accounts) = read(&text, 3).unwrap();
        assert_eq!(head.text(), format!("{before}null{after}"));
        let range = head.alloc_bytes().unwrap();
        let place = |offset| usize::try_from(offset).unwrap();
        assert_eq!(text[place(range.start)..place(range.end)], alloc);
        assert_eq!(accounts.len(), 1);
        let again = GenesisHead::parse(head.text().to_owned(), head.alloc_bytes());
        assert_eq!(again, Ok(head));
    }
    let (head, accounts) = read(&format!("{{{CONFIG}, \"gasLimit\": 1}}"), 2).unwrap();
    assert_eq!((head.alloc_bytes(), accounts.len()), (None, 0));
}

#[test]
fn a_sink_that_returns_false_stops_reading() {
    let text = format!(r#"{{{CONFIG}, "gasLimit": 1, "alloc": {{"{A}": {{}}, bad}}}}"#);
    let outcome = read_genesis(&mut text.as_bytes(), &mut |_| false);
    assert!(matches!(outcome, Err(ReadError::Stopped)));
}

/// A number in one of the forms that clients write.
fn number(value: u64, form: u8) -> String {
    match form % 4 {
        0 => value.to_string(),
        1 => format!("\"{value}\""),
        2 => format!("\"0x{value:x}\""),
        _ => format!("\"0X{value:064X}\""),
    }
}

prop_compose! {
    fn account()(
        fields in (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..40)),
        slots in prop::collection::btree_map(any::<u64>(), 0_u64..4, 0..6),
        form in any::<u8>(),
    ) -> (GenesisAccount, String) {
        let (nonce, balance, code) = fields;
        let storage: Vec<String> = slots
            .iter()
            .map(|(slot, value)| format!("\"0x{slot:x}\": \"0x{value:02x}\""))
            .collect();
        let mut parts = [
            format!("\"NONCE\": {}", number(nonce, form)),
            format!("\"balance\" :{}", number(balance, form >> 2)),
            format!("\"c\\u006fde\": \"0x{}\"", alloy_primitives::hex::encode(&code)),
            format!("\"storage\": {{{}}}", storage.join(" ,")),
            "\"secret\": [{\"a\": [1, -2.5e3, null, \"}\"]}]".to_owned(),
        ];
        parts.rotate_left(usize::from(form % 5));
        let storage = slots.into_iter().filter(|(_, value)| *value != 0);
        let account = GenesisAccount {
            nonce,
            balance: U256::from(balance),
            code: code.into(),
            storage: storage.map(|(slot, value)| (U256::from(slot), U256::from(value))).collect(),
        };
        (account, format!("{{{}}}", parts.join(",\n ")))
    }
}

proptest! {
    #[test]
    fn random_allocs_come_out_as_they_were_written(
        accounts in prop::collection::btree_map(any::<[u8; 20]>(), account(), 0..8),
        step in 1_usize..40,
        is_alloc_first in any::<bool>(),
    ) {
        let rows: Vec<String> = accounts
            .iter()
            .map(|(address, (_, text))| format!("\"{}\": {text}", Address::from(*address)))
            .collect();
        let alloc = format!("\"alloc\": {{{}}}", rows.join(","));
        let rest = format!("{CONFIG}, \"gasLimit\": 1");
        let text = if is_alloc_first {
            format!("{{{alloc},{rest}}}")
        } else {
            format!("{{{rest},{alloc}}}")
        };
        let (head, got) = read(&text, step).unwrap();
        let want: BTreeMap<_, _> = accounts
            .into_iter()
            .map(|(address, (account, _))| (Address::from(address), account))
            .collect();
        prop_assert_eq!(&got, &want);
        let whole = Genesis::from_json(&text).unwrap();
        prop_assert_eq!(whole, Genesis::new(head, want));
    }
}
