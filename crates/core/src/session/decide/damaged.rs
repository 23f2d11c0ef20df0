//! A session whose log has lost events comes to its end: nobody can tell any more what its state is.

use super::Draft;
use crate::{
    event::{Actor, SessionFailed},
    ids::TurnId,
    session::{Decision, Life, Session},
    time::Moment,
};

/// Why such a session, and what was open in it, has failed.
pub const LOG_DAMAGED: &str = "log_damaged";

/// The decision that follows the last event that is left. A session that had ended before stays as it is.
pub fn fail_damaged(left: &Session, message: &str, moment: &mut Moment) -> Decision {
    let mut draft = Draft::new(left, moment);
    if left.life != Life::Open {
        return draft.done();
    }
    let queued: Vec<TurnId> = left.queue.iter().map(|queued| queued.id).collect();
    for id in queued {
        draft.cancel_queued(id, Some(message.to_owned()), Actor::SYSTEM);
    }
    draft.close_calls(message, &[]);
    draft.fail_turn(Actor::SYSTEM, LOG_DAMAGED, message);
    draft.emit(Actor::SYSTEM, None, SessionFailed { code: LOG_DAMAGED.into(), message: message.to_owned() });
    draft.done()
}
