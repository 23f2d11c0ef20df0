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

/// One pixel each, made by the usual programs.
const PNG: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0, 0, 0x0d, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0, 0, 1, 8,
    6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 0x0d, 0x49, 0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0,
    0xf0, 0x1f, 0, 5, 0, 1, 0xff, 0x89, 0x99, 0x3d, 0x1d, 0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];
const GIF: &[u8] = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00\x21\xf9\x04\x01\x00\x00\x00\x00\x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b";
const WEBP: &[u8] =
    b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x0b\x08\x00\x02\x00\x03\x01\x01\x11\x00\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00\x37\xff\xd9";

#[tokio::test]
async fn a_picture_is_shown_as_one_whatever_its_name() {
    use tenure_core::{message::Part, tool::Artifact};
    for (bytes, kind, ending, sides) in [
        (PNG, "image/png", "png", "1 × 1"),
        (GIF, "image/gif", "gif", "1 × 1"),
        (WEBP, "image/webp", "webp", "1 × 1"),
        (JPEG, "image/jpeg", "jpg", "3 × 2"),
    ] {
        let rig = Rig::new();
        rig.put("picture.txt", bytes);
        let invoked = rig.call("read_file", json!({"path": "picture.txt"})).await;
        let name = format!("artifacts/turn_01J00000000000000000000002/{}.{ending}", crate::rig::CALL);
        let caption = format!("picture.txt: {kind}, {sides} pixels, {} bytes", bytes.len());
        let expected = vec![Part::text(caption), Part::Image { r#ref: name.clone(), mime_type: kind.into() }];
        assert_eq!((invoked.result.ok, invoked.result.parts), (true, expected));
        assert_eq!(invoked.result.artifacts, [Artifact::of(name.as_str(), bytes)]);
        assert_eq!(rig.blobs.0.lock().unwrap()[&name], bytes);
    }
}

/// A vendor would refuse it, and with it every later request of the session.
#[tokio::test]
async fn a_picture_that_a_vendor_would_refuse_is_only_described() {
    let rig = Rig::new();
    for (bytes, kind) in [(PNG, "image/png"), (GIF, "image/gif"), (WEBP, "image/webp"), (JPEG, "image/jpeg")] {
        for cut in 12..bytes.len() {
            rig.put("p", &bytes[..cut]);
            let expected = format!("p is a picture ({kind}) of {cut} bytes; it is not shown: it is damaged or cut off");
            assert_eq!(rig.text("read_file", json!({"path": "p"})).await, expected);
        }
    }
    let mut bad = PNG.to_vec();
    bad[45] ^= 1;
    rig.put("p", bad);
    assert!(rig.text("read_file", json!({"path": "p"})).await.ends_with("it is damaged or cut off"));
    let mut wide = GIF.to_vec();
    wide[7] = 0x40;
    rig.put("p", wide);
    assert!(
        rig.text("read_file", json!({"path": "p"}))
            .await
            .ends_with("16385 × 1 pixels, and models take no side above 8000")
    );
    rig.put("p", [PNG, &vec![0; 4_000_000]].concat());
    assert!(rig.text("read_file", json!({"path": "p"})).await.ends_with("models take no more than 3900000 bytes"));
    assert!(rig.blobs.0.lock().unwrap().is_empty());
}
