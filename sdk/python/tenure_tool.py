"""Tools for a Tenure plugin: copy this file beside your `tool` executable.

    from tenure_tool import Plugin

    plugin = Plugin()

    @plugin.tool("greet", "Greets somebody.", {"type": "object", "properties": {"name": {"type": "string"}}})
    def greet(call):
        return f"Hello, {call.input.get('name', 'you')}!"

    plugin.run()

A function returns the text for the model; an exception becomes a failed result. Only the standard library is used;
the protocol is described in docs/plugins.md. Print nothing yourself: standard output belongs to the protocol.
"""

import json
import os
import sys
import threading


class Call:
    """What a function is called with."""

    def __init__(self, plugin, ask):
        self.input = ask.get("input") or {}
        self.workspace = ask.get("workspace", "")
        self.id = ask.get("id", "")
        self._plugin = plugin

    def progress(self, text):
        """Shows people how far it is."""
        self._plugin._send({"type": "progress", "id": self.id, "text": text})


class Failed(Exception):
    """Raise it with a text for the model when a call cannot be done."""


class Plugin:
    def __init__(self):
        self._tools = {}
        self._lock = threading.Lock()
        self._out = sys.stdout

    def tool(self, name, description, input_schema):
        """Names a function as a tool; `input_schema` is a JSON Schema of type object."""

        def named(function):
            self._tools[name] = (description, input_schema, function)
            return function

        return named

    def run(self):
        """Serves until the daemon closes the pipe. A cancel ends the process, also in the middle of a call."""
        for line in sys.stdin:
            try:
                ask = json.loads(line)
            except ValueError:
                continue
            kind = ask.get("type")
            if kind == "describe":
                self._describe()
            elif kind == "call":
                # Beside the reading, so that a cancel is heard while it runs.
                threading.Thread(target=self._call, args=(ask,), daemon=True).start()
            elif kind == "cancel":
                os._exit(0)

    def _describe(self):
        tools = [
            {"name": name, "description": description, "input_schema": schema}
            for name, (description, schema, _) in self._tools.items()
        ]
        self._send({"type": "tools", "tools": tools})

    def _call(self, ask):
        call = Call(self, ask)
        try:
            if ask.get("tool") not in self._tools:
                raise Failed(f"there is no tool named {ask.get('tool')}")
            ok, text = True, str(self._tools[ask["tool"]][2](call))
        except Failed as why:
            ok, text = False, str(why)
        except Exception as error:  # A bug of one call is a result, not the end of the plugin.
            ok, text = False, f"{type(error).__name__}: {error}"
        self._send({"type": "result", "id": call.id, "ok": ok, "text": text})

    def _send(self, message):
        with self._lock:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()
