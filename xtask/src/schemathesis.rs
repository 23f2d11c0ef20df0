//! `cargo xtask schemathesis`: a real daemon, and requests made up from its own description by an outside program. The description has to be true in both directions: what it allows is taken, what it forbids is refused, and every answer is as it says.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    daemon::{Build, Daemon, Setup, root, tenure},
    install,
};

pub const HELP: &str = "\
Tries a real daemon with requests that schemathesis makes up from /openapi.json: examples, edge
cases, random ones, and chains of operations along the document's links.

Usage: cargo xtask schemathesis [--examples N] [--seed S]

  --examples N   random requests for each operation and phase (default 100)
  --seed S       the same seed gives the same requests (default: by chance)

schemathesis is installed from PyPI into a folder below target/, the first time. What is left out,
and why, stands in xtask/schemathesis/.
";

/// What each session's model does: deltas, a write, and a call that waits for a yes and prints more than a result holds.
const SCRIPT: &str = r#"{"name":"trial","after":"repeat","steps":[
  {"do":[{"thinking":"A file first."},{"text":"One moment.","chunk":4},{"call":{"name":"write_file","input":{"path":"a.txt","content":"a\n"}}}]},
  {"do":[{"text":"Now a question."},{"call":{"name":"shell","input":{"command":"seq 20000"}}}]},
  {"do":[{"text":"Done."}]}]}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    examples: u32,
    seed: Option<u32>,
}

impl Request {
    /// What `cargo xtask test` does.
    pub const SHORT: Request = Request { examples: 10, seed: Some(1) };

    pub fn parse(words: &[&str]) -> Result<Request> {
        let mut request = Request { examples: 100, seed: None };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} needs a number"))?;
            let value = value.parse().with_context(|| format!("{word} takes a number, not `{value}`"))?;
            match *word {
                "--examples" if value > 0 => request.examples = value,
                "--seed" => request.seed = Some(value),
                _ => bail!("`{word} {value}` is not known; see cargo xtask schemathesis --help"),
            }
        }
        Ok(request)
    }
}

pub fn run(request: Request) -> Result<()> {
    let program = install::schemathesis(root()?)?;
    let seed = request.seed.unwrap_or_else(fresh_seed);
    let binary = tenure(Build::AsTested)?;
    let folder = tempfile::Builder::new().prefix("tenure-schemathesis-").tempdir()?;
    let trial = Trial::prepare(&binary, &folder.path().canonicalize()?)?;
    let daemon = trial.setup.start()?;
    let artifact = trial.keep_archive()?;
    let passed = trial.run(&program, &artifact, request.examples, seed)?;
    let log = trial.end(daemon)?;
    if !passed || log.contains("panicked") || log.contains("internal:") {
        let kept = folder.keep();
        let again = format!("cargo xtask schemathesis --examples {} --seed {seed}", request.examples);
        bail!(
            "the API is not as it is described; all files are kept in {}; once more:\n\n    {again}\n",
            kept.display()
        );
    }
    Ok(())
}

fn fresh_seed() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.subsec_nanos())
}

/// A daemon, a workspace, a script and an exported session, all in one folder.
struct Trial {
    setup: Setup,
    folder: std::path::PathBuf,
}

impl Trial {
    fn prepare(binary: &Path, folder: &Path) -> Result<Trial> {
        fs::create_dir(folder.join("workspace"))?;
        fs::write(folder.join("script.json"), SCRIPT)?;
        // It asks without a token far more often than a person who mistypes one: each shall be told so.
        let data = folder.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("config.toml"), "[limits]\nfailures_per_minute_max = 1000000\n")?;
        Ok(Trial { setup: Setup::new(binary, &data), folder: folder.to_owned() })
    }

    fn model(&self) -> String {
        format!("scripted:{}", self.folder.join("script.json").display())
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Vec<u8>> {
        let answer = self.setup.ask(method, path, None, body)?;
        ensure!(answer.is_success(), "{method} {path}: {answer}");
        Ok(answer.body)
    }

    /// Imports need something to import. The session's id and its artifact are given back.
    fn keep_archive(&self) -> Result<String> {
        let unasked = json!({ "approval": { "require_for_kinds": [] } });
        let new = json!({ "workspace_path": self.folder.join("workspace"), "model": self.model(), "policy": unasked });
        let created: Value = serde_json::from_slice(&self.ask("POST", "/v1/sessions", Some(&new))?)?;
        let id = created["session_id"].as_str().context("no session")?;
        let session = format!("/v1/sessions/{id}");
        let message = json!({ "parts": [{ "type": "text", "text": "hi" }] });
        let sent: Value = serde_json::from_slice(&self.ask("POST", &format!("{session}/messages"), Some(&message))?)?;
        let turn = sent["turn_id"].as_str().context("no turn")?;
        self.ask("GET", &format!("{session}/turns/{turn}?wait_ms=30000"), None)?;
        fs::write(self.folder.join("session.tar.gz"), self.ask("GET", &format!("{session}/export"), None)?)?;
        let list: Value = serde_json::from_slice(&self.ask("GET", &format!("{session}/artifacts"), None)?)?;
        Ok(format!("{id}/{}", list["artifacts"][0]["ref"].as_str().context("no artifact")?))
    }

    /// Whether all checks passed.
    fn run(&self, program: &Path, artifact: &str, examples: u32, seed: u32) -> Result<bool> {
        let (target, _) = self.setup.target().context("no daemon")?;
        let (url, settings) = (format!("http://{}", target.address), root()?.join("xtask/schemathesis"));
        let mut command = Command::new(program);
        command
            .arg("--config-file")
            .arg(settings.join("schemathesis.toml"))
            .arg("run")
            .arg(format!("{url}/openapi.json"));
        command.args(["--url", &url, "--max-examples", &examples.to_string(), "--seed", &seed.to_string()]);
        command.env("TENURE_TRIAL_HOOKS", settings.join("hooks.py")).env("TENURE_TRIAL_TOKEN", &target.token);
        command.env("TENURE_TRIAL_WORKSPACE", self.folder.join("workspace")).env("TENURE_TRIAL_MODEL", self.model());
        command.env("TENURE_TRIAL_ARCHIVE", self.folder.join("session.tar.gz")).env("TENURE_TRIAL_ARTIFACT", artifact);
        command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(&self.folder);
        Ok(command.status().context("could not start schemathesis")?.success())
    }

    /// Ends the daemon, which has to be well, and gives what it printed.
    fn end(&self, daemon: Daemon) -> Result<String> {
        self.ask("GET", "/readyz", None)?;
        daemon.stop()?;
        Ok(self.setup.log())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let request = Request::parse(&["--examples", "7", "--seed", "3"]).unwrap();
        assert_eq!(request, Request { examples: 7, seed: Some(3) });
        for bad in [&["--examples"][..], &["--examples", "0"], &["--seed", "x"], &["--speed", "1"]] {
            assert!(Request::parse(bad).is_err(), "{bad:?}");
        }
    }
}
