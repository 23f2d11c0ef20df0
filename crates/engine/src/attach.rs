//! Files that people give to a session: the bytes first, durable beside the log, then the event that tells of them.

use bytes::Bytes;
use tenure_core::{
    command::{Answer, Command},
    event::Actor,
    ids::SessionId,
    message::Attachment,
    session::{ATTACHMENTS_MAX, Life},
};

use crate::{Engine, Error};

/// How much of a given name is kept.
const NAME_CHARS_MAX: usize = 80;
/// How much of the digest stands in a name: other bytes under the same name are another file.
const DIGEST_CHARS: usize = 12;

impl Engine {
    /// Gives a file to a session. The same bytes under the same name are the same attachment.
    pub async fn attach(
        &self,
        session: SessionId,
        file: NewFile,
        key: Option<String>,
        actor: Actor,
    ) -> Result<Answer, Error> {
        let state = self.session(session).await?;
        let digest = blake3::hash(&file.bytes).to_hex().to_string();
        let name = safe_name(&self.0.parts.secrets.redact(&file.name));
        let attachment = Attachment {
            r#ref: format!("attachments/{}-{name}", &digest[..DIGEST_CHARS]),
            mime_type: file.mime_type,
            bytes: file.bytes.len() as u64,
            digest,
        };
        // What would be refused, or was answered before, leaves nothing behind.
        let is_wanted = match state.attachments.iter().find(|known| known.r#ref == attachment.r#ref) {
            // What the disk has lost comes back when it is given again.
            Some(known) => {
                known.digest == attachment.digest
                    && self.sound(session, &known.r#ref, Some(&known.digest)).await.is_err()
            }
            None => state.life == Life::Open && state.attachments.len() < ATTACHMENTS_MAX,
        };
        if is_wanted {
            self.0.parts.store.blob_put(session, &attachment.r#ref, file.bytes).await?;
        }
        self.command(session, Command::Attach { attachment }, key, actor).await
    }

    /// An attachment and its bytes, by the name behind `attachments/`.
    pub async fn attachment(&self, session: SessionId, name: &str) -> Result<Option<(Attachment, Bytes)>, Error> {
        let state = self.session(session).await?;
        let wanted = format!("attachments/{name}");
        let Some(known) = state.attachments.iter().find(|known| known.r#ref == wanted) else { return Ok(None) };
        let sound = self.sound(session, &known.r#ref, Some(&known.digest)).await?;
        Ok(Some((known.clone(), sound.bytes)))
    }
}

/// A file as somebody gave it.
#[derive(Debug, Clone)]
pub struct NewFile {
    pub name: String,
    pub mime_type: String,
    pub bytes: Bytes,
}

/// A name that is a plain file name on every system, whatever was given.
fn safe_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or("");
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let chars: Vec<char> = last.chars().map(plain).collect();
    // The end tells what it is, so of a long name the end is kept.
    let kept: String = chars[chars.len().saturating_sub(NAME_CHARS_MAX)..].iter().collect();
    let name = kept.trim_start_matches('.').trim_end_matches('.');
    if name.is_empty() { "file".into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_file_names() {
        for (given, expected) in [
            ("img_01.png", "img_01.png"),
            ("../../etc/passwd", "passwd"),
            ("C:\\Users\\x\\a b.txt", "a_b.txt"),
            ("..", "file"),
            ("", "file"),
            ("a/", "file"),
            (".hidden", "hidden"),
            ("ünï\0\n.md", "_n___.md"),
            ("x.", "x"),
        ] {
            assert_eq!(safe_name(given), expected, "{given:?}");
        }
        let long = safe_name(&format!("{}.tar.gz", "a".repeat(500)));
        assert!(long.len() == NAME_CHARS_MAX && long.ends_with(".tar.gz"));
    }
}
