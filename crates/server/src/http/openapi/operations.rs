//! Every operation of the API.
//!
//! To add one: put its route into the table in `http.rs`, and a few lines like those below into the function of its tag.
//! `get`, `post` … bring what all operations share (the token, the checks at the door, path parameters, what reading a
//! session may refuse); the rest is said in one word each: `query::<T>` reads parameters from the type that the handler
//! reads them with, `takes`/`may_take` a JSON body and `answers` an answer from an example of its type (derive
//! `JsonSchema` as its neighbours do), `command` an idempotency key and what any command may be refused with, `refuses`
//! further codes (new ones go into `codes.rs`), `leads_to` what a client does next. Then run the tests with
//! `TENURE_BLESS=1`, which writes `docs/openapi.json`. Tests fail on a route, method or code that is forgotten.

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::{cursor::Cursor, event::Body as EventBody};
use tenure_engine::StreamItem;
use tenure_wire as wire;

use super::{
    super::{
        copies, events, logins, models,
        query::{Nothing, Page},
        session, tools, turn, usage,
    },
    events::written,
    examples,
    operation::Operation,
    schemas::Schemas,
};

/// The tags, in the order in which they are shown.
pub(super) const TAGS: [(&str, &str); 8] = [
    ("Sessions", "A session is one conversation that lasts: made, listed, changed, ended."),
    ("Messages", "What is said in a session, and the turns that answer it."),
    ("Turns", "A turn is one input and all that happens until it is settled."),
    ("Events", "Streams: all that happens, as it happens, and from any place on."),
    ("Files", "Attachments that people give, artifacts that tools leave behind."),
    ("Copies", "Forks, exports and imports."),
    ("Access", "Tokens by name, and links that let a browser in."),
    ("Daemon", "Health, models, tools, usage, and this description."),
];

const IN_SESSION: [(&str, &str); 1] = [("session", "$response.body#/session_id")];

pub(super) fn all(s: &mut Schemas) -> Vec<Operation> {
    [sessions(s), messages(s), turns(s), streams(s), files(s), copies(s), access(s), daemon(s)]
        .into_iter()
        .flatten()
        .collect()
}

