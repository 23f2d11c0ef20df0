//! Which tools the next request offers: those built in, and foreign ones as they are recorded before the model sees
//! them. What has to be started for that is started beside the session, which can be stopped meanwhile.

use std::{path::PathBuf, sync::Arc};

use tenure_core::{command::Input, event::ToolsOffered, ids::TurnId, session::Effect, tool::OfferedTool};
use tenure_tools::{
    Registry,
    foreign::{Found, Offer, Selection},
};

use super::Warm;
use crate::{Reading, redaction::redacted};

/// What is offered now.
#[derive(Default)]
pub(super) struct Offering {
    /// What the workspace has, as the turn found it.
    found: Option<Found>,
    found_for: Option<TurnId>,
    /// The step whose request this is for: all its attempts offer the same.
    step: Option<(TurnId, u32)>,
    tools: Option<(String, Arc<Registry>)>,
}

/// Whether a request can be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    Ready,
    /// Something is started first, or the disk does not take what has to be recorded.
    NotYet,
}

impl Warm {
    /// All tools of the present request.
    pub(super) fn toolset(&self) -> Arc<Registry> {
        let known = self.offering.tools.as_ref().map(|(_, tools)| tools.clone());
        known.unwrap_or_else(|| self.shared.parts.tools.clone())
    }

    /// Settles what this step's request offers, and records it where it differs from what was offered before.
    pub(super) async fn offer_tools(&mut self, effect: Effect, turn: TurnId, step: u32) -> Offered {
        if self.offering.step == Some((turn, step)) {
            return Offered::Ready;
        }
        if self.offering.found_for != Some(turn) {
            self.offering.found = self.find_foreign().await;
            self.offering.found_for = Some(turn);
        }
        let found = self.offering.found.clone().filter(|found| !found.is_empty());
        let (Some(foreign), Some(found)) = (self.shared.parts.foreign.clone(), found) else {
            return self.take_offer(Offer::default(), turn, step).await;
        };
        match foreign.known(&found) {
            Some(offer) => self.take_offer(offer, turn, step).await,
            None => {
                // What a model call used up before has nothing to do with this.
                self.bill = None;
                let (token, secrets) = (self.shared.stop.child_token(), self.shared.parts.secrets.clone());
                let brake = self.brake(effect, token.clone());
                self.run_beside(effect, &brake, async move {
                    let input = tokio::select! {
                        biased;
                        offer = foreign.list(&found) => Some(Input::ToolsFound(recorded(&offer, &secrets))),
                        () = token.cancelled() => None,
                    };
                    (input, Vec::new())
                });
                Offered::NotYet
            }
        }
    }

    /// What the user's config and the workspace name now.
    async fn find_foreign(&self) -> Option<Found> {
        let foreign = self.shared.parts.foreign.clone()?;
        let workspace = PathBuf::from(&self.state.settings.workspace_path);
        let look = move || {
            let found = foreign.find(&workspace, &Selection::All);
            // What is kept on disk of it is read here, where that holds up nobody.
            foreign.known(&found);
            found
        };
        let found = match self.shared.parts.config.reading {
            Reading::Beside => tokio::task::spawn_blocking(look).await.ok()?,
            Reading::InPlace => look(),
        };
        for problem in &found.problems {
            self.shared.notice_once(format!("{}: {problem}", self.state.settings.workspace_path));
        }
        Some(found)
    }

    async fn take_offer(&mut self, offer: Offer, turn: TurnId, step: u32) -> Offered {
        let offered = recorded(&offer, &self.shared.parts.secrets);
        if self.state.offer_differs(&offered) && !self.tell(Input::ToolsFound(offered.clone())).await {
            return Offered::NotYet;
        }
        self.offering.step = Some((turn, step));
        let digest = offered.digest();
        if offered.tools.is_empty() {
            self.offering.tools = None;
        } else if self.offering.tools.as_ref().is_none_or(|(known, _)| *known != digest) {
            let specs = offered.tools.into_iter().map(|offered| offered.spec);
            let tools = specs.zip(offer.tools.into_iter().map(|(_, tool)| tool)).collect();
            self.offering.tools = Some((digest, Arc::new(self.shared.parts.tools.with_foreign(tools))));
        }
        Offered::Ready
    }
}

/// What the log is told, and the model with it: no secret stands in it.
fn recorded(offer: &Offer, secrets: &tenure_core::redact::Secrets) -> ToolsOffered {
    let tools: Vec<OfferedTool> = offer.tools.iter().map(|(offered, _)| offered.clone()).collect();
    redacted(secrets, &ToolsOffered { tools })
}
