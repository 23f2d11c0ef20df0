//! A tool that a test holds, counts and answers for.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan};
use tenure_tools::{CallContext, Invoked, Tool};

use crate::Gate;

type Work = Box<dyn Fn(CallContext, Value) -> BoxFuture<'static, ToolResult> + Send + Sync>;

pub struct TestTool {
    name: String,
    kind: ToolKind,
    /// Where a run waits, after it has shown its output.
    gate: Option<Gate>,
    prepare_gate: Option<Gate>,
    intent: Mutex<Result<Intent, String>>,
    output: Vec<String>,
    work: Option<Work>,
    on_cancel: OnCancel,
    runs: AtomicUsize,
    inputs: Mutex<Vec<Value>>,
}

#[derive(PartialEq)]
enum OnCancel {
    Ends,
    Ignores,
}

impl TestTool {
    pub fn new(name: &str, kind: ToolKind) -> Self {
        Self {
            name: name.into(),
            kind,
            gate: None,
            prepare_gate: None,
            intent: Mutex::new(Ok(Intent::default())),
            output: Vec::new(),
            work: None,
            on_cancel: OnCancel::Ends,
            runs: AtomicUsize::new(0),
            inputs: Mutex::default(),
        }
    }

    /// Each run waits until the gate is opened.
    pub fn gated(mut self) -> Self {
        self.gate = Some(Gate::default());
        self
    }

    /// Each preparation waits until its gate is opened.
    pub fn gated_in_prepare(mut self) -> Self {
        self.prepare_gate = Some(Gate::default());
        self
    }

    /// What a run shows before it waits.
    pub fn showing(mut self, output: &[&str]) -> Self {
        self.output = output.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    /// It does not end when it is told to.
    pub fn stubborn(mut self) -> Self {
        self.on_cancel = OnCancel::Ignores;
        self
    }

    /// Why a preparation fails.
    pub fn unprepared(mut self, problem: &str) -> Self {
        self.intent = Mutex::new(Err(problem.into()));
        self
    }

    /// What a run does and gives back.
    pub fn doing<F>(mut self, work: impl Fn(CallContext, Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ToolResult> + Send + 'static,
    {
        self.work = Some(Box::new(move |context, input| Box::pin(work(context, input))));
        self
    }

    pub fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// How often it was started.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// What it was started with, in order.
    pub fn inputs(&self) -> Vec<Value> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn gate(&self) -> &Gate {
        self.gate.as_ref().expect("this tool was made with a gate")
    }

    pub fn prepare_gate(&self) -> &Gate {
        self.prepare_gate.as_ref().expect("this tool was made with a gate in its preparation")
    }

    async fn hold(&self, context: &CallContext) -> bool {
        let Some(gate) = &self.gate else { return true };
        if self.on_cancel == OnCancel::Ignores {
            gate.pass().await;
            return true;
        }
        tokio::select! {
            () = gate.pass() => true,
            () = context.cancel.cancelled() => false,
        }
    }
}

#[async_trait]
impl Tool for TestTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: format!("the tool {} of a test", self.name),
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

    async fn prepare(&self, _context: &CallContext, _input: &Value) -> Result<Intent, String> {
        if let Some(gate) = &self.prepare_gate {
            gate.pass().await;
        }
        self.intent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        self.runs.fetch_add(1, Ordering::SeqCst);
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner).push(input.clone());
        for text in &self.output {
            context.output.write(text.clone()).await;
        }
        if !self.hold(context).await {
            return Invoked::failed("stopped");
        }
        match &self.work {
            Some(work) => Invoked::done(work(context.clone(), input.clone()).await),
            None => Invoked::done(ToolResult::ok(format!("{} done", self.name))),
        }
    }
}