fn sessions(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[0].0;
    let created = wire::Created { session_id: examples::session().to_string() };
    let list = wire::SessionList { sessions: vec![examples::row()], next: Some(examples::session().to_string()) };
    let renamed = wire::Patch {
        title: Some("Mend both tests".into()),
        budgets: Some(wire::Budgets { max_steps: Some(Some(500)), ..Default::default() }),
        ..Default::default()
    };
    let end = wire::End { reason: Some("done".into()), ..Default::default() };
    let ended = wire::Ended { status: "completed".into() };
    let undoing = wire::Undoing { turn_id: examples::turn().to_string(), seq: 12, status: "undoing".into() };
    let version = "The session's version, as `If-Match` of an update takes it.";
    vec![
        post("/v1/sessions", "createSession", tag, "Makes a session.")
            .takes(s, &examples::create())
            .keyed()
            .answers(s, 201, "The session was made and is durable.", &created)
            .with_header(201, "Location", "Where the session is.")
            .leads_to(201, &IN_SESSION, &["getSession", "updateSession", "sendMessage", "listMessages", "startTurn"])
            .leads_to(201, &IN_SESSION, &["cancelTurn", "endSession", "deleteSession", "followSession", "forkSession"])
            .leads_to(201, &IN_SESSION, &["compactSession", "undoTurn"])
            .leads_to(201, &IN_SESSION, &["uploadAttachment", "listAttachments", "listArtifacts", "exportSession"])
            .refuses(&["bad_workspace", "unsupported_policy", "unknown_model", "bad_schema", "keys_full", "session_purged"])
            .refuses(&["session_damaged", "disk_refused", "shutting_down"]),
        get("/v1/sessions", "listSessions", tag, "Lists sessions, the newest first.")
            .query::<session::Page>(s, json!({ "cursor": { "$ref": "#/event/SessionId" } }))
            .answers(s, 200, "A page of them.", &list)
            .refuses(&["bad_cursor", "bad_request", "disk_refused"]),
        get("/v1/sessions/{session}", "getSession", tag, "Shows a session with its open turn and what it waits for.")
            .answers(s, 200, "The session.", &examples::view())
            .with_header(200, "ETag", version)
            .leads_to_body(
                200,
                "answerApproval",
                &[("session", "$response.body#/id")],
                json!({ "tool_call_id": "$response.body#/approvals/0/tool_call_id", "action": "approve" }),
            )
            .leads_to(200, &[("session", "$response.body#/id")], &["updateSession", "sendMessage", "deleteSession"])
            .leads_to(
                200,
                &[("session", "$response.body#/id"), ("turn", "$response.body#/last_turn_id")],
                &["getTurn"],
            ),
        patch("/v1/sessions/{session}", "updateSession", tag, "Renames, labels, changes policy, or raises a budget.")
            .about("What is not said stays as it is, inside `policy` and `budgets` too.")
            .header(
                "If-Match",
                "The `ETag` of the version that is to be changed; another one refuses the update.",
                json!({ "type": "string", "pattern": "^(\\*|[0-9]{1,19}|\"[0-9]{1,19}\")$" }),
            )
            .takes(s, &renamed)
            .command()
            .answers(s, 200, "The session as it is now.", &examples::view())
            .with_header(200, "ETag", version)
            .refuses(&["bad_if_match", "version_mismatch", "bad_workspace", "unsupported_policy", "budget_lowered"])
            .refuses(&["turn_open", "unknown_model", "undo_running"]),
        delete(
            "/v1/sessions/{session}",
            "deleteSession",
            tag,
            "Ends a session, or deletes it for good; one that has ended is told as it ended.",
        )
        .query::<session::Deletion>(s, json!({}))
        .may_take(s, &end)
        .command()
        .refuses(&["session_busy", "undo_running"])
        .answers(s, 200, "It had ended already, or is deleted.", &ended)
        .answers(s, 202, "It ends; an open turn is canceled first.", &ended),
        post("/v1/sessions/{session}/compact", "compactSession", tag, "Summarizes the older part of the context.")
            .about("The log keeps everything; only what the model is shown becomes shorter. The newest messages stay whole, and no call is split from its result. One that is under way will do. `context_compacted` or `compaction_failed` follows.")
            .may_take(s, &wire::EmptyCommand::default())
            .command()
            .answers(s, 202, "It is under way.", &wire::Compacting { seq: 12, status: "compacting".into() }),
        post("/v1/sessions/{session}/undo", "undoTurn", tag, "Takes back what a turn did to files.")
            .about("Every file that the turn's `write_file`, `edit_file` and `apply_patch` calls changed becomes what it was before the turn: bytes, mode, existence; folders that the turn made go if they are empty. All of them or none: where one is not exactly what the turn left, nothing is changed. What commands did is not taken back; files that changed while the turn ran are named. `workspace_restored` follows and tells which. Name the turn to be sure which one is meant.")
            .may_take(s, &wire::Undo { turn_id: Some(examples::turn().to_string()), ..Default::default() })
            .command()
            .answers(s, 202, "It is under way.", &undoing)
            .refuses(&["turn_open", "undo_running", "no_checkpoint", "unknown_turn", "already_undone", "later_changes"])
            .refuses(&["checkpoint_incomplete", "other_workspace"]),
        post("/v1/sessions/{session}/end", "endSession", tag, "Ends a session.")
            .may_take(s, &end)
            .command()
            .answers(s, 202, "It ends; an open turn is canceled first.", &ended)
            .refuses(&["undo_running"]),
    ]
}

