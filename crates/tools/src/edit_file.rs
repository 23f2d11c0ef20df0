//! The `edit_file` tool: one text of one file becomes another. It never changes a byte outside of what it replaces, and never
//! guesses which place is meant.

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolSpec, VerifyPlan};

use crate::{
    CallContext, FILE_BYTES_MAX, Invoked, Tool,
    change::{self, Change, Summary},
    encoding::Encoding,
    substitution::{Edited, Extent, Units, substitute},
    tool::text_field,
    workspace::Workspace,
};

pub(crate) struct EditFile;

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "edit_file".into(),
            description: "Replaces a text in a file of the workspace. `old` must be in the file exactly as it stands, \
                          indentation included, and only once: give enough lines around it. `all` replaces it \
                          everywhere. Line endings of the file are kept."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "relative to the workspace"},
                    "old": {"type": "string", "minLength": 1, "description": "the text to replace"},
                    "new": {"type": "string", "description": "what takes its place"},
                    "all": {"type": "boolean", "description": "replace it everywhere; otherwise it must be there once"}
                },
                "required": ["path", "old", "new"],
                "additionalProperties": false
            }),
            kind: ToolKind::Write,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        text_field(input, "path").to_owned()
    }

    async fn prepare(&self, context: &CallContext, input: &Value) -> Result<Intent, String> {
        change::prepare(context, input, plan).await
    }

    async fn preview(&self, context: &CallContext, input: &Value, intent: &Intent) -> Result<String, String> {
        change::preview(context, input, intent, plan).await
    }

    async fn invoke(&self, context: &CallContext, input: &Value, intent: &Intent) -> Invoked {
        change::invoke(context, input, intent, plan, Summary::WithDiff).await
    }
}

fn plan(workspace: &Workspace, input: &Value) -> Result<Vec<Change>, String> {
    let path = workspace.inside(text_field(input, "path"))?;
    let (old, new) = (text_field(input, "old"), text_field(input, "new"));
    if old == new {
        return Err("old and new are the same text; nothing would change".into());
    }
    let extent = if input.get("all") == Some(&Value::Bool(true)) { Extent::All } else { Extent::One };
    let before = workspace.place(&path)?.current(&path)?;
    let found = before.as_ref().ok_or_else(|| format!("there is no file {path}; write_file makes one"))?;
    let edited = edit(&found.bytes, old, new, extent).map_err(|why| format!("{path}: {why}"))?;
    if edited.bytes.len() > FILE_BYTES_MAX {
        return Err(format!("{path} would become larger than {} MiB", FILE_BYTES_MAX >> 20));
    }
    Ok(vec![Change { notes: edited.notes, ..Change::new(path, before, Some(edited.bytes)) }])
}

/// The file's new bytes, in the encoding that it has.
fn edit(bytes: &[u8], old: &str, new: &str, extent: Extent) -> Result<Edited, String> {
    match Encoding::of(bytes)? {
        Encoding::Utf8 => substitute(bytes, old.as_bytes(), new.as_bytes(), extent),
        Encoding::OtherBytes => {
            if !(old.is_ascii() && new.is_ascii()) {
                return Err("it is not UTF-8 (perhaps Latin-1), so only ASCII text can be replaced in it".into());
            }
            let edited = substitute(bytes, old.as_bytes(), new.as_bytes(), extent)?;
            // In some encodings an ASCII byte behind another one is a part of it.
            match edited.starts.iter().any(|at| *at > 0 && !bytes[at - 1].is_ascii()) {
                true => {
                    Err("it is not UTF-8, and old begins right behind a character that is not ASCII; begin it earlier \
                             or later"
                        .into())
                }
                false => Ok(edited),
            }
        }
        Encoding::Utf16(order) => {
            let units = order.read(bytes);
            let encoded = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
            let edited = substitute(&units, &encoded(old), &encoded(new), extent)?;
            Ok(Edited { bytes: order.write(&edited.bytes), notes: edited.notes, starts: edited.starts })
        }
    }
}

impl Units for u8 {
    fn of_ascii(byte: u8) -> Self {
        byte
    }

