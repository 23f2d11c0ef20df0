//! `search`: the same lines as ripgrep finds, in one order, bounded.

use std::process::Command;

use serde_json::{Value, json};
use tenure_tools::OUTPUT_BYTES_MAX;

use crate::rig::Rig;

fn rig() -> Rig {
    let rig = Rig::new();
    rig.put("a.rs", "fn One() {}\nlet x = 1;\nfn two() {}\n");
    rig.put("src/b.rs", "// fn three\nfn.four\n");
    rig.put("src/c.txt", "fn five\r\n");
    rig.put("target/d.rs", "fn hidden_by_rule\n");
    rig.put(".secret.rs", "fn hidden_by_name\n");
    rig.put("binary.rs", b"fn in_binary\n\0\n");
    rig.put(".gitignore", "target/\n");
    rig
}

#[track_caller]
fn inputs(pairs: &[(&str, Value)]) -> Value {
    Value::Object(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

#[tokio::test]
async fn lines_with_their_numbers_file_by_file() {
    let rig = rig();
    let all = "a.rs\n1:fn One() {}\n3:fn two() {}\n\nsrc/b.rs\n1:// fn three\n2:fn.four\n\nsrc/c.txt\n1:fn five";
    for (more, expected) in [
        (vec![], all),
        (
            vec![("pattern", json!("FN"))],
            "no line matches in the workspace (ignored, hidden and binary files were left out)",
        ),
        (vec![("pattern", json!("FN O")), ("case", json!("insensitive"))], "a.rs\n1:fn One() {}"),
        (vec![("pattern", json!("fn o"))], "a.rs\n1:fn One() {}"),
        (
            vec![("pattern", json!("fn o")), ("case", json!("sensitive"))],
            "no line matches in the workspace (ignored, hidden and binary files were left out)",
        ),
        (vec![("pattern", json!("fn.four")), ("literal", json!(true))], "src/b.rs\n2:fn.four"),
        (vec![("path", json!("src"))], "src/b.rs\n1:// fn three\n2:fn.four\n\nsrc/c.txt\n1:fn five"),
        (vec![("path", json!("src/c.txt"))], "src/c.txt\n1:fn five"),
        (vec![("path", json!("target"))], "target/d.rs\n1:fn hidden_by_rule"),
        (vec![("globs", json!(["*.rs", "!a.*"]))], "src/b.rs\n1:// fn three\n2:fn.four"),
        (
            vec![("pattern", json!("hidden")), ("hidden", json!(true)), ("ignored", json!(true))],
            ".secret.rs\n1:fn hidden_by_name\n\ntarget/d.rs\n1:fn hidden_by_rule",
        ),
        (vec![("files_only", json!(true))], "a.rs\nsrc/b.rs\nsrc/c.txt"),
        (vec![("pattern", json!("x =")), ("context", json!(1))], "a.rs\n1-fn One() {}\n2:let x = 1;\n3-fn two() {}"),
        (
            vec![("limit", json!(2))],
            "a.rs\n1:fn One() {}\n3:fn two() {}\n[5 matching lines in 3 files; the first 2 are here: narrow it by pattern, path or globs, or raise the limit]",
        ),
        (
            vec![("limit", json!(1)), ("files_only", json!(true))],
            "a.rs\n[3 files with a match; the first 1 are here: narrow it by pattern, path or globs, or raise the limit]",
        ),
    ] {
        let mut input = inputs(&[("pattern", json!("fn"))]);
        input.as_object_mut().unwrap().extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        // Globs let hidden files in, as they do for ripgrep.
        let text = rig.text("search", input.clone()).await;
        assert_eq!(
            text.replace(".secret.rs\n1:fn hidden_by_name\n\na", "a")
                .replace(".secret.rs\n1:fn hidden_by_name\n\nsrc", "src"),
            expected,
            "{input}"
        );
    }
}

#[tokio::test]
async fn what_cannot_be_searched_is_told() {
    let rig = rig();
    std::os::unix::fs::symlink("/etc", rig.workspace.join("out")).unwrap();
    for (input, begins) in [
        (json!({"pattern": "("}), "the pattern cannot be used: "),
        (json!({"pattern": "a\nb", "literal": true}), "the pattern cannot be used: "),
        (json!({"pattern": "x", "globs": ["{"]}), "the glob '{' cannot be used: "),
        (json!({"pattern": "x", "path": "../"}), "../ is outside the workspace"),
        (json!({"pattern": "root", "path": "out"}), "out is a symlink"),
        (json!({"pattern": "root", "path": "out/passwd"}), "out/passwd leads through a symlink"),
    ] {
        let error = rig.error("search", input).await;
        assert!(error.starts_with(begins), "{error}");
    }
    assert!(rig.text("search", json!({"pattern": "root:"})).await.starts_with("no line matches"));
}

#[tokio::test]
async fn a_flood_of_matches_is_bounded_and_always_the_same() {
    let rig = Rig::new();
    for file in 0..300 {
        rig.put(
            &format!("d{}/f{file:03}.txt", file % 7),
            format!("needle {file} {}\n", "x".repeat(file * 5)).repeat(20),
        );
    }
    let first = rig.text("search", json!({"pattern": "needle", "limit": 2000})).await;
    assert!(first.len() <= OUTPUT_BYTES_MAX && first.contains("the whole is in artifacts/"), "{}", first.len());
    assert!(first.ends_with("[6000 matching lines in 300 files; the first 2000 are here: narrow it by pattern, path or globs, or raise the limit]"));
    let whole = rig.blobs.0.lock().unwrap().values().next().unwrap().clone();
    assert_eq!(String::from_utf8_lossy(&whole).lines().filter(|line| line.contains(":needle")).count(), 2000);
    for _ in 0..5 {
        assert_eq!(rig.text("search", json!({"pattern": "needle", "limit": 2000})).await, first);
        assert_eq!(*rig.blobs.0.lock().unwrap().values().next().unwrap(), whole);
    }
}

#[tokio::test]
async fn it_finds_what_ripgrep_finds() {
    let Ok(version) = Command::new("rg").arg("--version").output() else { return };
    assert!(version.status.success());
    let rig = Rig::new();
    let words = ["alpha", "Beta", "gamma_delta", "fn main", "x = 12", "ünï", "a.b", "\ttab"];
    for file in 0..120 {
        let lines: Vec<&str> = (0..30).map(|line| words[(file * 7 + line * 5 + file * line) % words.len()]).collect();
        rig.put(
            &format!("d{}/e{}/f{file}.{}", file % 5, file % 3, if file % 2 == 0 { "rs" } else { "txt" }),
            lines.join("\n"),
        );
    }
    rig.put(".ignore", "d3\n");
    for pattern in ["alpha", "Beta", "[a-z]+_", r"\d+$", "Ü", r"^\s", "a.b", "fn|ünï"] {
        let output = Command::new("rg")
            .args(["-S", "-n", "--no-heading", "--sort", "path", "-e", pattern, "."])
            .current_dir(&rig.workspace)
            .output()
            .unwrap();
        let mut expected: Vec<String> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| line.trim_start_matches("./").to_owned())
            .collect();
        let text = rig.text("search", json!({"pattern": pattern, "limit": 2000})).await;
        let blob = rig.blobs.0.lock().unwrap().values().next().cloned();
        let text =
            if text.contains("the whole is in") { String::from_utf8(blob.unwrap().to_vec()).unwrap() } else { text };
        rig.blobs.0.lock().unwrap().clear();
        let mut found: Vec<String> = vec![];
        let blocks = text.split("\n\n").filter(|block| !block.starts_with("no line matches"));
        for block in blocks {
            let (path, lines) = block.split_once('\n').unwrap();
            found.extend(lines.lines().map(|line| format!("{path}:{line}")));
        }
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{pattern}");
    }
}
