"""What schemathesis cannot know of this API. Each hook says why it is there; none hides an answer from a check."""

import os
import re

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


@schemathesis.hook
def before_call(context, case, kwargs):
    query, body = case.query, case.body
    # A stream that is followed never ends. What is no boolean is left for the daemon to refuse.
    if case.operation.path.endswith("/events") and str(query.get("follow", "true")).lower() == "true":
        query["follow"] = "false"
    # A wait is as right when it is short.
    if str(query.get("wait_ms", "")).isdigit() and int(query["wait_ms"]) <= 60000:
        query["wait_ms"] = "20"
    if not isinstance(body, dict):
        return
    # JSON Schema takes 5.0 for an integer; the daemon takes only what is written as one.
    case.body = body = whole(body)
    # What fits its schema is replaced by what also fits this daemon; what does not fit is left as it is.
    if is_text(body, "workspace_path", "/[^\x00]{0,4095}"):
        body["workspace_path"] = WORKSPACE
    if case.operation.path == "/v1/sessions" and is_text(body, "model", "\\S.{0,190}"):
        body["model"] = MODEL
    # Every session has an event 1.
    if type(body.get("seq")) is int and 0 <= body["seq"] < 2**64:
        body["seq"] = 1
    # Two different keys, of which each is right, are refused.
    header = (case.headers or {}).get("Idempotency-Key")
    if isinstance(header, str) and KEY.fullmatch(header.strip()) and is_text(body, "idempotency_key", KEY.pattern):
        body["idempotency_key"] = header.strip()
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