fn messages(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[1].0;
    let (message_id, turn_id) = (examples::message().to_string(), examples::turn().to_string());
    let accepted = wire::MessageAccepted { message_id, turn_id: Some(turn_id.clone()) };
    let in_turn = [("session", "$request.path.session"), ("turn", "$response.body#/turn_id")];
    let list = wire::MessageList { messages: vec![examples::answer()], next: Some("5".into()), damage: vec![] };
    let (tool_call_id, action) = (examples::call().to_string(), wire::Verdict::Approve);
    let answered = wire::ApprovalAnswered { tool_call_id, action, scope: wire::Scope::Session };
    vec![
        post("/v1/sessions/{session}/messages", "sendMessage", tag, "Adds a message, and starts, queues or steers a turn.")
            .about("While a turn is open, `delivery` says whether the message waits for its own turn or enters the next request of the open one.")
            .takes(s, &examples::text("The test in tests/flaky.rs fails now and then. Find out why."))
            .command()
            .answers(s, 202, "The message is durable; without `turn_id` it was only appended.", &accepted)
            .leads_to(202, &in_turn, &["getTurn", "retryTurn", "resumeTurn"])
            .leads_to(202, &in_turn[..1], &["getSession", "listMessages", "followSession", "cancelTurn"])
            .refuses(&["empty_message", "bad_role", "unsupported_part", "queue_full"])
            .refuses_as(400, "unknown_attachment"),
        get("/v1/sessions/{session}/messages", "listMessages", tag, "Gives the conversation, the oldest message first.")
            .query::<Page>(s, json!({ "cursor": { "pattern": "^[0-9]{1,19}$" } }))
            .answers(s, 200, "A page of it.", &list)
            .refuses(&["bad_cursor"]),
        post("/v1/sessions/{session}/approve", "answerApproval", tag, "Says yes or no to a tool call that waits for it.")
            .about("A call is answered once. Whoever comes second gets 409 `already_answered` with the first answer.")
            .takes(s, &examples::approve())
            .command()
            .answers(s, 200, "The answer was taken.", &answered)
            .refuses(&["unknown_call", "already_answered", "not_waiting"]),
    ]
}

fn turns(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[2].0;
    let turn_id = examples::turn().to_string();
    let started = wire::TurnStarted { turn_id: turn_id.clone() };
    let canceling = wire::Canceling { turn_id, status: "canceling".into() };
    let cancel = wire::Cancel { reason: Some("the wrong test".into()), ..Default::default() };
    let nothing = wire::EmptyCommand::default();
    let in_turn = [("session", "$request.path.session"), ("turn", "$response.body#/turn_id")];
    let start = "Starts a turn over messages that were only appended.";
    let retry = "Runs the input of a failed, canceled, expired or interrupted turn again, as a new turn.";
    vec![
        post("/v1/sessions/{session}/turns", "startTurn", tag, start)
            .may_take(s, &nothing)
            .command()
            .answers(s, 202, "It started, or waits behind the open one.", &started)
            .leads_to(202, &in_turn, &["getTurn", "retryTurn", "resumeTurn"])
            .refuses(&["nothing_to_send", "queue_full"]),
        get("/v1/sessions/{session}/turns/{turn}", "getTurn", tag, "Shows a turn, or waits for it.")
            .query::<turn::Wait>(s, json!({}))
            .answers(s, 200, "The turn as it is now.", &examples::turn_view())
            .refuses(&["unknown_turn", "overloaded", "shutting_down"]),
        post("/v1/sessions/{session}/turns/{turn}/retry", "retryTurn", tag, retry)
            .may_take(s, &nothing)
            .command()
            .answers(s, 202, "The new turn started, or waits behind the open one.", &started)
            .leads_to(202, &in_turn, &["getTurn"])
            .refuses(&["unknown_turn", "turn_completed", "turn_open", "queue_full"]),
        post("/v1/sessions/{session}/turns/{turn}/resume", "resumeTurn", tag, "Goes on with an interrupted turn.")
            .may_take(s, &nothing)
            .command()
            .answers(s, 202, "It goes on.", &started)
            .leads_to(202, &in_turn, &["getTurn"])
            .refuses(&["unknown_turn", "not_interrupted"]),
        post("/v1/sessions/{session}/cancel", "cancelTurn", tag, "Cancels the open turn, or the named one.")
            .may_take(s, &cancel)
            .command()
            .answers(s, 202, "`turn_canceled` follows when the work is gone.", &canceling)
            .refuses(&["unknown_turn", "no_open_turn", "turn_settled"]),
    ]
}

