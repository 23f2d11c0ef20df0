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
    let mut pip_is_there = Command::new("python3");
    pip_is_there.args(["-c", "import venv, ensurepip"]).stderr(Stdio::null());
    if !pip_is_there.status().is_ok_and(|status| status.success()) {
        apt_get(&["update"])?;
        apt_get(&["install", "--yes", "--no-install-recommends", "python3-venv"])?;
    }
    let shown = folder.to_str().context("the path of target/ is no text")?;
    run("python3", &["-m", "venv", "--clear", shown])?;
    let pip = format!("{shown}/bin/pip");
    run(&pip, &["install", "--quiet", &format!("schemathesis=={SCHEMATHESIS}")])?;
    Ok(program)
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
