//! `tenure doctor`: looks at everything that the daemon needs, and says of each thing how it is and what to do about it.
//! It changes nothing, and starts no daemon.

mod foreign;
mod models;

use std::{
    borrow::Cow,
    fs,
    io::{ErrorKind, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use clap::Args;
use serde::Serialize;
use serde_json::json;
use tenure_client::{
    discover::{self, Absent, TOKEN_FILE},
    print::Tone,
};
use tenure_wire::SessionFilter;

use super::Context;
use crate::{config, data, exit::Exit, hint, remote::Files, standing::FileStanding, terminal};

/// Check the data folder, the disk, the daemon, models and what tools need
#[derive(Debug, Args)]
#[command(after_help = "Exits with 1 if anything is wrong; warnings do not count. Servers of models on\n\
                        this machine are asked what they have, and one model of each answers with one\n\
                        token twice, which tells whether it is shown tools.\n\n\
                        Examples:\n    tenure doctor\n    tenure doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
pub struct Arguments {}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Ok,
    Warning,
    Wrong,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Check {
    name: Cow<'static, str>,
    state: State,
    /// How it is.
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<Cow<'static, str>>,
}

/// Less free space than this is worth a word.
const FREE_BYTES_MIN: u64 = 1 << 30;
/// A slower disk is felt at every step of an agent.
const SYNC_SLOW: Duration = Duration::from_millis(20);
const SYNCS: usize = 15;
/// Fewer open files than this are not enough for a few hundred watchers and tools.
const FILES_MIN: u64 = 1024;

/// Where what was found begins in a line.
const INDENT: usize = 22;

pub async fn run(context: &Context, _: &Arguments) -> anyhow::Result<Exit> {
    let mut checks = vec![ok("version", format!("tenure {}", env!("CARGO_PKG_VERSION")))];
    checks.push(folder(&context.data));
    let is_there = context.data.is_dir();
    if is_there {
        checks.push(space(&context.data));
        checks.push(sync_time(&context.data));
        checks.push(token(&context.data));
        checks.extend(started_with(&context.data));
    }
    if data::obstacle(&context.data).is_none() {
        let (configuration, durability) = configuration(&context.data);
        checks.push(configuration);
        checks.extend(daemon(&context.data, durability).await);
        checks.extend(models::checks(&context.data).await);
        checks.extend(foreign::checks(&context.data).await);
    }
    checks.push(files());
    checks.push(namespaces());
    checks.push(program("bash", "install it: without it commands run in `sh`, which knows less", &["--version"]));
    checks.push(program("git", "install it: agents that look at repositories need it", &["--version"]));
    let is_wrong = checks.iter().any(|check| check.state == State::Wrong);
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({ "ok": !is_wrong, "checks": checks }))?,
        terminal::Output::Text => {
            let look = terminal::stdout_look();
            for check in &checks {
                let (tone, mark) = match check.state {
                    State::Ok => (Tone::Good, "ok     "),
                    State::Warning => (Tone::Faint, "warning"),
                    State::Wrong => (Tone::Bad, "wrong  "),
                };
                let found = look.folded_behind(INDENT, &check.found);
                terminal::print_line(&format!("{}  {:<11}  {found}", look.paint(tone, mark), check.name))?;
                if let Some(hint) = &check.hint {
                    terminal::print_line(&format!("{:INDENT$}→ {}", "", look.folded_behind(INDENT + 2, hint)))?;
                }
            }
        }
    }
    Ok(if is_wrong { Exit::Failed } else { Exit::Ok })
}

