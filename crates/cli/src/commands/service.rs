//! `tenure service`: the daemon as a service of the user, run by systemd.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command as Process,
    time::Duration,
};

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_client::discover;

use super::{Context, stop};
use crate::{
    address,
    exit::{Exit, Problem},
    terminal::{self, Output},
};

const SERVICE: &str = "tenure.service";
const SOCKET: &str = "tenure.socket";
const LISTEN_DEFAULT: &str = "127.0.0.1:8787";
/// How long a daemon that a command started may take to make room.
const STOP_MAX: Duration = Duration::from_secs(30);

/// Run the daemon as a service of yours, by systemd
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    tenure service install\n    tenure service install --print\n    \
                        tenure service status --json\n    tenure service uninstall\n\n\
                        It starts when you log in; `loginctl enable-linger` lets it run without that.\n\
                        systemd keeps the address open while the daemon restarts, so that requests\n\
                        wait instead of failing. Its log: journalctl --user -u tenure. Keys of models\n\
                        may stand in ~/.config/tenure/environment, one NAME=value a line.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the unit files and start it, now and at every login
    Install {
        /// Where it listens: a loopback address
        #[arg(long, default_value = LISTEN_DEFAULT, value_name = "ADDRESS", value_parser = address::parse)]
        listen: SocketAddr,
        /// Only show the unit files
        #[arg(long)]
        print: bool,
    },
    /// Stop it and remove the unit files; all sessions stay
    Uninstall,
    /// Whether it is installed and runs
    Status,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    match &arguments.command {
        Command::Install { listen, print } => install(context, *listen, *print).await,
        Command::Uninstall => uninstall(context),
        Command::Status => status(context),
    }
}

/// A unit file: its name and text.
type Unit = (&'static str, String);

fn units(program: &Path, data: &Path, listen: SocketAddr) -> anyhow::Result<[Unit; 2]> {
    if !listen.ip().is_loopback() {
        let message = format!("{listen} is not a loopback address");
        let hint = "use one such as 127.0.0.1:8787; a service for other machines needs a unit of your own";
        return Err(Problem::usage(message, hint).into());
    }
    let (program, data) = (quoted(program)?, quoted(data)?);
    let service = format!(
        "[Unit]\n\
         Description=Tenure: AI agents as sessions that last\n\
         Requires={SOCKET}\n\
         After={SOCKET}\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={program} serve --take-over --data {data}\n\
         EnvironmentFile=-%h/.config/tenure/environment\n\
         UMask=0077\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         WatchdogSec=60\n\
         TimeoutStopSec=40\n\
         KillMode=mixed\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n"
    );
    let socket = format!(
        "[Unit]\n\
         Description=Where Tenure listens\n\
         \n\
         [Socket]\n\
         ListenStream={listen}\n\
         \n\
         [Install]\n\
         WantedBy=sockets.target\n"
    );
    Ok([(SOCKET, socket), (SERVICE, service)])
}

/// A path as one word of a unit file.
fn quoted(path: &Path) -> Result<String, Problem> {
    let rename = || Problem::usage(format!("{} cannot stand in a unit file", path.display()), "use another path");
    let text = path.to_str().filter(|text| !text.contains(char::is_control)).ok_or_else(rename)?;
    let mut word = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => drop(write!(word, "\\{c}")),
            '%' => word.push_str("%%"),
            '$' => word.push_str("$$"),
            c => word.push(c),
        }
    }
    word.push('"');
    Ok(word)
}

fn folder() -> anyhow::Result<PathBuf> {
    let none = || Problem::usage("there is no home folder to install it in", "set HOME to your home folder");
    let base = directories::BaseDirs::new().ok_or_else(none)?;
    Ok(base.config_dir().join("systemd/user"))
}