    fn shown(all: &[Self]) -> Vec<u8> {
        all.to_vec()
    }
}

impl Units for u16 {
    fn of_ascii(byte: u8) -> Self {
        byte.into()
    }

    fn shown(all: &[Self]) -> Vec<u8> {
        String::from_utf16_lossy(all).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn edited(bytes: &[u8], old: &str, new: &str) -> Vec<u8> {
        edit(bytes, old, new, Extent::One).unwrap().bytes
    }

    #[track_caller]
    fn refused(bytes: &[u8], old: &str, new: &str, why: &str) {
        let error = edit(bytes, old, new, Extent::One).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn what_is_replaced_is_all_that_changes() {
        assert_eq!(edited(b"one two three", "two", "2"), b"one 2 three");
        assert_eq!(edited(b"\xef\xbb\xbfa\nb", "a\nb", "c"), b"\xef\xbb\xbfc", "the mark stays, and so does the end");
        assert_eq!(edited("grün\n".as_bytes(), "grün", "blau"), b"blau\n");
        assert_eq!(edit(b"a-a-a", "a", "bb", Extent::All).unwrap().bytes, b"bb-bb-bb");
    }

    #[test]
    fn line_ends_of_the_file_are_kept_whatever_the_model_writes() {
        assert_eq!(edited(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz"), b"x\r\ny\r\nz\r\nc\r\n");
        assert_eq!(edited(b"a\r\nb\r\n", "b", "x\ny"), b"a\r\nx\r\ny\r\n");
        // Mixed ones: each line that is not replaced keeps its own.
        assert_eq!(edited(b"a\r\nb\nc\n", "a\nb", "x\ny"), b"x\r\ny\nc\n");
        assert_eq!(edited(b"a\nb\r\nc\r\n", "c", "x\ny"), b"a\nb\r\nx\r\ny\r\n");
        // Whoever writes the carriage return means it.
        assert_eq!(edited(b"a\r\nb\r\n", "a\r\n", "a\n"), b"a\nb\r\n");
        assert_eq!(edited(b"a\nb", "a\nb\n", "x\ny\n"), b"x\ny", "the end that was never there");
    }

    #[test]
    fn a_text_that_is_not_there_once_is_refused_with_help() {
        refused(b"a\nb\na\n", "a", "x", "it is there 2 times, at lines 1, 3");
        refused(
            b"fn a() {\n    one();\n}\n",
            "fn a() {\n  one();\n}",
            "x",
            "line 2 is `    one();` and not `  one();`",
        );
        refused(b"", "a", "x", "is not in the file");
        refused(b"aaa", "aa", "x", "2 times");
    }

    #[test]
    fn other_encodings_are_kept_or_refused() {
        let little: Vec<u8> =
            [0xff, 0xfe].into_iter().chain("grün\r\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        let expected: Vec<u8> =
            [0xff, 0xfe].into_iter().chain("blau\r\nx\r\nb\r\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
        assert_eq!(edited(&little, "grün\n", "blau\nx\n"), expected);
        let big: Vec<u8> = [0xfe, 0xff].into_iter().chain("a𝄞b".encode_utf16().flat_map(u16::to_be_bytes)).collect();
        let expected: Vec<u8> =
            [0xfe, 0xff].into_iter().chain("a♪b".encode_utf16().flat_map(u16::to_be_bytes)).collect();
        assert_eq!(edited(&big, "𝄞", "♪"), expected);
        // Latin-1.
        assert_eq!(edited(b"caf\xe9 one", "one", "two"), b"caf\xe9 two");
        refused(b"caf\xe9 one", "café", "x", "only ASCII");
        refused(b"caf\xe9 one", "one", "é", "only ASCII");
        refused(b"caf\xe9s", "s", "x", "right behind a character");
        refused(&[0xff, 0xfe, 0x61], "a", "b", "UTF-16");
        refused(&[0xff, 0xfe, 0x00, 0xd8], "a", "b", "UTF-16");
        refused(&[0xff, 0xfe, 0, 0, 0x61, 0, 0, 0], "a", "b", "UTF-32");
    }
}
