//! `read_file`: text as it is, bounded, with a note where there is more.

use serde_json::json;
use tenure_tools::OUTPUT_BYTES_MAX;

use crate::rig::Rig;

#[tokio::test]
async fn the_text_comes_raw() {
    let rig = Rig::new();
    rig.put("a/b.txt", "one\r\n\ttwo\nthree");
    assert_eq!(rig.text("read_file", json!({"path": "a/b.txt"})).await, "one\r\n\ttwo\nthree");
}

#[tokio::test]
async fn offset_and_limit_are_lines() {
    let rig = Rig::new();
    rig.put("f", "1\n2\n3\n4\n5\n");
    let text = async |input| rig.text("read_file", input).await;
    assert_eq!(text(json!({"path": "f", "offset": 2, "limit": 2})).await, "2\n3\n[there is more; go on with offset 4]");
    assert_eq!(text(json!({"path": "f", "offset": 4})).await, "4\n5\n");
    assert_eq!(text(json!({"path": "f", "offset": 4, "limit": 2})).await, "4\n5\n");
    assert_eq!(text(json!({"path": "f", "offset": 9})).await, "[the file has only 5 lines; offset 9 is past its end]");
}

#[tokio::test]
async fn a_long_file_is_cut_at_a_line_and_goes_on_where_it_was_cut() {
    let rig = Rig::new();
    let whole: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
    rig.put("f", &whole);
    let (mut read, mut offset) = (String::new(), 1);
    loop {
        let text = rig.text("read_file", json!({"path": "f", "offset": offset})).await;
        assert!(text.len() <= OUTPUT_BYTES_MAX);
        match text.rsplit_once("[there is more; go on with offset ") {
            Some((part, next)) => {
                read.push_str(part);
                offset = next.trim_end_matches(']').parse().unwrap();
            }
            None => {
                read.push_str(&text);
                break;
            }
        }
    }
    assert_eq!(read, whole);
}

#[tokio::test]
async fn one_endless_line_is_cut_inside() {
    let rig = Rig::new();
    rig.put("f", "x".repeat(1 << 20));
    let text = rig.text("read_file", json!({"path": "f"})).await;
    assert!(text.len() <= OUTPUT_BYTES_MAX && text.ends_with("[line 1 is too long to show whole; it is cut here]"));
}

#[tokio::test]
async fn what_is_not_text_or_not_there() {
    let rig = Rig::new();
    rig.put("bin", b"ab\0cd");
    rig.put("latin", b"caf\xe9");
    rig.put("empty", "");
    rig.put("d/x", "");
    assert_eq!(rig.text("read_file", json!({"path": "bin"})).await, "bin is a binary file of 5 bytes; it is not shown");
    assert_eq!(rig.text("read_file", json!({"path": "latin"})).await, "caf\u{fffd}");
    assert_eq!(rig.text("read_file", json!({"path": "empty"})).await, "[the file is empty]");
    assert_eq!(rig.error("read_file", json!({"path": "none"})).await, "there is no file none");
    assert_eq!(rig.error("read_file", json!({"path": "empty/x"})).await, "there is no file empty/x");
    assert_eq!(rig.error("read_file", json!({"path": "d"})).await, "d is a directory, not a file");
}
