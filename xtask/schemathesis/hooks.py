"""What schemathesis cannot know of this API. Each hook says why it is there; none hides an answer from a check."""

import itertools
import os
import re
import uuid

import schemathesis
from hypothesis import strategies as st

WORKSPACE = os.environ["TENURE_TRIAL_WORKSPACE"]
MODEL = os.environ["TENURE_TRIAL_MODEL"]
with open(os.environ["TENURE_TRIAL_ARCHIVE"], "rb") as file:
    ARCHIVE = file.read()

# No schema tells what an archive holds: a real one, a real one cut short, and anything at all.
schemathesis.openapi.media_type(
    "application/gzip",
    st.just(ARCHIVE) | st.integers(0, len(ARCHIVE)).map(lambda end: ARCHIVE[:end]) | st.binary(max_size=200),
)

KEY = re.compile("[ -~]{1,255}")
SESSION = re.compile("sess_[0-7][0-9A-HJKMNP-TV-Z]{25}")
TURN = re.compile("turn_[0-7][0-9A-HJKMNP-TV-Z]{25}")

# Names that answers gave, each with its session: by chance alone nobody would find one.
seen = {"session": [], "turn": [], "attachments": [], "artifacts": [], "call": []}
count = itertools.count()
# Only a tool makes an artifact: this one was made before.
session, _, artifact = os.environ["TENURE_TRIAL_ARTIFACT"].split("/", 2)
seen["artifacts"].append((session, artifact))


@schemathesis.hook
def after_call(context, case, response):
    if response.status_code not in (200, 201, 202) or response.headers["content-type"][0] != "application/json":
        return
    body = response.json()
    if response.status_code == 201 and "session_id" in body:
        seen["session"].append((body["session_id"], None))
    session = (case.path_parameters or {}).get("session")
    if session is None:
        return
    if case.operation.path.endswith("/end") or case.method == "DELETE":
        seen["session"] = [known for known in seen["session"] if known[0] != session]
    if body.get("turn_id"):
        seen["turn"].append((session, body["turn_id"]))
    for approval in body.get("approvals", []):
        seen["call"].append((session, approval["tool_call_id"]))
    for file in [body, *body.get("attachments", []), *body.get("artifacts", [])]:
        folder, _, name = str(file.get("ref", "")).partition("/")
        if folder in seen:
            seen[folder].append((session, name))


def lead(case, kind, name=None):
    """Every second request that names something in the right form names what is there, one of the latest."""
    if seen[kind] and next(count) % 2:
        session, found = seen[kind][-1 - next(count) % min(len(seen[kind]), 8)]
        case.path_parameters["session"] = session
        if name:
            case.path_parameters[name] = found
        return found


@schemathesis.hook
def before_call(context, case, kwargs):
    path, query, body = case.operation.path, case.query, case.body
    # A stream that is followed never ends. What is no boolean is left for the daemon to refuse.
    if path.endswith("/events") and str(query.get("follow", "true")).lower() == "true":
        query["follow"] = "false"
    # A wait is as right when it is short.
    if str(query.get("wait_ms", "")).isdigit() and int(query["wait_ms"]) <= 60000:
        query["wait_ms"] = "20"
    if SESSION.fullmatch(str((case.path_parameters or {}).get("session"))):
        lead(case, "session")
    if "{turn}" in path and TURN.fullmatch(str(case.path_parameters.get("turn"))):
        lead(case, "turn", "turn")
    if path.endswith("/{file}"):
        lead(case, path.split("/")[-2], "file")
    # The same key for different requests is refused, and so are two different keys: each right one becomes a new one.
    header = (case.headers or {}).get("Idempotency-Key")
    key = str(uuid.uuid4())
    if isinstance(header, str) and KEY.fullmatch(header.strip()):
        case.headers["Idempotency-Key"] = key
    if not isinstance(body, dict):
        return
    # JSON Schema takes 5.0 for an integer; the daemon takes only what is written as one.
    case.body = body = whole(body)
    # What fits its schema is replaced by what also fits this daemon; what does not fit is left as it is.
    if is_text(body, "idempotency_key", KEY.pattern):
        body["idempotency_key"] = key
    if is_text(body, "workspace_path", "/[^\x00]{0,4095}"):
        body["workspace_path"] = WORKSPACE
    if path == "/v1/sessions" and is_text(body, "model", "\\S.{0,190}"):
        body["model"] = MODEL
    # Every session has an event 1.
    if type(body.get("seq")) is int and 0 <= body["seq"] < 2**64:
        body["seq"] = 1
    if path.endswith("/approve") and is_text(body, "tool_call_id", "call_.{26}"):
        body["tool_call_id"] = lead(case, "call") or body["tool_call_id"]
    # A turn that is not there is no sign that the session is not: only a turn of this session is named, or none.
    if path.endswith("/cancel") and is_text(body, "turn_id", TURN.pattern):
        own = [turn for session, turn in seen["turn"] if session == case.path_parameters["session"]]
        body["turn_id"] = own[-1] if own else None
    if isinstance(body.get("parts"), list):
        body["parts"] = [plain(part) for part in body["parts"]]


def whole(value):
    if isinstance(value, dict):
        return {name: whole(field) for name, field in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def is_text(body, name, pattern):
    return isinstance(body.get(name), str) and re.fullmatch(pattern, body[name], re.DOTALL)


def plain(part):
    """A part that names a file the session does not have, or says nothing, is refused: it becomes a word."""
    texts = isinstance(part, dict) and all(isinstance(value, str) for value in part.values())
    of_file = texts and set(part) == {"type", "ref", "mime_type"} and part["type"] in ("image", "audio", "file")
    of_nothing = texts and set(part) == {"type", "text"} and part["type"] == "text" and not part["text"].strip()
    return {"type": "text", "text": "word"} if of_file or of_nothing else part
