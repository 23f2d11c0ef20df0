//! Tools that are not built in: those of MCP servers and of a workspace's plugins. It finds them, lists them, starts
//! what they need on first use and ends it when nobody has use for it. What a workspace names is never started before a
//! person has said yes to its exact text.

mod approved;
mod listing;
mod mcp;
mod mcp_json;
mod name;
mod plugin;
mod pool;
mod server;
mod tool;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use serde::Serialize;
use tenure_core::tool::{OfferedTool, ToolKind, ToolSpec};

pub use mcp_json::check_name;
pub use server::{CALL_TIMEOUT, ForeignKind, Origin, START_TIMEOUT, Server, Trust, Way};

use self::{
    approved::Approved,
    listing::Lists,
    plugin::Plugin,
    pool::Pool,
    tool::{Connect, ForeignTool},
};
use crate::{Tool, ToolsConfig, command::Commands, workspace::Workspace};

/// How a call ends that nobody can tell the outcome of.
pub(crate) const UNKNOWN: &str = "The outcome is unknown: it may have taken effect wholly, in part or not at all. It was \
                                  not run again; look before you repeat it.";
/// A server that nobody calls is ended after this long.
const IDLE_KEPT: Duration = Duration::from_secs(5 * 60);
/// Foreign tools that one session is offered; those of the last sources are left out.
const OFFERED_MAX: usize = 256;

/// What foreign tools are put together from.
pub struct ForeignConfig {
    /// The user's own servers.
    pub servers: Vec<Server>,
    /// Where approvals, lists and plugins are kept: `<data>/foreign`.
    pub folder: PathBuf,
    /// What `${NAME}` in a server's settings stands for.
    pub variables: BTreeMap<String, String>,
    pub idle_kept: Duration,
}

impl ForeignConfig {
    /// The usual settings; variables are those of this process.
    pub fn new(servers: Vec<Server>, folder: impl Into<PathBuf>) -> Self {
        let variables =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Self { servers, folder: folder.into(), variables: variables.collect(), idle_kept: IDLE_KEPT }
    }
}

pub struct Foreign {
    servers: Vec<Arc<Server>>,
    folder: PathBuf,
    variables: BTreeMap<String, String>,
    commands: Arc<Commands>,
    approved: Approved,
    lists: Lists,
    pool: Pool,
    /// Why a source could not be listed the last time, by its key.
    failures: Mutex<BTreeMap<String, String>>,
}

/// Where tools come from.
#[derive(Clone)]
enum Source {
    Server(Arc<Server>),
    Plugin(Arc<Plugin>),
}

impl Source {
    /// `mcp:<server>` or `plugin:<name>`.
    fn name(&self) -> String {
        match self {
            Self::Server(server) => server.source(),
            Self::Plugin(plugin) => plugin.source(),
        }
    }

    /// The exact text that a yes is for.
    fn text(&self) -> String {
        match self {
            Self::Server(server) => server.text(),
            Self::Plugin(plugin) => plugin.text(),
        }
    }

    /// By what its list of tools is kept.
    fn identity(&self) -> String {
        match self {
            Self::Server(server) => server.identity(),
            Self::Plugin(plugin) => plugin.digest.clone(),
        }
    }

    fn prefix(&self) -> String {
        match self {
            Self::Server(server) => format!("mcp__{}__", server.name),
            Self::Plugin(plugin) => format!("plugin__{}__", plugin.name),
        }
    }

    /// Whether it may be started before a person was asked.
    fn is_users(&self) -> bool {
        matches!(self, Self::Server(server) if server.origin == Origin::User)
    }
}

/// Which sources a session has: all there are, or those that its role names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Selection {
    #[default]
    All,
    /// Sources by their names, such as `mcp:docs`.
    Named(Vec<String>),
}

impl Selection {
    fn has(&self, source: &Source) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|name| *name == source.name()),
        }
    }
}

/// The sources of one workspace, as they were found.
#[derive(Clone)]
pub struct Found {
    workspace: PathBuf,
    sources: Vec<Source>,
    /// What could not be used, for people.
    pub problems: Vec<String>,
}

impl Found {
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// What a model can be offered, in a fixed order.
#[derive(Clone, Default)]
pub struct Offer {
    pub tools: Vec<(OfferedTool, Arc<dyn Tool>)>,
}

/// How a source is, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceState {
    pub source: String,
    pub state: State,
    /// Why it cannot be used now.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nobody has said yes to it yet.
    Unapproved,
    /// Its tools are not known yet.
    Unlisted,
    /// Its tools are known; it is started when one is called.
    Listed,
    Running,
    Failed,
}

