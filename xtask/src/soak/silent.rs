//! Watchers that never read, on a session with a very long reply: what one of them costs the daemon must not depend on what it does not read.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{command::answered, sample::Sample, world::World};
use crate::http::{Connection, Follow};

const WATCHERS: usize = 100;
/// More than a socket takes by itself, so that the daemon has to wait for its watchers in the middle of it; and less than a script may hold.
const REPLY_BYTES: usize = 7 << 19;
/// What a connection and one look into log and spool may take.
const BYTES_PER_WATCHER_MAX: f64 = 512.0 * 1024.0;
/// Not a watcher's, but the reply's own: held as a whole by the session while it is made, and by reads under way, of which the allocator keeps something.
const REPLY_COPIES: f64 = 16.0;
const PATIENCE: Duration = Duration::from_secs(120);

/// Gives the bytes that each watcher takes.
pub fn check(world: &World, pid: i32) -> Result<f64> {
    let session = create(world)?;
    let before = Sample::of(pid, 0).context("the daemon is gone")?;
    let watchers = (0..WATCHERS).map(|_| watch(world, &session)).collect::<Result<Vec<Follow>>>()?;
    let body = json!({"parts": [{"type": "text", "text": "a long one"}]});
    let told = ask(world, "POST", &format!("/v1/sessions/{session}/messages"), Some(&body))?;
    let turn = told["turn_id"].as_str().unwrap_or_default();
    let deadline = Instant::now() + PATIENCE;
    let path = format!("/v1/sessions/{session}/turns/{turn}?wait_ms=1000");
    let status = loop {
        let status = ask(world, "GET", &path, None)?["status"].clone();
        if world.is_interrupted() {
            bail!("interrupted");
        }
        let open = ["pending", "running", "streaming"].iter().any(|name| status == *name);
        if !open || Instant::now() > deadline {
            break status;
        }
    };
    world.check(status == "completed", || {
        format!("{session}: a reply of {REPLY_BYTES} bytes while {WATCHERS} watch and do not read is {status}")
    });
    // Those who can go on do so, until all of them wait for their clients.
    thread::sleep(Duration::from_secs(2));
    let after = Sample::of(pid, 0).context("the daemon is gone")?;
    drop(watchers);
    let grown = after.rss_bytes - before.rss_bytes;
    let allowed = WATCHERS as f64 * BYTES_PER_WATCHER_MAX + REPLY_COPIES * REPLY_BYTES as f64;
    world.check(grown <= allowed, || {
        format!("{WATCHERS} watchers that read nothing cost {:.0} MB; {:.0} MB are allowed", grown / 1e6, allowed / 1e6)
    });
    Ok(grown / WATCHERS as f64)
}

fn create(world: &World) -> Result<String> {
    let (script, workspace) = (world.folder.join("long.json"), world.folder.join("workspaces/long"));
    fs::create_dir_all(&workspace)?;
    let reply = json!({"text": "words ".repeat(REPLY_BYTES / 6), "chunk": 4000, "pause_ms": 1});
    fs::write(&script, json!({"name": "long", "steps": [{"do": [reply]}]}).to_string())?;
    let body = json!({"workspace_path": workspace, "model": format!("scripted:{}", script.display())});
    let made = ask(world, "POST", "/v1/sessions", Some(&body))?;
    Ok(made["session_id"].as_str().context("no session was made")?.to_owned())
}

fn watch(world: &World, session: &str) -> Result<Follow> {
    let (target, _) = world.setup.target().context("no daemon")?;
    Ok(Connection::open(&target)?.follow(&format!("/v1/sessions/{session}/events"), None)?)
}

fn ask(world: &World, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let key = format!("soak-silent-{}", world.number());
    answered(world, method, path, body.map(|_| &*key), body).context("no answer")?.json()
}
