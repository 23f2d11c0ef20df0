//! What servers on this machine say they have. Asked shortly, and kept for a moment: lists are looked at often.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;
use tenure_core::model::{Fault, FaultKind};

use super::Provider;
use crate::vendor::Transport;

/// A server on this machine answers such a question at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(2);
const KEPT: Duration = Duration::from_secs(5);

/// The last answers, by provider.
#[derive(Debug, Default)]
pub(super) struct Offered {
    kept: Mutex<HashMap<String, (Instant, Result<Vec<String>, Fault>)>>,
}

impl Offered {
    pub(super) async fn by(&self, provider: &Provider, transport: &Transport) -> Result<Vec<String>, Fault> {
        if let Some((at, answer)) = self.lock().get(provider.name())
            && at.elapsed() < KEPT
        {
            return answer.clone();
        }
        let answer = asked(provider, transport).await;
        self.lock().insert(provider.name().to_owned(), (Instant::now(), answer.clone()));
        answer
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Result<Vec<String>, Fault>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn asked(provider: &Provider, transport: &Transport) -> Result<Vec<String>, Fault> {
    let endpoint = provider.endpoint();
    let answer = tokio::time::timeout(PATIENCE, transport.get_json(&endpoint, provider.wire(), "models")).await;
    let silent = || {
        let why = format!("{} does not answer within {} s", endpoint.host(), PATIENCE.as_secs());
        Fault::new(FaultKind::Network, why)
    };
    Ok(ids(&answer.map_err(|_| silent())??))
}

/// `data` is OpenAI's word for the list.
fn ids(answer: &Value) -> Vec<String> {
    let entries = answer["data"].as_array().into_iter().flatten();
    entries.filter_map(|entry| entry["id"].as_str()).filter(|id| !id.is_empty()).map(str::to_owned).collect()
}
