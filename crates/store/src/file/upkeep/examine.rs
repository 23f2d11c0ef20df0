//! One session's folder: what its log tells, and what each file in it is. Shared by all who look after a data folder.

use std::{
    collections::HashMap,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use tenure_core::{
    ids::{SessionId, TurnId},
    session::Session,
};

use super::{
    logs::{self, Told},
    rows::Rows,
};
use crate::{
    SpoolSum,
    disk::{Look, Open, Stat},
    file::{
        TURN_BYTES_MAX,
        folder::{Folder, is_missing},
        layout::Layout,
        log::ends_at,
        snapshot::{self, Found},
    },
    name::TEMPORARY,
    seal::{self, Sealed},
};

/// What a file in a session's folder is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Log,
    Snapshot,
    TurnRecord,
    Spool(TurnId),
    /// Kept aside by the store itself, for people.
    Aside,
    /// Of a write that did not come to its end.
    Leftover,
    /// A blob, or what looks like one.
    Blob,
    /// A link or the like.
    Strange,
}

#[derive(Debug, Clone)]
pub(super) struct File {
    /// Below the session's folder.
    pub name: String,
    pub kind: Kind,
    pub stat: Stat,
}

pub(super) struct Examined {
    pub id: SessionId,
    /// `None`: there is no log, so there is no session.
    pub told: Option<Told>,
    pub snapshot: SnapshotFile,
    /// The last event that the log is known to have held.
    pub expected_seq: u64,
    /// What records of turns say of their spools.
    pub spools: HashMap<TurnId, SpoolSum>,
    pub files: Vec<File>,
}

pub(super) enum SnapshotFile {
    None,
    Whole(Found),
    Damaged,
}

/// `None` if there is no such folder any more. The rows were read before.
pub(super) fn session(folder: &Folder, id: SessionId, rows: &Rows, patience: Duration) -> io::Result<Option<Examined>> {
    // Snapshot and records first: what they speak of is in the log by then.
    let snapshot = match (snapshot::read(folder, id), folder.disk.look(&folder.layout.snapshot(id))) {
        (Some(found), _) => SnapshotFile::Whole(found),
        (None, Ok(_)) => SnapshotFile::Damaged,
        (None, Err(_)) => SnapshotFile::None,
    };
    let snapshot_seq = match &snapshot {
        SnapshotFile::Whole(found) => Some(found.seq),
        SnapshotFile::None | SnapshotFile::Damaged => None,
    };
    let Recorded { seq, spools } = recorded(folder, id);
    let mut expected_seq = snapshot.log_seq().max(seq);
    let mut told = match folder.open_if_there(&folder.layout.log(id), Open::Read)? {
        Some(log) => Some(logs::read_patiently(&*log, id, snapshot_seq, patience)?),
        None => None,
    };
    if let Some(told) = &mut told {
        if rows.last_turn(id).is_some_and(|turn| told.lacks(turn)) {
            // How many events that turn had nobody knows; one at least.
            expected_seq = expected_seq.max(told.events + 1);
        }
        told.expect(expected_seq);
    }
    // The files last: what events name was there before them.
    let mut files = Vec::new();
    match walk(folder, &folder.layout.session(id), &mut PathBuf::new(), &mut files) {
        Err(error) if is_missing(&error) => Ok(None),
        walked => walked.map(|()| Some(Examined { id, told, snapshot, expected_seq, spools, files })),
    }
}

impl SnapshotFile {
    /// The last event that it knows of: it is taken of what is in the log for good.
    fn log_seq(&self) -> u64 {
        match self {
            SnapshotFile::Whole(found) => found.seq.max(found.place.seq),
            SnapshotFile::None | SnapshotFile::Damaged => 0,
        }
    }
}

/// What records of turns tell; they are written after it was there for good.
#[derive(Default)]
struct Recorded {
    /// The last event of the log.
    seq: u64,
    spools: HashMap<TurnId, SpoolSum>,
}

