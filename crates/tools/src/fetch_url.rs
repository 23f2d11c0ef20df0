//! The `fetch_url` tool: the text of a page or file of the network. It never speaks to an address that is not public
//! unless the user's configuration allows it, whatever a name resolves to and wherever a redirection leads; it sends no
//! credentials, keeps no cookies and goes by no proxy.

mod address;
mod client;
mod page;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use reqwest::Url;
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};

use crate::{CallContext, Invoked, OUTPUT_BYTES_MAX, Tool, output::Capture, shell::keep_output, tool::text_field};
pub use address::{BadNetwork, Network, PrivateAddresses};
use client::{Client, Fetched};

/// What is read of one answer; what comes after is left out.
const FETCH_BYTES_MAX: usize = 5 * 1024 * 1024;
/// For the whole of it: names, redirections, connecting and reading.
const FETCH_TIME_MAX: Duration = Duration::from_secs(30);
const REDIRECTS_MAX: usize = 5;
/// Longer ones are refused before anything is sent.
const URL_BYTES_MAX: u64 = 8 * 1024;
/// Room for the lines around the text.
const NOTE_BYTES: usize = 12 * 1024;

pub(crate) struct FetchUrl {
    client: Arc<Client>,
}

impl FetchUrl {
    pub(crate) fn new(private: PrivateAddresses) -> Self {
        Self { client: Arc::new(Client::new(private)) }
    }
}

#[async_trait]
impl Tool for FetchUrl {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "fetch_url".into(),
            description: "Fetches a page or file over http or https and returns its text: HTML as readable text with \
                          headings, links, lists and code, other text and JSON as it is. Pictures and other binary \
                          files are refused. Addresses of this machine and of private networks are refused unless \
                          the user has allowed them."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "url": {"type": "string", "minLength": 1, "maxLength": URL_BYTES_MAX, "description": "begins with http:// or https://"}
                },
                "required": ["url"],
                "additionalProperties": false
            }),
            kind: ToolKind::Network,
        }
    }

    /// As it will be asked for, so that a rule cannot be got around by another spelling.
    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        let text = text_field(input, "url");
        Url::parse(text).map_or_else(|_| text.to_owned(), String::from)
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let work = self.client.fetch(text_field(input, "url"));
        let fetched = tokio::select! {
            fetched = tokio::time::timeout(FETCH_TIME_MAX, work) => fetched,
            () = context.cancel.cancelled() => return Invoked::failed("stopped"),
        };
        match fetched {
            Ok(Ok(fetched)) => shown(context, fetched).await,
            Ok(Err(error)) => Invoked::failed(error),
            Err(_) => Invoked::failed(format!("it took longer than {} s and was given up", FETCH_TIME_MAX.as_secs())),
        }
    }
}

/// What the model is given: where it came from, what it is, and its text.
async fn shown(context: &CallContext, fetched: Fetched) -> Invoked {
    let text = match fetched.text() {
        Ok(text) => text,
        Err(error) => return Invoked::failed(error),
    };
    let mut capture = Capture::new(OUTPUT_BYTES_MAX);
    capture.push(text.as_bytes());
    let shown = keep_output(context, capture, ".txt", OUTPUT_BYTES_MAX - NOTE_BYTES).await;
    let mut told = format!("{} ({}, {} bytes)\n\n", fetched.url, fetched.kind, fetched.body.len());
    told.push_str(if shown.text.trim().is_empty() { "(no text)" } else { shown.text.trim_end() });
    if fetched.is_cut {
        told.push_str(&format!("\n[only its first {} MiB were read]", FETCH_BYTES_MAX >> 20));
    }
    let error = (!fetched.status.is_success()).then(|| format!("the server answered {}", fetched.status));
    if let Some(error) = &error {
        told = format!("{error}\n{told}");
    }
    let detail = json!({ "status": fetched.status.as_u16(), "url": fetched.url.as_str(), "bytes": fetched.body.len() });
    let parts = vec![Part::text(told)];
    Invoked::done(ToolResult {
        ok: error.is_none(),
        parts,
        artifacts: shown.artifacts,
        error,
        detail,
        ..ToolResult::ok("")
    })
}
