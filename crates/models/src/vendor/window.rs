//! How long a request a server on this machine can read, as far as it tells. It is asked beside a turn, never in its way.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tenure_core::model::Fault;

use super::{Endpoint, Transport, Wire};

/// A server on this machine answers such a question at once, or not at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
/// Models that are asked after one by one.
const ASKED_MAX: usize = 32;
/// What Ollama gives a model whose window nobody has set, if it has as much: the rest of a request is cut off unsaid.
const OLLAMA_WINDOW: u64 = 4096;
/// How Ollama names itself as the owner of what it lists.
const OLLAMA: &str = "library";

/// A model that a server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) id: String,
    pub(crate) window: Option<u64>,
}

/// What stands in a server's list, with the windows that it tells of.
pub(crate) async fn offers(transport: &Transport, endpoint: &Endpoint, wire: Wire, list: &Value) -> Vec<Offer> {
    let asked = entries(list).take(ASKED_MAX).map(|entry| window(transport, endpoint, wire, entry));
    let mut windows = join_all(asked).await.into_iter();
    let offer = |entry: &Value| Offer { id: id(entry).to_owned(), window: windows.next().flatten() };
    entries(list).map(offer).collect()
}

/// The window of one model.
pub(crate) async fn of(transport: &Transport, endpoint: &Endpoint, wire: Wire, model: &str) -> Option<u64> {
    let list = tokio::time::timeout(PATIENCE, list(transport, endpoint, wire)).await.ok()?.ok()?;
    let own = entries(&list).find(|entry| id(entry) == model);
    // One that has a single model need not care for names.
    let entry = own.or_else(|| entries(&list).next().filter(|_| entries(&list).count() == 1))?;
    window(transport, endpoint, wire, entry).await
}

pub(crate) async fn list(transport: &Transport, endpoint: &Endpoint, wire: Wire) -> Result<Value, Fault> {
    // The other addresses end with a version.
    let path = if wire == Wire::Anthropic { "v1/models" } else { "models" };
    transport.get_json(endpoint, wire, path).await
}

/// `data` is OpenAI's word for the list.
fn entries(list: &Value) -> impl Iterator<Item = &Value> {
    list["data"].as_array().into_iter().flatten().filter(|entry| !id(entry).is_empty())
}

fn id(entry: &Value) -> &str {
    entry["id"].as_str().unwrap_or_default()
}

async fn window(transport: &Transport, endpoint: &Endpoint, wire: Wire, entry: &Value) -> Option<u64> {
    if let Some(window) = listed(entry) {
        return Some(window);
    }
    if !endpoint.is_local() {
        return None;
    }
    let asked = async {
        match entry["owned_by"].as_str() {
            Some(OLLAMA) => ollama(transport, endpoint, wire, id(entry)).await,
            // llama.cpp tells it of the one model that it has.
            _ => {
                let props = transport.get_json(endpoint, wire, "../props").await.ok()?;
                number(&props, "/default_generation_settings/n_ctx")
            }
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.ok().flatten()
}

/// vLLM, llama.cpp and others say it in their lists.
fn listed(entry: &Value) -> Option<u64> {
    let places = ["/max_model_len", "/meta/n_ctx", "/n_ctx", "/loaded_context_length", "/context_length"];
    places.iter().find_map(|place| number(entry, place))
}

/// As it runs, as it is set, or as it is by default.
async fn ollama(transport: &Transport, endpoint: &Endpoint, wire: Wire, model: &str) -> Option<u64> {
    let running = transport.get_json(endpoint, wire, "../api/ps").await.unwrap_or_default();
    let is_it = |entry: &&Value| entry["model"] == model || entry["name"] == model;
    let found = running["models"].as_array().into_iter().flatten().find(is_it);
    if let Some(window) = found.and_then(|entry| number(entry, "/context_length")) {
        return Some(window);
    }
    let shown = transport.post_json(endpoint, wire, "../api/show", &json!({ "model": model })).await.ok()?;
    let parameters = shown["parameters"].as_str().unwrap_or_default();
    let set = parameters.lines().find_map(|line| line.trim().strip_prefix("num_ctx")?.trim().parse().ok());
    set.or_else(|| {
        let facts = shown["model_info"].as_object()?;
        let most = facts.iter().find(|(name, _)| name.ends_with(".context_length"))?.1.as_u64()?;
        Some(most.min(OLLAMA_WINDOW))
    })
}

fn number(value: &Value, place: &str) -> Option<u64> {
    value.pointer(place).and_then(Value::as_u64).filter(|number| *number > 0)
}
