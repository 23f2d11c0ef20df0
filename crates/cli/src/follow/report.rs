//! How a turn came to rest, and what is told of it at the end.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_client::print::{Tone, paid};

use super::{CanceledBy, Follow, Frame};
use crate::{
    count::counted,
    daemon::insist,
    exit::Exit,
    hint,
    terminal::{self, Output},
};

/// How it came to rest.
pub(super) struct Rest {
    status: String,
    data: Value,
}

impl Rest {
    pub(super) fn of(status: &str, data: Value) -> Option<Self> {
        Some(Self { status: status.to_owned(), data })
    }

    /// Whether nothing more will happen in the turn.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "canceled" | "expired")
    }
}

impl Follow<'_> {
    /// After a restart a turn goes on by itself, unless a person should look first.
    pub(super) async fn rest_if_interrupted(&mut self) -> anyhow::Result<Option<Rest>> {
        let rest = self.rest_if("interrupted").await?;
        // A chat tells at its prompt what can be done.
        if rest.is_some() && self.output() == Output::Text && self.seat.frame != Frame::Chat {
            let session = &self.seat.session;
            terminal::tell(&format!("It waits for you: look, then `tenure session resume {session}`."));
        }
        Ok(rest)
    }

    pub(super) async fn rest_if(&mut self, status: &str) -> anyhow::Result<Option<Rest>> {
        let look = || self.seat.client.turn(&self.seat.session, &self.turn, Duration::ZERO);
        let turn = insist(&self.seat.client, &self.seat.way, look).await?;
        let data = json!({"spent": turn.spent, "cost_micro_usd": turn.cost_micro_usd});
        Ok(if turn.status == status { Rest::of(status, data) } else { None })
    }

    pub(super) fn finish(&mut self, rest: &Rest) -> anyhow::Result<Exit> {
        self.withdraw(&format!("The turn is over: {}.", rest.status))?;
        let pieces = self.printer.finish();
        self.show(pieces)?;
        let (spent, cost) = (&rest.data["spent"], rest.data["cost_micro_usd"].as_u64());
        let (steps, calls) = (spent["steps"].as_u64().unwrap_or(0), spent["tool_calls"].as_u64().unwrap_or(0));
        match self.output() {
            Output::Json => {
                let mut result = json!({
                    "type": "result",
                    "session_id": self.seat.session,
                    "turn_id": self.turn,
                    "status": rest.status,
                    "text": self.text,
                    "stop_reason": self.stop_reason,
                    "steps": steps,
                    "tool_calls": calls,
                    "cost_micro_usd": cost,
                    "events": self.events,
                });
                if rest.status == "failed" {
                    result["error"] = json!({"code": rest.data["code"], "message": rest.data["message"]});
                }
                terminal::print_json(&result)?;
            }
            Output::Text => {
                let look = terminal::stderr_look();
                let (status, events, session) = (&rest.status, self.events, &self.seat.session);
                let counts = [(steps, "step"), (calls, "call"), (events, "event")].map(|(n, what)| counted(n, what));
                let counts =
                    format!("{}, cost {}", counts.join(", "), paid(cost, spent["micro_usd"].as_u64().unwrap_or(0)));
                let whose = if self.seat.frame != Frame::Chat { format!("; session {session}") } else { String::new() };
                let line = look.folded(&format!("{status}: {counts}{whose}"));
                terminal::note(&format!("{}\n", look.paint(Tone::Faint, &line)));
                self.tell_next(rest);
            }
        }
        Ok(match (self.canceled_by, rest.status.as_str()) {
            (Some(CanceledBy::Interrupt), _) => Exit::Interrupted,
            (_, "completed") => Exit::Ok,
            _ => Exit::Failed,
        })
    }

    /// What a person can do after it.
    fn tell_next(&self, rest: &Rest) {
        let session = &self.seat.session;
        let again = format!("`tenure session retry {session}`");
        let next = match (rest.status.as_str(), rest.data["code"].as_str().unwrap_or_default()) {
            ("failed", "auth" | "quota") => {
                format!("With another key it may work: set that, `tenure stop`, then {again} runs the turn again.")
            }
            ("failed", "bad_request" | "unknown_model" | "context_overflow" | "verification_failed") => return,
            ("failed", _) => format!("{again} runs the turn again."),
            _ if self.is_denied => "Calls were denied, for nobody can be asked here: `--approve all` allows them in a \
                                    new session."
                .to_owned(),
            _ => return,
        };
        match self.seat.frame {
            Frame::Chat => terminal::tell(&hint::in_chat(&next, session)),
            Frame::Once | Frame::Final => terminal::tell(&next),
        }
    }
}
