//! MCP servers as tool sources: a fake one that goes wrong on demand, over the real supervisor and the real client.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure_core::{
    message::{Part, joined_text},
    tool::{Intent, ToolKind},
};
use tenure_tools::{
    Invoked, ToolsConfig,
    foreign::{Foreign, ForeignConfig, ForeignKind, Found, Origin, Selection, Server, State, Trust, Way},
};

use crate::rig::{Rig, is_zombie, unique, until};

const FAKE: &str = env!("CARGO_BIN_EXE_tenure-fake-mcp");

pub struct World {
    pub rig: Rig,
    pub data: PathBuf,
    pub foreign: Arc<Foreign>,
    pub config: ToolsConfig,
}

fn server(mode: &str) -> Server {
    let way = Way::Stdio { command: FAKE.into(), args: vec![mode.into()], env: BTreeMap::new() };
    Server::new("fake", Origin::User, way)
}

impl World {
    pub fn new(servers: Vec<Server>) -> Self {
        Self::with(servers, |_| ())
    }

    pub fn with(servers: Vec<Server>, change: impl FnOnce(&mut ForeignConfig)) -> Self {
        let rig = Rig::new();
        let config = ToolsConfig::new(env!("CARGO_BIN_EXE_tenure-supervise"), &rig.ledger, unique().to_string());
        let data = rig.outside().join("foreign");
        let mut own = ForeignConfig::new(servers, &data);
        change(&mut own);
        let foreign = Foreign::new(own, &config);
        Self { rig, data, foreign, config }
    }

    /// The same data folder in another life.
    pub fn again(self, servers: Vec<Server>) -> Self {
        let foreign = Foreign::new(ForeignConfig::new(servers, &self.data), &self.config);
        Self { foreign, ..self }
    }

    pub fn found(&self) -> Found {
        self.foreign.find(&self.rig.workspace, &Selection::All)
    }

    pub async fn names(&self) -> Vec<String> {
        let offer = self.foreign.list(&self.found()).await;
        offer.tools.into_iter().map(|(offered, _)| offered.spec.name).collect()
    }

    pub async fn call(&self, name: &str, input: Value) -> Invoked {
        let tool = self.foreign.tool(&self.rig.workspace, name).await.unwrap_or_else(|| panic!("no tool {name}"));
        tool.invoke(&self.rig.context, &input, &Intent::default()).await
    }

    pub async fn text(&self, name: &str, input: Value) -> String {
        let invoked = self.call(name, input).await;
        assert!(invoked.result.ok, "{invoked:?}");
        joined_text(&invoked.result.parts)
    }

    pub async fn error(&self, name: &str, input: Value) -> String {
        let invoked = self.call(name, input).await;
        assert!(!invoked.result.ok, "{invoked:?}");
        joined_text(&invoked.result.parts)
    }
}

fn is_alive(pid: i32) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists() && !is_zombie(pid)
}

/// The pid outside of its namespace of the fake server with this mode.
fn pid_of(mode: &str) -> i32 {
    crate::rig::alive(mode).first().copied().expect("it runs")
}

