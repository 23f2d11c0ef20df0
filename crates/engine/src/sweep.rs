//! Looks now and then for what has had its time: old spools, idle sessions.

use tenure_core::{ids::SessionId, time::Timestamp};

use crate::{Engine, Error, Wanted, warm::Mail};

/// Rows looked at in one go.
const PAGE: usize = 256;

pub(crate) async fn run(engine: Engine) {
    let config = engine.0.parts.config.clone();
    loop {
        tokio::select! {
            biased;
            () = engine.0.stop.cancelled() => return,
            () = tokio::time::sleep(config.sweep_every) => {}
        }
        let now = engine.0.parts.clock.now();
        let before = |kept: std::time::Duration| {
            Timestamp::from_ms(now.ms().saturating_sub(u64::try_from(kept.as_millis()).unwrap_or(u64::MAX)))
        };
        if let Err(error) = engine.0.parts.store.sweep(before(config.spool_kept)).await {
            tracing::warn!("old spools could not be swept: {error}");
        }
        if let Err(error) = expire_idle(&engine, before(config.session_idle_max)).await {
            tracing::warn!("idle sessions could not be expired: {error}");
        }
    }
}

async fn expire_idle(engine: &Engine, before: Timestamp) -> Result<(), Error> {
    let mut cursor: Option<SessionId> = None;
    loop {
        let rows = engine.list(cursor, PAGE, &Wanted::default()).await?.rows;
        let Some(last) = rows.last() else { return Ok(()) };
        cursor = Some(last.id);
        for row in rows.iter().filter(|row| row.updated_at < before && &*row.status == "active") {
            // The row is a cache: the session itself decides whether it is idle.
            let expired = engine.post(row.id, |reply| Mail::Expire { before, reply }).await;
            if let Err(error) = expired {
                tracing::warn!("session {} could not be expired: {error}", row.id);
            }
        }
        tokio::task::yield_now().await;
    }
}
