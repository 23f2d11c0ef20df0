//! Looks around in the workspace before a turn's first model call: what it says of itself every time, and the whole in
//! brief once for each workspace. What was found is an input like any other; nothing unrecorded reaches a model.

use std::{path::PathBuf, sync::Arc};

use tenure_core::{
    bundle::BundlePlan,
    command::{Input, Partial},
    context::Transcript,
    event::{Bundle, ContextSeeded, SeedSource},
    redact::Secrets,
    session::Effect,
};
use tenure_tools::Registry;
use tokio_util::sync::CancellationToken;

use super::{Warm, brake::time_up_fault};
use crate::{Reading, redaction::redacted};

/// One look, with all that it needs.
struct Look {
    workspace: PathBuf,
    commands: Option<Vec<String>>,
    source: SeedSource,
    /// What to gather, and for which task.
    bundle: Option<(BundlePlan, String)>,
    tools: Arc<Registry>,
    secrets: Secrets,
    cancel: CancellationToken,
}

impl Look {
    fn seed(self) -> ContextSeeded {
        let files = tenure_tools::find_context(&self.workspace);
        let verify = tenure_tools::find_verify_plan(&self.workspace, self.commands.as_deref());
        let gather = |(plan, task): (BundlePlan, String)| {
            self.tools.surroundings().bundle(&self.workspace, &plan, &task, &self.cancel)
        };
        let bundle = self.bundle.map(gather).filter(|bundle: &Bundle| !bundle.is_empty());
        redacted(&self.secrets, &ContextSeeded { source: self.source, files, verify, bundle })
    }
}

impl Warm {
    /// What the open turn is to be told of its workspace in brief; `None` where it is told nothing, or was told.
    pub(super) fn bundle_plan(&self) -> Option<BundlePlan> {
        let turn = self.state.turn.as_ref().filter(|_| self.state.bundle_due)?;
        let parts = &self.shared.parts;
        let plan = parts.config.bundle.preferred(&self.state.settings.preferences);
        if plan.is_nothing() {
            return None;
        }
        // A model that cannot be had fails where it is called.
        let window = parts.models.resolve(&turn.model).ok().and_then(|model| model.window());
        Some(plan.within(window)).filter(|plan| !plan.is_nothing())
    }

    /// Looks around while the session goes on hearing: the model is called when what was found is on disk.
    pub(super) async fn look_beside(&mut self, effect: Effect, plan: BundlePlan) {
        let Effect::CallModel { turn, step, attempt, .. } = effect else { return };
        // No call is under way that would cost something.
        self.bill = None;
        let token = self.shared.stop.child_token();
        let brake = self.brake(effect, token.clone());
        let look = self.look(Some(plan), token.clone()).await;
        self.run_beside(effect, &brake.clone(), async move {
            let looking = tokio::task::spawn_blocking(move || look.seed());
            let input = tokio::select! {
                biased;
                // A look that panicked has found nothing; the turn goes on without.
                seed = looking => seed.ok().map(Input::ContextFound),
                () = token.cancelled() => brake.is_time_up().then(|| {
                    Input::ModelFailed { turn, step, attempt, fault: time_up_fault(), partial: Partial::default() }
                }),
            };
            (input, Vec::new())
        });
    }

    /// Reads what the workspace says of itself, and gathers what is due where that is done on the spot.
    pub(super) async fn look_around(&mut self) -> ContextSeeded {
        let (reading, token) = (self.shared.parts.config.reading, self.shared.stop.child_token());
        let plan = self.bundle_plan().filter(|_| reading == Reading::InPlace);
        let look = self.look(plan, token).await;
        let empty = ContextSeeded { source: look.source, files: vec![], verify: None, bundle: None };
        match reading {
            Reading::Beside => tokio::task::spawn_blocking(move || look.seed()).await.unwrap_or(empty),
            Reading::InPlace => look.seed(),
        }
    }

    async fn look(&mut self, plan: Option<BundlePlan>, cancel: CancellationToken) -> Look {
        let bundle = match plan {
            Some(plan) => Some((plan, self.task().await)),
            None => None,
        };
        let parts = &self.shared.parts;
        Look {
            workspace: PathBuf::from(&self.state.settings.workspace_path),
            commands: parts.config.verify_commands.clone(),
            source: if self.state.seed.is_none() { SeedSource::New } else { SeedSource::Resume },
            bundle,
            tools: parts.tools.clone(),
            secrets: parts.secrets.clone(),
            cancel,
        }
    }

    /// What the open turn is about, in the person's words.
    async fn task(&mut self) -> String {
        // A log that cannot be read fails where the request is made.
        let _ = self.need_transcript().await;
        self.transcript.as_ref().map(Transcript::task).unwrap_or_default()
    }
}
