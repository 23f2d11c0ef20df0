//! What is taken back in a life: one thing at a time, each with one end, and never twice.

use tenure_core::event::{Body, Event, RestoreOutcome};

use super::{faults::Faults, record::Record};

impl Record {
    /// Whether there is something that can be taken back now.
    pub fn may_undo(&self) -> bool {
        self.open.is_none() && self.checkpoints.values().any(|undone| !undone)
    }

    pub(super) fn take_undo(&mut self, event: &Event, faults: &mut Faults) {
        let seq = event.seq;
        match &event.body {
            Body::CheckpointCreated(_) => {
                let open = self.open.as_ref().map(|open| open.id);
                faults.need(open.is_some() && event.turn_id == open, || format!("event {seq} is of no open turn"));
                let before = open.and_then(|turn| self.checkpoints.insert(turn, false));
                faults.need(before.is_none(), || format!("event {seq} is the turn's second checkpoint"));
            }
            Body::UndoRequested(undo) => {
                let rests = self.open.is_none() && self.undoing.is_none();
                faults.need(rests, || format!("event {seq} begins an undo while something else runs"));
                let kept = self.checkpoints.get(&undo.turn_id) == Some(&false);
                faults.need(kept, || format!("event {seq} takes back what is not there, or again"));
                self.undoing = Some(undo.turn_id);
            }
            Body::RestoreStarted(started) => {
                let awaited = self.undoing == Some(started.turn_id);
                faults.need(awaited, || format!("event {seq} puts files back that nobody asked for"));
            }
            Body::WorkspaceRestored(restored) => {
                let awaited = self.undoing.take() == Some(restored.turn_id);
                faults.need(awaited, || format!("event {seq} ends an undo that had ended, or never began"));
                if restored.outcome == RestoreOutcome::Restored {
                    self.checkpoints.insert(restored.turn_id, true);
                }
                // There is no folder that the files could be in.
                let files = restored.refused.iter().any(|file| file.path.starts_with("file"));
                let fair = match restored.outcome {
                    RestoreOutcome::Restored => restored.restored.is_empty(),
                    RestoreOutcome::Refused => files || self.refused,
                    RestoreOutcome::Unknown => false,
                };
                faults.need(fair, || format!("event {seq} tells what cannot be: {restored:?}"));
            }
            _ => {}
        }
    }
}
