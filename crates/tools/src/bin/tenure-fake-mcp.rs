//! An MCP server for tests that speaks plain bytes and goes wrong on demand. It is never part of what is shipped.

use std::{
    io::{BufRead as _, Write as _},
    process::exit,
    time::Duration,
};

use serde_json::{Value, json};

/// One more than any client takes in a line.
const FLOOD_BYTES: usize = 17 << 20;

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_default();
    match mode.as_str() {
        "dies" => {
            eprintln!("there is no such thing as a free server");
            exit(7);
        }
        "mute" => loop {
            std::thread::sleep(Duration::from_secs(3600));
        },
        _ => {}
    }
    let mut server = Server { mode, extra: false, asked: None, slow: vec![] };
    if server.mode == "garbage" {
        say_bytes(b"Welcome!\n{\n[]\n\xff\xfe\n{\"jsonrpc\":\"2.0\"}\n");
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        if let Ok(message) = serde_json::from_str::<Value>(&line) {
            server.hear(&message);
        }
    }
}

struct Server {
    mode: String,
    /// A tool came that was not there before.
    extra: bool,
    /// The call that waits for the client's answer to a request of ours.
    asked: Option<Value>,
    /// Calls that are never answered, and the file that is written when they are canceled.
    slow: Vec<(Value, String)>,
}

fn say_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
        exit(0);
    }
}

fn say(message: &Value) {
    say_bytes(format!("{message}\n").as_bytes());
}

fn answer(id: &Value, result: &Value) {
    say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

fn text(id: &Value, text: &str) {
    answer(id, &json!({"content": [{"type": "text", "text": text}]}));
}

impl Server {
    fn hear(&mut self, message: &Value) {
        let (id, params) = (&message["id"], &message["params"]);
        match message["method"].as_str() {
            Some("initialize") => answer(
                id,
                &json!({
                    "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": {"name": "fake", "version": "1"}
                }),
            ),
            Some("tools/list") => answer(id, &json!({"tools": self.tools()})),
            Some("tools/call") => self.call(id, params),
            Some("notifications/cancelled") => {
                for (_, marker) in self.slow.iter().filter(|(call, _)| *call == params["requestId"]) {
                    std::fs::write(marker, "canceled").expect("a marker can be written");
                }
            }
            Some("ping") => answer(id, &json!({})),
            Some(_) if !id.is_null() => say(&json!({
                "jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}
            })),
            Some(_) => {}
            None => {
                if let Some(call) = self.asked.take() {
                    let told = if message["error"].is_null() { &message["result"] } else { &message["error"] };
                    text(&call, &told.to_string());
                }
            }
        }
    }

    fn tools(&self) -> Vec<Value> {
        let names = [
            "die",
            "echo",
            "env",
            "error",
            "flood",
            "garbage",
            "grow",
            "huge",
            "media",
            "pid",
            "refuse",
            "roots",
            "sample",
            "slow",
            "structured",
        ];
        let tool = |name: &str| {
            json!({
                "name": name, "description": format!("{name}, in mode {}", self.mode),
                "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
                "annotations": {"readOnlyHint": name == "echo" || name == "slow"}
            })
        };
        let mut tools: Vec<Value> = names.iter().map(|name| tool(name)).collect();
        tools.extend(self.extra.then(|| tool("extra")));
        tools
    }

    fn call(&mut self, id: &Value, params: &Value) {
        let given = params["arguments"]["text"].as_str().unwrap_or_default();
        match params["name"].as_str().unwrap_or_default() {
            "echo" | "extra" => text(id, given),
            "pid" => text(id, &std::process::id().to_string()),
            "env" => text(id, &std::env::var(given).unwrap_or_else(|_| "unset".into())),
            "die" => exit(3),
            "error" => answer(id, &json!({"isError": true, "content": [{"type": "text", "text": "it went wrong"}]})),
            "refuse" => {
                say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "not like this"}}))
            }
            "huge" => text(id, &"x".repeat(given.parse().unwrap_or(0))),
            "flood" => say_bytes(&vec![b'x'; FLOOD_BYTES]),
            "garbage" => {
                say_bytes(b"not json\n{\"jsonrpc\":\"2.0\",\"id\":99999,\"result\":{}}\n\n");
                text(id, "after the garbage");
            }
            "structured" => answer(id, &json!({"content": [], "structuredContent": {"sum": 3}})),
            "media" => answer(
                id,
                &json!({"content": [
                    {"type": "text", "text": "look:"},
                    {"type": "image", "data": "aGVsbG8=", "mimeType": "image/png"},
                    {"type": "audio", "data": "aGVsbG8=", "mimeType": "audio/wav"},
                    {"type": "image", "data": "***", "mimeType": "image/png"},
                    {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
                    {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGVsbG8=", "mimeType": "application/zip"}},
                    {"type": "resource_link", "uri": "file:///c", "name": "c"}
                ]}),
            ),
            "slow" => {
                let token = &params["_meta"]["progressToken"];
                say(&json!({
                    "jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1, "total": 2, "message": "half way"}
                }));
                self.slow.push((id.clone(), given.to_owned()));
            }
            "grow" => {
                self.extra = true;
                say(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
                text(id, "there is one more");
            }
            method @ ("roots" | "sample") => {
                self.asked = Some(id.clone());
                let method = if method == "roots" { "roots/list" } else { "sampling/createMessage" };
                let params = json!({"messages": [], "maxTokens": 1});
                say(&json!({"jsonrpc": "2.0", "id": "ours", "method": method, "params": params}));
            }
            _ => say(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "tool not found"}})),
        }
    }
}
