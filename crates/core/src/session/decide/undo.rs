//! Taking a turn's changes back: whether it may be, what follows, and what is kept for it when a turn ends.

use serde_json::json;

use super::{Draft, unknown_turn};
use crate::{
    command::{Answer, FailedRestore, PreparedRestore, Refusal},
    event::{Actor, CheckpointCreated, RefusedFile, RestoreOutcome, RestoreStarted, UndoRequested, WorkspaceRestored},
    ids::TurnId,
    session::{Checkpoint, CheckpointState, Decision, Restoring, RestoringPhase, Session},
    time::Moment,
    tool::CallClass,
};

impl Session {
    /// The undo under way, if this answer is one that it waits for.
    fn awaited_undo(&self, undo: u64) -> Result<&Restoring, Refusal> {
        self.restoring.as_ref().filter(|restoring| restoring.undo == undo).ok_or_else(Refusal::stale)
    }

    pub(super) fn restore_prepared(
        &self,
        undo: u64,
        prepared: Result<PreparedRestore, Vec<RefusedFile>>,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let restoring = self.awaited_undo(undo)?;
        if restoring.phase != RestoringPhase::Preparing {
            return Err(Refusal::stale());
        }
        let turn_id = restoring.turn;
        let mut draft = Draft::new(self, moment);
        match prepared {
            Ok(PreparedRestore { intent, not_undone, more_not_undone }) => {
                draft.emit(Actor::SYSTEM, None, RestoreStarted { turn_id, intent, not_undone, more_not_undone });
            }
            Err(refused) => draft.end_restore(RestoreOutcome::Refused, refused),
        }
        Ok(draft.done())
    }

    pub(super) fn restore_done(
        &self,
        undo: u64,
        done: Result<(), FailedRestore>,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        if self.awaited_undo(undo)?.phase == RestoringPhase::Preparing {
            return Err(Refusal::stale());
        }
        let mut draft = Draft::new(self, moment);
        match done {
            Ok(()) => draft.end_restore(RestoreOutcome::Restored, vec![]),
            Err(FailedRestore::Nothing(refused)) => draft.end_restore(RestoreOutcome::Refused, refused),
            Err(FailedRestore::InPart(refused)) => draft.end_restore(RestoreOutcome::Unknown, refused),
        }
        Ok(draft.done())
    }

    /// The turn that an undo means.
    fn checkpoint_of(&self, turn_id: Option<TurnId>) -> Result<&Checkpoint, Refusal> {
        let none = |message: &str| {
            let hint = "only what write_file, edit_file and apply_patch did can be taken back, of the last turns";
            Refusal::new("no_checkpoint", message, hint)
        };
        let Some(id) = turn_id else {
            let last = self.checkpoints.iter().rev().find(|checkpoint| checkpoint.state != CheckpointState::Undone);
            return last.ok_or_else(|| none("no turn of this session has changes that could be taken back"));
        };
        match self.checkpoints.iter().find(|checkpoint| checkpoint.turn == id) {
            Some(checkpoint) => Ok(checkpoint),
            None if self.turn_status(id).is_some() => Err(none("this turn has no changes that could be taken back")),
            None => Err(unknown_turn(id)),
        }
    }

    /// Whether what this turn changed may be taken back, as far as the log tells.
    fn check_undo(&self, checkpoint: &Checkpoint) -> Result<(), Refusal> {
        match checkpoint.state {
            CheckpointState::Kept => {}
            CheckpointState::Undone => {
                let message = "what this turn changed was taken back already";
                return Err(Refusal::new("already_undone", message, "nothing is left to do"));
            }
            CheckpointState::Incomplete => {
                let message = "this turn changed more files than are kept";
                return Err(Refusal::new(
                    "checkpoint_incomplete",
                    message,
                    "take it back with git, if the files are in it",
                ));
            }
        }
        if checkpoint.workspace_path != self.settings.workspace_path {
            let message = format!("this turn worked in {}, not in this session's folder", checkpoint.workspace_path);
            let hint = "give the session that folder again, or undo in the session that it was forked from";
            return Err(Refusal::new("other_workspace", message, hint));
        }
        let later = self.checkpoints.iter().filter(|later| later.seq > checkpoint.seq);
        let mut kept = later.filter(|later| later.state != CheckpointState::Undone);
        let shared = |later: &&Checkpoint| later.paths.iter().any(|path| checkpoint.paths.contains(path));
        let Some(later) = kept.find(shared) else { return Ok(()) };
        let files: Vec<&String> = later.paths.iter().filter(|path| checkpoint.paths.contains(path)).collect();
        let message = format!("the later turn {} changed {} too", later.turn, files[0]);
        let refusal = Refusal::new("later_changes", message, "undo that turn first");
        Err(refusal.with(json!({ "turn_id": later.turn, "files": files })))
    }
}

