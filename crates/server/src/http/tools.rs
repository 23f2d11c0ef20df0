//! The tools that agents can be given: those built in, and those of a session's or a workspace's own sources.

use std::{path::PathBuf, sync::Arc};

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;
use tenure_core::{policy::RuleAction, tool::ToolSpec};
use tenure_engine::ForeignTools;
use tenure_wire::{ToolList, ToolSourceView, ToolView};

use super::{
    App, json,
    problem::{self, Rejection},
    query::{Params, shown},
    view,
};

/// Whose tools, beside those built in.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Of {
    /// Those of this session's workspace too.
    session: Option<String>,
    /// Those of this folder on the daemon's machine too.
    workspace: Option<String>,
}

pub(crate) async fn list(State(app): State<Arc<App>>, Params(of): Params<Of>) -> Result<Response, Rejection> {
    app.limits.text.name("session", of.session.as_deref())?;
    let foreign = match workspace(&app, of).await? {
        Some(workspace) => app.engine.foreign_tools(workspace).await,
        None => ForeignTools::default(),
    };
    let approval = &app.about.policy.approval;
    let shown = |source: &str, tool: &ToolSpec| ToolView {
        name: tool.name.clone(),
        source: source.to_owned(),
        description: tool.description.clone(),
        kind: view::word(&tool.kind),
        requires_approval: approval.judge(&tool.name, tool.kind, "") == RuleAction::Ask,
        input_schema: tool.input_schema.clone(),
    };
    let mut tools: Vec<ToolView> = app.engine.tools().iter().map(|tool| shown("built_in", tool)).collect();
    tools.extend(foreign.tools.iter().map(|offered| shown(&offered.source, &offered.spec)));
    let source = |source: tenure_engine::ToolSource| ToolSourceView {
        name: source.name,
        state: source.state.unwrap_or_default(),
        problem: source.problem,
    };
    let sources = foreign.sources.into_iter().map(source).collect();
    Ok(json(StatusCode::OK, &ToolList { tools, sources, problems: foreign.problems }))
}

/// The folder whose tools are asked for.
async fn workspace(app: &App, of: Of) -> Result<Option<PathBuf>, Rejection> {
    let Some(name) = of.session else {
        let folder = of.workspace.map(PathBuf::from);
        return match folder.as_ref().is_some_and(|folder| !folder.is_absolute()) {
            true => Err(super::query::bad_query("a workspace is an absolute path")),
            false => Ok(folder),
        };
    };
    let session = match name.parse() {
        Ok(session) => session,
        Err(_) => app.engine.named(&name).await?.ok_or_else(|| problem::no_such_session(&shown(&name)))?,
    };
    let state = app.engine.session(session).await?;
    Ok(Some(PathBuf::from(&state.settings.workspace_path)))
}
