//! How long the texts of a request may be, and what they may hold. Each refusal names its field.

use std::path::Path;

use axum::http::StatusCode;
use tenure_core::ids::SessionId;
use tenure_engine::Wanted;
use tenure_wire::{Part, Policy};

use super::{problem::Rejection, query::bad_query};
use crate::limits::TextLimits;

/// As in `/v1/sessions/import`.
const IMPORT: &str = "import";

type Checked = Result<(), Rejection>;

/// What a session can be.
const STATUSES: [&str; 6] = ["active", "waiting_approval", "completed", "failed", "canceled", "expired"];

/// A text on one line that says something.
fn line(field: &str, text: &str, chars_max: usize) -> Checked {
    if text.trim().is_empty() {
        return Err(Rejection::bad_request(format!("{field} is empty"), "leave it out, or say something"));
    }
    if text.chars().any(char::is_control) {
        return Err(Rejection::bad_request(format!("{field} holds a control character"), "use plain text on one line"));
    }
    at_most(field, text.chars().count(), chars_max, "characters")
}

fn at_most(field: &str, found: usize, max: usize, unit: &str) -> Checked {
    if found <= max {
        return Ok(());
    }
    Err(Rejection::bad_request(format!("{field} has {found} {unit}; at most {max} are accepted"), "make it shorter"))
}

impl TextLimits {
    pub(crate) fn title(&self, title: Option<&str>) -> Checked {
        title.map_or(Ok(()), |title| line("title", title, self.title_chars_max))
    }

    /// A mode, a model, or what is searched for.
    pub(crate) fn name(&self, field: &str, name: Option<&str>) -> Checked {
        name.map_or(Ok(()), |name| line(field, name, self.name_chars_max))
    }