impl Draft<'_> {
    pub(super) fn undo(&mut self, turn_id: Option<TurnId>, actor: Actor) -> Result<Answer, Refusal> {
        if let Some(turn) = &self.state.turn {
            let message = format!("the turn {} is open", turn.id);
            return Err(Refusal::new("turn_open", message, "cancel it first, or wait for it"));
        }
        self.check_not_restoring()?;
        let checkpoint = self.state.checkpoint_of(turn_id)?;
        self.state.check_undo(checkpoint)?;
        let (turn_id, checkpoint_seq) = (checkpoint.turn, checkpoint.seq);
        self.emit(actor, None, UndoRequested { turn_id, checkpoint_seq });
        Ok(Answer::Undoing { turn_id, seq: self.state.seq })
    }

    pub(super) fn check_not_restoring(&self) -> Result<(), Refusal> {
        let Some(restoring) = &self.state.restoring else { return Ok(()) };
        let message = format!("the changes of {} are being taken back", restoring.turn);
        Err(Refusal::new("undo_running", message, "try again in a moment").with(json!({ "turn_id": restoring.turn })))
    }

    /// Before the open turn ends: what it did to files, so that it can be taken back.
    pub(super) fn checkpoint(&mut self) {
        let Some(turn) = self.state.turn.as_ref().filter(|turn| turn.written.is_undoable()) else { return };
        let written = turn.written.clone();
        let created = CheckpointCreated {
            workspace_path: self.state.settings.workspace_path.clone(),
            started_at: turn.started_at,
            files: written.files,
            folders: written.folders,
            unknown: written.unknown,
            commands: written.commands,
            incomplete: written.incomplete,
            secrets: written.secrets,
        };
        self.emit_in_turn(Actor::SYSTEM, created);
    }

    /// The daemon was stopped while files were put back, and they were looked at since. What did not begin, or was
    /// rolled back, begins again.
    pub(super) fn cut_restore(&mut self, class: Option<CallClass>) {
        let Some(restoring) = &self.state.restoring else { return };
        let RestoringPhase::Started { intent, .. } = &restoring.phase else { return };
        match class {
            Some(CallClass::Finished) => self.end_restore(RestoreOutcome::Restored, vec![]),
            Some(CallClass::Unknown) => {
                let why = "the daemon was stopped while it was put back, and files were changed since";
                let refused = |file: &crate::tool::FileChange| RefusedFile { path: file.path.clone(), why: why.into() };
                let refused = intent.files.iter().map(refused).collect();
                self.end_restore(RestoreOutcome::Unknown, refused);
            }
            Some(CallClass::NotStarted) | None => {}
        }
    }

    fn end_restore(&mut self, outcome: RestoreOutcome, refused: Vec<RefusedFile>) {
        let Some(Restoring { turn, phase, .. }) = self.state.restoring.clone() else { return };
        let known = self.state.checkpoints.iter().find(|checkpoint| checkpoint.turn == turn);
        let unknown = known.map(|checkpoint| checkpoint.unknown.clone()).unwrap_or_default();
        let mut ended = WorkspaceRestored {
            turn_id: turn,
            outcome,
            restored: vec![],
            refused,
            not_undone: vec![],
            more_not_undone: false,
            unknown,
        };
        if let RestoringPhase::Started { intent, not_undone, more_not_undone } = phase {
            (ended.not_undone, ended.more_not_undone) = (not_undone, more_not_undone);
            if outcome == RestoreOutcome::Restored {
                ended.restored = intent.files.into_iter().map(|file| file.path).collect();
            }
        }
        self.emit(Actor::SYSTEM, None, ended);
        self.start_queued();
    }
}