impl Foreign {
    /// Starts nothing.
    pub fn new(config: ForeignConfig, tools: &ToolsConfig) -> Arc<Self> {
        let mut servers = config.servers;
        servers.sort_by(|a, b| a.name.cmp(&b.name));
        Arc::new(Self {
            servers: servers.into_iter().map(Arc::new).collect(),
            approved: Approved::new(&config.folder),
            lists: Lists::new(&config.folder),
            folder: config.folder,
            variables: config.variables,
            commands: Arc::new(Commands::new(tools)),
            pool: Pool::new(config.idle_kept),
            failures: Mutex::default(),
        })
    }

    /// Looks what there is for a workspace. Reads files, starts nothing. A workspace cannot put its own server in the
    /// place of one of the user's.
    pub fn find(&self, workspace: &Path, selection: &Selection) -> Found {
        let mut sources: Vec<Source> = self.servers.iter().cloned().map(Source::Server).collect();
        let mut problems = vec![];
        // One spelling, whatever way led there: a yes is for the folder.
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        if let Ok(opened) = Workspace::open(&workspace) {
            let read = mcp_json::read(&opened);
            problems.extend(read.problems);
            for server in read.servers {
                match self.servers.iter().any(|known| known.name == server.name) {
                    true => problems.push(format!("{}: {} is one of your own servers", mcp_json::FILE, server.name)),
                    false => sources.push(Source::Server(Arc::new(server))),
                }
            }
            let (plugins, more) = plugin::find(&workspace);
            problems.extend(more);
            sources.extend(plugins.into_iter().map(Arc::new).map(Source::Plugin));
        }
        sources.retain(|source| selection.has(source));
        Found { workspace, sources, problems }
    }

    fn is_approved(&self, source: &Source, workspace: &Path) -> bool {
        source.is_users() || self.approved.has(workspace, &source.name(), &source.text())
    }

    async fn approve(self: &Arc<Self>, source: &Source, workspace: &Path) {
        let (foreign, source, workspace) = (Arc::clone(self), source.clone(), workspace.to_owned());
        let keep = move || foreign.approved.add(&workspace, &source.name(), &source.text());
        let _ = tokio::task::spawn_blocking(keep).await;
    }

    /// What can be offered without starting anything. `None`: a list is missing that a start would bring.
    pub fn known(self: &Arc<Self>, found: &Found) -> Option<Offer> {
        let missing = |source: &&Source| {
            self.is_approved(source, &found.workspace)
                && self.lists.get(&source.identity()).is_none()
                && !self.is_given_up(source, &found.workspace)
        };
        found.sources.iter().find(missing).is_none().then(|| self.offer(found))
    }

    /// What is known by now.
    pub fn offer(self: &Arc<Self>, found: &Found) -> Offer {
        let tools = found.sources.iter().flat_map(|source| self.tools_of(source, &found.workspace));
        Offer { tools: tools.take(OFFERED_MAX).collect() }
    }

    fn tools_of(self: &Arc<Self>, source: &Source, workspace: &Path) -> Vec<(OfferedTool, Arc<dyn Tool>)> {
        let offered = |spec| OfferedTool { source: source.name(), spec };
        if !self.is_approved(source, workspace) {
            let connect = Connect { foreign: self.clone(), source: source.clone(), workspace: workspace.to_owned() };
            return vec![(offered(connect.spec()), Arc::new(connect))];
        }
        let list = self.lists.get(&source.identity()).unwrap_or_else(|| Arc::from([]));
        let wanted: Vec<_> = list.iter().filter(|tool| source_wants(source, &tool.name)).collect();
        let names = name::offered(&source.prefix(), wanted.iter().map(|tool| tool.name.as_str()));
        let tool = |(name, described): (String, &&listing::Described)| {
            let kind = match source {
                Source::Server(server) => server.kind_of(described.read_only),
                // What a plugin says of itself is its own word.
                Source::Plugin(_) => ToolKind::Exec,
            };
            let (description, input_schema) = (described.description.clone(), described.input_schema.clone());
            let spec = ToolSpec { name, description, input_schema, kind };
            let (foreign, source) = (self.clone(), source.clone());
            let tool = ForeignTool { foreign, source, own_name: described.name.clone(), spec: spec.clone() };
            (offered(spec), Arc::new(tool) as Arc<dyn Tool>)
        };
        names.into_iter().zip(&wanted).map(tool).collect()
    }

