//! A turn's changes to files, taken back: looked at first, then put back, as the log has them. What may be taken back is
//! judged by the core and by the files, never here.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use tenure_core::{
    command::{FailedRestore, Input, PreparedRestore},
    event::{CheckpointCreated, RefusedFile},
    redact::Secrets,
    time::Timestamp,
    tool::{CallClass, Intent},
};
use tenure_tools::{Restore, changed_meanwhile};

use crate::{
    files::SessionFiles,
    redaction::{redacted, restored},
};

/// One undo, with all that it needs.
pub(crate) struct Undo {
    /// The event that asked for it.
    pub(crate) undo: u64,
    restore: Restore,
    checkpoint: CheckpointCreated,
    /// The turn's end.
    ended_at: Timestamp,
    secrets: Secrets,
    put_back: Secrets,
}

impl Undo {
    pub(crate) fn new(
        undo: u64,
        recorded: &CheckpointCreated,
        ended_at: Timestamp,
        files: SessionFiles,
        folder: &str,
    ) -> Self {
        let secrets = files.secrets.clone();
        let put_back = secrets.only(&recorded.secrets);
        let checkpoint = restored(&put_back, recorded);
        let restore = Restore::new(&checkpoint, Arc::new(files), format!("artifacts/{folder}/undo-{undo}"));
        Self { undo, restore, checkpoint, ended_at, secrets, put_back }
    }

    /// Whether all can be taken back, and what else has changed while the turn ran.
    pub(crate) async fn prepare(self) -> Input {
        let prepared = match self.restore.prepare().await {
            Err(refused) => Err(redacted(&self.secrets, &refused)),
            Ok(intent) => {
                let found = self.changed_by_commands().await;
                let intent = redacted(&self.secrets, &intent);
                let not_undone = redacted(&self.secrets, &found.paths);
                Ok(PreparedRestore { intent, not_undone, more_not_undone: found.more })
            }
        };
        Input::RestorePrepared { undo: self.undo, prepared }
    }

    async fn changed_by_commands(&self) -> tenure_tools::Meanwhile {
        if !self.checkpoint.commands {
            return tenure_tools::Meanwhile::default();
        }
        let known: HashSet<String> = self.checkpoint.files.iter().map(|file| file.path.clone()).collect();
        let span = (self.checkpoint.started_at, self.ended_at);
        changed_meanwhile(PathBuf::from(&self.checkpoint.workspace_path), span, known).await
    }

    pub(crate) async fn run(self, intent: Intent) -> Input {
        let done = self.restore.run(&restored(&self.put_back, &intent)).await;
        let done = done.map_err(|failed| match failed {
            FailedRestore::Nothing(refused) => FailedRestore::Nothing(redacted(&self.secrets, &refused)),
            FailedRestore::InPart(refused) => FailedRestore::InPart(redacted(&self.secrets, &refused)),
        });
        Input::RestoreDone { undo: self.undo, done }
    }

    /// What became of it, where a crash cut it.
    pub(crate) async fn class(self, intent: &Intent) -> CallClass {
        self.restore.class(&restored(&self.put_back, intent)).await
    }
}

/// A reason that is not one file's.
pub(crate) fn whole(why: impl Into<String>) -> RefusedFile {
    RefusedFile { path: ".".into(), why: why.into() }
}