/// Both forms of a stream. Neither has an end, so the schema is that of each event, as is usual before OpenAPI 3.2.
fn stream(event: &str) -> Value {
    let reference = json!({ "$ref": format!("#/components/schemas/{event}") });
    let wire_type = "turn_started";
    let (event, text) = written().find(|(event, _)| event.body.wire_type() == wire_type).expect("it is in the log");
    let cursor = Cursor::at(event.seq);
    let item = StreamItem { cursor, wire_type: wire_type.into(), json: Bytes::from(text.clone()) };
    let written: Vec<u8> = events::Format::Sse.write(&item).into_iter().flatten().collect();
    assert_eq!(String::from_utf8_lossy(&written), format!("id: {cursor}\nevent: {wire_type}\ndata: {text}\n\n"));
    let sse = json!({
        "type": "object",
        "description": "Each event of the stream.",
        "required": ["id", "event", "data"],
        "properties": {
            "id": { "type": "string", "description": "The cursor that goes on right after it." },
            "event": { "type": "string", "description": "Its type." },
            "data": { "type": "string", "contentMediaType": wire::JSON, "contentSchema": reference },
        },
    });
    json!({
        wire::EVENT_STREAM: { "schema": sse, "example": { "id": cursor, "event": wire_type, "data": text } },
        wire::NDJSON: { "schema": reference, "example": event },
    })
}

fn streams(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[3].0;
    const FEED_CURSOR: &str = "^(0|[1-9a-f][0-9a-f]{0,15})-(0|[1-9][0-9]{0,18})$";
    const SESSION_CURSOR: &str = "^[0-9]{1,19}(\\.[0-9]{1,19})?$";
    let types = EventBody::WIRE_TYPES.iter().chain(&events::DELTA_TYPES).chain(&events::NOTES);
    let types: Vec<&str> = types.copied().collect();
    let parameters = |cursor: &str| {
        let names = json!({ "type": "array", "minItems": 1, "items": { "enum": types } });
        json!({ "after": { "pattern": cursor }, "types": names })
    };
    let last = |operation: Operation, cursor: &str| {
        let about = "The cursor of the last event that was seen; an `EventSource` sends it by itself.";
        operation.header("Last-Event-ID", about, json!({ "type": "string", "pattern": format!("^$|{cursor}") }))
    };
    let of_one = get("/v1/sessions/{session}/events", "followSession", tag, "Streams a session's events: history, then live.")
        .about("Server-sent events by default, `application/x-ndjson` where `Accept` names it with no smaller weight. An SSE event's `id` is its cursor: what follows a cursor is sent exactly, also inside a half-streamed sentence and after a restart. A quiet SSE stream sends a comment every 15 seconds. With `follow=false` the stream ends at the present.")
        .query::<events::From>(s, parameters(SESSION_CURSOR));
    let of_all = get("/v1/events", "followAll", tag, "Streams what changes the status of any session, from now on or after a cursor.")
        .about("As a session's stream, but only what changes a session's status. Its cursor is opaque and holds for one life of the daemon; `stream_reset` says that something may be missing.")
        .query::<events::From>(s, parameters(FEED_CURSOR));
    vec![
        last(of_one, SESSION_CURSOR).answer(200, "The stream.", stream("Event")).refuses(&[
            "bad_cursor",
            "shutting_down",
            "too_many_streams",
        ]),
        last(of_all, FEED_CURSOR)
            .answer(200, "The stream.", stream("FeedEvent"))
            .refuses(&["bad_cursor", "too_many_streams"]),
    ]
}

