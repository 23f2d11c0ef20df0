//! What a turn's write calls did to files, taken together, and what is being taken back. It never looks at a file.

use serde::{Deserialize, Serialize};

use crate::{
    event::{
        CheckpointCreated, RestoreOutcome, RestoreStarted, ToolCallCompleted, UndoRequested, UnknownWrite,
        WorkspaceRestored,
    },
    ids::TurnId,
    session::{CHECKPOINT_PATHS_MAX, CHECKPOINTS_MAX, Call, CallState, Session, WRITTEN_MAX},
    tool::{FileChange, Intent, Outcome, ToolKind},
};

/// What the calls of the open turn did to files so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Each file once: as it was at the first touch, and as the last call left it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownWrite>,
    /// Something ran that does not say what it does to files.
    pub commands: bool,
    pub incomplete: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

impl Written {
    pub fn is_nothing(&self) -> bool {
        *self == Written::default()
    }

    /// Whether there is anything to take back.
    pub(super) fn is_undoable(&self) -> bool {
        !self.files.is_empty() || !self.folders.is_empty()
    }

    /// A call came to its end. One that failed has put back what it had done, or names what it could not.
    pub(super) fn take_end(&mut self, call: &Call, done: &ToolCallCompleted) {
        let CallState::Started { intent } = &call.state else { return };
        let stuck = done.result.detail.get("stuck").is_some();
        match done.outcome {
            Outcome::Finished if done.result.ok => self.take(intent, &call.call.secrets),
            Outcome::Finished if stuck => self.take_unknown(call),
            Outcome::Unknown | Outcome::Canceled => self.take_unknown(call),
            Outcome::Finished | Outcome::NotRun => {}
        }
    }

    /// Nobody can tell what this call did.
    pub(super) fn take_unknown(&mut self, call: &Call) {
        let CallState::Started { intent } = &call.state else { return };
        if call.call.kind != ToolKind::Write || intent.is_empty() {
            return;
        }
        let paths = intent.files.iter().map(|file| file.path.clone()).collect();
        self.unknown.push(UnknownWrite { tool_call_id: call.call.id, name: call.call.name.clone(), paths });
    }

    fn take(&mut self, intent: &Intent, secrets: &[String]) {
        for change in &intent.files {
            self.take_file(change);
        }
        let new = |folder: &&String| !self.folders.contains(*folder);
        let folders: Vec<String> = intent.folders.iter().filter(new).cloned().collect();
        self.folders.extend(folders);
        self.secrets.extend(secrets.iter().filter(|name| !self.secrets.contains(name)).cloned().collect::<Vec<_>>());
    }

    fn take_file(&mut self, change: &FileChange) {
        // What takes a file's place has its mode, but for set-id bits; a new file's mode is the system's affair.
        let replaced = change.before.is_some() && change.after.is_some();
        let mode_after = change.mode.filter(|_| replaced).map(|mode| mode & 0o777);
        match self.files.iter().position(|known| known.place() == change.place()) {
            Some(at) => {
                let known = &mut self.files[at];
                (known.after, known.mode_after) = (change.after.clone(), mode_after);
                if known.is_idle() {
                    self.files.remove(at);
                }
            }
            None if change.before == change.after => {}
            None if self.files.len() >= WRITTEN_MAX => self.incomplete = true,
            None => self.files.push(FileChange { mode_after, ..change.clone() }),
        }
    }
}

impl FileChange {
    /// What tells it from other files, whatever path leads to it.
    fn place(&self) -> &str {
        self.real.as_deref().unwrap_or(&self.path)
    }

    /// Whether the file is what it was, its mode included.
    fn is_idle(&self) -> bool {
        let same_mode = self.mode.map(|mode| mode & 0o777) == self.mode_after && self.mode == self.mode_after;
        self.before == self.after && (self.before.is_none() || same_mode)
    }
}

/// A settled turn that changed files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub turn: TurnId,
    /// The event that tells all of it.
    pub seq: u64,
    pub workspace_path: String,
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownWrite>,
    pub state: CheckpointState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    Kept,
    Undone,
    /// It does not hold all that the turn changed.
    Incomplete,
}

/// An undo under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restoring {
    pub turn: TurnId,
    /// The event that asked for it.
    pub undo: u64,
    /// The event that holds the turn's checkpoint.
    pub checkpoint: u64,
    pub phase: RestoringPhase,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestoringPhase {
    /// The files are looked at.
    Preparing,
    /// They are being put back.
    Started { intent: Intent, not_undone: Vec<String>, more_not_undone: bool },
}

impl Session {
    pub(super) fn keep_checkpoint(&mut self, created: &CheckpointCreated, turn: Option<TurnId>, seq: u64) {
        let Some(turn) = turn else { return };
        let state = if created.incomplete { CheckpointState::Incomplete } else { CheckpointState::Kept };
        self.checkpoints.push_back(Checkpoint {
            turn,
            seq,
            workspace_path: created.workspace_path.clone(),
            paths: created.files.iter().map(|file| file.path.clone()).collect(),
            unknown: created.unknown.clone(),
            state,
        });
        let paths = |all: &Self| all.checkpoints.iter().map(|checkpoint| checkpoint.paths.len()).sum::<usize>();
        while self.checkpoints.len() > CHECKPOINTS_MAX
            || (self.checkpoints.len() > 1 && paths(self) > CHECKPOINT_PATHS_MAX)
        {
            self.checkpoints.pop_front();
        }
    }

    pub(super) fn begin_undo(&mut self, undo: &UndoRequested, seq: u64) {
        let (turn, checkpoint) = (undo.turn_id, undo.checkpoint_seq);
        self.restoring = Some(Restoring { turn, undo: seq, checkpoint, phase: RestoringPhase::Preparing });
    }

    pub(super) fn begin_restore(&mut self, started: &RestoreStarted) {
        if let Some(restoring) = &mut self.restoring {
            let RestoreStarted { intent, not_undone, more_not_undone, .. } = started.clone();
            restoring.phase = RestoringPhase::Started { intent, not_undone, more_not_undone };
        }
    }

    pub(super) fn end_undo(&mut self, restored: &WorkspaceRestored) {
        self.restoring = None;
        let undone = self.checkpoints.iter_mut().find(|checkpoint| checkpoint.turn == restored.turn_id);
        if let Some(undone) = undone.filter(|_| restored.outcome == RestoreOutcome::Restored) {
            undone.state = CheckpointState::Undone;
        }
    }
}
