//! Every `code` that a problem can carry, with its status and what it means. Tests hold it against the sources in both directions.

/// Code, status, meaning. A code with two statuses stands there twice.
pub(super) const CODES: &[(&str, u16, &str)] = &[
    ("already_answered", 409, "The approval was answered before; `info` holds the first answer."),
    ("already_undone", 409, "What the turn changed was taken back before."),
    ("archive_too_large", 413, "The session unpacks to more than an import may hold."),
    ("attachment_exists", 409, "The file is attached already, under another type."),
    ("attachment_too_large", 413, "The file is larger than an attachment may be."),
    ("attachments_full", 409, "The session has as many attachments as it takes."),
    ("bad_archive", 400, "The body is no exported session, or a damaged one."),
    ("bad_cursor", 400, "The cursor is not one that this list or stream gave."),
    ("bad_head", 400, "The request is not HTTP/1.1 as it should be."),
    ("bad_host", 421, "The `Host` header does not name this daemon."),
    ("bad_idempotency_key", 400, "The idempotency key is no key, or there are two."),
    ("bad_if_match", 400, "`If-Match` is not a version of a session."),
    ("bad_json", 400, "The body is not JSON."),
    ("bad_login", 403, "The link was used, or its time is over."),
    ("bad_mime_type", 415, "The file's type is none."),
    ("bad_origin", 403, "The request comes from a page of another origin."),
    ("bad_query", 400, "A parameter is not known or does not fit."),
    ("bad_range", 416, "Nothing of the file lies in the range."),
    ("bad_request", 400, "The body, or a field of it, does not fit."),
    ("bad_role", 400, "A message's role is `user` or `system`."),
    ("bad_schema", 400, "`output_schema` is no JSON Schema."),
    ("bad_token_name", 400, "No token can have this name."),
    ("bad_workspace", 400, "`workspace_path` is not an existing folder."),
    ("body_timeout", 408, "The body took too long to arrive."),
    ("body_too_large", 413, "The body is larger than it may be."),
    ("budget_lowered", 400, "A budget can only be raised."),
    ("checkpoint_incomplete", 409, "The turn changed more files than are kept, so it cannot be taken back."),
    ("disk_refused", 503, "The disk refused a write or a read, so nothing was done."),
    ("empty_message", 400, "The message has neither text nor a file."),
    ("file_damaged", 409, "The file was changed or lost on the disk, so nothing of it is handed out."),
    ("head_timeout", 408, "The head of the request took too long to arrive."),
    ("head_too_large", 431, "The head of the request is larger than it may be."),
    ("internal", 500, "Something went wrong inside the daemon; its log says what."),
    ("key_reused", 409, "The idempotency key was used for another request."),
    ("keys_full", 429, "Too many idempotency keys are kept; repeat later, or without a key."),
    ("later_changes", 409, "A later turn changed the same file and is not taken back; `info` names both."),
    ("no_checkpoint", 409, "The turn changed no files by write tools, or it is too long ago."),
    ("no_open_turn", 409, "No turn is open, so there is nothing to cancel."),
    ("not_allowed", 403, "Only the daemon's own token may do that."),
    ("not_interrupted", 409, "Only an interrupted turn can be resumed."),
    ("not_waiting", 409, "The call does not wait for an approval."),
    ("nothing_to_send", 409, "No message waits for a turn."),
    ("other_workspace", 409, "The turn worked in another folder than the session has now."),
    ("overloaded", 503, "The session has more requests waiting than it takes."),
    ("owner_token", 409, "The daemon's own token cannot be revoked."),
    ("queue_full", 429, "As many messages wait as the session takes."),
    ("rotated_enough", 409, "The daemon's own token was rotated as often as it can be before a restart."),
    ("session_busy", 409, "Something of the session still runs."),
    ("session_damaged", 409, "The session's log is damaged; it can be read up to there."),
    ("session_ended", 409, "The session has ended: it can only be read, forked and exported."),
    ("session_exists", 409, "A session with this id is here already."),
    ("session_purged", 410, "The session was deleted, less than a day ago."),
    ("shutting_down", 503, "The daemon is stopping."),
    ("token_exists", 409, "A token of this name is there already."),
    ("token_expired", 401, "The token's time is over."),
    ("too_fast", 429, "The token asks more often than it may."),
    ("too_many_connections", 503, "The daemon has no room for another connection."),
    ("too_many_failures", 429, "Too many requests of this address carried no valid token."),
    ("too_many_imports", 429, "Other imports are under way."),
    ("too_many_streams", 429, "As many streams are open as there may be."),
    ("too_many_tokens", 429, "There are as many tokens as there may be."),
    ("turn_completed", 409, "A completed turn is not retried."),
    ("turn_open", 409, "The turn is open or waits in the queue."),
    ("turn_running", 409, "A turn is running, so its files are not at rest."),
    ("turn_settled", 409, "The turn has come to its end."),
    ("unauthorized", 401, "The request carries no valid token."),
    ("undo_running", 409, "A turn's changes are being taken back."),
    ("unknown_artifact", 404, "The session has no such artifact."),
    ("unknown_attachment", 404, "The session has no such attachment."),
    ("unknown_attachment", 400, "A part names an attachment that the session does not have."),
    ("unknown_call", 404, "No open turn of the session has such a call."),
    ("unknown_model", 400, "No model can have this name: its provider is not known, or it names none."),
    ("unknown_path", 404, "There is nothing at this path."),
    ("unknown_seq", 400, "The session has no such event."),
    ("unknown_session", 404, "There is no such session."),
    ("unknown_token", 404, "There is no token of this name."),
    ("unknown_turn", 404, "The session has no such turn."),
    ("unsupported_coding", 501, "The body comes in a transfer coding other than `chunked`."),
    ("unsupported_part", 400, "The model cannot take such a part."),
    ("unsupported_policy", 400, "The policy asks for what this version cannot do."),
    ("version_mismatch", 412, "The session has changed since the version that `If-Match` names."),
    ("wrong_content_type", 415, "The body is not said to be of a type that is taken here."),
    ("wrong_method", 405, "The path does not take that method; `Allow` says which it takes."),
];