fn files(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[4].0;
    let new = wire::NewAttachment {
        name: "ci.log".into(),
        mime_type: Some("text/plain".into()),
        data: "bGluZSAxMjogdGltZWQgb3V0Cg==".into(),
        ..Default::default()
    };
    let form = json!({
        "schema": {
            "type": "object",
            "required": ["file"],
            "properties": { "file": { "type": "string", "contentMediaType": "application/octet-stream", "description": "The file, with its name and type." } },
            "additionalProperties": false,
        },
        "encoding": { "file": { "contentType": "application/octet-stream" } },
    });
    let upload = post(
        "/v1/sessions/{session}/attachments",
        "uploadAttachment",
        tag,
        "Gives a file to the session, as a form or as JSON with base64.",
    )
    .takes(s, &new);
    let attachments = wire::AttachmentList { attachments: vec![examples::attachment()] };
    let artifacts = wire::ArtifactList { artifacts: vec![examples::artifact()], next: None };
    vec![
        upload
            .and_takes("multipart/form-data", form)
            .command()
            .answers(s, 201, "The file is durable. Parts of messages name it by its `ref`.", &examples::attachment())
            .leads_to(201, &[("session", "$request.path.session")], &["listAttachments", "sendMessage"])
            .refuses(&["attachment_too_large", "attachment_exists", "attachments_full", "bad_mime_type"]),
        get("/v1/sessions/{session}/attachments", "listAttachments", tag, "Lists a session's attachments.")
            .query::<Nothing>(s, json!({}))
            .answers(s, 200, "All of them.", &attachments),
        download(
            get(
                "/v1/sessions/{session}/attachments/{file}",
                "downloadAttachment",
                tag,
                "Hands out an attachment, whole or in part.",
            ),
            &["*/*"],
        )
        .refuses(&["unknown_attachment", "file_damaged"]),
        get("/v1/sessions/{session}/artifacts", "listArtifacts", tag, "Lists what tools left behind.")
            .query::<Page>(s, json!({ "cursor": { "pattern": "^artifacts/" } }))
            .answers(s, 200, "A page of them.", &artifacts)
            .refuses(&["bad_cursor"]),
        download(
            get(
                "/v1/sessions/{session}/artifacts/{file}",
                "downloadArtifact",
                tag,
                "Hands out an artifact, whole or in part.",
            ),
            &["text/plain", "application/octet-stream"],
        )
        .refuses(&["unknown_artifact", "file_damaged"]),
    ]
}

