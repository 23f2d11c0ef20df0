//! A workspace, a ledger and a registry for one test, and a way to see which processes are alive.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tempfile::TempDir;
use tenure_core::{
    message::joined_text,
    tool::{Artifact, Intent, VerifyPlan, VerifySource},
};
use tenure_tools::{Blobs, CallContext, Invoked, OutputSink, Registry, ToolsConfig};
use tokio_util::sync::CancellationToken;

pub const CALL: &str = "call_01J00000000000000000000003";
/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct MemoryBlobs(pub Mutex<BTreeMap<String, Bytes>>);

#[async_trait]
impl Blobs for MemoryBlobs {
    async fn put(&self, name: &str, bytes: Bytes) -> Result<Artifact, String> {
        let artifact = Artifact::of(name, &bytes);
        self.0.lock().unwrap().insert(name.to_owned(), bytes);
        Ok(artifact)
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, String> {
        Ok(self.0.lock().unwrap().get(name).cloned())
    }
}

/// Holds what a watcher was shown.
#[derive(Default)]
pub struct Watcher(pub Mutex<String>);

#[async_trait]
impl OutputSink for Watcher {
    async fn write(&self, text: String) {
        self.0.lock().unwrap().push_str(&text);
    }
}

pub struct Rig {
    folder: TempDir,
    pub workspace: PathBuf,
    pub ledger: PathBuf,
    pub registry: Registry,
    pub blobs: Arc<MemoryBlobs>,
    pub watcher: Arc<Watcher>,
    pub context: CallContext,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut ToolsConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, ledger) = (folder.path().join("workspace"), folder.path().join("processes"));
        std::fs::create_dir(&workspace).unwrap();
        let mut config = ToolsConfig::new(env!("CARGO_BIN_EXE_tenure-supervise"), &ledger, unique().to_string());
        change(&mut config);
        let (blobs, watcher) = (Arc::<MemoryBlobs>::default(), Arc::<Watcher>::default());
        let context = CallContext {
            session_id: "sess_01J00000000000000000000001".parse().unwrap(),
            turn_id: "turn_01J00000000000000000000002".parse().unwrap(),
            call_id: CALL.parse().unwrap(),
            workspace: workspace.clone(),
            cancel: CancellationToken::new(),
            output: Arc::clone(&watcher) as Arc<dyn OutputSink>,
            blobs: Arc::clone(&blobs) as Arc<dyn Blobs>,
            verify: None,
            require_clean: false,
        };
        Self { folder, workspace, ledger, registry: Registry::new(config), blobs, watcher, context }
    }

    pub fn verifying(mut self, commands: &[&str]) -> Self {
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        self.context.verify = Some(VerifyPlan { source: VerifySource::Config, commands });
        self
    }

    /// A folder beside the workspace.
    pub fn outside(&self) -> &Path {
        self.folder.path()
    }

    pub async fn prepare(&self, tool: &str, input: &Value) -> Result<Intent, String> {
        assert_eq!(self.registry.check(tool, input), Ok(()));
        self.registry.get(tool).unwrap().prepare(&self.context, input).await
    }

    pub async fn invoke(&self, tool: &str, input: &Value, intent: &Intent) -> Invoked {
        self.registry.get(tool).unwrap().invoke(&self.context, input, intent).await
    }

    /// As the engine does it: prepare, then invoke.
    pub async fn call(&self, tool: &str, input: Value) -> Invoked {
        match self.prepare(tool, &input).await {
            Ok(intent) => self.invoke(tool, &input, &intent).await,
            Err(error) => Invoked::failed(error),
        }
    }

    pub async fn text(&self, tool: &str, input: Value) -> String {
        let invoked = self.call(tool, input).await;
        assert!(invoked.result.ok, "{invoked:?}");
        joined_text(&invoked.result.parts)
    }

    pub async fn error(&self, tool: &str, input: Value) -> String {
        let invoked = self.call(tool, input).await;
        assert!(!invoked.result.ok, "{invoked:?}");
        invoked.result.error.unwrap()
    }

    pub fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// A file's content, if there is such a file.
    pub fn get(&self, path: &str) -> Option<String> {
        std::fs::read(self.workspace.join(path)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All paths below the workspace.
    pub fn tree(&self) -> Vec<String> {
        let (mut found, mut folders) = (vec![], vec![self.workspace.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
                found.push(entry.path().strip_prefix(&self.workspace).unwrap().to_str().unwrap().to_owned());
            }
        }
        found.sort();
        found
    }

    pub fn shown(&self) -> String {
        self.watcher.0.lock().unwrap().clone()
    }

    pub fn ledger_files(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.ledger).into_iter().flatten().flatten();
        files.map(|file| file.file_name().into_string().unwrap()).collect()
    }
}

/// A number that no other test uses, fit as an argument of `sleep`.
pub fn unique() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id() % 100_000;
    1_000_000_000 + start * 10_000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The living processes with exactly this argument.
pub fn alive(argument: &str) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let fits = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|found| found == argument.as_bytes()) && !is_zombie(*pid)
    };
    pids.filter(fits).collect()
}

pub fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

/// Waits until something holds; fails the test when it does not come.
#[track_caller]
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "this did not come: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
