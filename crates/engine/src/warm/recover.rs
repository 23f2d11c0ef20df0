//! The first thing a loaded session does: what a crash or stop cut is looked at and told to the core.

use std::path::Path;

use tenure_core::{
    command::{Input, Partial},
    ids::CallId,
    session::{CallState, Phase, Turn},
    time::Timestamp,
    tool::{CallClass, ToolKind},
};

use super::Warm;
use crate::{Error, files::SessionFiles, load, model_call::Bill, redaction::restored};

impl Warm {
    /// Tells whether the session may go on now.
    pub(super) async fn recover(&mut self) -> bool {
        if self.disk_retry_at().is_some() || self.lost.is_some() {
            return false;
        }
        match self.try_recover().await {
            Ok(()) => {
                self.recovered = true;
                true
            }
            Err(error) => {
                self.lose(&error);
                self.disk_refused(&error);
                false
            }
        }
    }

    async fn try_recover(&mut self) -> Result<(), Error> {
        let state = self.state.clone();
        let Some(turn) = &state.turn else {
            return match state.queue.is_empty() && state.compaction.is_none() && state.restoring.is_none() {
                true => Ok(()),
                false => {
                    let restore = self.restore_class().await?;
                    self.tell_recovered(Vec::new(), restore, Partial::default(), None).await
                }
            };
        };
        let (shown, seen) = load::shown(&*self.shared.parts.store, self.id, turn).await?;
        self.shown.clear();
        shown.iter().for_each(|delta| self.shown.take(delta));
        if matches!(turn.phase, Phase::Stopping(_)) {
            // It is told with the turn's end.
            let reviewing = turn.calls.iter().any(|call| call.reviewing().is_some());
            self.cut_model =
                (reviewing || !shown.is_empty()).then(|| Partial { cost: self.untold(), ..Partial::default() });
            let model = self.shared.parts.models.resolve(&turn.model).ok();
            self.summary_bill = model.filter(|_| state.compaction.is_some()).map(Bill::new);
            return Ok(());
        }
        let (classes, partial) = (self.classes(turn).await, self.shown.so_far());
        self.tell_recovered(classes, None, partial, seen).await?;
        self.shown.clear();
        Ok(())
    }

    async fn tell_recovered(
        &mut self,
        classes: Vec<(CallId, CallClass)>,
        restore: Option<CallClass>,
        shown: Partial,
        seen: Option<Timestamp>,
    ) -> Result<(), Error> {
        let partial = Partial { cost: self.untold(), ..shown };
        match self.commit(Input::Recover { classes, restore, partial, seen }).await {
            Ok(_) | Err(Error::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Looks at the files of each write call that was cut.
    async fn classes(&self, turn: &Turn) -> Vec<(CallId, CallClass)> {
        let workspace = Path::new(&self.state.settings.workspace_path);
        let files = SessionFiles {
            store: self.shared.parts.store.clone(),
            session: self.id,
            secrets: self.shared.parts.secrets.clone(),
        };
        let mut classes = Vec::new();
        for call in turn.calls.iter().filter(|call| call.call.kind == ToolKind::Write) {
            if let CallState::Started { intent } = &call.state {
                let intent = restored(&self.shared.parts.secrets.only(&call.call.secrets), intent);
                classes.push((call.call.id, tenure_tools::classify(workspace, &intent, &files).await));
            }
        }
        classes
    }
}
