//! Files that go along with a message: what they are, and the parts that they become.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tenure_client::Client;
use tenure_wire::{NewAttachment, Part};

use crate::{
    daemon::{Way, insist},
    data,
    exit::Problem,
    piped,
    talk::TEXT_BYTES_MAX,
};

/// Larger files are refused before they are read to their end; the daemon's own limit may be lower.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A file that was read.
#[derive(Debug, PartialEq)]
pub struct Attached {
    name: String,
    content: Content,
}

#[derive(Debug, PartialEq)]
enum Content {
    /// Goes as text: every model can read it.
    Text(String),
    Bytes {
        mime_type: &'static str,
        bytes: Vec<u8>,
    },
}

/// Reads the files, before anything is sent.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Attached>> {
    paths.iter().map(|path| read_one(path)).collect()
}

/// The name that stands for standard input.
pub const STDIN: &str = "-";

fn read_one(path: &Path) -> anyhow::Result<Attached> {
    let bad = |why: String| Problem::usage(format!("{}: {why}", path.display()), "name a file with --attach FILE");
    let bytes = match path == Path::new(STDIN) {
        true => piped::bytes(FILE_BYTES_MAX as usize)?,
        false => bytes_of(path).map_err(|error| bad(error.to_string()))?,
    };
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(bad(format!("it is larger than {FILE_BYTES_MAX} bytes")).into());
    }
    if path == Path::new(STDIN) {
        return Ok(Attached { name: "stdin".into(), content: content(bytes) });
    }
    let name = path.file_name().map_or_else(|| "file".into(), |name| name.to_string_lossy().into_owned());
    Ok(Attached { name, content: content(bytes) })
}

fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn content(bytes: Vec<u8>) -> Content {
    if let Some(mime_type) = kind(&bytes) {
        return Content::Bytes { mime_type, bytes };
    }
    match String::from_utf8(bytes) {
        // Text has no such byte, whatever it was made by.
        Ok(text) if text.contains('\0') => {
            Content::Bytes { mime_type: "application/octet-stream", bytes: text.into_bytes() }
        }
        Ok(text) if text.len() <= TEXT_BYTES_MAX => Content::Text(text),
        Ok(text) => Content::Bytes { mime_type: "text/plain", bytes: text.into_bytes() },
        Err(error) => Content::Bytes { mime_type: "application/octet-stream", bytes: error.into_bytes() },
    }
}

/// What a file says of itself in its first bytes; a name may say anything.
fn kind(bytes: &[u8]) -> Option<&'static str> {
    const MARKS: [(&[u8], &str); 9] = [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"ID3", "audio/mpeg"),
        (b"\xff\xfb", "audio/mpeg"),
        (b"OggS", "audio/ogg"),
        (b"fLaC", "audio/flac"),
    ];
    let in_riff = match (bytes.get(..4), bytes.get(8..12)) {
        (Some(b"RIFF"), Some(b"WEBP")) => Some("image/webp"),
        (Some(b"RIFF"), Some(b"WAVE")) => Some("audio/wav"),
        _ => None,
    };
    in_riff.or_else(|| MARKS.iter().find(|(mark, _)| bytes.starts_with(mark)).map(|(_, kind)| *kind))
}

/// Gives the files to the session and says how a message names them.
pub async fn parts(client: &Client, way: &Way, session: &str, files: Vec<Attached>) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::with_capacity(files.len());
    for Attached { name, content } in files {
        parts.push(match content {
            Content::Text(text) => Part::text(format!("<file name=\"{name}\">\n{text}\n</file>")),
            Content::Bytes { mime_type, bytes } => {
                let file = NewAttachment {
                    name,
                    mime_type: Some(mime_type.to_owned()),
                    data: STANDARD.encode(bytes),
                    ..NewAttachment::default()
                };
                let keyed = client.with_key(data::random_hex()?);
                let kept = insist(&keyed, way, || keyed.attach(session, &file)).await?;
                named(kept.r#ref, kept.mime_type)
            }
        });
    }
    Ok(parts)
}

fn named(r#ref: String, mime_type: String) -> Part {
    match mime_type.split('/').next() {
        Some("image") => Part::Image { r#ref, mime_type },
        Some("audio") => Part::Audio { r#ref, mime_type },
        _ => Part::File { r#ref, mime_type },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_bytes_say() {
        for (bytes, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"RIFF....WEBPVP8 ", "image/webp"),
            (b"RIFF....WAVEfmt ", "audio/wav"),
            (b"ID3\x04", "audio/mpeg"),
            (b"%PDF-1.7", "application/pdf"),
            (b"\xfe\x00\x01", "application/octet-stream"),
        ] {
            let Content::Bytes { mime_type, .. } = content(bytes.to_vec()) else { panic!("{expected} is no text") };
            assert_eq!(mime_type, expected);
        }
        assert_eq!(content("grüße".into()), Content::Text("grüße".into()));
        let long = content(vec![b'x'; TEXT_BYTES_MAX + 1]);
        assert!(matches!(long, Content::Bytes { mime_type: "text/plain", .. }));
    }

    #[test]
    fn a_part_is_of_the_kind_of_its_file() {
        let kind = |mime_type: &str| named("attachments/a".into(), mime_type.into()).kind();
        assert_eq!(["image/png", "audio/wav", "application/pdf"].map(kind), ["image", "audio", "file"]);
    }
}
