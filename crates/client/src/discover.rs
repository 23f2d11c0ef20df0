//! Finds the daemon of a data folder by the note it left there. It starts nothing and believes no note whose process is gone.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use tenure_wire::DaemonInfo;

use crate::{Client, Target, Trust};

/// The name of the note in the data folder.
pub const NOTE_FILE: &str = "daemon.json";
/// The name of the file that holds the token.
pub const TOKEN_FILE: &str = "token";

/// What a daemon in this very process writes down about itself.
pub fn own_note(address: SocketAddr, version: &str) -> DaemonInfo {
    let pid = std::process::id();
    let start_time = start_time(pid).unwrap_or(0);
    DaemonInfo { pid, start_time, address: address.to_string(), version: version.to_owned(), fingerprint: None }
}

/// Whether the process that wrote the note still lives.
pub fn is_current(note: &DaemonInfo) -> bool {
    start_time(note.pid).is_some_and(|found| found == note.start_time)
}

/// Why no daemon was found.
#[derive(Debug, thiserror::Error)]
pub enum Absent {
    #[error("no daemon runs on {}", .data.display())]
    NoNote { data: PathBuf },
    #[error("the daemon of {} (process {pid}) is gone", .data.display())]
    Gone { data: PathBuf, pid: u32 },
    #[error("process {pid} is the daemon of this folder but does not answer at {address}")]
    Silent { pid: u32, address: String },
    #[error("cannot read {}: {why}", .path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} is not the note of a daemon: {why}", .path.display())]
    Garbled { path: PathBuf, why: String },
    #[error("the daemon (process {pid}) runs, but its token file {} is gone", .path.display())]
    NoToken { path: PathBuf, pid: u32 },
}

/// A daemon whose process lives.
#[derive(Debug, Clone)]
pub struct Running {
    pub note: DaemonInfo,
    pub target: Target,
}

/// Reads the note of a data folder, and checks that the process lives.
pub fn note(data: &Path) -> Result<DaemonInfo, Absent> {
    let path = data.join(NOTE_FILE);
    let Some(text) = read_text(&path)? else { return Err(Absent::NoNote { data: data.to_owned() }) };
    let note: DaemonInfo =
        serde_json::from_str(&text).map_err(|error| Absent::Garbled { path, why: error.to_string() })?;
    if !is_current(&note) {
        return Err(Absent::Gone { data: data.to_owned(), pid: note.pid });
    }
    Ok(note)
}

/// The same with the token. Whether it answers is not asked.
pub fn read(data: &Path) -> Result<Running, Absent> {
    let note = note(data)?;
    let path = data.join(TOKEN_FILE);
    let missing = || Absent::NoToken { path: path.clone(), pid: note.pid };
    let token = read_text(&path)?.ok_or_else(missing)?.trim().to_owned();
    let address = reachable(&note.address);
    let target = match &note.fingerprint {
        None => Target::new(format!("http://{address}"), token),
        Some(text) => {
            let path = data.join(NOTE_FILE);
            let trust = Trust::fingerprint(text).map_err(|why| Absent::Garbled { path, why })?;
            Target::new(format!("https://{address}"), token).trusting(trust)
        }
    };
    Ok(Running { target, note })
}

/// Who listens on every address can be reached on loopback.
pub fn reachable(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(all) if all.ip().is_unspecified() && all.is_ipv4() => format!("127.0.0.1:{}", all.port()),
        Ok(all) if all.ip().is_unspecified() => format!("[::1]:{}", all.port()),
        _ => address.to_owned(),
    }
}

/// The same, and the daemon has answered.
pub async fn find(data: &Path) -> Result<(Client, DaemonInfo), Absent> {
    let running = read(data)?;
    let client = Client::new(running.target);
    match client.health().await {
        Ok(_) => Ok((client, running.note)),
        Err(_) => Err(Absent::Silent { pid: running.note.pid, address: running.note.address }),
    }
}

fn read_text(path: &Path) -> Result<Option<String>, Absent> {
    // Nobody waits for a pipe that stands where a file should be.
    let odd = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    let read = if odd { Err(io::Error::other("it is not a plain file")) } else { std::fs::read_to_string(path) };
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Absent::Unreadable { path: path.to_owned(), why: error.to_string() }),
    }
}

/// When a process started, or `None` if there is none of that pid.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in brackets and may hold spaces and brackets itself; the rest follows the last one.
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace();
    // A process that is dead and not yet buried runs nothing any more.
    if fields.next()? == "Z" {
        return None;
    }
    // Field 22 of the line; state is field 3.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(note: &DaemonInfo) -> tempfile::TempDir {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(NOTE_FILE), serde_json::to_string(note).unwrap()).unwrap();
        std::fs::write(data.path().join(TOKEN_FILE), "abc\n").unwrap();
        data
    }

    #[test]
    fn a_living_process_is_found_with_its_token() {
        let note = own_note("127.0.0.1:1".parse().unwrap(), "1.0");
        let data = folder_with(&note);
        let running = read(data.path()).unwrap();
        assert_eq!(running.note, note);
        assert_eq!((running.target.base_url(), running.target.token()), ("http://127.0.0.1:1", "abc"));
    }

    #[test]
    fn a_daemon_with_tls_is_known_by_its_fingerprint() {
        let mut note = own_note("0.0.0.0:9".parse().unwrap(), "1.0");
        note.fingerprint = Some("ab".repeat(32));
        let target = read(folder_with(&note).path()).unwrap().target;
        let expected =
            Target::new("https://127.0.0.1:9", "abc").trusting(Trust::fingerprint(&"AB".repeat(32)).unwrap());
        assert_eq!(target, expected);
        note.fingerprint = Some("ab".into());
        assert!(matches!(read(folder_with(&note).path()), Err(Absent::Garbled { .. })));
    }

    #[test]
    fn another_process_of_the_same_pid_is_not_taken_for_it() {
        let mut note = own_note("127.0.0.1:1".parse().unwrap(), "1.0");
        note.start_time += 1;
        let data = folder_with(&note);
        assert!(matches!(read(data.path()), Err(Absent::Gone { .. })));
    }

    #[test]
    fn no_note_and_a_bad_note_are_told_apart() {
        let data = tempfile::tempdir().unwrap();
        assert!(matches!(read(data.path()), Err(Absent::NoNote { .. })));
        std::fs::write(data.path().join(NOTE_FILE), "{").unwrap();
        assert!(matches!(read(data.path()), Err(Absent::Garbled { .. })));
    }
}
