//! What to do about an error, in words of the command line. The daemon's own hints are for those who speak HTTP.

use std::io;

use tenure_client::{Fault, discover::Absent, print::tamed};

/// Where the daemon of a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// It has the data folder of this machine.
    Here,
    /// It was named with `--url`.
    Elsewhere,
}

/// Nothing that these commands send is refused so by a daemon of the same version.
const OTHER_VERSION: &str =
    "the daemon may be of another version: compare `tenure --version` here and on its machine, and restart it";
const AGAIN: &str = "try again in a moment";

/// Hints instead of those that the daemon gives, by the code of its refusal.
const OF_REFUSALS: &[(&str, &str)] = &[
    ("archive_too_large", "raise limits.import_bytes_max in the daemon's config.toml, and restart it"),
    ("attachment_exists", OTHER_VERSION),
    ("bad_cursor", "give --after a cursor of this session, such as 42 or 42.1830, or leave it out"),
    ("bad_head", OTHER_VERSION),
    ("bad_host", "use a host name in --url that the daemon was started with; `serve --name NAME` adds one"),
    ("bad_idempotency_key", OTHER_VERSION),
    ("bad_if_match", OTHER_VERSION),
    ("already_undone", "nothing is left to do; `tenure session show SESSION` lists its turns"),
    ("bad_json", OTHER_VERSION),
    ("bad_query", OTHER_VERSION),
    ("bad_token_name", "use small letters, digits, '.', '_' and '-', such as: tenure token add ci"),
    ("body_timeout", AGAIN),
    ("body_too_large", "say less at once, or raise limits.body_bytes_max in the daemon's config.toml"),
    (
        "budget_lowered",
        "name a higher limit, or `none`; a lower or a first one is said when a session is made, such as with \
         `tenure chat --max-cost 0.50`",
    ),
    ("checkpoint_incomplete", "take it back by hand, such as with `git diff` and `git checkout`"),
    ("empty_message", "say something"),
    ("head_timeout", AGAIN),
    ("head_too_large", "use a shorter name, or a whole id"),
    ("key_reused", AGAIN),
    ("keys_full", "try again in a minute"),
    ("later_changes", "undo the later turn first: `tenure session undo SESSION --turn TURN`"),
    ("no_checkpoint", "`tenure session events SESSION` tells which turns changed files"),
    ("no_open_turn", "`tenure session show SESSION` tells what it does"),
    (
        "not_interrupted",
        "`tenure session show SESSION` tells what it does; `tenure ask --session SESSION` goes on in it",
    ),
    ("not_waiting", "`tenure session show SESSION` lists what waits"),
    ("other_workspace", "`tenure session change SESSION --workspace DIR` goes back to that folder"),
    ("overloaded", AGAIN),
    ("owner_token", "`tenure token rotate` gives it a new secret"),
    ("session_ended", "`tenure session fork SESSION` makes one that goes on from there"),
    ("session_exists", "import it with --as-new: it gets an id of its own"),
    ("session_purged", "`tenure sessions --all` lists those that are left"),
    ("token_exists", "choose another name, or `tenure token rotate NAME`"),
    (
        "too_many_tokens",
        "`tenure token revoke NAME` makes room, or raise limits.tokens_max in the daemon's config.toml",
    ),
    ("turn_open", "wait for it, or `tenure cancel SESSION`"),
    ("turn_running", "wait for it, or `tenure cancel SESSION`; an exported session is taken in with `import --as-new`"),
    ("undo_running", "wait until it is done, then try again"),
    ("unknown_call", "`tenure session show SESSION` lists what waits"),
    (
        "unknown_model",
        "`tenure models` lists those that can be used now, `--all` every one; docs/models.md tells how to add others",
    ),
    ("unknown_path", OTHER_VERSION),
    ("unknown_seq", "`tenure session show SESSION` names the last event"),
    ("unknown_session", "`tenure sessions --all` lists them"),
    ("unknown_token", "`tenure token list` shows them"),
    ("unknown_turn", "`tenure session show SESSION` names the open one"),
    ("unsupported_policy", OTHER_VERSION),
    ("version_mismatch", "somebody has changed it meanwhile: look at it, then try again"),
    ("wrong_content_type", OTHER_VERSION),
    ("wrong_method", OTHER_VERSION),
];

/// What words of HTTP in a hint of `bad_request` come to: the others speak of a text that a person gave.
const OF_BODIES: [&str; 5] = ["API", "body", "request", "multipart", "base64"];

