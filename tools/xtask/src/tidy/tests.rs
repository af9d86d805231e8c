//! One case per rule: what breaks it, and what is just within it.

use super::*;
use crate::finding::testing::rules;

fn findings_of(path: &str, text: &str, allow: &str) -> Vec<Finding> {
    check_files(
        &[(path.to_owned(), text.to_owned())],
        &Allow::parse(allow).unwrap(),
    )
}

fn rules_of(path: &str, text: &str) -> Vec<&'static str> {
    rules(&findings_of(path, text, ""))
}

fn function_of(lines: usize) -> String {
    format!(
        "//! A.\nfn long() {{\n{}}}\n",
        "    f();\n".repeat(lines - 2)
    )
}

#[test]
fn a_rust_file_opens_with_a_header() {
    assert_eq!(
        rules_of("crates/a/src/lib.rs", "fn f() {}\n"),
        ["file-header"]
    );
    assert_eq!(
        rules_of("crates/a/src/lib.rs", "//! A.\nfn f() {}\n"),
        [""; 0]
    );
}

#[test]
fn text_is_ascii_and_markdown_is_narrow() {
    assert_eq!(rules_of("a.md", "caf\u{e9}\n"), ["ascii"]);
    assert_eq!(rules_of("a.md", &"x".repeat(161)), ["markdown-width"]);
    assert_eq!(rules_of("a.md", &"x".repeat(160)), [""; 0]);
    let finding = &findings_of("a.md", "one\ncaf\u{e9}\n", "")[0];
    assert_eq!(
        finding.to_string(),
        "a.md:2: ascii: U+00E9 is not ASCII: write it in ASCII"
    );
}

#[test]
fn a_long_file_says_why_and_a_very_long_one_is_a_listed_table() {
    let long = |header: &str, lines: usize| format!("{header}\n{}", "//\n".repeat(lines - 1));
    let path = "crates/a/src/lib.rs";
    assert_eq!(rules_of(path, &long("//! A.", 600)), [""; 0]);
    assert_eq!(rules_of(path, &long("//! A.", 601)), ["file-length"]);
    assert_eq!(
        rules_of(path, &long("//! Length: one table.", 1000)),
        [""; 0]
    );
    let over = long("//! Length: one table.", 1001);
    assert_eq!(rules_of(path, &over), ["file-length"]);
    assert!(findings_of(path, &over, "table crates/a/src/lib.rs # opcodes").is_empty());
}

#[test]
fn an_exception_that_no_longer_applies_is_a_finding() {
    let allow = "table b.rs # t\nfunction a.rs long 120 # f";
    let findings = findings_of("a.rs", &function_of(100), allow);
    assert_eq!(rules(&findings), ["stale-exception", "stale-exception"]);
    let lowered = findings_of("a.rs", &function_of(110), "function a.rs long 120 # f");
    assert!(lowered[0].advice.contains("110 lines"), "{lowered:?}");
}

#[test]
fn a_function_ends_within_a_hundred_lines_or_its_listed_figure() {
    assert_eq!(rules_of("a.rs", &function_of(100)), [""; 0]);
    assert_eq!(rules_of("a.rs", &function_of(101)), ["function-length"]);
    let listed = |lines| findings_of("a.rs", &function_of(lines), "function a.rs long 110 # loop");
    assert_eq!(rules(&listed(110)), [""; 0]);
    assert_eq!(rules(&listed(111)), ["function-length"]);
}

#[test]
fn the_list_of_exceptions_refuses_lines_without_a_reason_or_a_number() {
    for bad in ["table a.rs", "function a.rs f x # y", "file a.rs # y"] {
        assert!(
            Allow::parse(bad).unwrap_err().contains("allow.txt:1:"),
            "{bad}"
        );
    }
}

#[test]
fn unfinished_code_is_refused_even_in_tests_but_not_in_comments() {
    assert_eq!(
        rules_of("tests/a.rs", "//! A.\nfn f() { todo!() }"),
        ["unfinished"]
    );
    assert_eq!(
        rules_of("a.rs", "//! A.\n// todo!()\nfn f() { g(\"dbg!()\") }"),
        [""; 0]
    );
}

#[test]
fn unwrap_is_for_tests_only() {
    let code = "//! A.\nfn f() { x.unwrap(); }\n";
    assert_eq!(rules_of("crates/a/src/lib.rs", code), ["unwrap"]);
    assert_eq!(rules_of("crates/a/tests/all.rs", code), [""; 0]);
    let inline = "//! A.\n#[cfg(test)]\nmod tests {\n fn f() { x.unwrap(); }\n}\n";
    assert_eq!(rules_of("crates/a/src/lib.rs", inline), [""; 0]);
}

#[test]
fn long_tests_move_to_their_own_file() {
    let tests = |lines: usize| {
        format!(
            "//! A.\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            "\n".repeat(lines - 3)
        )
    };
    assert_eq!(rules_of("a.rs", &tests(150)), [""; 0]);
    assert_eq!(rules_of("a.rs", &tests(151)), ["inline-tests"]);
}