async fn install(context: &Context, listen: SocketAddr, print: bool) -> anyhow::Result<Exit> {
    let data = std::path::absolute(&context.data)?;
    let units = units(&std::env::current_exe()?, &data, listen)?;
    let folder = folder()?;
    if print {
        return show(context.output, &folder, &units);
    }
    let failed = |error| {
        Problem::failed(
            "not_installed",
            format!("{}: {error}", folder.display()),
            "make that folder writable; `tenure service install --print` shows the unit files",
        )
    };
    std::fs::create_dir_all(&folder).map_err(failed)?;
    for (name, text) in &units {
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    if let Err(problem) = systemctl(&["daemon-reload"]) {
        remove(&folder);
        return Err(problem.into());
    }
    // One that a command started would have the data folder; the service goes on where it was.
    stop::end(&context.data, STOP_MAX).await?;
    systemctl(&["enable", SOCKET, SERVICE])?;
    systemctl(&["restart", SOCKET, SERVICE])?;
    match context.output {
        Output::Json => terminal::print_json(&json!({ "installed": true, "folder": folder, "listen": listen }))?,
        Output::Text => terminal::print_line(&format!(
            "The service runs and listens on http://{listen}.\nUnit files: {}\nLog: journalctl --user -u tenure\n\
             It starts when you log in; `loginctl enable-linger` lets it run without that.",
            folder.display()
        ))?,
    }
    Ok(Exit::Ok)
}

fn show(output: Output, folder: &Path, units: &[Unit]) -> anyhow::Result<Exit> {
    match output {
        Output::Json => {
            let told = |(name, text): &Unit| json!({ "file": folder.join(name), "text": text });
            terminal::print_json(&json!({ "installed": false, "units": units.iter().map(told).collect::<Vec<_>>() }))?;
        }
        Output::Text => {
            for (name, text) in units {
                terminal::print_line(&format!("# {}\n{text}", folder.join(name).display()))?;
            }
        }
    }
    Ok(Exit::Ok)
}

fn uninstall(context: &Context) -> anyhow::Result<Exit> {
    let folder = folder()?;
    let was = is_installed(&folder);
    if was {
        systemctl(&["disable", "--now", SERVICE, SOCKET])?;
        remove(&folder);
        systemctl(&["daemon-reload"])?;
    }
    match (context.output, was) {
        (Output::Json, was) => terminal::print_json(&json!({ "uninstalled": was }))?,
        (Output::Text, true) => terminal::print_line("The service is gone; all sessions stay.")?,
        (Output::Text, false) => terminal::print_line("There is no service of this user.")?,
    }
    Ok(Exit::Ok)
}

fn status(context: &Context) -> anyhow::Result<Exit> {
    let folder = folder()?;
    let installed = is_installed(&folder);
    let asked = |what: &str| match installed {
        true => said(&["--user", what, SERVICE]).unwrap_or_else(|| "unknown".into()),
        false => "no".into(),
    };
    let (enabled, active) = (asked("is-enabled"), asked("is-active"));
    let daemon = discover::read(&context.data).ok().map(|running| running.note);
    match context.output {
        Output::Json => terminal::print_json(&json!({
            "installed": installed, "enabled": enabled, "active": active, "folder": folder, "daemon": daemon,
        }))?,
        Output::Text => {
            let row = |name: &str, value: &str| terminal::print_line(&format!("{name:<10}  {value}"));
            row("installed", if installed { "yes" } else { "no: `tenure service install` does it" })?;
            if installed {
                row("enabled", &enabled)?;
                row("active", &active)?;
                row("units", &folder.display().to_string())?;
            }
            match &daemon {
                Some(note) => {
                    row("daemon", &format!("process {} at {}, version {}", note.pid, note.address, note.version))
                }
                None => row("daemon", "none runs on this data folder"),
            }?;
        }
    }
    Ok(if installed && active != "active" { Exit::Failed } else { Exit::Ok })
}

fn is_installed(folder: &Path) -> bool {
    folder.join(SERVICE).exists() || folder.join(SOCKET).exists()
}

fn remove(folder: &Path) {
    for name in [SERVICE, SOCKET] {
        let _ = std::fs::remove_file(folder.join(name));
    }
}

/// The first line that systemctl answers, whatever its exit code says.
fn said(arguments: &[&str]) -> Option<String> {
    let output = Process::new("systemctl").args(arguments).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (!line.is_empty()).then_some(line)
}

fn systemctl(arguments: &[&str]) -> Result<(), Problem> {
    let hint = "`tenure serve` runs without it; `tenure service install --print` shows the unit files";
    let failed = |why: String| {
        let message = format!("systemctl --user {}: {why}", arguments.join(" "));
        Problem::failed("no_systemd", message, hint)
    };
    let output =
        Process::new("systemctl").arg("--user").args(arguments).output().map_err(|error| failed(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_unit_file() {
        assert_eq!(quoted(Path::new("/a b/%h/$x/\"q\"\\")).unwrap(), r#""/a b/%%h/$$x/\"q\"\\""#);
        assert!(quoted(Path::new("/a\nExecStart=/bin/evil")).is_err());
    }

    #[test]
    fn only_this_machine_is_served() {
        let units = |listen: &str| units(Path::new("/bin/tenure"), Path::new("/d"), listen.parse().unwrap());
        assert!(units("0.0.0.0:80").is_err());
        assert!(units("[::1]:80").unwrap()[0].1.contains("ListenStream=[::1]:80\n"));
    }
}
