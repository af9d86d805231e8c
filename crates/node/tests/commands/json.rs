//! Blocks built from JSON files in Besu's format.

use crate::support::{CommandResult, TestDir};
use std::path::Path;

const KEY: &str = "8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63";
const RICH: &str = "fe3b557e8fb62b89f4916b721be55ceb828dbd73";

/// A genesis file that funds the account of [`KEY`], with `config` in addition to the chain id.
fn dir(config: &str) -> TestDir {
    let mut dir = TestDir::new();
    let genesis = format!(
        r#"{{"config":{{"chainId":2018,{config}}},"gasLimit":"0x1fffffffffffff",
            "difficulty":"0x20000","alloc":{{"{RICH}":{{"balance":"0xad78ebc5ac6200000"}}}}}}"#
    );
    dir.genesis = dir.file("genesis.json", genesis.as_bytes());
    dir
}

fn import(dir: &TestDir, json: &str) -> CommandResult {
    let file = dir.file("blocks.json", json.as_bytes());
    dir.run("blocks import --format JSON --from", &[Path::new(&file)])
}

fn transfer() -> String {
    format!(
        r#"{{"secretKey":"{KEY}","gasLimit":"0xFFFFF1","gasPrice":"0x3b9aca00","value":"0x01",
            "to":"627306090abaB3A6e1400e9345bC60c78a8BEf57"}}"#
    )
}

#[test]
fn json_blocks_are_built_signed_and_imported_on_every_fork() {
    let all = "\"homesteadBlock\":0,\"eip150Block\":0,\"eip155Block\":0,\"byzantiumBlock\":0,\
               \"constantinopleBlock\":0,\"petersburgBlock\":0,\"istanbulBlock\":0,\
               \"berlinBlock\":0,\"londonBlock\":0";
    for config in [
        "\"ethash\":{}".to_owned(),
        "\"petersburgBlock\":0,\"ethash\":{\"fixeddifficulty\":100}".to_owned(),
        format!("{all},\"ethash\":{{}}"),
        format!(
            "{all},\"terminalTotalDifficulty\":0,\"shanghaiTime\":0,\"cancunTime\":0,\
                 \"pragueTime\":24,\"osakaTime\":24"
        ),
    ] {
        let dir = dir(&config);
        let json = format!(
            r#"{{"Blocks":[{{"NUMBER":1,"transactions":[{0},{0}]}},{{"transactions":[]}},
                {{"number":"0x3","coinbase":"0x627306090abaB3A6e1400e9345bC60c78a8BEf57",
                  "extraData":"0x0123","transactions":[{{"secretKey":"{KEY}",
                  "gasLimit":"0xFFFFFF","gasPrice":"0x3b9aca00","data":"0x6001600155"}}]}}]}}"#,
            transfer()
        );
        let first = import(&dir, &json);
        // Without the system contracts, a block of Prague can't be built.
        if config.contains("prague") {
            first.failed(&["blocks[1]", "SYSTEM_CONTRACT"]);
            continue;
        }
        let first = first.succeeded();
        assert_eq!(
            (first.head().0, first.count("imported")),
            (3, 3),
            "{config}"
        );
        assert_eq!(dir.checked_head(), first.head());
        // The same file gives the same blocks.
        let again = import(&dir, &json).succeeded();
        assert_eq!(again.head(), first.head());
        assert_eq!(again.count("there before"), 3);
    }
}

#[test]
fn a_json_block_that_cannot_be_built_is_named() {
    let chain = dir("\"ethash\":{}");
    let block = |fields: &str| format!(r#"{{"blocks":[{{{fields}}}]}}"#);
    let with = |fields: &str| block(&format!(r#""transactions":[{{{fields}}}]"#));
    for (json, words) in [
        (block(r#""number":"0x999""#), "no block 2456"),
        (block(r#""number":0"#), "genesis"),
        (block(r#""parentHash":"0x12""#), "not known"),
        (block(r#""colour":1"#), "colour"),
        (block(r#""number":1,"NUMBER":1"#), "twice"),
        (block(r#""number":{}"#), "blocks[0].number = {}"),
        (
            with(r#""gasLimit":1"#),
            "blocks[0].transactions[0].secretKey is missing",
        ),
        (
            with(r#""secretKey":"0x00","gasLimit":21000"#),
            "transactions[0].secretKey",
        ),
        (
            with(r#""secretKey":"0x01","gasLimit":21000,"value":1"#),
            "INSUFFICIENT_ACCOUNT_FUNDS",
        ),
        (
            with(r#""secretKey":"0x01","gasLimit":"0x7FFFFFFFFFFFFFFF""#),
            "gas",
        ),
        (with(r#""secretKey":"zz","gasLimit":1"#), "secretKey = zz"),
        (
            with(r#""secretKey":"0x01","gasLimit":1,"to":"0x1""#),
            "to = 0x1",
        ),
        (
            with(r#""secretKey":"0x01","gasLimit":1,"data":"0x1""#),
            "data = 0x1",
        ),
        ("[]".to_owned(), "the file is not a JSON object"),
        (r#"{"blocks":1}"#.to_owned(), "blocks is not a list"),
    ] {
        import(&chain, &json).failed(&["blocks.json", words]);
    }
    assert_eq!(chain.checked_head().0, 0);

    let sealed = dir("\"petersburgBlock\":0,\"clique\":{}");
    let json = r#"{"blocks":[{"transactions":[]}]}"#;
    import(&sealed, json).failed(&["Clique", "signers"]);
    let file = chain.file("blocks.json", json.as_bytes());
    chain
        .run("blocks import --format JSON --end-block 3 --from", &[&file])
        .failed(&["--end-block", "JSON"]);
}
