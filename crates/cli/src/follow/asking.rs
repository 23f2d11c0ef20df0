//! The questions of a turn that is followed: put one at a time, answered here or elsewhere, and what is typed for one that
//! went away.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tenure_client::print::tamed;
use tenure_wire::{Approve, Scope, Verdict};

use super::{Files, Follow, Frame, NOBODY, Waiting};
use crate::{before, daemon::insist, permit::Answers, question, terminal};

impl Follow<'_> {
    pub(super) async fn asked(&mut self, data: &Value) -> anyhow::Result<()> {
        let call = data["tool_call_id"].as_str().unwrap_or_default().to_owned();
        match self.seat.answers {
            Answers::Rule(permit) => {
                let verdict = permit.verdict(data["kind"].as_str().unwrap_or_default());
                let reason = Some(format!("answered by --approve, {NOBODY}"));
                self.answer(call, verdict, Scope::Once, reason).await
            }
            Answers::Person => {
                if self.waiting.is_empty() {
                    self.pass_on_typed().await?;
                }
                let written = self.written_by(data).await;
                self.waiting.push_back(Waiting { call, data: data.clone(), written });
                if self.waiting.len() == 1 {
                    self.ask_first();
                }
                Ok(())
            }
        }
    }

    /// What was typed before a question came is no answer to it: whole lines still go to the agent.
    async fn pass_on_typed(&mut self) -> anyhow::Result<()> {
        while self.seat.frame == Frame::Chat && self.canceled_by.is_none() {
            let typed = self.seat.lines.as_mut().and_then(|lines| lines.next_typed());
            let Some(line) = typed else { break };
            Box::pin(self.typed(line.trim())).await?;
        }
        Ok(())
    }

    async fn written_by(&self, data: &Value) -> Option<PathBuf> {
        let path = before::written_by(data).filter(|_| self.seat.context.files() == Files::Here)?;
        let look = || self.seat.client.session(&self.seat.session);
        let view = insist(&self.seat.client, &self.seat.way, look).await.ok()?;
        Some(Path::new(&view.workspace_path).join(path))
    }

    /// Puts the question for the first call that waits.
    pub(super) fn ask_first(&mut self) {
        self.set_echo();
        if self.waiting.is_empty() {
            return;
        }
        self.leave_out_typed("typed before the question");
        let Some(first) = self.waiting.front() else { return };
        terminal::note(&question::asking(&first.data, first.written.as_deref(), &terminal::stderr_look()));
        question::tell_choice();
    }

    /// Nothing that was typed for something else answers what comes now, and nothing is dropped in silence.
    pub(super) fn leave_out_typed(&mut self, why: &str) {
        let Some(lines) = &mut self.seat.lines else { return };
        let typed = lines.forget_typed();
        if !typed.trim().is_empty() {
            terminal::tell(&format!("Left out, for it was {why}: {}", tamed(typed.trim())));
        }
    }

    /// Answers the call that is asked about, and goes on to the next.
    pub(super) async fn decide(&mut self, verdict: Verdict, scope: Scope, why: Option<String>) -> anyhow::Result<()> {
        let Some(first) = self.waiting.pop_front() else { return Ok(()) };
        self.answer(first.call, verdict, scope, why).await?;
        self.show_held()?;
        self.ask_first();
        Ok(())
    }

    pub(super) fn answered_elsewhere(&mut self, data: &Value, how: &str) -> anyhow::Result<()> {
        let call = data["tool_call_id"].as_str().unwrap_or_default();
        let Some(at) = self.waiting.iter().position(|waiting| waiting.call == call) else { return Ok(()) };
        self.waiting.remove(at);
        if at == 0 {
            self.close_question(how)?;
            self.ask_first();
        }
        Ok(())
    }

    /// No question of this turn can be answered any more.
    pub(super) fn withdraw(&mut self, why: &str) -> anyhow::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.waiting.clear();
        self.close_question(why)
    }

    /// The open question went away by itself. Its line is still open, and so may be an answer to it.
    fn close_question(&mut self, why: &str) -> anyhow::Result<()> {
        terminal::note(&format!("\n{why}\n"));
        self.set_echo();
        self.leave_out_typed("typed for that question");
        if let Some(lines) = &mut self.seat.lines {
            lines.expect_late();
        }
        self.show_held()
    }

    async fn answer(&self, call: String, action: Verdict, scope: Scope, reason: Option<String>) -> anyhow::Result<()> {
        let turn_id = Some(self.turn.clone());
        let answer = Approve { turn_id, tool_call_id: call, action, reason, scope: Some(scope), ..Approve::default() };
        match insist(&self.seat.client, &self.seat.way, || self.seat.client.approve(&self.seat.session, &answer)).await
        {
            // Somebody was faster, or the turn is over: the stream tells what became of it.
            Err(error) if matches!(error.code(), Some("already_answered" | "not_waiting" | "turn_settled")) => Ok(()),
            answered => Ok(answered.map(drop)?),
        }
    }
}