fn ok(name: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Check {
    Check { name: name.into(), state: State::Ok, found: found.into(), hint: None }
}

fn warning(name: impl Into<Cow<'static, str>>, found: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Check {
    Check { name: name.into(), state: State::Warning, found: found.into(), hint: Some(hint.into()) }
}

fn wrong(name: impl Into<Cow<'static, str>>, found: impl Into<String>, hint: impl Into<Cow<'static, str>>) -> Check {
    Check { name: name.into(), state: State::Wrong, found: found.into(), hint: Some(hint.into()) }
}

fn folder(path: &Path) -> Check {
    const NAME: &str = "data folder";
    let shown = path.display();
    if let Some(obstacle) = data::obstacle(path) {
        return wrong(NAME, obstacle, "choose another folder with --data");
    }
    match fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            match path.ancestors().find(|above| above.is_dir()).map(tempfile::tempfile_in) {
                Some(Err(error)) => {
                    wrong(NAME, format!("{shown} cannot be made: {}", error.kind()), "choose another with --data")
                }
                _ => ok(NAME, format!("{shown} is not there yet; the first command makes it")),
            }
        }
        Err(error) => wrong(NAME, format!("{shown}: {error}"), "choose another folder with --data"),
        Ok(found) => match tempfile::tempfile_in(path) {
            Err(error) => {
                let hint = match is_full(&error) {
                    true => FREE,
                    false => "mend its permissions, or choose another with --data",
                };
                wrong(NAME, format!("{shown} cannot be written to: {}", error.kind()), hint)
            }
            Ok(_) if found.permissions().mode() & 0o077 != 0 => {
                warning(NAME, format!("{shown} can be looked into by others"), format!("close it: chmod 700 {shown}"))
            }
            Ok(_) => ok(NAME, shown.to_string()),
        },
    }
}

const FREE: &str = "free some space on its disk: until then sessions wait";

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

fn space(path: &Path) -> Check {
    match rustix::fs::statvfs(path) {
        Err(error) => warning("disk", format!("how full it is cannot be told: {error}"), "look at it with `df`"),
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{:.1} GB free", free as f64 / 1e9);
            match free < FREE_BYTES_MIN {
                true => warning("disk", found, "free some space: on a full disk agents cannot go on"),
                false => ok("disk", found),
            }
        }
    }
}

/// What every acknowledged step waits for.
fn sync_time(path: &Path) -> Check {
    let measure = || -> std::io::Result<Duration> {
        let mut file = tempfile::tempfile_in(path)?;
        let mut times = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let began = Instant::now();
            file.write_all(&[b'x'; 700])?;
            file.sync_data()?;
            times.push(began.elapsed());
        }
        times.sort();
        Ok(times[SYNCS / 2])
    };
    match measure() {
        Err(error) if is_full(&error) => wrong("sync", "the disk is full: nothing can be written", FREE),
        Err(error) => wrong("sync", format!("the disk does not sync: {error}"), "choose another folder with --data"),
        Ok(time) => {
            let found = format!("{:.2} ms for a write that survives a power cut (median of {SYNCS})", ms(time));
            match time > SYNC_SLOW {
                true => warning(
                    "sync",
                    found,
                    "use a faster disk with --data; or set durability = \"process\" in config.toml, which survives kill -9 but no power cut",
                ),
                false => ok("sync", found),
            }
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn token(path: &Path) -> Check {
    match fs::metadata(path.join(TOKEN_FILE)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            ok("token", "not made yet; the first daemon makes it")
        }
        Err(error) => wrong(
            "token",
            error.to_string(),
            "mend its permissions; or `tenure stop` and remove it: the next daemon makes a new one",
        ),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let file = path.join(TOKEN_FILE);
            let hint =
                format!("close it with chmod 600 {}, then `tenure token rotate`: it may be known", file.display());
            wrong("token", "others can read it", hint)
        }
        Ok(_) => match data::read_plain(&path.join(TOKEN_FILE), u64::MAX) {
            Err(error) => wrong(
                "token",
                error.to_string(),
                "mend its permissions; or `tenure stop` and remove it: the next daemon makes a new one",
            ),
            Ok(Some(text)) if !text.trim_ascii().is_empty() => ok("token", "private"),
            Ok(_) => {
                wrong("token", "the file is empty", "`tenure stop` and remove it: the next daemon makes a new one")
            }
        },
    }
}

/// The files that a daemon reads when it starts and refuses to start with when they are damaged; none is no word.
fn started_with(path: &Path) -> impl Iterator<Item = Check> {
    let tokens = match Files(path.to_owned()).look() {
        Ok(kept) if kept.named.is_empty() => None,
        Ok(kept) => Some(ok("tokens", format!("{} by name", kept.named.len()))),
        Err(problem) => Some(wrong("tokens", problem.to_string(), problem.hint().to_owned())),
    };
    let always =
        FileStanding::open(path).err().map(|problem| wrong("answers", problem.to_string(), problem.hint().to_owned()));
    tokens.into_iter().chain(always)
}

