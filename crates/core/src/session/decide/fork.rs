//! A copy of a log becomes a session of its own. Nothing that ran in the other one runs again by itself.

use super::Draft;
use crate::{
    event::{Actor, ClassedCall, SessionForked, TurnInterrupted},
    ids::TurnId,
    session::{Decision, Session},
    time::Moment,
    tool::CallClass,
};

/// The decision that follows a copied log. `copied` is what that folds to under the new id.
pub fn fork(copied: &Session, forked: SessionForked, actor: Actor, moment: &mut Moment) -> Decision {
    let mut draft = Draft::new(copied, moment);
    draft.emit(actor, None, forked);
    draft.interrupt_copied();
    let queued: Vec<TurnId> = draft.state.queue.iter().map(|queued| queued.id).collect();
    for id in queued {
        draft.cancel_queued(id, Some("it waits in the session that was forked".into()), Actor::SYSTEM);
    }
    draft.done()
}

impl Draft<'_> {
    /// The open turn waits for a person here. What a call of it did is known over there at best.
    fn interrupt_copied(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        let started = turn.calls.iter().filter(|call| call.is_running());
        let classed = |call: &crate::session::Call| ClassedCall {
            tool_call_id: call.call.id,
            name: call.call.name.clone(),
            class: CallClass::Unknown,
        };
        let calls = started.map(classed).collect();
        self.emit_in_turn(Actor::SYSTEM, TurnInterrupted { calls, active_ms: 0 });
    }
}
