//! A turn's record: a projection of its events for those who ask for one turn. The log stays the truth.

use serde::{Deserialize, Serialize};
use tenure_core::{
    budget::Spent,
    event::{Body, Event, Verification},
    ids::{MessageId, SessionId, TurnId},
    message::MessageRef,
    model::MicroUsd,
    session::{Session, TurnStatus},
    time::Timestamp,
};
use tenure_store::{Limit, SpoolSum, Store};

use crate::Error;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// Its session is not told: the record stands in that one's folder, and is written twice a turn.
    pub id: TurnId,
    /// The last event it holds.
    pub seq: u64,
    pub status: RecordStatus,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub messages: Vec<MessageRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_of: Option<TurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<Response>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Left out of the file while nothing was spent: every turn's record is written once before it was.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub spent: Spent,
    /// `null` where a price is not known.
    #[serde(default = "free", skip_serializing_if = "is_free")]
    pub cost_micro_usd: Option<MicroUsd>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// What tells the deltas of a settled turn from others, for `store check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spool: Option<SpoolSum>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Response {
    pub message_id: MessageId,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnError {
    pub code: String,
    pub message: String,
}

/// S3's names; `streaming` is `running` with a delta out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordStatus {
    Pending,
    Running,
    Streaming,
    WaitingApproval,
    WaitingBudget,
    Completed,
    Failed,
    Cancelled,
    Expired,
    Interrupted,
}

impl From<TurnStatus> for RecordStatus {
    fn from(status: TurnStatus) -> Self {
        match status {
            TurnStatus::Pending => Self::Pending,
            TurnStatus::Running => Self::Running,
            TurnStatus::WaitingApproval => Self::WaitingApproval,
            TurnStatus::WaitingBudget => Self::WaitingBudget,
            TurnStatus::Completed => Self::Completed,
            TurnStatus::Failed => Self::Failed,
            TurnStatus::Cancelled => Self::Cancelled,
            TurnStatus::Expired => Self::Expired,
            TurnStatus::Interrupted => Self::Interrupted,
        }
    }
}

impl RecordStatus {
    /// Whether nothing happens to it without somebody's help.
    pub fn is_resting(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Streaming)
    }

    /// Whether nothing happens to it any more.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::Expired)
    }
}

impl TurnRecord {
    /// The record a turn's first event opens.
    pub(crate) fn begin(event: &Event) -> Option<TurnRecord> {
        let id = event.turn_id?;
        let (messages, retry_of) = match &event.body {
            Body::TurnQueued(queued) => (queued.messages.clone(), queued.retry_of),
            Body::TurnStarted(started) => (started.messages.clone(), started.retry_of),
            _ => return None,
        };
        Some(TurnRecord {
            id,
            seq: event.seq,
            status: RecordStatus::Pending,
            created_at: event.ts,
            updated_at: event.ts,
            messages,
            retry_of,
            model: None,
            response: None,
            error: None,
            verification: None,
            spent: Spent::default(),
            cost_micro_usd: Some(0),
            left: Vec::new(),
            spool: None,
        })
    }

    /// Takes in one of its events; the status is the state's, where that still knows the turn.
    pub(crate) fn take(&mut self, event: &Event) {
        self.seq = event.seq;
        self.updated_at = event.ts;
        match &event.body {
            Body::TurnStarted(started) => {
                self.status = RecordStatus::Running;
                self.model = Some(started.model.clone());
            }
            Body::ModelOutputCompleted(output) => {
                self.response = Some(Response { message_id: output.message_id, text: output.text.clone() });
            }
            Body::TurnCompleted(done) => {
                self.verification = Some(done.verification);
                self.settle(RecordStatus::Completed, done.spent, done.cost_micro_usd);
            }
            Body::TurnFailed(failed) => {
                self.error = Some(TurnError { code: failed.code.clone(), message: failed.message.clone() });
                self.settle(RecordStatus::Failed, failed.spent, failed.cost_micro_usd);
            }
            Body::TurnCanceled(canceled) => {
                self.left = canceled.left.clone();
                self.settle(RecordStatus::Cancelled, canceled.spent, canceled.cost_micro_usd);
            }
            Body::TurnExpired(expired) => self.settle(RecordStatus::Expired, expired.spent, expired.cost_micro_usd),
            _ => {}
        }
    }

    fn settle(&mut self, status: RecordStatus, spent: Spent, cost: Option<MicroUsd>) {
        self.status = status;
        self.spent = spent;
        self.cost_micro_usd = cost;
    }

    /// Takes status and spending from the state while the turn is open or queued.
    pub(crate) fn refresh(&mut self, session: &Session) {
        if let Some(status) = session.turn_status(self.id) {
            self.status = status.into();
        }
        if let Some(turn) = session.turn.as_ref().filter(|turn| turn.id == self.id) {
            self.spent = turn.spent;
            self.cost_micro_usd = turn.spent.cost();
        }
    }

    /// Brings a kept record up to the log's end, or makes it from the log alone; in bounded memory. `after`: none of the
    /// turn's events that the record does not hold is before this one.
    pub(crate) async fn from_log(
        store: &dyn Store,
        session: SessionId,
        turn: TurnId,
        mut after: u64,
        kept: Option<TurnRecord>,
    ) -> Result<Option<TurnRecord>, Error> {
        let name = turn.to_string();
        let mut record = kept;
        loop {
            let page = store.read(session, after, Limit::default()).await?;
            let Some(last) = page.last() else { return Ok(record) };
            after = last.seq;
            // Only lines that name the turn are read in full.
            for stored in page.iter().filter(|stored| contains(&stored.json, name.as_bytes())) {
                let event = stored.parse()?;
                if event.turn_id != Some(turn) {
                    continue;
                }
                if record.is_none() {
                    record = TurnRecord::begin(&event);
                }
                if let Some(record) = &mut record {
                    record.take(&event);
                }
            }
        }
    }
}

fn free() -> Option<MicroUsd> {
    Some(0)
}

fn is_free(cost: &Option<MicroUsd>) -> bool {
    *cost == Some(0)
}

fn is_nothing(spent: &Spent) -> bool {
    *spent == Spent::default()
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}