/// What to do about a refusal; `told` is what the daemon says.
pub fn of_refusal(code: &str, told: &str, place: Place) -> String {
    let placed = match (code, place) {
        ("unauthorized" | "too_many_failures", Place::Here) => {
            "the token file was changed behind the daemon's back: `tenure stop`, then try again"
        }
        ("unauthorized" | "too_many_failures", Place::Elsewhere) => {
            "give a token of that daemon with --token-file FILE or TENURE_TOKEN; \
             `tenure token add NAME` on its machine makes one"
        }
        ("token_expired", _) => "make a new one with `tenure token add NAME` on the daemon's machine",
        ("not_allowed", Place::Elsewhere) => {
            "run it on the daemon's machine, or use the daemon's own token: the file `token` in its data folder"
        }
        ("shutting_down", Place::Here) => "try again: the next command starts a daemon",
        ("shutting_down", Place::Elsewhere) => "try again when it runs again on its machine",
        ("disk_refused", Place::Here) => "free some space, then try again; `tenure doctor` looks at the disk",
        ("disk_refused", Place::Elsewhere) => "free some space on the daemon's machine, then try again",
        ("internal", Place::Here) => {
            "the daemon's log says more: daemon.log in the data folder, or where it was started"
        }
        ("internal", Place::Elsewhere) => "the daemon's log on its machine says more",
        ("bad_workspace", Place::Here) => "name an existing folder",
        ("bad_workspace", Place::Elsewhere) => "name a folder that exists on the daemon's machine, under the same path",
        ("bad_request", _) if OF_BODIES.iter().any(|word| told.contains(word)) => OTHER_VERSION,
        _ => OF_REFUSALS.iter().find(|(known, _)| *known == code).map_or(told, |(_, hint)| hint),
    };
    placed.to_owned()
}

/// Why a call is tried again, and what can be done about it meanwhile.
pub fn of_waiting(error: &tenure_client::Error) -> String {
    match error.code() {
        Some("disk_refused") => format!("{}: free some space", capital(&error.to_string())),
        _ => capital(&error.to_string()),
    }
}

/// That a disk refuses what a turn writes, and why.
pub fn of_disk(why: &str) -> String {
    match is_full(why) {
        true => {
            "The daemon's disk is full and refuses writes (no space left): the turn waits until there is space.".into()
        }
        false => format!("The daemon's disk refuses writes ({}): the turn waits until it takes them.", tamed(why)),
    }
}

/// Whether a message of the system says that a disk is full.
pub fn is_full(why: &str) -> bool {
    ["No space left", "no storage space", "quota exceeded"].iter().any(|words| why.contains(words))
}

fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What to do where the data folder's daemon cannot be found.
pub fn of_absence(absent: &Absent) -> &'static str {
    match absent {
        Absent::NoNote { .. } | Absent::Gone { .. } => "any command starts one",
        Absent::Silent { .. } => "daemon.log in the data folder may say why; `tenure stop` ends it",
        Absent::Unreadable { .. } => "do it as the user it belongs to, or choose another folder with --data DIR",
        Absent::Garbled { .. } => "remove that file, then try again; a daemon that still runs is to be ended by hand",
        Absent::NoToken { .. } => "`tenure stop`, then try again: the next daemon makes a new token",
    }
}

/// Commands of the command line, and what is typed instead of them in a chat.
const IN_CHAT: [(&str, &str); 9] = [
    ("tenure session show", "/show"),
    ("tenure session fork", "/fork"),
    ("tenure session resume", "/resume"),
    ("tenure session retry", "/retry"),
    ("tenure sessions", "/sessions"),
    ("tenure approve", "/approve"),
    ("tenure deny", "/deny"),
    ("tenure cancel", "/cancel"),
    ("tenure ask --session", "a message"),
];

/// The same text for somebody who sits in a chat with this session.
pub fn in_chat(text: &str, session: &str) -> String {
    IN_CHAT.iter().fold(text.to_owned(), |text, (command, slash)| {
        let begin = format!("`{command}");
        let mut parts = text.split(&begin);
        let first = parts.next().unwrap_or_default().to_owned();
        let told = parts.fold(first, |told, part| {
            let rest = part.split_once('`').map_or(part, |(_, rest)| rest);
            format!("{told}{slash}{rest}")
        });
        told.replace(&format!("{command} {session}"), slash)
    })
}

/// What to do where nothing answers.
pub fn of_silence(place: Place) -> &'static str {
    match place {
        Place::Here => "`tenure sessions` finds or starts one; daemon.log in the data folder may say what happened",
        Place::Elsewhere => {
            "check host and port of --url (or TENURE_URL), and that nothing blocks the way; on its machine \
             `tenure doctor` tells whether it runs and where it listens"
        }
    }
}

