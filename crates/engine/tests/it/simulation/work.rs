//! Models and tools of a life: they tell the world when they are at work, so that it can see who works beside whom.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream::BoxStream};
use serde_json::{Value, json};
use tenure_core::{
    context::{ChatMessage, ModelRequest, Purpose, RequestMeta},
    ids::{CallId, SessionId, TurnId},
    message::{Part, joined_text},
    model::{Fault, FaultKind, MicroUsd, StopReason, Usage},
    tool::{FileChange, Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};
use tenure_models::{Model, ModelEvent, Patience, Registry, scripted::ScriptedModel, tokens};
use tenure_tools::{CallContext, Invoked, Tool};

use super::world::World;

/// Longer than stopped work is waited for.
const STUCK_MS: u64 = 15_000;

/// A tool at work.
#[derive(Debug, Clone)]
pub struct Running {
    pub session: SessionId,
    pub turn: TurnId,
    pub call: CallId,
    pub name: &'static str,
    pub kind: ToolKind,
}

pub struct LifeModels {
    pub scripts: BTreeMap<String, ScriptedModel>,
    pub world: Arc<World>,
}

impl Registry for LifeModels {
    fn resolve(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        let script = self.scripts.get(name).ok_or_else(|| Fault::new(FaultKind::UnknownModel, "no such model"))?;
        Ok(Arc::new(LifeModel { script: script.clone(), world: self.world.clone() }))
    }
}

struct LifeModel {
    script: ScriptedModel,
    world: Arc<World>,
}

/// A model call is at work as long as this is there, however it ends.
struct AtModel(Arc<World>, SessionId);

impl Drop for AtModel {
    fn drop(&mut self) {
        self.0.model_ends(self.1);
    }
}

/// The same for a summary.
struct AtSummary(Arc<World>, SessionId);

impl Drop for AtSummary {
    fn drop(&mut self) {
        self.0.summary_ends(self.1);
    }
}

impl LifeModel {
    /// A window is a window, whatever the engine makes of it.
    fn check_room(&self, request: &ModelRequest) -> Result<(), Fault> {
        let tokens = tokens::of_request(request);
        match self.script.window() {
            Some(window) if tokens > window => {
                Err(Fault::new(FaultKind::ContextOverflow, format!("{tokens} tokens are more than {window}")))
            }
            _ => Ok(()),
        }
    }

    /// A review takes its time too: a yes, a no, a refusal, an end without a word, or silence.
    async fn review(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        let RequestMeta { turn_id, attempt, .. } = request.meta;
        let luck: u32 = turn_id.to_string().bytes().map(u32::from).sum::<u32>() + attempt;
        tokio::time::sleep(Duration::from_millis(u64::from(luck % 5) * 30)).await;
        let verdict = match luck % 8 {
            0 => return Err(Fault::new(FaultKind::Server, "no review today")),
            1 => return Err(Fault::new(FaultKind::Auth, "no review for you")),
            2 => return Ok(futures::stream::pending().boxed()),
            3 => return Ok(futures::stream::empty().boxed()),
            4 => "send_back",
            _ => "approve",
        };
        let text = json!({"verdict": verdict, "reason": "it is so"}).to_string();
        let said = [ModelEvent::Text(text), ModelEvent::Done { stop_reason: StopReason::EndTurn }];
        Ok(futures::stream::iter(said.map(Ok)).boxed())
    }

    /// A summary takes its time, and comes to nothing now and then, by the names in its request.
    async fn summary(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        let RequestMeta { session_id, turn_id, attempt, .. } = request.meta;
        self.world.summary_starts(session_id);
        let at_work = AtSummary(self.world.clone(), session_id);
        let luck: u32 = turn_id.to_string().bytes().map(u32::from).sum::<u32>() + attempt;
        tokio::time::sleep(Duration::from_millis(u64::from(luck % 7) * 30)).await;
        self.check_room(&request)?;
        match luck % 9 {
            0 => return Err(Fault::new(FaultKind::Server, "no summary today")),
            1 => return Err(Fault::new(FaultKind::Auth, "no summary for you")),
            2 => return Ok(futures::stream::pending().map(move |event| (event, &at_work).0).boxed()),
            3 => return Ok(futures::stream::empty().boxed()),
            _ => {}
        }
        let events = self.script.stream(request).await?;
        Ok(events.map(move |event| (event, &at_work).0).boxed())
    }
}

#[async_trait]
impl Model for LifeModel {
    async fn stream(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        let RequestMeta { session_id, purpose, .. } = request.meta;
        match purpose {
            Purpose::Step => {}
            Purpose::Summary => return self.summary(request).await,
            Purpose::Review => return self.review(request).await,
        }
        self.world.model_starts(&request);
        let at_work = AtModel(self.world.clone(), session_id);
        self.check_room(&request)?;
        let counted = tokens::of_request(&request);
        let events = self.script.stream(as_if_whole(request)).await?;
        let told = move |event| match event {
            Ok(ModelEvent::Usage(usage)) => Ok(ModelEvent::Usage(Usage { input_tokens: counted, ..usage })),
            event => event,
        };
        Ok(events.map(move |event| (told(event), &at_work).0).boxed())
    }

    fn cost(&self, usage: &Usage) -> Option<MicroUsd> {
        self.script.cost(usage)
    }

    fn patience(&self) -> Patience {
        self.script.patience()
    }

    fn window(&self) -> Option<u64> {
        self.script.window()
    }

    fn takes(&self, part: &Part) -> bool {
        self.script.takes(part)
    }
}

/// The request as the script is to see it. A script finds its place by the replies before it, and a compaction takes them
/// away: it would say the same for ever.
fn as_if_whole(request: ModelRequest) -> ModelRequest {
    let RequestMeta { turn_id, step, .. } = request.meta;
    let begins = turn_id.to_string().bytes().map(u32::from).sum::<u32>() % 6;
    let reply =
        Arc::new(ChatMessage::Assistant { text: String::new(), thinking: vec![], calls: vec![], order: vec![] });
    let messages = vec![reply; (begins + step - 1) as usize];
    ModelRequest { messages, ..request }
}

pub struct LifeTool {
    name: &'static str,
    kind: ToolKind,
    world: Arc<World>,
}

impl LifeTool {
    pub fn all(world: &Arc<World>) -> Vec<Arc<dyn Tool>> {
        let kinds = [
            ("look", ToolKind::Read),
            ("slow", ToolKind::Read),
            ("act", ToolKind::Exec),
            ("stuck", ToolKind::Exec),
            ("verify", ToolKind::Exec),
            ("write", ToolKind::Write),
            ("fetch", ToolKind::Network),
        ];
        let tool = |(name, kind)| Arc::new(LifeTool { name, kind, world: world.clone() }) as Arc<dyn Tool>;
        kinds.into_iter().map(tool).collect()
    }

    /// Whether it came to its end.
    async fn work(&self, context: &CallContext, input: &Value) -> bool {
        let ms = input["ms"].as_u64().unwrap_or(10);
        if self.name == "stuck" {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            if context.cancel.is_cancelled() {
                tokio::time::sleep(Duration::from_millis(STUCK_MS)).await;
            }
            return true;
        }
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => false,
            () = tokio::time::sleep(Duration::from_millis(ms)) => true,
        }
    }
}

