//! Which tools a source has, as it told last: kept on disk by what the source is, so that a list is known without a
//! start. It may be deleted at any time.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tenure_core::{redact::Secrets, tool::depth};

const FOLDER: &str = "lists";
/// Tools that one source may have.
const TOOLS_MAX: usize = 128;
/// What is taken of one description.
const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;
/// A schema longer or deeper than this is offered to nobody.
const SCHEMA_BYTES_MAX: usize = 32 * 1024;
const SCHEMA_DEPTH_MAX: usize = 32;
const FILE_BYTES_MAX: u64 = 8 << 20;

/// One tool as its source describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) input_schema: Value,
    /// The source's own word.
    #[serde(default)]
    pub(crate) read_only: bool,
}

/// A list within bounds, in the order of names.
pub(crate) fn bounded(mut tools: Vec<Described>, secrets: &Secrets) -> Vec<Described> {
    tools.retain(|tool| !tool.name.is_empty() && is_usable(&tool.input_schema));
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools.truncate(TOOLS_MAX);
    for tool in &mut tools {
        tool.description = crate::output::head_of(&secrets.redact(&tool.description), DESCRIPTION_BYTES_MAX);
        secrets.redact_json(&mut tool.input_schema);
    }
    tools
}

/// Whether a schema can be sent to vendors and judged here.
fn is_usable(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("object")
        && depth(schema) <= SCHEMA_DEPTH_MAX
        && schema.to_string().len() <= SCHEMA_BYTES_MAX
        && crate::check_schema(schema).is_ok()
}

pub(crate) struct Lists {
    folder: PathBuf,
    known: Mutex<HashMap<String, Arc<[Described]>>>,
}

impl Lists {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.join(FOLDER), known: Mutex::default() }
    }

    /// What is known of a source; reads the disk once.
    pub(crate) fn get(&self, identity: &str) -> Option<Arc<[Described]>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = known.get(identity) {
            return Some(Arc::clone(list));
        }
        let list: Arc<[Described]> = self.read(identity)?.into();
        known.insert(identity.to_owned(), Arc::clone(&list));
        Some(list)
    }

    pub(crate) fn put(&self, identity: &str, list: Vec<Described>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.get(identity).is_some_and(|old| **old == *list) {
            return;
        }
        if let Err(error) = self.write(identity, &list) {
            tracing::debug!("a list of tools is not kept: {error}");
        }
        known.insert(identity.to_owned(), list.into());
    }

    fn path(&self, identity: &str) -> PathBuf {
        self.folder.join(format!("{identity}.json"))
    }

    fn read(&self, identity: &str) -> Option<Vec<Described>> {
        let path = self.path(identity);
        if fs::metadata(&path).ok()?.len() > FILE_BYTES_MAX {
            return None;
        }
        // What the disk made of it is within the same bounds as what a source says.
        let list = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some(bounded(list, &Secrets::default()))
    }

    /// Whole or not at all; it need not survive a power cut.
    fn write(&self, identity: &str, list: &[Described]) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let beside = self.folder.join(format!("{identity}.new"));
        fs::write(&beside, serde_json::to_vec(list)?)?;
        fs::rename(beside, self.path(identity))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tool(name: &str, input_schema: Value) -> Described {
        Described { name: name.into(), description: "x".repeat(5000), input_schema, read_only: false }
    }

    #[test]
    fn lists_are_sorted_bounded_and_kept() {
        let object = json!({"type": "object"});
        let mut deep = object.clone();
        for _ in 0..SCHEMA_DEPTH_MAX {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        let list = bounded(
            vec![
                tool("b", object.clone()),
                tool("a", object.clone()),
                tool("b", json!({"type": "object", "x": 1})),
                tool("", object.clone()),
                tool("bad", json!({"type": 5})),
                tool("text", json!({"type": "string"})),
                tool("far", json!({"type": "object", "properties": {"a": {"$ref": "http://x.example/y"}}})),
                tool("long", json!({"type": "object", "description": "x".repeat(SCHEMA_BYTES_MAX)})),
                tool("deep", deep),
            ],
            &Secrets::default(),
        );
        assert_eq!(list.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(list.iter().all(|tool| tool.description.len() <= DESCRIPTION_BYTES_MAX));
        let many = (0..500).map(|number| tool(&format!("t{number}"), object.clone())).collect();
        assert_eq!(bounded(many, &Secrets::default()).len(), TOOLS_MAX);

        let folder = tempfile::tempdir().unwrap();
        let lists = Lists::new(folder.path());
        assert_eq!(lists.get("x"), None);
        lists.put("x", list.clone());
        assert_eq!(lists.get("x").as_deref(), Some(&list[..]));
        assert_eq!(Lists::new(folder.path()).get("x").as_deref(), Some(&list[..]));
        fs::write(folder.path().join(FOLDER).join("x.json"), "[{").unwrap();
        assert_eq!(Lists::new(folder.path()).get("x"), None, "it is asked for again");
    }
}
