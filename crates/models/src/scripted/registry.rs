//! What the names `scripted`, `scripted:demo` and `scripted:/path/to/script.json` stand for. It reads script files and keeps them until they change; it never plays them.

use std::{
    collections::HashMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::SystemTime,
};

use tenure_core::model::{Fault, FaultKind};

use super::{ScriptedModel, parse::parse, script::Script};
use crate::{Model, Registry};

/// The stand-in that says what it is and echoes.
pub const DEFAULT_NAME: &str = "scripted";
/// The built-in script that `tenure demo` plays.
pub const DEMO_NAME: &str = "scripted:demo";
const PREFIX: &str = "scripted:";

/// A script file may not be larger.
pub const SCRIPT_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// More scripts than this are not kept in memory; the next one starts the collection anew.
const KEPT_SCRIPTS_MAX: usize = 64;

static DEMO: LazyLock<ScriptedModel> = LazyLock::new(|| {
    // The text is part of this binary and a test parses it, so it cannot be bad here.
    let script = parse(include_str!("../../scripts/demo.json")).expect("the built-in demo script is well formed");
    ScriptedModel::new(DEMO_NAME, script)
});

/// Finds `scripted`, `scripted:demo` and `scripted:` with the absolute path of a script file, and no others.
#[derive(Debug, Default)]
pub struct ScriptedRegistry {
    kept: Mutex<HashMap<PathBuf, Kept>>,
}

#[derive(Debug)]
struct Kept {
    stamp: Stamp,
    model: ScriptedModel,
}

/// What changes when a script file is written anew.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stamp {
    modified: SystemTime,
    bytes: u64,
}

impl ScriptedRegistry {
    pub fn new() -> Self {
        Self::default()
    }

    fn script_file(&self, path: &Path) -> Result<ScriptedModel, Fault> {
        let stamp = stamp(path).map_err(|error| unusable(path, error))?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.get(path).filter(|kept| kept.stamp == stamp) {
            return Ok(kept.model.clone());
        }
        let model = ScriptedModel::new(path.display().to_string(), read(path)?);
        if kept.len() >= KEPT_SCRIPTS_MAX {
            kept.clear();
        }
        kept.insert(path.to_owned(), Kept { stamp, model: model.clone() });
        Ok(model)
    }
}

impl Registry for ScriptedRegistry {
    fn resolve(&self, name: &str) -> Result<Arc<dyn Model>, Fault> {
        if name == DEFAULT_NAME {
            return Ok(Arc::new(ScriptedModel::new(DEFAULT_NAME, Script::default())));
        }
        if name == DEMO_NAME {
            return Ok(Arc::new(DEMO.clone()));
        }
        match name.strip_prefix(PREFIX).map(Path::new) {
            Some(path) if path.is_absolute() => Ok(Arc::new(self.script_file(path)?)),
            _ => Err(Fault::new(FaultKind::UnknownModel, unknown(name))),
        }
    }

    /// Whether a script file is there and well formed is seen when it is used: it may be written until then.
    fn full_name(&self, name: &str) -> Result<String, Fault> {
        let is_file = || name.strip_prefix(PREFIX).is_some_and(|path| Path::new(path).is_absolute());
        match name == DEFAULT_NAME || name == DEMO_NAME || is_file() {
            true => Ok(name.to_owned()),
            false => Err(Fault::new(FaultKind::UnknownModel, unknown(name))),
        }
    }
}

/// Looks without opening: the open of a pipe could wait for ever.
fn stamp(path: &Path) -> std::io::Result<Stamp> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("is not a plain file"));
    }
    Ok(Stamp { modified: about.modified()?, bytes: about.len() })
}

fn read(path: &Path) -> Result<Script, Fault> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| unusable(path, error))?;
    let limited = file.take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text);
    let bytes = limited.map_err(|error| unusable(path, error))? as u64;
    if bytes > SCRIPT_BYTES_MAX {
        return Err(unusable(path, format!("is larger than {SCRIPT_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(|problem| unusable(path, problem))
}

fn unusable(path: &Path, problem: impl std::fmt::Display) -> Fault {
    Fault::new(FaultKind::UnknownModel, format!("script {}: {problem}", path.display()))
}

fn unknown(name: &str) -> String {
    format!(
        "there is no model named `{name}`; there are `{DEFAULT_NAME}`, `{DEMO_NAME}` and `{PREFIX}` \
         followed by the absolute path of a script file"
    )
}