#[tokio::test]
async fn tools_are_listed_called_and_known_without_a_start() {
    let mode = format!("m{}", unique());
    let world = World::new(vec![server(&mode)]);
    assert!(world.foreign.known(&world.found()).is_none(), "nothing is known before the first start");
    let names = world.names().await;
    assert_eq!((names[0].as_str(), names.len()), ("mcp__fake__die", 15));
    assert!(names.is_sorted());
    assert_eq!(world.text("mcp__fake__echo", json!({"text": "hi"})).await, "hi");
    assert_eq!(world.foreign.states(&world.found())[0].state, State::Running);
    let pid = pid_of(&mode);
    world.foreign.shutdown().await;
    assert!(!is_alive(pid), "it ends with the daemon");
    assert_eq!(world.rig.ledger_files(), Vec::<String>::new());

    let world = world.again(vec![server(&mode)]);
    let known = world.foreign.known(&world.found()).expect("the list is on disk");
    assert_eq!(known.tools.len(), 15);
    assert!(crate::rig::alive(&mode).is_empty(), "and nothing was started for it");
    assert_eq!(world.text("mcp__fake__echo", json!({"text": "again"})).await, "again");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn sessions_of_a_workspace_share_a_server_and_an_idle_one_is_ended() {
    let mode = format!("m{}", unique());
    let world = World::with(vec![server(&mode)], |config| config.idle_kept = Duration::from_millis(300));
    let (one, two) = tokio::join!(world.text("mcp__fake__pid", json!({})), world.text("mcp__fake__pid", json!({})));
    assert_eq!(one, two);
    let pid = pid_of(&mode);
    tokio::task::spawn_blocking(move || until("the idle server is ended", || !is_alive(pid))).await.unwrap();
    assert_eq!(world.text("mcp__fake__echo", json!({"text": "back"})).await, "back");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn kinds_and_choice_are_the_users() {
    let mut chosen = server("kinds");
    chosen.tools = Some(vec!["echo".into(), "die".into(), "slow".into()]);
    chosen.exclude_tools = vec!["slow".into()];
    let kinds = async |server: Server| {
        let world = World::new(vec![server]);
        let offer = world.foreign.list(&world.found()).await;
        world.foreign.shutdown().await;
        offer.tools.into_iter().map(|(offered, _)| (offered.spec.name, offered.spec.kind)).collect::<Vec<_>>()
    };
    let named = |die, echo| vec![("mcp__fake__die".to_owned(), die), ("mcp__fake__echo".to_owned(), echo)];
    assert_eq!(kinds(chosen.clone()).await, named(ToolKind::Exec, ToolKind::Exec));
    chosen.trust = Trust::Annotations;
    assert_eq!(kinds(chosen.clone()).await, named(ToolKind::Exec, ToolKind::Read));
    chosen.kind = Some(ForeignKind::Network);
    assert_eq!(kinds(chosen).await, named(ToolKind::Network, ToolKind::Network));
}

#[tokio::test]
async fn results_of_every_kind_become_ours() {
    let world = World::new(vec![server("results")]);
    assert_eq!(world.error("mcp__fake__error", json!({})).await, "it went wrong");
    assert_eq!(world.error("mcp__fake__refuse", json!({})).await, "not like this");
    assert_eq!(world.text("mcp__fake__garbage", json!({})).await, "after the garbage");
    let structured = world.call("mcp__fake__structured", json!({})).await.result;
    assert_eq!(
        (joined_text(&structured.parts).as_str(), &structured.detail),
        ("{\"sum\":3}", &json!({"structured": {"sum": 3}}))
    );

    let huge = world.call("mcp__fake__huge", json!({"text": "1000000"})).await.result;
    assert!(huge.ok && joined_text(&huge.parts).len() <= tenure_tools::OUTPUT_BYTES_MAX);
    let whole = world.rig.blobs.0.lock().unwrap().get(&huge.artifacts[0].r#ref).cloned().unwrap();
    assert_eq!(whole.len(), 1_000_000);

    let media = world.call("mcp__fake__media", json!({})).await.result;
    let kinds: Vec<&str> = media.parts.iter().map(Part::kind).collect();
    assert_eq!(kinds, ["text", "image", "audio"]);
    let text = joined_text(&media.parts);
    for said in
        ["look:", "not valid base64", "[file:///a]\ninside", "(application/zip) kept as", "[resource c: file:///c]"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert_eq!(media.artifacts.len(), 3);
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_said_to_and_started_anew_for_the_next() {
    let world = World::new(vec![server("dying")]);
    let first = world.text("mcp__fake__pid", json!({})).await;
    let error = world.error("mcp__fake__die", json!({})).await;
    assert!(error.contains("it ended with exit code 3") && error.contains("The outcome is unknown"), "{error}");
    assert_eq!(world.text("mcp__fake__echo", json!({"text": "on"})).await, "on");
    drop(first);

    // A line that never ends is cut off with its server, and so is the call.
    let error = world.error("mcp__fake__flood", json!({})).await;
    assert!(error.contains("lost in the middle") && error.contains("The outcome is unknown"), "{error}");
    assert_eq!(world.text("mcp__fake__echo", json!({"text": "on and on"})).await, "on and on");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_server_that_keeps_dying_is_not_started_without_end() {
    let world = World::new(vec![server("keeps-dying")]);
    let mut said = vec![];
    for _ in 0..5 {
        said.push(world.error("mcp__fake__die", json!({})).await);
    }
    assert!(said[0].contains("exit code 3"), "{said:?}");
    assert!(said.iter().any(|error| error.contains("it is tried again in")), "{said:?}");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_server_that_cannot_start_is_left_out_and_its_complaint_told() {
    let mut missing = server("x");
    missing.name = "missing".into();
    missing.way = Way::Stdio { command: "/no/such/program".into(), args: vec![], env: BTreeMap::new() };
    let mut mute = server("mute");
    (mute.name, mute.start_timeout) = ("mute".into(), Duration::from_millis(300));
    let mut variable = server("x");
    variable.name = "variable".into();
    variable.way = Way::Stdio { command: "${NO_SUCH_VARIABLE}".into(), args: vec![], env: BTreeMap::new() };
    let mut good = server("garbage");
    good.name = "good".into();
    let world = World::new(vec![server("dies"), missing, mute, variable, good]);
    let names = world.names().await;
    assert!(names.len() == 15 && names.iter().all(|name| name.starts_with("mcp__good__")), "{names:?}");
    let problems: BTreeMap<String, String> = world
        .foreign
        .states(&world.found())
        .into_iter()
        .filter_map(|state| Some((state.source, state.problem?)))
        .collect();
    for (source, why) in [
        ("mcp:fake", "exit code 7"),
        ("mcp:missing", "/no/such/program cannot be started"),
        ("mcp:mute", "not ready within 300 ms"),
        ("mcp:variable", "no variable NO_SUCH_VARIABLE"),
    ] {
        assert!(problems[source].contains(why), "{source}: {problems:?}");
    }
    assert!(world.foreign.known(&world.found()).is_some(), "what failed is not tried again at once");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn progress_is_shown_and_a_cancel_reaches_the_server() {
    let world = World::new(vec![server("slow")]);
    world.names().await;
    let marker = world.rig.outside().join("marker");
    let input = json!({"text": marker.to_str().unwrap()});
    let call = world.call("mcp__fake__slow", input);
    let cancel = async {
        while !world.rig.shown().contains("half way") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.rig.context.cancel.cancel();
    };
    let (invoked, ()) = tokio::join!(call, cancel);
    assert!(!invoked.result.ok);
    assert_eq!(world.rig.shown(), "[1 of 2] half way\n");
    until("the server hears of it", || marker.exists());
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_call_ends_at_its_limit() {
    let mut server = server("limit");
    server.call_timeout = Duration::from_millis(200);
    let world = World::new(vec![server]);
    let marker = world.rig.outside().join("marker");
    let error = world.error("mcp__fake__slow", json!({"text": marker.to_str().unwrap()})).await;
    assert!(error.contains("no answer within 200 ms") && error.contains("The outcome is unknown"), "{error}");
    until("the server hears of it", || marker.exists());
    assert_eq!(world.text("mcp__fake__echo", json!({"text": "on"})).await, "on");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_changed_list_is_asked_for_anew() {
    let world = World::new(vec![server("growing")]);
    assert!(!world.names().await.contains(&"mcp__fake__extra".to_owned()));
    world.text("mcp__fake__grow", json!({})).await;
    let grown = || world.foreign.offer(&world.found()).tools.len() == 16;
    for _ in 0..1000 {
        if grown() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(grown(), "the new tool is offered");
    assert_eq!(world.text("mcp__fake__extra", json!({"text": "new"})).await, "new");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_server_is_told_the_workspace_and_asks_no_model() {
    let world = World::new(vec![server("asking")]);
    let roots = world.text("mcp__fake__roots", json!({})).await;
    let uri = format!("file://{}", world.rig.workspace.canonicalize().unwrap().display());
    assert!(roots.contains(&uri), "{roots}");
    let refused = world.text("mcp__fake__sample", json!({})).await;
    assert!(refused.contains("-32601"), "{refused}");
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_server_gets_its_variables_and_nobody_sees_them() {
    let mut server = server("env");
    let env = BTreeMap::from([("API_KEY".to_owned(), "${GIVEN}".to_owned())]);
    server.way = Way::Stdio { command: FAKE.into(), args: vec!["env".into()], env };
    let world = World::with(vec![server], |config| {
        config.variables.insert("GIVEN".into(), "sesame-open-up".into());
    });
    assert_eq!(world.text("mcp__fake__env", json!({"text": "API_KEY"})).await, "${secret:mcp.fake.API_KEY}");
    assert_eq!(world.text("mcp__fake__env", json!({"text": "GIVEN"})).await, "unset");
    world.foreign.shutdown().await;
}

fn name_in_workspace(world: &World, arguments: &[&str]) {
    let file = json!({"mcpServers": {"local": {"command": FAKE, "args": arguments}}});
    world.rig.put(".mcp.json", file.to_string());
}

#[tokio::test]
async fn what_a_workspace_names_is_started_only_after_a_yes_to_its_exact_text() {
    let mode = format!("m{}", unique());
    let world = World::new(vec![]);
    name_in_workspace(&world, &[&mode]);
    assert_eq!(world.names().await, ["mcp_connect__local"]);
    assert!(crate::rig::alive(&mode).is_empty(), "nothing was started");
    assert!(world.foreign.tool(&world.rig.workspace, "mcp__local__echo").await.is_none());
    let connect = world.foreign.tool(&world.rig.workspace, "mcp_connect__local").await.unwrap();
    assert_eq!(connect.spec().kind, ToolKind::Exec);
    assert_eq!(connect.subject(&json!({}), None), format!("{FAKE} {mode}"));

    let said = world.text("mcp_connect__local", json!({})).await;
    assert_eq!(said, "15 tools of mcp:local can be called from your next step on");
    assert_eq!(world.text("mcp__local__echo", json!({"text": "hi"})).await, "hi");
    world.foreign.shutdown().await;

    // The yes holds in another life, and not for another text.
    let world = world.again(vec![]);
    assert_eq!(world.names().await.len(), 15);
    name_in_workspace(&world, &[&mode, "more"]);
    assert_eq!(world.names().await, ["mcp_connect__local"]);
    assert!(world.foreign.tool(&world.rig.workspace, "mcp__local__echo").await.is_none());
    assert!(crate::rig::alive(&mode).is_empty());
}

#[tokio::test]
async fn a_workspace_does_not_take_the_place_of_the_users_server() {
    let world = World::new(vec![Server { name: "local".into(), ..server("mine") }]);
    name_in_workspace(&world, &["theirs"]);
    let found = world.found();
    assert_eq!(found.problems.len(), 1, "{:?}", found.problems);
    assert_eq!(world.names().await.len(), 15);
    world.foreign.shutdown().await;
}

#[tokio::test]
async fn a_selection_picks_among_all() {
    let world = World::new(vec![server("a"), Server { name: "other".into(), ..server("b") }]);
    let found = world.foreign.find(&world.rig.workspace, &Selection::Named(vec!["mcp:other".into()]));
    let offer = world.foreign.list(&found).await;
    assert!(offer.tools.iter().all(|(offered, _)| offered.source == "mcp:other") && offer.tools.len() == 15);
    world.foreign.shutdown().await;
}
