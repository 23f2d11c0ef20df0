//! The first thing a loaded session does: what a crash or stop cut is looked at and told to the core.

use std::path::Path;

use tenure_core::{
    command::Input,
    delta::Stream,
    ids::CallId,
    model::Usage,
    session::{CallState, Turn},
    tool::{CallClass, ToolKind},
};

use super::Warm;
use crate::{Error, files::SessionFiles, load};

impl Warm {
    /// Tells whether the session may go on now.
    pub(super) async fn recover(&mut self) -> bool {
        if self.disk_waits() {
            return false;
        }
        match self.try_recover().await {
            Ok(()) => {
                self.recovered = true;
                true
            }
            Err(error) => {
                self.disk_refused(&error);
                false
            }
        }
    }

    fn disk_waits(&self) -> bool {
        matches!(self.disk, super::Disk::Refusing { until, .. } if until > tokio::time::Instant::now())
    }

    async fn try_recover(&mut self) -> Result<(), Error> {
        let state = self.state.clone();
        let Some(turn) = &state.turn else { return Ok(()) };
        for delta in load::shown(&*self.shared.parts.store, self.id, turn).await? {
            self.shown.take_back(delta.stream, &delta.text);
        }
        let partial = self.shown.cut(Usage::default());
        let classes = self.classes(turn).await;
        match self.commit(Input::Recover { classes, partial }).await {
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
                classes.push((call.call.id, tenure_tools::classify(workspace, intent, &files).await));
            }
        }
        classes
    }
}

impl super::spool::Shown {
    fn take_back(&mut self, stream: Stream, text: &str) {
        match stream {
            Stream::Text => self.put_back(text, ""),
            Stream::Thinking => self.put_back("", text),
            Stream::Arguments(_) | Stream::Output(_) => {}
        }
    }
}