/// A tool is at work as long as this is there, however it ends.
struct AtTool(Arc<World>, CallId);

impl Drop for AtTool {
    fn drop(&mut self) {
        self.0.tool_ends(self.1);
    }
}

#[async_trait]
impl Tool for LifeTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.into(),
            description: format!("the tool {} of a life", self.name),
            input_schema: json!({ "type": "object" }),
            kind: self.kind,
        }
    }

    fn subject(&self, input: &Value, verify: Option<&VerifyPlan>) -> String {
        match verify.filter(|_| self.name == "verify") {
            Some(plan) => plan.subject(),
            None => input["subject"].as_str().unwrap_or_default().to_owned(),
        }
    }

    async fn prepare(&self, _context: &CallContext, input: &Value) -> Result<Intent, String> {
        tokio::time::sleep(Duration::from_millis(input["ms"].as_u64().unwrap_or(0) / 10)).await;
        match input["ms"].as_u64() {
            Some(400) => Err("this file cannot be written".into()),
            // There is no workspace: files cannot be put back there, and folders are not in the way.
            Some(ms) if ms.is_multiple_of(4) => Ok(Intent { files: vec![], folders: vec![format!("made{}", ms % 5)] }),
            Some(ms) if ms.is_multiple_of(5) => {
                let (path, after) = (format!("file{ms}"), Some("0".repeat(64)));
                Ok(Intent { files: vec![FileChange { path, after, ..FileChange::default() }], folders: vec![] })
            }
            _ => Ok(Intent::default()),
        }
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let run = Running {
            session: context.session_id,
            turn: context.turn_id,
            call: context.call_id,
            name: self.name,
            kind: self.kind,
        };
        self.world.tool_starts(run);
        let _at_work = AtTool(self.world.clone(), context.call_id);
        for text in ["one\n", "two\n"].iter().take(input["ms"].as_u64().unwrap_or(0) as usize % 3) {
            context.output.write((*text).to_owned()).await;
        }
        if !self.work(context, input).await {
            return Invoked::failed("stopped");
        }
        // Verification fails now and then, by the name of the call.
        let sum: u32 = context.call_id.to_string().bytes().map(u32::from).sum();
        let fails = self.name == "verify" && sum.is_multiple_of(3);
        let text = format!("{} did {}", self.name, context.call_id);
        let result = if fails { ToolResult::failed(text) } else { ToolResult::ok(text) };
        self.world.tool_gives(context.session_id, context.call_id, joined_text(&result.parts));
        Invoked::done(result)
    }
}