    /// Starts what has to be started for its list, side by side. What fails is left out.
    pub async fn list(self: &Arc<Self>, found: &Found) -> Offer {
        let approved = found.sources.iter().filter(|source| self.is_approved(source, &found.workspace));
        let unknown = approved.filter(|source| self.lists.get(&source.identity()).is_none());
        let listed = unknown.map(|source| async move {
            if let Err(why) = self.list_source(source, &found.workspace).await {
                tracing::warn!("{} of {}: {why}", source.name(), found.workspace.display());
            }
        });
        join_all(listed).await;
        self.offer(found)
    }

    /// Asks a source for its tools; tells how many it has.
    async fn list_source(self: &Arc<Self>, source: &Source, workspace: &Path) -> Result<usize, String> {
        let listed = match source {
            // A server is asked for its list whenever it is started.
            Source::Server(server) => self.connection(server, workspace).await.map(drop),
            Source::Plugin(plugin) => self.describe(plugin, workspace).await,
        };
        let key = pool::key(&source.name(), &source.identity(), workspace);
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match &listed {
            Ok(()) => drop(failures.remove(&key)),
            Err(why) => drop(failures.insert(key, why.clone())),
        }
        listed.map(|()| self.lists.get(&source.identity()).map_or(0, |list| list.len()))
    }

    async fn describe(&self, plugin: &Plugin, workspace: &Path) -> Result<(), String> {
        let program = plugin.installed(&self.folder)?;
        let tools = plugin::describe(&plugin.name, program, workspace, &self.commands).await?;
        self.lists.put(&plugin.digest, tools);
        Ok(())
    }

    /// A source whose list could not be had: a plugin is not asked again by itself, a server when its time has come.
    fn is_given_up(&self, source: &Source, workspace: &Path) -> bool {
        let key = pool::key(&source.name(), &source.identity(), workspace);
        let failed = self.failures.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&key);
        failed && (matches!(source, Source::Plugin(_)) || self.pool.waits(&key))
    }

    /// The tool of this name as things are now, for a call that was recorded earlier. Its source may have changed since,
    /// or may not be approved any more: then there is none.
    pub async fn tool(self: &Arc<Self>, workspace: &Path, name: &str) -> Option<Arc<dyn Tool>> {
        let (foreign, path) = (Arc::clone(self), workspace.to_owned());
        let found = tokio::task::spawn_blocking(move || foreign.find(&path, &Selection::All)).await.ok()?;
        for source in &found.sources {
            if Connect::name_of(source) == name {
                let (foreign, source, workspace) = (self.clone(), source.clone(), found.workspace.clone());
                return Some(Arc::new(Connect { foreign, source, workspace }));
            }
            if name.starts_with(&source.prefix()) {
                if self.is_approved(source, &found.workspace) && self.lists.get(&source.identity()).is_none() {
                    let _ = self.list_source(source, &found.workspace).await;
                }
                let tools = self.tools_of(source, &found.workspace);
                return tools.into_iter().find(|(offered, _)| offered.spec.name == name).map(|(_, tool)| tool);
            }
        }
        None
    }

    /// How each source is.
    pub fn states(&self, found: &Found) -> Vec<SourceState> {
        let state = |source: &Source| {
            let key = pool::key(&source.name(), &source.identity(), &found.workspace);
            let problem = self.failures.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
            let state = match self.lists.get(&source.identity()) {
                _ if !self.is_approved(source, &found.workspace) => State::Unapproved,
                _ if problem.is_some() => State::Failed,
                _ if self.pool.is_running(&key) => State::Running,
                Some(_) => State::Listed,
                None => State::Unlisted,
            };
            SourceState { source: source.name(), state, problem }
        };
        found.sources.iter().map(state).collect()
    }

    /// Starts each of the user's servers for a workspace and tells how many tools it has, or what is wrong.
    pub async fn check(self: &Arc<Self>, workspace: &Path) -> Vec<(String, Result<usize, String>)> {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        let checked = self.servers.iter().map(|server| {
            let source = Source::Server(server.clone());
            let workspace = workspace.clone();
            async move { (server.name.clone(), self.list_source(&source, &workspace).await) }
        });
        join_all(checked).await
    }

    /// Ends all servers and waits until their processes are gone, within bounds.
    pub async fn shutdown(&self) {
        self.pool.shutdown().await;
    }
}

fn source_wants(source: &Source, tool: &str) -> bool {
    match source {
        Source::Server(server) => server.wants(tool),
        Source::Plugin(_) => true,
    }
}
