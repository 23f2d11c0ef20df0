//! Files that were made to break a parser: it ends, and the other files are there.

use std::{fs::File, time::Duration};

use tenure_outline::{Repository, Survey, survey};

use crate::fixture::{Fixture, NEVER};

const ENDINGS: [&str; 9] = ["rs", "py", "js", "ts", "tsx", "go", "java", "c", "cpp"];

fn look(fixture: &Fixture, parse_time: Duration) -> Survey {
    let root = fixture.root.path();
    let open = |path: &str| File::open(root.join(path));
    survey(&Repository { root, below: "", open: &open, cache: None, parse_time }, &NEVER).unwrap()
}

fn survives(name: &str, bytes: &[u8]) {
    let fixture = Fixture::empty();
    for ending in ENDINGS {
        fixture.put(&format!("bad.{ending}"), bytes);
    }
    fixture.put("good.py", "def good():\n    pass\n");
    let survey = look(&fixture, Duration::from_millis(30));
    let good = survey.files.iter().find(|file| file.path == "good.py");
    assert!(good.is_some_and(|file| &*file.tags.definitions[0].name == "good"), "{name}");
    assert_eq!(survey.files.len(), ENDINGS.len() + 1, "{name}");
}

#[test]
fn a_file_that_takes_too_long_is_given_up_and_counted() {
    let fixture = Fixture::mixed();
    let survey = look(&fixture, Duration::ZERO);
    assert_eq!(survey.skipped.too_slow, survey.files.len());
    assert_eq!(look(&fixture, Duration::from_secs(60)).skipped.too_slow, 0);
}

#[test]
fn deep_nesting() {
    for (open, count) in [("(", 50_000), ("{", 50_000), ("[", 50_000), ("<", 30_000), ("fn a() {", 8_000)] {
        survives(open, open.repeat(count).as_bytes());
    }
    let indented: String = (0..600).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
    survives("indent", indented.as_bytes());
    survives("class", "class A { void f() { ".repeat(3_000).as_bytes());
}

#[test]
fn long_lines_and_names() {
    survives("line", "x = 1; ".repeat(15_000).as_bytes());
    survives("name", "a".repeat(500_000).as_bytes());
    survives("string", format!("\"{}", "\\".repeat(100_000)).as_bytes());
    survives("operators", "-!*&".repeat(30_000).as_bytes());
    survives("comment", "/*".repeat(50_000).as_bytes());
    let signature = format!("def f({}):\n    pass\n", "a, ".repeat(20_000));
    survives("signature", signature.as_bytes());
}

#[test]
fn bytes_that_are_no_text() {
    survives("high", &[0xff; 100_000]);
    survives(
        "halves",
        "fn ä() {}\n".repeat(5_000).as_bytes().iter().map(|byte| byte ^ 0x80).collect::<Vec<u8>>().as_slice(),
    );
    survives("half a letter", &b"def f\xc3(x\xe2\x82):\n    pass\nclass \xf0\x9f: pass\n".repeat(1000));
    survives("returns", "fn a() {}\r".repeat(20_000).as_bytes());
}
