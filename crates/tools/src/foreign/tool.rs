//! Foreign tools as the engine knows tools: those of a server or a plugin, and the one that stands for a source which
//! nobody has said yes to.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan};

use super::{Foreign, Source, UNKNOWN, mcp::End, plugin, server::Server};
use crate::{CallContext, Invoked, Tool};

/// One tool of a source.
pub(super) struct ForeignTool {
    pub(super) foreign: Arc<Foreign>,
    pub(super) source: Source,
    /// What its source calls it.
    pub(super) own_name: String,
    pub(super) spec: ToolSpec,
}

#[async_trait]
impl Tool for ForeignTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    /// The tool as such: a yes for the session is one for this tool, whatever its input.
    fn subject(&self, _input: &Value, _verify: Option<&VerifyPlan>) -> String {
        format!("{}/{}", self.source.name(), self.own_name)
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let result = match &self.source {
            Source::Server(server) => self.call_server(server, context, input).await,
            Source::Plugin(plugin) => match plugin.installed(&self.foreign.folder) {
                Ok(program) => {
                    let names = (plugin.name.as_str(), self.own_name.as_str());
                    plugin::call(names, program, input, context, &self.foreign.commands).await
                }
                Err(why) => ToolResult::failed(why),
            },
        };
        Invoked::done(result)
    }
}

impl ForeignTool {
    async fn call_server(&self, server: &Arc<Server>, context: &CallContext, input: &Value) -> ToolResult {
        let (name, secrets) = (&server.name, server.known_secrets(&self.foreign.variables));
        let opened = tokio::select! {
            opened = self.foreign.connection(server, &context.workspace) => opened,
            () = context.cancel.cancelled() => return ToolResult::failed("stopped before the call was sent"),
        };
        let connection = match opened {
            Ok(connection) => connection,
            Err(why) => {
                return ToolResult::failed(format!("the MCP server {name} cannot be used: {}", secrets.redact(&why)));
            }
        };
        let end = connection.call(&self.own_name, input, server.call_timeout, context, &secrets).await;
        let then = match self.spec.kind {
            ToolKind::Read => "It only reads, so it can be called again.",
            _ => UNKNOWN,
        };
        let failed = |why: String| ToolResult::failed(secrets.redact(&why).into_owned());
        match end {
            End::Done(result) => result,
            End::Unsent(why) => failed(format!("the call was not sent to the MCP server {name}: {why}")),
            End::Lost(why) => {
                failed(format!("the MCP server {name} was lost in the middle of this call: {why}. {then}"))
            }
            End::Canceled => failed("stopped; the server was told, and may have done a part of it".into()),
            End::TimedOut => {
                let limit = server.call_timeout.as_millis();
                failed(format!("the MCP server {name} gave no answer within {limit} ms and was told to stop. {then}"))
            }
        }
    }
}

/// Stands for a source of the workspace until a person has said yes to it. Calling it is what is asked about.
pub(super) struct Connect {
    pub(super) foreign: Arc<Foreign>,
    pub(super) source: Source,
    pub(super) workspace: PathBuf,
}

impl Connect {
    pub(super) fn name_of(source: &Source) -> String {
        match source {
            Source::Server(server) => format!("mcp_connect__{}", server.name),
            Source::Plugin(plugin) => format!("plugin_connect__{}", plugin.name),
        }
    }
}

#[async_trait]
impl Tool for Connect {
    fn spec(&self) -> ToolSpec {
        let (what, kind) = match &self.source {
            Source::Server(server) => (format!("the MCP server '{}'", server.name), server.usual_kind()),
            Source::Plugin(plugin) => (format!("the plugin '{}'", plugin.name), ToolKind::Exec),
        };
        ToolSpec {
            name: Self::name_of(&self.source),
            description: format!(
                "Makes the tools of {what} available, which this workspace names and nobody has approved yet. Call it \
                 when they would help; a person may be asked. They can be called from your next step on."
            ),
            input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
            kind,
        }
    }

    /// The exact text that a yes is for.
    fn subject(&self, _input: &Value, _verify: Option<&VerifyPlan>) -> String {
        self.source.text()
    }

    /// It runs only when it was allowed to, so what it stands for is approved from now on.
    async fn invoke(&self, context: &CallContext, _input: &Value, _intent: &Intent) -> Invoked {
        self.foreign.approve(&self.source, &self.workspace).await;
        let listed = tokio::select! {
            listed = self.foreign.list_source(&self.source, &self.workspace) => listed,
            () = context.cancel.cancelled() => return Invoked::failed("stopped"),
        };
        match listed {
            Ok(0) => Invoked::done(ToolResult::ok(format!("{} has no tools that can be used", self.source.name()))),
            Ok(count) => {
                let tools = if count == 1 { "tool" } else { "tools" };
                let name = self.source.name();
                Invoked::done(ToolResult::ok(format!("{count} {tools} of {name} can be called from your next step on")))
            }
            Err(why) => Invoked::failed(format!("{} cannot be used: {why}", self.source.name())),
        }
    }
}
