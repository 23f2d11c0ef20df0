//! The tools by name: what the model is told of them, and whether an input fits. It runs nothing.

use std::{fmt::Write as _, sync::Arc};

use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;
use tenure_core::tool::{ToolKind, ToolSpec, VerifyPlan};

use crate::{
    Tool, ToolsConfig, apply_patch::ApplyPatch, command::Commands, diagram::Diagram, edit_file::EditFile,
    fetch_url::FetchUrl, git_status::GitStatus, program::Programs, read_file::ReadFile, repo_map::RepoMap,
    repo_tree::RepoTree, search::Search, shell::Shell, surroundings::Surroundings, verify::Verify,
    write_file::WriteFile,
};

/// More problems of one input than this do not help a model.
const PROBLEMS_MAX: usize = 5;

pub struct Registry {
    entries: Vec<Entry>,
    specs: Arc<[ToolSpec]>,
    surroundings: Surroundings,
}

#[derive(Clone)]
struct Entry {
    tool: Arc<dyn Tool>,
    validator: Arc<Validator>,
}

/// A tool that cannot be offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTool {
    #[error("the input schema of the tool '{name}' is not valid: {why}")]
    Schema { name: String, why: String },
    #[error("there are two tools named '{name}'")]
    Twice { name: String },
}

impl Registry {
    /// The built-in tools. Their order is part of every request, and a vendor's cache holds only as long as it stays.
    pub fn new(config: ToolsConfig) -> Self {
        let commands = Arc::new(Commands::new(&config));
        let programs = Programs::new(&config);
        let tools: Vec<Arc<dyn Tool>> = vec![
            Arc::new(RepoTree),
            Arc::new(ReadFile),
            Arc::new(RepoMap::new(config.outline_cache.clone())),
            Arc::new(Search),
            Arc::new(GitStatus::new(programs.clone())),
            Arc::new(WriteFile),
            Arc::new(EditFile),
            Arc::new(ApplyPatch),
            Arc::new(Shell::new(Arc::clone(&commands), config.shell_timeout)),
            Arc::new(Verify::new(commands, config.verify_timeout)),
            Arc::new(Diagram::new(&config, programs)),
            Arc::new(FetchUrl::new(config.fetch_private)),
        ];
        // Their schemas are constants of this crate and its tests build this very list.
        let registry = Self::with_tools(tools).expect("the built-in tools have valid schemas and distinct names");
        Self { surroundings: Surroundings::new(config.outline_cache, &config.environment), ..registry }
    }

    /// Any set of tools.
    pub fn with_tools(tools: Vec<Arc<dyn Tool>>) -> Result<Self, BadTool> {
        let specs: Arc<[ToolSpec]> = tools.iter().map(|tool| tool.spec()).collect();
        let mut entries = Vec::with_capacity(tools.len());
        for (at, (tool, spec)) in tools.into_iter().zip(specs.iter()).enumerate() {
            let name = spec.name.clone();
            if specs[..at].iter().any(|other| other.name == name) {
                return Err(BadTool::Twice { name });
            }
            let validator = jsonschema::validator_for(&spec.input_schema)
                .map_err(|error| BadTool::Schema { name, why: error.to_string() })?;
            entries.push(Entry { tool, validator: Arc::new(validator) });
        }
        Ok(Self { entries, specs, surroundings: Surroundings::default() })
    }

    /// These tools and further ones behind them, as they were offered. One that cannot be offered is left out.
    pub fn with_foreign(&self, foreign: Vec<(ToolSpec, Arc<dyn Tool>)>) -> Self {
        let (mut entries, mut specs) = (self.entries.clone(), self.specs.to_vec());
        for (spec, tool) in foreign {
            let validator = jsonschema::validator_for(&spec.input_schema).map(Arc::new);
            let is_new = specs.iter().all(|known| known.name != spec.name);
            if let (Ok(validator), true) = (validator, is_new) {
                entries.push(Entry { tool, validator });
                specs.push(spec);
            }
        }
        Self { entries, specs: specs.into(), surroundings: self.surroundings.clone() }
    }

    pub fn specs(&self) -> Arc<[ToolSpec]> {
        Arc::clone(&self.specs)
    }

