//! What the chat does when it is told a command instead of a message.

use tenure_client::print::tamed;
use tenure_wire::{Approve, Cancel, Fork, Patch, Verdict};

use super::{Chat, asides};
use crate::{
    daemon, limits,
    slash::{self, Slash},
    standby, terminal,
};

impl Chat<'_> {
    pub(super) async fn obey(&mut self, slash: Slash) -> anyhow::Result<()> {
        match slash {
            Slash::Help => terminal::note(&slash::help()),
            Slash::New => {
                self.open = None;
                terminal::note("A new session begins with your next message.\n");
            }
            Slash::Sessions => {
                self.reach().await?;
                asides::list(&self.client).await?;
            }
            Slash::Model(None) if self.open.is_none() => {
                let model = self.model_of_new().unwrap_or_else(|| "what the daemon takes for its default".into());
                terminal::note(&format!("The next session has the model {}.\n", tamed(&model)));
            }
            Slash::Model(Some(name)) if self.open.is_none() => {
                self.reach().await?;
                self.client.check_model(&name).await?;
                terminal::note(&format!("The next session has the model {}.\n", tamed(&name)));
                self.model = Some(name);
            }
            Slash::Exit => {}
            with_session => match &self.open {
                None => terminal::note("There is no session yet: say something first.\n"),
                Some(open) => {
                    let session = open.session.clone();
                    self.obey_in(session, with_session).await?;
                }
            },
        }
        Ok(())
    }

    /// Makes sure that the daemon is there, for calls that are made once.
    pub(super) async fn reach(&self) -> anyhow::Result<()> {
        let reaching = daemon::insist(&self.client, &self.way, || self.client.health());
        Ok(standby::while_starting(self.context, reaching).await.map(drop)?)
    }

    async fn obey_in(&mut self, session: String, slash: Slash) -> anyhow::Result<()> {
        self.reach().await?;
        let client = &self.client;
        match slash {
            Slash::Show => asides::show(client, &session).await?,
            Slash::Model(None) => {
                let view = client.session(&session).await?;
                terminal::note(&format!("The model is {}.\n", tamed(&view.model)));
            }
            Slash::Model(Some(name)) => {
                let patch = Patch { model: Some(name), ..Patch::default() };
                let view = client.patch(&session, None, &patch).await?;
                terminal::note(&format!("The next turn goes to {}.\n", tamed(&view.model)));
                limits::tell_unpriced(client, &view).await?;
            }
            Slash::Title(title) => asides::entitle(client, &session, title).await?,
            Slash::Fork => {
                let fork = client.fork(&session, &Fork::default()).await?;
                let view = client.session(&fork.session_id).await?;
                terminal::tell(&format!("You are in {} now; {session} stays as it is.", view.id));
                self.open = Some(self.opened(view.id, view.seq));
            }
            Slash::Approve => self.answer(&session, Verdict::Approve, None).await?,
            Slash::Deny(why) => self.answer(&session, Verdict::Deny, why).await?,
            Slash::Cancel => {
                client.cancel(&session, &Cancel::default()).await?;
            }
            Slash::Compact => {
                client.compact(&session).await?;
            }
            Slash::Undo => asides::undo(client, &session).await?,
            Slash::Resume => match client.session(&session).await?.turn {
                Some(turn) => drop(client.resume(&session, &turn.id).await?),
                None => terminal::note("No turn is open.\n"),
            },
            // A retry is followed, as a message is.
            Slash::Help | Slash::Retry | Slash::Exit | Slash::Sessions | Slash::New => {}
        }
        Ok(())
    }

    async fn answer(&self, session: &str, action: Verdict, reason: Option<String>) -> anyhow::Result<()> {
        let Some(first) = self.client.session(session).await?.approvals.into_iter().next() else {
            terminal::note("Nothing waits for a yes or no.\n");
            return Ok(());
        };
        let answer = Approve { tool_call_id: first.tool_call_id, action, reason, ..Approve::default() };
        self.client.approve(session, &answer).await?;
        Ok(())
    }
}
