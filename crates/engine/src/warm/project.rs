//! Caches that follow the log: turn records, the listing's row, snapshots. Losing any of them loses nothing.

use bytes::Bytes;
use tenure_core::{
    event::{Body, Event},
    ids::TurnId,
    session::Session,
};
use tenure_store::{ROW_TITLE_CHARS_MAX, Row};
use tokio::time::Instant;

use super::Warm;
use crate::{Error, RecordStatus, TurnRecord, load};

/// A snapshot is taken when the log has grown by this much since the last one.
const SNAPSHOT_EVERY: u64 = 64 * 1024;

impl Warm {
    /// Folds an event into its turn's record.
    pub(super) fn note_record(&mut self, event: &Event) {
        let Some(turn) = event.turn_id else { return };
        if let Some(record) = self.records.get_mut(&turn) {
            record.take(event);
        } else if let Some(mut record) = TurnRecord::begin(event) {
            record.take(event);
            self.records.insert(turn, record);
        }
        // Only a change of status is put down; a reply under way is in the log already.
        if is_status_change(&event.body) && !self.touched.contains(&turn) {
            self.touched.push(turn);
        }
    }

    /// Writes what has changed. Failures are told to the log of the daemon only: these are caches.
    pub(super) async fn project(&mut self) {
        let store = self.shared.parts.store.clone();
        for turn in std::mem::take(&mut self.touched) {
            // A turn that began in an earlier life of this session is read from the log.
            let Ok(Some(mut record)) = self.record_of(turn).await else { continue };
            if record.status.is_settled() {
                // Nothing is spooled for it any more. Without its sum the record is good all the same.
                record.spool = store.spool_close(self.id, turn).await.ok().flatten();
                self.records.remove(&turn);
            }
            if let Ok(json) = serde_json::to_vec(&record)
                && let Err(error) = store.turn_put(self.id, turn, Bytes::from(json)).await
            {
                tracing::debug!("the record of {turn} was not written: {error}");
            }
        }
        self.put_row().await;
        if self.head.bytes.saturating_sub(self.snapshot_bytes) >= SNAPSHOT_EVERY {
            self.keep_snapshot().await;
            self.snapshot_bytes = self.head.bytes;
        }
    }

    async fn keep_snapshot(&self) {
        if let Some(snapshot) = load::snapshot(&self.state)
            && let Err(error) = self.shared.parts.store.snapshot_put(self.id, snapshot).await
        {
            tracing::debug!("no snapshot of {}: {error}", self.id);
        }
    }

    /// A new session is in the listing, and its folder holds a snapshot, before its maker is told of it.
    pub(crate) async fn announce(&mut self) {
        self.keep_snapshot().await;
        self.put_row().await;
    }

    async fn put_row(&mut self) {
        let state = &self.state;
        let same = self.row.as_ref().is_some_and(|row| {
            &*row.status == state.status()
                && row.last_turn_id == state.last_turn_id
                && self.row_is_busy == state.turn.is_some()
                && *row.workspace_path == *state.settings.workspace_path
                && row.title.as_deref() == state.settings.title.as_deref().map(cut_title)
                && row.labels.iter().map(|label| &**label).eq(state.settings.labels.iter().map(String::as_str))
        });
        if same {
            return;
        }
        let row = row_of(state);
        self.row = Some(row.clone());
        self.row_is_busy = self.state.turn.is_some();
        if let Err(error) = self.shared.parts.store.row_put(row).await {
            tracing::debug!("the row of {} was not written: {error}", self.id);
        }
    }

    /// Before the session goes out of memory.
    pub(super) async fn settle_down(&mut self) {
        let store = self.shared.parts.store.clone();
        self.keep_snapshot().await;
        self.snapshot_bytes = self.head.bytes;
        if !self.state.is_pending()
            && let Err(error) = store.mark_settled(self.id).await
        {
            tracing::debug!("{} was not marked as settled: {error}", self.id);
        }
        self.active_at = Instant::now();
    }

    /// The record of a turn, as of now.
    pub(super) async fn record_of(&mut self, turn: TurnId) -> Result<Option<TurnRecord>, Error> {
        let kept = self.records.get(&turn).cloned();
        let record = match kept {
            Some(record) => Some(record),
            None => load::record(&*self.shared.parts.store, &self.state, turn).await?,
        };
        let Some(mut record) = record else { return Ok(None) };
        record.refresh(&self.state);
        if record.status == RecordStatus::Running && !self.shown.is_empty() {
            record.status = RecordStatus::Streaming;
        }
        if !record.status.is_settled() {
            self.records.insert(turn, record.clone());
        }
        Ok(Some(record))
    }
}

/// What the listing tells of a session.
pub(crate) fn row_of(state: &Session) -> Row {
    Row {
        id: state.id,
        created_at: state.created_at,
        updated_at: state.updated_at,
        status: state.status().into(),
        workspace_path: state.settings.workspace_path.as_str().into(),
        title: state.settings.title.as_deref().map(|title| cut_title(title).into()),
        last_turn_id: state.last_turn_id,
        role: state.settings.role.as_deref().map(Into::into),
        labels: state.settings.labels.iter().map(|label| label.as_str().into()).collect(),
        spent: state.spent(),
    }
}

fn cut_title(title: &str) -> &str {
    match title.char_indices().nth(ROW_TITLE_CHARS_MAX) {
        Some((end, _)) => &title[..end],
        None => title,
    }
}

fn is_status_change(body: &Body) -> bool {
    matches!(
        body,
        Body::TurnQueued(_)
            | Body::TurnStarted(_)
            | Body::TurnCompleted(_)
            | Body::TurnFailed(_)
            | Body::TurnCanceled(_)
            | Body::TurnExpired(_)
            | Body::TurnInterrupted(_)
            | Body::TurnResumed(_)
            | Body::ApprovalRequested(_)
            | Body::ApprovalGranted(_)
            | Body::ApprovalDenied(_)
            | Body::ApprovalExpired(_)
            | Body::BudgetReached(_)
            | Body::BudgetRaised(_)
    )
}
