//! A message that is queued: the turns before its own are followed until that begins.

use tenure_wire::Event;

use super::{Follow, Frame};
use crate::{daemon::insist, limits, terminal};

impl Follow<'_> {
    /// Whose turn is followed after this event.
    pub(super) async fn heed_queue(&mut self, event: &Event) -> anyhow::Result<()> {
        let Some(turn) = event.turn_id.as_deref().filter(|_| self.seat.frame == Frame::Chat) else { return Ok(()) };
        match event.wire_type.as_str() {
            "turn_queued" if turn == self.turn => self.wait_behind().await?,
            "turn_started" if self.behind.is_some() => {
                self.behind.take_if(|own| *own == turn);
                self.go_over_to(turn.to_owned());
            }
            // It was given up while it waited.
            "turn_canceled" if self.behind.as_deref() == Some(turn) => {
                self.behind = None;
                self.go_over_to(turn.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// Looks what the message waits for, tells it, and follows that.
    async fn wait_behind(&mut self) -> anyhow::Result<()> {
        let look = || self.seat.client.session(&self.seat.session);
        let view = insist(&self.seat.client, &self.seat.way, look).await?;
        let Some(open) = view.turn.as_ref().filter(|open| open.id != self.turn) else { return Ok(()) };
        let own = std::mem::replace(&mut self.turn, open.id.clone());
        self.behind = Some(own);
        self.asked_until = view.seq;
        if !limits::tell_waiting(&view, "Queued behind the open turn, which waits at its budget") {
            terminal::tell(&format!("Queued behind the open turn, which is {}.", open.status.replace('_', " for ")));
        }
        if let Some(lines) = &mut self.seat.lines {
            lines.after_shown();
        }
        self.waited(&view.approvals).await
    }

    fn go_over_to(&mut self, turn: String) {
        self.turn = turn;
        self.canceled_by = None;
        self.events = 0;
        self.text.clear();
        self.stop_reason = serde_json::Value::Null;
    }
}