fn download(operation: Operation, types: &[&str]) -> Operation {
    let text = json!({ "type": "string" });
    let content: Value =
        types.iter().map(|name| ((*name).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>().into();
    let (range, tag) = (
        "One range of bytes, such as `bytes=0-1023`; what is not understood gets the whole.",
        "The digest of the bytes.",
    );
    operation
        .header("Range", range, text.clone())
        .header(
            "If-Range",
            "The `ETag` of the version whose part is asked for; another one gets the whole.",
            text.clone(),
        )
        .header("If-None-Match", "The `ETag` of a version that the client has.", text)
        .answer(200, "The file.", content.clone())
        .answer(206, "The part that was asked for.", content)
        .answer(304, "The client has it already.", Value::Null)
        .with_header(200, "ETag", tag)
        .with_header(206, "ETag", tag)
        .with_header(206, "Content-Range", "Which part this is, and of how many bytes.")
        .with_header(304, "ETag", tag)
        .refuses(&["bad_range"])
}

fn copies(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[5].0;
    let fork = wire::Fork { seq: Some(1), title: Some("Another way".into()), ..Default::default() };
    let origin = || wire::Origin { session_id: examples::session().to_string(), seq: 7 };
    let session_id = examples::session().to_string();
    let forked = wire::Forked { session_id: session_id.clone(), forked_from: origin(), missing: vec![] };
    let imported = wire::Imported { session_id, seq: 7, forked_from: None, missing: vec![] };
    let archive = json!({ wire::ARCHIVE: { "schema": {} } });
    let whole = "The whole session in one file: log, attachments, artifacts.";
    let out = |operation: Operation| {
        operation
            .answer(200, whole, archive.clone())
            .with_header(200, "Content-Disposition", "A name for the file.")
            .with_header(200, "Tenure-Missing", "What the archive lacks because it was lost or changed on the disk, as JSON: `count`, and `names` of the first.")
            .refuses(&["turn_running", "overloaded", "shutting_down"])
    };
    vec![
        post("/v1/sessions/{session}/fork", "forkSession", tag, "Makes a session that shares this one's history up to an event.")
            .about("An open turn is interrupted in the fork; no call that had begun there runs again, and what came after the event is not part of it. Labels, pending approvals and idempotency keys are not copied.")
            .may_take(s, &fork)
            .keyed()
            .answers(s, 201, "The fork was made and is durable.", &forked)
            .with_header(201, "Location", "Where the fork is.")
            .leads_to(201, &IN_SESSION, &["getSession", "sendMessage", "deleteSession"])
            .refuses(&["unknown_seq", "bad_workspace", "unknown_model", "keys_full", "session_purged", "overloaded", "shutting_down"]),
        out(get("/v1/sessions/{session}/export", "exportSession", tag, "Gives a session as an archive.")),
        out(post("/v1/sessions/{session}/export", "exportSessionByPost", tag, "The same, for clients that send commands as POST.")),
        post("/v1/sessions/import", "importSession", tag, "Takes an exported session, under the same id or a new one.")
            .query::<copies::How>(s, json!({}))
            .body(json!({ "required": true, "description": whole, "content": { wire::ARCHIVE: { "schema": {} } } }))
            .keyed()
            .answers(s, 201, "The session is here and durable.", &imported)
            .with_header(201, "Location", "Where the session is.")
            .leads_to(201, &IN_SESSION, &["getSession", "listMessages", "followSession"])
            .refuses(&["wrong_content_type", "bad_archive", "archive_too_large", "session_exists", "turn_running"])
            .refuses(&["too_many_imports", "body_timeout", "keys_full", "session_purged", "session_damaged"])
            .refuses(&["disk_refused", "shutting_down"]),
    ]
}

fn access(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[6].0;
    let view = wire::TokenView {
        name: "laptop".into(),
        created_at: examples::row().created_at,
        last4: "4f2a".into(),
        expires_at: None,
        earlier_until: None,
    };
    let made = wire::TokenMade { token: "0123456789abcdef".repeat(4), view: view.clone() };
    let new = wire::NewToken { name: "laptop".into(), expires_in_ms: Some(86_400_000) };
    let login = wire::Login { url: "http://127.0.0.1:8787/login?code=5d41402abc4b2a76".into(), expires_in_ms: 60_000 };
    let page = json!({ "text/html": { "schema": { "type": "string" } } });
    let of_token = [("token", "$response.body#/name")];
    vec![
        get("/v1/tokens", "listTokens", tag, "Lists the named tokens, without their secrets.")
            .answers(s, 200, "All of them.", &wire::TokenList { tokens: vec![view] })
            .refuses(&["not_allowed"]),
        post("/v1/tokens", "addToken", tag, "Makes a token; its secret is in this answer alone.")
            .takes(s, &new)
            .answers(s, 201, "The token.", &made)
            .leads_to(201, &of_token, &["rotateToken", "revokeToken"])
            .refuses(&["not_allowed", "bad_token_name", "token_exists", "too_many_tokens", "disk_refused"])
            .refuses(&["bad_idempotency_key"]),
        delete("/v1/tokens/{token}", "revokeToken", tag, "Revokes a token; what it has open is cut.")
            .answers(s, 200, "It is gone.", &wire::TokenRevoked { name: "laptop".into() })
            .refuses(&["not_allowed", "unknown_token", "owner_token", "disk_refused", "unknown_path"]),
        post("/v1/tokens/{token}/rotate", "rotateToken", tag, "Gives a token another secret.")
            .may_take(s, &wire::RotateToken { grace_ms: Some(60_000) })
            .answers(s, 200, "The token with its new secret.", &made)
            .refuses(&["not_allowed", "unknown_token", "disk_refused", "unknown_path", "bad_idempotency_key"])
            .refuses(&["rotated_enough"]),
        post("/v1/logins", "makeLogin", tag, "Makes a link that lets one browser in, once.")
            .may_take(s, &wire::NewLogin {})
            .answers(s, 201, "The link.", &login)
            .refuses(&["not_allowed", "bad_idempotency_key"]),
        get("/login", "logIn", tag, "Lets a browser in: the link that was made for it.")
            .open()
            .query::<logins::Code>(s, json!({}))
            .needs("code")
            .answer(303, "A cookie is set; the browser goes on to the page.", Value::Null)
            .answer(403, "It is not let in; where HTML is asked for, a page says so.", page.clone())
            .refuses(&["bad_login", "too_many_failures"]),
        post("/logout", "logOut", tag, "Lets a browser go: its cookie is no longer taken.").answer(
            303,
            "It goes on to the page.",
            Value::Null,
        ),
        get("/", "getHome", tag, "A page that says whether one is let in.").half_open().answer(200, "The page.", page),
    ]
}

fn daemon(s: &mut Schemas) -> Vec<Operation> {
    let tag = TAGS[7].0;
    let usage = wire::UsageView { sessions: 3, spent: examples::spent(), cost_micro_usd: Some(0) };
    let health = wire::Health { status: "ok".into(), version: env!("CARGO_PKG_VERSION").into() };
    let ready = |status: &str| wire::Ready { status: status.into(), durability: "power".into(), notices: vec![] };
    let metrics = json!({ "text/plain": { "schema": { "type": "string" }, "example": "# HELP tenure_ready Whether every session with something pending has been looked at.\n# TYPE tenure_ready gauge\ntenure_ready 1\n" } });
    let kept = |operation: Operation| {
        operation
            .open()
            .header("If-None-Match", "The `ETag` of a version that the client has.", json!({ "type": "string" }))
            .answer(304, "The client has it already.", Value::Null)
            .with_header(200, "ETag", "A digest of it.")
    };
    vec![
        get("/v1/models", "listModels", tag, "Lists the models that sessions can have, with windows, prices and abilities.")
            .about("Those that are built in, those of the config, and what servers on the daemon's machine say they have. Any other model of a provider can be named too, as `provider/model`.")
            .query::<models::Of>(s, json!({}))
            .answers(s, 200, "All of them.", &examples::models())
            .refuses(&["bad_request", "unknown_model"]),
        get("/v1/tools", "listTools", tag, "Lists the tools that agents can be given.")
            .about("Those that are built in; where a session or a workspace is named, also those of MCP servers and plugins there, as far as they are known: nothing is started for this list.")
            .query::<tools::Of>(s, json!({}))
            .answers(s, 200, "All of them.", &examples::tools())
            .refuses(&["bad_request", "unknown_session"]),
        get("/v1/usage", "getUsage", tag, "Sums up what sessions have used.")
            .query::<usage::Of>(s, json!({}))
            .answers(s, 200, "The sum.", &usage)
            .refuses(&["bad_request", "disk_refused"]),
        get("/healthz", "getHealth", tag, "Says whether the daemon lives.").open().answers(s, 200, "It does.", &health),
        get("/readyz", "getReadiness", tag, "Says whether the daemon has recovered, and what people should know.")
            .open()
            .answers(s, 200, "It is ready.", &ready("ready"))
            .answers(s, 503, "It starts or stops.", &ready("starting")),
        get("/metrics", "getMetrics", tag, "Gives counts for Prometheus.").answer(200, "The counts.", metrics),
        kept(get("/openapi.json", "getDescription", tag, "Gives this document.").answer(
            200,
            "The document.",
            json!({ wire::JSON: { "schema": { "type": "object", "required": ["openapi", "info", "paths"] } } }),
        )),
        kept(get("/docs", "getPage", tag, "Shows this document as a page.").answer(
            200,
            "The page.",
            json!({ "text/html": { "schema": { "type": "string" } } }),
        )),
    ]
}

macro_rules! methods {
    ($($method:ident)*) => {$(
        fn $method(path: &'static str, id: &'static str, tag: &'static str, summary: &'static str) -> Operation {
            Operation::new(stringify!($method), path, id, tag, summary)
        }
    )*};
}

methods! { get post patch delete }