/// What to do where something else answers than what was named.
pub fn of_fault(fault: Fault) -> &'static str {
    match fault {
        Fault::OtherCertificate => {
            "compare --fingerprint with what the daemon printed when it started (`Certificate: SHA-256 …`), or with \
             `tenure doctor` on its machine; if they are the same, somebody else answers in its place"
        }
        Fault::UnknownIssuer => {
            "if the daemon made its certificate itself, give --fingerprint HEX: `tenure serve` printed it there, \
             `tenure doctor` shows it; otherwise give the authority's certificate with --ca FILE"
        }
        Fault::OtherName => {
            "write a name in --url that stands in the certificate, or give --fingerprint HEX, as `tenure doctor` shows \
             it on the daemon's machine"
        }
        Fault::OutOfDate => {
            "compare the clocks of both machines; else renew the certificate, or give --fingerprint HEX, as \
             `tenure doctor` shows it on the daemon's machine"
        }
        Fault::BadCertificate => "give the daemon another certificate with `tenure serve --tls-cert` and `--tls-key`",
        Fault::NoTls => {
            "check the port of --url; a daemon speaks TLS only with `tenure serve --tls`, or behind a proxy that does; \
             for one without it, on this machine or through a tunnel, write http://"
        }
        Fault::NoHttp => "write https:// instead of http:// in --url, and check its port",
    }
}

/// A code and what to do about what the system refused, where that can be told.
pub fn of_system(kind: io::ErrorKind) -> (&'static str, &'static str) {
    use io::ErrorKind;
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => ("disk_full", "free some space there, then try again"),
        ErrorKind::PermissionDenied => (
            "no_permission",
            "do it as the user it belongs to, or mend its permissions, or name another path (--data for the data folder)",
        ),
        ErrorKind::ReadOnlyFilesystem => {
            ("read_only", "make it writable, or name another path (--data for the data folder)")
        }
        _ => ("failed", "`tenure doctor` looks for what is wrong"),
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn in_a_chat_its_own_commands_are_named() {
        for (text, told) in [
            ("wait for it, or `tenure cancel SESSION`; then go on", "wait for it, or /cancel; then go on"),
            ("`tenure ask --session sess_1 TEXT` starts another turn", "a message starts another turn"),
            ("next  tenure session resume sess_1", "next  /resume"),
            (
                "says yes; `tenure deny` says no, `tenure sessions --all` lists",
                "says yes; /deny says no, /sessions lists",
            ),
            ("`tenure models` lists them", "`tenure models` lists them"),
        ] {
            assert_eq!(in_chat(text, "sess_1"), told);
        }
    }

    /// What the daemon says of these fits the command line too, or depends on where the daemon is.
    const FITS: &[&str] = &[
        "already_answered",
        "attachment_too_large",
        "attachments_full",
        "bad_archive",
        "bad_login",
        "bad_mime_type",
        "bad_origin",
        "bad_range",
        "bad_request",
        "bad_role",
        "bad_schema",
        "bad_workspace",
        "disk_refused",
        "file_damaged",
        "internal",
        "not_allowed",
        "nothing_to_send",
        "queue_full",
        "rotated_enough",
        "session_busy",
        "session_damaged",
        "shutting_down",
        "token_expired",
        "too_fast",
        "too_many_connections",
        "too_many_failures",
        "too_many_imports",
        "too_many_streams",
        "turn_completed",
        "turn_settled",
        "unauthorized",
        "unknown_artifact",
        "unknown_attachment",
        "unsupported_coding",
        "unsupported_part",
    ];

    /// Every code that the API describes.
    fn codes() -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let api: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let described = api["components"]["schemas"]["Code"]["description"].as_str().unwrap();
        let of_line = |line: &str| Some(line.strip_prefix("- `")?.split_once('`')?.0.to_owned());
        described.lines().filter_map(of_line).collect()
    }

    #[test]
    fn every_code_of_the_daemon_was_thought_of_once() {
        let ours: Vec<&str> = OF_REFUSALS.iter().map(|(code, _)| *code).chain(FITS.iter().copied()).collect();
        let known: BTreeSet<String> = ours.iter().map(ToString::to_string).collect();
        assert_eq!(known.len(), ours.len(), "one stands there twice");
        assert_eq!(known, codes(), "say what a command's user can do about it, or that the daemon's hint fits");
    }

    #[test]
    fn hints_speak_of_commands() {
        let shown = of_refusal("unknown_session", "list the sessions with GET /v1/sessions", Place::Here);
        assert_eq!(shown, "`tenure sessions --all` lists them");
        assert_eq!(of_refusal("bad_request", "make it shorter", Place::Here), "make it shorter");
        let body = "compare the body with the API's description";
        assert_eq!(of_refusal("bad_request", body, Place::Here), OTHER_VERSION);
        assert_eq!(of_refusal("a_new_one", "as told", Place::Here), "as told");
        assert!(of_refusal("unauthorized", "", Place::Elsewhere).contains("--token-file"));
    }
}