    /// A role or a label: it stands for the session in addresses, so it must be no other word there.
    pub(crate) fn alias(&self, field: &str, name: &str) -> Checked {
        line(field, name, self.name_chars_max)?;
        match name == IMPORT || name.parse::<SessionId>().is_ok() {
            true => Err(Rejection::bad_request(
                format!("{field} cannot be {name:?}: the session could not be found by it"),
                "choose another name; 'import' and ids of sessions have a meaning of their own in addresses",
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn labels(&self, labels: Option<&[String]>) -> Checked {
        let labels = labels.unwrap_or_default();
        at_most("labels", labels.len(), self.labels_max, "entries")?;
        labels.iter().try_for_each(|label| self.alias("a label", label))
    }

    /// What a list is asked for.
    pub(crate) fn wanted(&self, wanted: &Wanted) -> Checked {
        if let Some(status) = wanted.status.as_deref().filter(|status| !STATUSES.contains(status)) {
            return Err(bad_query(format!("status is {status:?}; it can be {}", STATUSES.join(", "))));
        }
        self.name("label", wanted.label.as_deref())?;
        self.name("role", wanted.role.as_deref())?;
        self.name("text", wanted.text.as_deref())
    }

    pub(crate) fn reason(&self, reason: Option<&str>) -> Checked {
        reason.map_or(Ok(()), |reason| at_most("reason", reason.chars().count(), self.reason_chars_max, "characters"))
    }

    pub(crate) fn memory(&self, memory: Option<&str>) -> Checked {
        memory.map_or(Ok(()), |memory| at_most("memory", memory.len(), self.memory_bytes_max, "bytes"))
    }

    /// Preferences or a schema.
    pub(crate) fn object(&self, field: &str, object: Option<&serde_json::Map<String, serde_json::Value>>) -> Checked {
        let Some(object) = object else { return Ok(()) };
        let bytes = serde_json::to_string(object).map_or(usize::MAX, |text| text.len());
        at_most(field, bytes, self.preferences_bytes_max, "bytes")?;
        // The log wraps it: what could be read here could otherwise not be read there.
        let deepest = object.values().map(tenure_core::tool::depth).max().unwrap_or(0) + 1;
        at_most(field, deepest, tenure_core::tool::INPUT_DEPTH_MAX, "levels")
    }

    pub(crate) fn policy(&self, policy: Option<&Policy>) -> Checked {
        let Some(policy) = policy else { return Ok(()) };
        if let Some(approval) = &policy.approval {
            let tools = approval.require_for_tools.as_deref().unwrap_or_default();
            at_most("policy.approval.require_for_tools", tools.len(), self.policy_entries_max, "entries")?;
            tools.iter().try_for_each(|tool| line("a tool's name", tool, self.name_chars_max))?;
            let rules = approval.rules.as_deref().unwrap_or_default();
            at_most("policy.approval.rules", rules.len(), self.policy_entries_max, "entries")?;
            for rule in rules {
                line("a rule's tool", &rule.tool, self.name_chars_max)?;
                let subjects = rule.pattern.iter().chain(&rule.exact);
                let longest = subjects.map(|text| text.chars().count()).max().unwrap_or(0);
                at_most("a rule's pattern", longest, self.policy_entry_chars_max, "characters")?;
            }
        }
        let commands = policy.verify.as_ref().and_then(|verify| verify.commands.as_ref()?.as_deref());
        let commands = commands.unwrap_or_default();
        at_most("policy.verify.commands", commands.len(), self.policy_entries_max, "entries")?;
        commands.iter().try_for_each(|command| line("a verification command", command, self.policy_entry_chars_max))
    }

    /// Only text is taken for now, and it has to say something.
    pub(crate) fn parts(&self, parts: &[Part]) -> Checked {
        at_most("parts", parts.len(), self.parts_max, "entries")?;
        let says = |part: &Part| match part {
            Part::Text { text } => !text.trim().is_empty(),
            Part::Image { .. } | Part::Audio { .. } | Part::File { .. } => true,
        };
        let says_something = parts.iter().any(says);
        if says_something {
            return Ok(());
        }
        Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            "empty_message",
            "the message has neither text nor a file",
            "add a text part",
        ))
    }

    /// An absolute path of a folder that is there.
    pub(crate) async fn workspace(&self, path: &str) -> Checked {
        let bad = |detail: String| {
            let hint = "send the absolute path of an existing folder";
            Rejection::new(StatusCode::BAD_REQUEST, "bad_workspace", detail, hint)
        };
        if path.len() > self.path_bytes_max || path.contains('\0') {
            return Err(bad("workspace_path cannot be the name of a folder".into()));
        }
        if !Path::new(path).is_absolute() {
            return Err(bad("workspace_path is not absolute".into()));
        }
        match tokio::fs::metadata(path).await {
            Ok(found) if found.is_dir() => Ok(()),
            Ok(_) => Err(bad(format!("{path} is not a folder"))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(bad(format!("there is no folder {path}")))
            }
            Err(error) => Err(bad(format!("{path} cannot be used: {}", error.kind()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> TextLimits {
        TextLimits { title_chars_max: 5, labels_max: 2, parts_max: 3, ..TextLimits::default() }
    }

    #[test]
    fn titles_and_labels() {
        for (title, fits) in
            [("abc", true), ("üöäßé", true), ("abcdef", false), ("  ", false), ("", false), ("a\nb", false)]
        {
            assert_eq!(limits().title(Some(title)).is_ok(), fits, "{title:?}");
        }
        let labels = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert!(limits().labels(Some(&labels(&["a", "b"]))).is_ok());
        assert!(limits().labels(Some(&labels(&["a", "b", "c"]))).is_err());
        assert!(limits().labels(Some(&labels(&[""]))).is_err());
    }

    #[test]
    fn parts() {
        let image = Part::Image { r#ref: "attachments/a.png".into(), mime_type: "image/png".into() };
        for (parts, code) in [
            (vec![Part::text("hi")], None),
            (vec![Part::text(""), Part::text("hi")], None),
            (vec![], Some("empty_message")),
            (vec![Part::text(" \n")], Some("empty_message")),
            (vec![Part::text("look"), image.clone()], None),
            (vec![image], None),
            (vec![Part::text("x"); 4], Some("bad_request")),
        ] {
            let found = limits().parts(&parts).err().map(|rejection| rejection.problem().code.clone());
            assert_eq!(found.as_deref(), code, "{parts:?}");
        }
    }

    #[tokio::test]
    async fn workspaces() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        for (path, fits) in [
            (env!("CARGO_MANIFEST_DIR"), true),
            (file, false),
            ("src", false),
            ("", false),
            ("/no/such/folder/anywhere", false),
            ("/tmp\0", false),
        ] {
            assert_eq!(limits().workspace(path).await.is_ok(), fits, "{path:?}");
        }
    }
}
