//! The bytes behind attachments, in the forms that vendors take.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use tenure_core::{
    message::Part,
    model::{Fault, FaultKind},
};

/// What stands first where a context begins with a reply, which no vendor takes.
pub(crate) const GOES_ON: &str = "(The conversation goes on.)";

/// The attachments of a request.
pub(crate) struct Media<'a>(pub(crate) &'a BTreeMap<String, Arc<[u8]>>);

impl Media<'_> {
    pub(crate) fn base64(&self, r#ref: &str) -> Result<String, Fault> {
        Ok(STANDARD.encode(self.bytes(r#ref)?))
    }

    /// As vendors take it in place of an address.
    pub(crate) fn data_url(&self, r#ref: &str, mime_type: &str) -> Result<String, Fault> {
        let mut url = format!("data:{mime_type};base64,");
        STANDARD.encode_string(self.bytes(r#ref)?, &mut url);
        Ok(url)
    }

    pub(crate) fn text(&self, r#ref: &str) -> Result<String, Fault> {
        Ok(String::from_utf8_lossy(self.bytes(r#ref)?).into_owned())
    }

    fn bytes(&self, r#ref: &str) -> Result<&[u8], Fault> {
        let missing = || Fault::new(FaultKind::BadRequest, format!("the bytes of {} are gone", r#ref));
        self.0.get(r#ref).map(|bytes| &**bytes).ok_or_else(missing)
    }
}

/// Files that can be shown as they are.
pub(crate) fn is_text(mime_type: &str) -> bool {
    let essence = mime_type.split(';').next().unwrap_or_default().trim();
    essence.starts_with("text/")
        || ["application/json", "application/xml", "application/toml", "application/yaml"].contains(&essence)
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
}

pub(crate) fn is_pdf(mime_type: &str) -> bool {
    mime_type.split(';').next().unwrap_or_default().trim() == "application/pdf"
}

/// The file's own name.
pub(crate) fn file_name(r#ref: &str) -> &str {
    r#ref.rsplit('/').next().unwrap_or(r#ref)
}

/// A text file inside a message, where there is no better form for it.
pub(crate) fn quoted(name: &str, text: &str) -> String {
    format!("<file name=\"{name}\">\n{text}\n</file>")
}

pub(crate) fn unsupported(part: &Part) -> Fault {
    Fault::new(FaultKind::BadRequest, format!("unsupported_part: this model takes no part of type '{}'", part.kind()))
}
