//! The undo of a session, as the state has it: started like any other work, and looked at after a crash.

use tenure_core::{
    command::{FailedRestore, Input},
    event::Body,
    session::{Effect, Restoring, RestoringPhase},
    tool::CallClass,
};

use super::Warm;
use crate::{
    Error,
    files::SessionFiles,
    load,
    undo::{Undo, whole},
};

impl Warm {
    /// Tells whether the state has changed by it.
    pub(super) async fn start_restore(&mut self, effect: Effect, undo: u64) -> bool {
        let Some(restoring) = self.state.restoring.clone() else { return false };
        let work = match self.undo(&restoring).await {
            Ok(work) => work,
            // The log is there again later, or the session is closed for writing; whoever asked is told.
            Err(error) => return self.tell(unread(&restoring, undo, &error)).await,
        };
        let token = self.shared.stop.child_token();
        let brake = self.brake(effect, token);
        self.run_beside(effect, &brake, async move {
            let input = match restoring.phase {
                RestoringPhase::Preparing => work.prepare().await,
                RestoringPhase::Started { intent, .. } => work.run(intent).await,
            };
            (Some(input), Vec::new())
        });
        false
    }

    async fn undo(&self, restoring: &Restoring) -> Result<Undo, Error> {
        let store = self.shared.parts.store.clone();
        let event = load::event(&*store, &self.state, restoring.checkpoint).await?;
        let Body::CheckpointCreated(checkpoint) = &event.body else {
            return Err(Error::Bug(format!("event {} is no checkpoint", restoring.checkpoint)));
        };
        let files = SessionFiles { store, session: self.id, secrets: self.shared.parts.secrets.clone() };
        Ok(Undo::new(restoring.undo, checkpoint, event.ts, files, &restoring.turn.to_string()))
    }

    /// What became of putting files back, where a crash cut that.
    pub(super) async fn restore_class(&self) -> Result<Option<CallClass>, Error> {
        let Some(restoring) = &self.state.restoring else { return Ok(None) };
        let RestoringPhase::Started { intent, .. } = &restoring.phase else { return Ok(None) };
        Ok(Some(self.undo(restoring).await?.class(intent).await))
    }
}

fn unread(restoring: &Restoring, undo: u64, error: &Error) -> Input {
    let refused = vec![whole(format!("the checkpoint cannot be read: {error}"))];
    match restoring.phase {
        RestoringPhase::Preparing => Input::RestorePrepared { undo, prepared: Err(refused) },
        RestoringPhase::Started { .. } => Input::RestoreDone { undo, done: Err(FailedRestore::Nothing(refused)) },
    }
}