fn recorded(folder: &Folder, id: SessionId) -> Recorded {
    #[derive(serde::Deserialize)]
    struct Record {
        #[serde(default)]
        seq: u64,
        spool: Option<SpoolSum>,
    }
    let turns = folder.layout.turns(id);
    // What cannot be read tells nothing; the check finds it by itself.
    let names = folder.disk.list(&turns).unwrap_or_default();
    let mut recorded = Recorded::default();
    for name in names {
        let Ok(Some(content)) = folder.read_if_there(&turns.join(&name), TURN_BYTES_MAX) else { continue };
        let sealed = matches!(seal::check(&content), Sealed::Good(_));
        let record = serde_json::from_slice::<Record>(&content).ok().filter(|_| sealed);
        let Some(Record { seq, spool }) = record else { continue };
        recorded.seq = recorded.seq.max(seq);
        if let (Some(turn), Some(spool)) = (Layout::turn_of_record(&name), spool) {
            recorded.spools.insert(turn, spool);
        }
    }
    recorded
}

impl Examined {
    /// Whether it has what only a session that had events has, and none of them: its log was lost.
    pub(super) fn lost_its_log(&self) -> bool {
        let empty = self.told.as_ref().is_none_or(|told| told.events == 0 && !told.is_damaged());
        let lived = |file: &File| matches!(file.kind, Kind::Snapshot | Kind::TurnRecord | Kind::Spool(_));
        empty && self.files.iter().any(lived)
    }
}

/// Why the snapshot is not to be trusted, if so.
pub(super) fn snapshot_fault(folder: &Folder, examined: &Examined, told: &Told) -> io::Result<Option<&'static str>> {
    let found = match &examined.snapshot {
        SnapshotFile::None => return Ok(None),
        SnapshotFile::Damaged => return Ok(Some("it is damaged")),
        SnapshotFile::Whole(_) if told.trouble.is_some() => return Ok(None),
        SnapshotFile::Whole(found) => found,
    };
    let log = folder.disk.open(&folder.layout.log(examined.id), Open::Read)?;
    if !ends_at(&*log, &found.place)? {
        return Ok(Some("it is not of this log"));
    }
    // What this version cannot read is no snapshot to it, and no damage.
    let state = serde_json::from_slice::<Session>(&found.state).ok();
    let differs = state.is_some_and(|state| told.at_snapshot.as_ref() != Some(&state));
    Ok(differs.then_some("it tells something else than the log"))
}

/// What is said of a link, a pipe or the like in the place of a file.
pub(super) const ODD: &str = "it is no plain file";

/// Whether something that is no file stands in a file's place.
pub(super) fn is_odd(folder: &Folder, path: &Path) -> io::Result<bool> {
    match folder.disk.look(path) {
        Err(error) if is_missing(&error) => Ok(false),
        looked => looked.map(|look| !matches!(look, Look::File(_))),
    }
}

/// The sessions whose folders are there.
pub(super) fn sessions(folder: &Folder) -> io::Result<Vec<SessionId>> {
    let names = folder.disk.list(&folder.layout.sessions())?;
    let mut sessions: Vec<SessionId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    sessions.sort_unstable();
    Ok(sessions)
}

/// All files below a folder, by name; links are named and never followed.
pub(super) fn walk(folder: &Folder, base: &Path, below: &mut PathBuf, files: &mut Vec<File>) -> io::Result<()> {
    let mut names = folder.disk.list(&base.join(&*below))?;
    names.sort_unstable();
    for name in names {
        below.push(&name);
        let looked = folder.disk.look(&base.join(&*below));
        let relative = below.to_string_lossy().into_owned();
        match looked {
            Ok(Look::File(stat)) => files.push(File { kind: kind_of(&relative), name: relative, stat }),
            Ok(Look::Folder(_)) => walk(folder, base, below, files)?,
            Ok(Look::Other) => {
                files.push(File { name: relative, kind: Kind::Strange, stat: Stat { bytes: 0, modified_ms: u64::MAX } })
            }
            // Renamed or removed in this very instant.
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
        below.pop();
    }
    Ok(())
}

fn kind_of(name: &str) -> Kind {
    let parts: Vec<&str> = name.split('/').collect();
    if parts.iter().any(|part| part.starts_with(TEMPORARY)) {
        return Kind::Leftover;
    }
    match parts[..] {
        ["events.ndjson"] => Kind::Log,
        ["session.json"] => Kind::Snapshot,
        ["turns", _] => Kind::TurnRecord,
        ["logs", file] => Layout::turn_of_spool(file).map_or(Kind::Blob, Kind::Spool),
        ["damaged", ..] => Kind::Aside,
        [file] if file.starts_with("cut-") || file.starts_with("damaged-") => Kind::Aside,
        _ => Kind::Blob,
    }
}
