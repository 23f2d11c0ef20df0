//! Finds out whether a server shows tools to its model at all. Many local ones take `tools`, answer with 200 and drop them.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::model::{Fault, FaultKind};

use crate::{
    catalog::Provider,
    vendor::{Transport, Wire},
};

/// A server may have to load the model first.
const PATIENCE: Duration = Duration::from_secs(120);

/// What became of a tool that a server was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolSupport {
    /// It takes tokens: the model is shown it.
    Shown,
    /// The request has as many tokens as without it: the model never sees it.
    Dropped,
    /// The server refuses it, in these words.
    Refused(String),
}

/// Asks for one token twice, with and without a tool, and compares what the server counts.
pub async fn tools(transport: &Transport, provider: &Provider, id: &str) -> Result<ToolSupport, Fault> {
    let without = counted(transport, provider, &question(id)).await?;
    let mut with_tool = question(id);
    with_tool["tools"] = json!([{
        "type": "function",
        "function": {
            "name": "look_up_weather",
            "description": "Tells the weather of a town.",
            "parameters": {
                "type": "object",
                "properties": { "town": { "type": "string", "description": "Its name." } },
                "required": ["town"],
            },
        },
    }]);
    match counted(transport, provider, &with_tool).await {
        Ok(with) if with > without => Ok(ToolSupport::Shown),
        Ok(_) => Ok(ToolSupport::Dropped),
        Err(fault) if fault.kind == FaultKind::BadRequest => Ok(ToolSupport::Refused(fault.message)),
        Err(fault) => Err(fault),
    }
}

fn question(id: &str) -> Value {
    json!({ "model": id, "messages": [{ "role": "user", "content": "Hi." }], "max_tokens": 1, "stream": false })
}

/// Tokens of the request, as the server counts them.
async fn counted(transport: &Transport, provider: &Provider, body: &Value) -> Result<u64, Fault> {
    let endpoint = provider.endpoint();
    let asked = transport.post_json(&endpoint, Wire::Chat, "chat/completions", body);
    let silent = |_| Fault::new(FaultKind::StreamStalled, format!("no answer within {} s", PATIENCE.as_secs()));
    let answer = tokio::time::timeout(PATIENCE, asked).await.map_err(silent)??;
    let uncounted = || Fault::new(FaultKind::Malformed, "the answer does not tell how many tokens the request had");
    answer["usage"]["prompt_tokens"].as_u64().ok_or_else(uncounted)
}