/// The status that a code goes with where nothing else is said.
pub(super) fn status_of(code: &str) -> u16 {
    let found = CODES.iter().find(|(known, ..)| *known == code);
    found.unwrap_or_else(|| panic!("`{code}` is not among CODES")).1
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use tenure_core::command::Refusal;

    use super::*;
    use crate::http::problem::Rejection;

    /// A late answer of work that is no longer wanted: it goes to the engine, never to a client.
    const NEVER_SHOWN: &str = "stale";

    /// What stands before a code in the sources.
    const MAKERS: [&str; 3] = ["Refusal::new(", "Rejection::new(", "Self::new("];

    fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                // What follows are tests, which make up codes.
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned();
                found.push((path.display().to_string(), code));
            }
        }
    }

    /// The first text after the maker's name that looks like a code, unless the call ends before.
    fn code_after(rest: &str) -> Option<&str> {
        let (_, text) = rest.split_once('"')?;
        let (code, _) = text.split_once('"')?;
        (!code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')).then_some(code)
    }

    fn codes_in_sources() -> BTreeSet<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = Vec::new();
        for room in ["core", "store", "engine", "server"] {
            sources(&crates.join(room).join("src"), &mut files);
        }
        let mut codes = BTreeSet::new();
        for (path, text) in files.iter().filter(|(path, _)| !path.contains("/http/openapi")) {
            let makers = MAKERS.into_iter().filter(|maker| {
                *maker != "Self::new(" || path.ends_with("http/problem.rs") || path.ends_with("core/src/command.rs")
            });
            for (maker, rest) in makers.flat_map(|maker| text.split(maker).skip(1).map(move |rest| (maker, rest))) {
                match code_after(rest) {
                    Some(code) => drop(codes.insert(code.to_owned())),
                    // A maker that hands on a code it was given.
                    None => assert!(
                        rest.trim_start().starts_with("status_of(refusal.code)"),
                        "{path}: no code after {maker}"
                    ),
                }
            }
        }
        codes
    }

    #[test]
    fn every_code_of_the_sources_is_described_and_no_other() {
        let mut in_sources = codes_in_sources();
        assert!(in_sources.remove(NEVER_SHOWN));
        let described: BTreeSet<String> = CODES.iter().map(|(code, ..)| (*code).to_owned()).collect();
        assert_eq!(in_sources, described);
    }

    #[test]
    fn a_refusal_has_the_status_that_is_told() {
        for (code, ..) in CODES {
            let told: Vec<u16> =
                CODES.iter().filter(|(known, ..)| known == code).map(|(_, status, _)| *status).collect();
            let refused = Rejection::from(Refusal::new(code, "no", "so")).problem().status;
            // 409 is what a code gets that nothing is said of: those of the door have a status of their own.
            assert!(told.contains(&refused) || refused == 409, "{code}: {refused}, told {told:?}");
        }
    }
}