/// And what the file says of durability.
fn configuration(path: &Path) -> (Check, &'static str) {
    let file = path.join(config::FILE);
    match config::read(path) {
        Ok(config) => {
            let durability = match config.durability {
                Some(config::Durability::Process) => "process",
                Some(config::Durability::Power) | None => "power",
            };
            let found = if file.exists() { file.display().to_string() } else { "all defaults".to_owned() };
            (ok("config", found), durability)
        }
        Err(error) => {
            (wrong("config", format!("{error:#}"), "mend the file; `tenure serve --help` lists all keys"), "power")
        }
    }
}

async fn daemon(path: &Path, durability: &'static str) -> Vec<Check> {
    let (client, note) = match discover::find(path).await {
        Ok(found) => found,
        Err(Absent::NoNote { .. } | Absent::Gone { .. }) => {
            return vec![
                ok("daemon", "none runs; a command starts one when it needs it"),
                durable("durability", durability),
            ];
        }
        Err(other) => {
            return vec![wrong("daemon", other.to_string(), hint::of_absence(&other))];
        }
    };
    let found = format!("process {} at {}, version {}", note.pid, note.address, note.version);
    let mut checks = vec![match note.version == env!("CARGO_PKG_VERSION") {
        true => ok("daemon", found),
        false => {
            warning("daemon", found, "it is of another version: `tenure stop`, then any command starts the new one")
        }
    }];
    checks.extend(note.fingerprint.map(|fingerprint| ok("certificate", format!("SHA-256 {fingerprint}"))));
    if let Err(error) = client.list(1, None, &SessionFilter::default()).await {
        let hint = "if the token file was changed: `tenure stop`, then any command starts a daemon that takes it";
        checks.push(wrong("access", error.to_string(), hint));
    }
    match client.ready().await {
        Err(error) => checks.push(wrong(
            "ready",
            error.to_string(),
            "the log says why: daemon.log in the data folder, or where it was started",
        )),
        Ok(ready) => {
            checks.push(durable("durability", &ready.durability));
            let found = ready.status;
            checks.push(match found.as_str() {
                "ready" => ok("ready", "every session with something pending has been looked at"),
                _ => warning("ready", found, "wait a moment, then look again"),
            });
            let told = |notice: String| match hint::is_full(&notice) {
                true => warning("notice", notice, FREE),
                false => {
                    warning("notice", notice, "`tenure store check` looks for damage; the daemon's log has this too")
                }
            };
            checks.extend(ready.notices.into_iter().map(told));
        }
    }
    checks
}

fn durable(name: &'static str, durability: &str) -> Check {
    match durability {
        "power" => ok(name, "power: what was acknowledged survives a power cut"),
        "process" => ok(name, "process: what was acknowledged survives kill -9, and not a power cut"),
        other => warning(name, other, "sessions are gone when this daemon ends"),
    }
}

fn files() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    match limit.maximum {
        Some(most) if most < FILES_MIN => warning(
            "open files",
            format!("{most} at most"),
            "let root raise the limit (limits.conf, or LimitNOFILE in the unit file)",
        ),
        Some(most) => ok("open files", format!("{most} at most")),
        None => ok("open files", "no limit"),
    }
}

/// Whether commands can get a process namespace of their own, in which nothing of them can hide.
fn namespaces() -> Check {
    let root = rustix::process::geteuid().is_root();
    // As commands get it: with a process list of their own.
    let all = ["--user", "--pid", "--fork", "--mount-proc"];
    let flags = if root { &all[1..] } else { &all[..] };
    let tried = Command::new("unshare").args(flags).arg("true").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match tried {
        Ok(status) if status.success() => ok("namespaces", "commands get a process namespace of their own"),
        Ok(_) => warning(
            "namespaces",
            "process namespaces cannot be had here",
            "allow user namespaces if you can; without them a process that hides may live until the daemon starts again",
        ),
        Err(_) => warning("namespaces", "not tried: there is no `unshare` here", "install util-linux to have it tried"),
    }
}

fn program(name: &'static str, without: &'static str, arguments: &[&str]) -> Check {
    let output = Command::new(name).args(arguments).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or("").to_owned();
            ok(name, said)
        }
        _ => warning(name, "not found", without),
    }
}
