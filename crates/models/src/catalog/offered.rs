//! What servers on this machine say they have. Asked shortly, and kept for a moment: lists are looked at often.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tenure_core::model::{Fault, FaultKind};

use super::Provider;
use crate::vendor::{
    Transport,
    window::{self, Offer, PATIENCE},
};

const KEPT: Duration = Duration::from_secs(5);

/// What a server has, or why that is not known.
type Answer = Result<Vec<Offer>, Fault>;

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
    let silent = || {
        let why = format!("{} does not answer within {} s", endpoint.host(), PATIENCE.as_secs());
        Fault::new(FaultKind::Network, why)
    };
    let list = tokio::time::timeout(PATIENCE, window::list(transport, &endpoint, provider.wire())).await;
    let list = list.map_err(|_| silent())?.map_err(|fault| provider.tamed(fault))?;
    Ok(window::offers(transport, &endpoint, provider.wire(), &list).await)
}