#[test]
fn unsafe_and_the_outside_world_stay_in_their_rooms() {
    let code = "//! A.\nfn f() { unsafe { g() }; std::fs::read(p) }\n";
    assert_eq!(
        rules_of("crates/trie/src/lib.rs", code),
        ["pure-room", "unsafe-room"]
    );
    assert_eq!(rules_of("crates/evm/src/lib.rs", code), ["pure-room"]);
    assert_eq!(rules_of("crates/storage/src/lib.rs", code), [""; 0]);
}

#[test]
fn the_hash_of_a_header_comes_from_the_rules() {
    let code = "//! A.\nfn f() { g(header.hash_slow(), Header::hash_slow) }\n";
    assert_eq!(
        rules_of("crates/sync/src/lib.rs", code),
        ["header-hash", "header-hash"]
    );
    for path in [
        "crates/rules/src/lib.rs",
        "crates/sync/src/tests.rs",
        "tools/bench/src/main.rs",
    ] {
        assert_eq!(rules_of(path, code), [""; 0]);
    }
}

#[test]
fn banned_words_are_found_in_identifiers_comments_and_documents() {
    let text = "//! Anybody waits.\nfn run_errand() {}\n// plots and allots\n";
    let findings = findings_of("crates/a/src/x.rs", text, "");
    assert_eq!(rules(&findings), ["words", "words"]);
    assert_eq!(findings[1].line, 2);
    assert_eq!(rules_of("docs/a.md", "Whomever it runs\n"), ["words"]);
}

#[test]
fn a_ratchet_lets_so_many_findings_pass_and_only_goes_down() {
    let text = "//! Anybody and whomever.\n";
    let with = |allow: &str| rules(&findings_of("crates/a/src/x.rs", text, allow));
    assert_eq!(with("count words crates/a/ 2 # old"), [""; 0]);
    assert_eq!(with("count words crates/a/ 1 # old"), ["words", "words"]);
    assert_eq!(with("count words crates/a/ 3 # old"), ["stale-exception"]);
    assert_eq!(
        with("count words crates/b/ 2 # old"),
        ["words", "words", "stale-exception"]
    );
}

#[test]
fn a_tuple_is_no_parameter() {
    let path = "crates/a/src/x.rs";
    let rules = |signature: &str| rules_of(path, &format!("//! A.\n{signature} {{}}\n"));
    assert_eq!(rules("fn f((a, b): (u8, u8))"), ["tuple-parameter"]);
    assert_eq!(
        rules("fn f<F: Fn(u8) -> u8>(x: F, (a, b): &(u8, u8))"),
        ["tuple-parameter"]
    );
    assert_eq!(rules("fn f(pair: (u8, u8), g: impl Fn((u8, u8)))"), [""; 0]);
    assert_eq!(rules("fn f(Wrapper(a): Wrapper, (a): u8)"), [""; 0]);
}

#[test]
fn the_header_of_a_crate_names_its_modules() {
    let path = "crates/a/src/lib.rs";
    assert_eq!(rules_of(path, "//! A.\nmod b;\n"), ["file-map"]);
    assert_eq!(
        rules_of(path, "//! `b`: B.\nmod b;\nmod tests;\nmod c {}\n"),
        [""; 0]
    );
    assert_eq!(rules_of("crates/a/src/b.rs", "//! A.\nmod c;\n"), [""; 0]);
}

#[test]
fn product_code_is_the_same_in_tests() {
    let path = "crates/a/src/x.rs";
    assert_eq!(
        rules_of(
            path,
            "//! A.\nconst N: u8 = if cfg!(test) { 1 } else { 2 };\n"
        ),
        ["cfg-test"]
    );
    assert_eq!(
        rules_of(path, "//! A.\n#[cfg(test)]\nfn f() {}\n"),
        ["cfg-test"]
    );
    assert_eq!(
        rules_of(
            path,
            "//! A.\n#[cfg(test)]\npub mod t { fn f() { cfg!(test); } }\n"
        ),
        [""; 0]
    );
}

#[test]
fn architecture_lists_the_traits_that_cross_a_border() {
    let check = |list: &str, code: &str| {
        let files = [
            (
                "ARCHITECTURE.md".to_owned(),
                format!("- Traits that cross a border: {list}\n- Next\n"),
            ),
            ("crates/a/src/x.rs".to_owned(), format!("//! A.\n{code}\n")),
        ];
        rules(&check_files(&files, &Allow::default()))
    };
    assert_eq!(check("`View`.", "pub trait View {}"), [""; 0]);
    assert_eq!(
        check("`View`.", "pub trait View {}\npub trait Seam {}"),
        ["border-traits"]
    );
    assert_eq!(
        check("`View`, `Seam`.", "pub trait View {}"),
        ["border-traits"]
    );
}
