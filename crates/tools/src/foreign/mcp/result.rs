//! What a server answered, as a result of ours: text within bounds and the rest beside the log, images and sounds as
//! artifacts. Nothing of it is believed to be free of secrets.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    redact::Secrets,
    tool::{Artifact, ToolResult},
};

use crate::{CallContext, OUTPUT_BYTES_MAX, output::Capture, shell::keep_output};

/// Images, sounds and files that one result may hold.
const BLOBS_MAX: usize = 16;
const BLOB_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A structured answer longer than this is not kept beside its text.
const STRUCTURED_BYTES_MAX: usize = 32 * 1024;

/// The result that the model sees.
pub(super) async fn of(answer: ServerResult, context: &CallContext, secrets: &Secrets) -> ToolResult {
    match answer {
        ServerResult::CallToolResult(result) => {
            let mut made = Making { context, text: String::new(), parts: vec![], artifacts: vec![], blobs: 0 };
            made.take(&result).await;
            made.finish(result, secrets).await
        }
        ServerResult::InputRequiredResult(_) => ToolResult::failed(
            "the server asks for input in the middle of this call, and nobody here answers such questions",
        ),
        ServerResult::CreateTaskResult(_) => {
            ToolResult::failed("the server made a task of this call, which is not followed here; it may go on there")
        }
        _ => ToolResult::failed("the server answered with something that is no result of a tool"),
    }
}

struct Making<'c> {
    context: &'c CallContext,
    text: String,
    parts: Vec<Part>,
    artifacts: Vec<Artifact>,
    blobs: usize,
}

impl Making<'_> {
    async fn take(&mut self, result: &CallToolResult) {
        for block in &result.content {
            match block {
                ContentBlock::Text(text) => self.say(&text.text),
                ContentBlock::Image(image) => self.keep("image", &image.data, &image.mime_type).await,
                ContentBlock::Audio(audio) => self.keep("audio", &audio.data, &audio.mime_type).await,
                ContentBlock::Resource(resource) => match &resource.resource {
                    ResourceContents::TextResourceContents { uri, text, .. } => self.say(&format!("[{uri}]\n{text}")),
                    ResourceContents::BlobResourceContents { uri, blob, mime_type, .. } => {
                        self.say(&format!("[{uri}]"));
                        let mime_type = mime_type.as_deref().unwrap_or("application/octet-stream");
                        self.keep("file", blob, mime_type).await;
                    }
                    _ => self.say("[a resource of a kind that is not known here]"),
                },
                ContentBlock::ResourceLink(link) => self.say(&format!("[resource {}: {}]", link.name, link.uri)),
                _ => self.say("[a part of a kind that is not known here]"),
            }
        }
        let structured = result.structured_content.as_ref().filter(|_| result.content.is_empty());
        if let Some(structured) = structured {
            self.say(&structured.to_string());
        }
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    /// Puts bytes beside the log; what cannot be kept is said.
    async fn keep(&mut self, kind: &str, data: &str, mime_type: &str) {
        let number = self.blobs;
        self.blobs += 1;
        let problem = match STANDARD.decode(data) {
            _ if number >= BLOBS_MAX => format!("only the first {BLOBS_MAX} are kept"),
            Err(_) => "it is not valid base64".into(),
            Ok(bytes) if bytes.len() > BLOB_BYTES_MAX => format!("it is larger than {BLOB_BYTES_MAX} bytes"),
            Ok(bytes) => {
                let name = self.context.blob_name(&format!("-{number}{}", suffix(mime_type)));
                match self.context.blobs.put(&name, Bytes::from(bytes)).await {
                    Ok(artifact) => return self.show(kind, artifact, mime_type),
                    Err(error) => error,
                }
            }
        };
        self.say(&format!("[{kind} ({mime_type}) left out: {problem}]"));
    }

    fn show(&mut self, kind: &str, artifact: Artifact, mime_type: &str) {
        let (r#ref, mime_type) = (artifact.r#ref.clone(), mime_type.to_owned());
        self.artifacts.push(artifact);
        match kind {
            "image" => self.parts.push(Part::Image { r#ref, mime_type }),
            "audio" => self.parts.push(Part::Audio { r#ref, mime_type }),
            // Hardly a model takes files of any type; where it lies can be said to all of them.
            _ => self.say(&format!("[file ({mime_type}) kept as {}]", r#ref)),
        }
    }

    async fn finish(mut self, result: CallToolResult, secrets: &Secrets) -> ToolResult {
        let failed = result.is_error.unwrap_or(false);
        let mut capture = Capture::new(OUTPUT_BYTES_MAX);
        capture.push(secrets.redact(&self.text).as_bytes());
        let shown = keep_output(self.context, capture, ".txt", OUTPUT_BYTES_MAX).await;
        self.artifacts.extend(shown.artifacts);
        if !shown.text.is_empty() || self.parts.is_empty() {
            let text = if shown.text.is_empty() { "(no output)".to_owned() } else { shown.text };
            self.parts.insert(0, Part::text(text));
        }
        let structured = result.structured_content.map(|mut value| {
            secrets.redact_json(&mut value);
            value
        });
        let detail = match structured {
            Some(value) if value.to_string().len() <= STRUCTURED_BYTES_MAX => json!({ "structured": value }),
            Some(_) => json!({ "structured_left_out": true }),
            None => Value::Null,
        };
        let error = failed.then(|| first_line(&self.parts));
        ToolResult { ok: !failed, parts: self.parts, artifacts: self.artifacts, error, redacted: vec![], detail }
    }
}

/// A short reason, for people.
fn first_line(parts: &[Part]) -> String {
    let text = parts.iter().find_map(|part| match part {
        Part::Text { text } => text.lines().find(|line| !line.trim().is_empty()),
        _ => None,
    });
    crate::output::head_of(text.unwrap_or("the tool failed"), 256)
}

/// A name's end by which people's programs know what is in it.
fn suffix(mime_type: &str) -> &'static str {
    match mime_type.split(';').next().unwrap_or_default().trim() {
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "image/svg+xml" => ".svg",
        "audio/wav" | "audio/x-wav" => ".wav",
        "audio/mpeg" => ".mp3",
        "application/pdf" => ".pdf",
        _ => ".bin",
    }
}
