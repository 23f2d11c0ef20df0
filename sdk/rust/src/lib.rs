//! Tools for a Tenure plugin: name them, give each a function, and call [`Plugin::run`]. One thread, lines of JSON on
//! the standard streams; the protocol is described in `docs/plugins.md`.
//!
//! ```no_run
//! use serde_json::json;
//! tenure_tool::Plugin::new()
//!     .tool("greet", "Greets somebody.", json!({"type": "object", "properties": {"name": {"type": "string"}}}), |call| {
//!         Ok(format!("Hello, {}!", call.input["name"].as_str().unwrap_or("you")))
//!     })
//!     .run();
//! ```

use std::io::{BufRead, Write};

use serde_json::{json, Value};

/// What a function is called with.
pub struct Call<'a> {
    pub input: &'a Value,
    /// The folder that the agent acts in; it is also the plugin's own.
    pub workspace: &'a str,
    id: &'a str,
    out: &'a mut dyn Write,
}

impl Call<'_> {
    /// Shows people how far it is.
    pub fn progress(&mut self, text: &str) {
        send(self.out, &json!({"type": "progress", "id": self.id, "text": text}));
    }
}

/// The text for the model, or why there is none.
pub type Outcome = Result<String, String>;

type Function = Box<dyn Fn(&mut Call<'_>) -> Outcome>;

struct Tool {
    name: String,
    description: String,
    input_schema: Value,
    function: Function,
}

/// A set of tools.
#[derive(Default)]
pub struct Plugin {
    tools: Vec<Tool>,
}

impl Plugin {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tool; `input_schema` is a JSON Schema of type `object`.
    pub fn tool(
        mut self,
        name: &str,
        description: &str,
        input_schema: Value,
        function: impl Fn(&mut Call<'_>) -> Outcome + 'static,
    ) -> Self {
        let (name, description) = (name.to_owned(), description.to_owned());
        self.tools.push(Tool { name, description, input_schema, function: Box::new(function) });
        self
    }

    /// Serves until the daemon closes the pipe. A cancel ends the process: that is what it is for.
    pub fn run(&self) {
        self.serve(std::io::stdin().lock(), &mut std::io::stdout().lock());
    }

    /// The same over any streams.
    pub fn serve(&self, input: impl BufRead, out: &mut dyn Write) {
        for line in input.lines() {
            let Ok(line) = line else { return };
            let Ok(ask) = serde_json::from_str::<Value>(&line) else { continue };
            match ask["type"].as_str() {
                Some("describe") => self.describe(out),
                Some("call") => self.call(&ask, out),
                Some("cancel") => return,
                _ => {}
            }
        }
    }

    fn describe(&self, out: &mut dyn Write) {
        let described = |tool: &Tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
        };
        let tools: Vec<Value> = self.tools.iter().map(described).collect();
        send(out, &json!({"type": "tools", "tools": tools}));
    }

    fn call(&self, ask: &Value, out: &mut dyn Write) {
        let id = ask["id"].as_str().unwrap_or_default();
        let outcome = match self.tools.iter().find(|tool| ask["tool"] == *tool.name) {
            None => Err(format!("there is no tool named {}", ask["tool"])),
            Some(tool) => {
                let workspace = ask["workspace"].as_str().unwrap_or_default();
                (tool.function)(&mut Call { input: &ask["input"], workspace, id, out })
            }
        };
        let (ok, text) = match outcome {
            Ok(text) => (true, text),
            Err(why) => (false, why),
        };
        send(out, &json!({"type": "result", "id": id, "ok": ok, "text": text}));
    }
}

fn send(out: &mut dyn Write, message: &Value) {
    // The daemon is gone when it does not read; then there is nobody to tell.
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn describes_calls_and_fails_in_lines_of_json() {
        let plugin = Plugin::new().tool("up", "Raises a text.", json!({"type": "object"}), |call| {
            call.progress("one moment");
            call.input["text"].as_str().map(str::to_uppercase).ok_or_else(|| "no text".to_owned())
        });
        let input = "{\"type\":\"describe\",\"protocol\":1}\nnonsense\n\
                     {\"type\":\"call\",\"id\":\"1\",\"tool\":\"up\",\"input\":{\"text\":\"a\"},\"workspace\":\"/w\"}\n\
                     {\"type\":\"call\",\"id\":\"2\",\"tool\":\"up\",\"input\":{}}\n\
                     {\"type\":\"call\",\"id\":\"3\",\"tool\":\"down\",\"input\":{}}\n{\"type\":\"cancel\",\"id\":\"3\"}\nx\n";
        let mut out = vec![];
        plugin.serve(input.as_bytes(), &mut out);
        let said: Vec<Value> =
            String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(said[0]["tools"][0]["name"], "up");
        assert_eq!(said[1], json!({"type": "progress", "id": "1", "text": "one moment"}));
        assert_eq!(said[2], json!({"type": "result", "id": "1", "ok": true, "text": "A"}));
        assert_eq!((&said[4]["ok"], &said[4]["text"]), (&json!(false), &json!("no text")));
        assert_eq!((said.len(), &said[5]["ok"]), (6, &json!(false)));
    }
}
