//! What servers on this machine say they have. Asked shortly, and kept for a moment: lists are looked at often.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tenure_core::model::{Fault, FaultKind};

use super::Provider;
use crate::vendor::{Transport, Wire};

/// A server on this machine answers such a question at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(2);
const KEPT: Duration = Duration::from_secs(5);

/// What a server has, or why that is not known.
type Answer = Result<Vec<String>, Fault>;

/// The last answers, by provider.
#[derive(Debug, Default)]
pub(super) struct Offered {
    kept: Mutex<HashMap<String, Kept>>,
}

#[derive(Debug)]
struct Kept {
    at: Instant,
    answer: Answer,
}

impl Offered {
    pub(super) async fn by(&self, provider: &Provider, transport: &Transport) -> Answer {
        if let Some(kept) = self.lock().get(provider.name()).filter(|kept| kept.at.elapsed() < KEPT) {
            return kept.answer.clone();
        }
        let answer = asked(provider, transport).await;
        let kept = Kept { at: Instant::now(), answer: answer.clone() };
        self.lock().insert(provider.name().to_owned(), kept);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn asked(provider: &Provider, transport: &Transport) -> Answer {
    let endpoint = provider.endpoint();
    // The other addresses end with a version.
    let path = if provider.wire() == Wire::Anthropic { "v1/models" } else { "models" };
    let answer = tokio::time::timeout(PATIENCE, transport.get_json(&endpoint, provider.wire(), path)).await;
    let silent = || {
        let why = format!("{} does not answer within {} s", endpoint.host(), PATIENCE.as_secs());
        Fault::new(FaultKind::Network, why)
    };
    let answer = answer.map_err(|_| silent())?;
    Ok(ids(&answer.map_err(|fault| provider.tamed(fault))?))
}

/// `data` is OpenAI's word for the list.
fn ids(answer: &Value) -> Vec<String> {
    let entries = answer["data"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["id"].as_str()).filter(|id| !id.is_empty()).map(str::to_owned).collect()
}