    /// For a look around in a workspace.
    pub fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.find(name).map(|(entry, _)| Arc::clone(&entry.tool))
    }

    pub fn kind(&self, name: &str) -> Option<ToolKind> {
        self.find(name).map(|(_, spec)| spec.kind)
    }

    /// What approval rules match on; empty for a tool there is not.
    pub fn subject(&self, name: &str, input: &Value, verify: Option<&VerifyPlan>) -> String {
        self.find(name).map(|(entry, _)| entry.tool.subject(input, verify)).unwrap_or_default()
    }

    /// Whether a call could run as it stands; the problem is worded for the model.
    pub fn check(&self, name: &str, input: &Value) -> Result<(), String> {
        let Some((entry, spec)) = self.find(name) else {
            let names: Vec<&str> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            return Err(format!("no tool named {name}; there are: {}", names.join(", ")));
        };
        let mut problems = String::new();
        for error in entry.validator.iter_errors(input).take(PROBLEMS_MAX) {
            let join = if problems.is_empty() { "" } else { "; " };
            let _ = write!(problems, "{join}{}", worded(&error, spec));
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    fn find(&self, name: &str) -> Option<(&Entry, &ToolSpec)> {
        self.entries.iter().zip(self.specs.iter()).find(|(_, spec)| spec.name == name)
    }
}

/// Whether a text is JSON that fits a schema; the problem is worded for people.
pub fn check_text(schema: &Value, text: &str) -> Result<(), String> {
    let validator = jsonschema::validator_for(schema).map_err(|error| format!("the schema is none: {error}"))?;
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    let told = |error: ValidationError<'_>| match error.instance_path().as_str() {
        "" => error.to_string(),
        place => format!("{place}: {error}"),
    };
    let problems: Vec<String> = validator.iter_errors(&value).take(PROBLEMS_MAX).map(told).collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Whether this is a JSON Schema; it names nothing outside of itself.
pub fn check_schema(schema: &Value) -> Result<(), String> {
    jsonschema::validator_for(schema).map(drop).map_err(|error| error.to_string())
}

/// One problem as `input.path: expected string`.
fn worded(error: &ValidationError<'_>, spec: &ToolSpec) -> String {
    let place = format!("input{}", error.instance_path().as_str().replace('/', "."));
    match error.kind() {
        ValidationErrorKind::Type { kind: TypeKind::Single(kind) } => format!("{place}: expected {kind}"),
        ValidationErrorKind::Required { property } => {
            format!("{place}: the field {} is missing", property.as_str().unwrap_or_default())
        }
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let fields = spec.input_schema.get("properties").and_then(Value::as_object);
            let known: Vec<&str> = fields.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("{place}: unknown field {}; the fields are: {known}", unexpected.join(", "))
        }
        ValidationErrorKind::Minimum { limit } => format!("{place}: expected at least {limit}"),
        ValidationErrorKind::Maximum { limit } => format!("{place}: expected at most {limit}"),
        ValidationErrorKind::MinLength { .. } => format!("{place}: must not be empty"),
        _ => format!("{place}: {}", error.masked()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn registry() -> Registry {
        Registry::new(ToolsConfig::new("/bin/true", "/nowhere", "test"))
    }

    #[track_caller]
    fn check(name: &str, input: Value, expected: Result<(), &str>) {
        assert_eq!(registry().check(name, &input), expected.map_err(str::to_owned));
    }

    #[test]
    fn a_text_fits_its_schema_or_not() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
        assert_eq!(check_text(&schema, " {\"n\": 5}\n"), Ok(()));
        assert!(check_text(&schema, "five").unwrap_err().starts_with("it is not JSON"));
        assert!(check_text(&schema, "{\"n\": \"five\"}").unwrap_err().starts_with("/n: "));
        assert!(check_schema(&schema).is_ok() && check_schema(&json!({"type": 5})).is_err());
        assert!(check_schema(&json!({"$ref": "http://elsewhere.example/schema"})).is_err());
    }

    #[test]
    fn an_input_that_fits_is_let_through() {
        check("read_file", json!({"path": "a", "offset": 1, "limit": 5}), Ok(()));
        check("write_file", json!({"path": "a", "content": ""}), Ok(()));
        check("apply_patch", json!({"patch": "x"}), Ok(()));
        check("shell", json!({"command": "ls", "timeout_ms": 1800000}), Ok(()));
        check("verify", json!({}), Ok(()));
    }

    #[test]
    fn problems_are_worded_for_a_model() {
        let all = "repo_tree, read_file, repo_map, search, git_status, write_file, edit_file, apply_patch, shell, verify, \
                   diagram, fetch_url";
        check("raed", json!({}), Err(&format!("no tool named raed; there are: {all}")));
        check("read_file", json!({"path": 5}), Err("input.path: expected string"));
        check("read_file", json!({}), Err("input: the field path is missing"));
        check("read_file", json!([]), Err("input: expected object"));
        check("read_file", json!({"path": ""}), Err("input.path: must not be empty"));
        check(
            "shell",
            json!({"command": "x", "timeout_ms": 1800001}),
            Err("input.timeout_ms: expected at most 1800000"),
        );
        check("verify", json!({"x": 1}), Err("input: unknown field x; the fields are: none"));
        let unknown = "input: unknown field mode; the fields are: path, content";
        let error = registry().check("write_file", &json!({"path": "a", "content": "", "mode": 1})).unwrap_err();
        assert!(error == unknown || error == "input: unknown field mode; the fields are: content, path", "{error}");
    }

    #[test]
    fn kinds_and_subjects() {
        let registry = registry();
        use ToolKind::*;
        let kinds: Vec<_> = registry.specs().iter().map(|spec| registry.kind(&spec.name)).collect();
        let expected = [Read, Read, Read, Read, Read, Write, Write, Write, Exec, Exec, Exec, Network];
        assert_eq!(kinds, expected.map(Some));
        assert_eq!(registry.kind("x"), None);
        assert_eq!(registry.subject("repo_tree", &json!({}), None), ".");
        assert_eq!(registry.subject("search", &json!({"pattern": "x y"}), None), "x y");
        assert_eq!(registry.subject("git_status", &json!({"what": "diff", "path": "src"}), None), "diff src");
        assert_eq!(
            registry.subject("fetch_url", &json!({"url": "HTTP://A.Example:80/x/../y"}), None),
            "http://a.example/y"
        );
        let diagram = json!({"language": "dot", "source": "\ndigraph {\n}"});
        assert_eq!(registry.subject("diagram", &diagram, None), "dot: digraph {");
        assert_eq!(registry.subject("shell", &json!({"command": "ls -l"}), None), "ls -l");
        assert_eq!(registry.subject("write_file", &json!({"path": "a/b", "content": "x"}), None), "a/b");
    }

    #[test]
    fn two_tools_of_one_name_are_refused() {
        let twice = Registry::with_tools(vec![Arc::new(ReadFile), Arc::new(ReadFile)]);
        assert_eq!(twice.err(), Some(BadTool::Twice { name: "read_file".into() }));
    }
}
