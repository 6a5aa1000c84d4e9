"""An MCP server for tests, on the standard library alone (it starts at once), with tools that fail, hang and die.

Its argument says how it behaves: "well"; "silent" never answers and ignores its end; "junk" writes no JSON-RPC.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
armed: list[bool] = []
NOTHING = {"type": "object", "properties": {}}
TOOLS = {
    "add": ("Add two numbers.", NUMBERS),
    "fail": ("Fail.", NOTHING),
    "pid": ("Tell the process id.", NOTHING),
    "spawn": ("Start a child, and tell its process id.", NOTHING),
    "environment": ("Tell the environment variables.", NOTHING),
    "hang": ("Never answer.", NOTHING),
    "die": ("End the process.", NOTHING),
    "long": ("Say very much.", NOTHING),
    "nonsense": ("Answer what the protocol does not know.", NOTHING),
    "die_once": ("End the process, unless that was done before.", NOTHING),
    "arm": ("Have the next call of `fire` end the process.", NOTHING),
    "fire": ("End the process, if armed.", NOTHING),
    "echo": ("Say what is said.", NOTHING),
    "many": ("Answer with very many values.", NOTHING),
    "table": ("Answer with a text that has very many commas.", NOTHING),
    "nap": ("Answer after three seconds.", NOTHING),
    "tired": ("Hang, unless that was done before: then answer after a second and a half.", NOTHING),
    "twins": ("Answer with very many objects, of which the schema promises that no two are the same.", NOTHING),
    "untold": ("Answer with a text alone, though the schema promises more.", NOTHING),
    "progress": ("Write a bar of progress that has no end of a line to stderr.", NOTHING),
}


PROMISED = {
    "twins": {"type": "object", "properties": {"x": {"uniqueItems": True}}},
    "untold": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
}


def listed(cursor: str | None) -> dict[str, Any]:
    """Two pages of tools."""
    names = list(TOOLS)[5:] if cursor else list(TOOLS)[:5]
    tools = [
        {"name": n, "description": TOOLS[n][0], "inputSchema": TOOLS[n][1]}
        | ({"outputSchema": PROMISED[n]} if n in PROMISED else {})
        for n in names
    ]
    return {"tools": tools} if cursor else {"tools": tools, "nextCursor": "2"}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "add" if isinstance(arguments.get("a"), int) and isinstance(arguments.get("b"), int):
            return text(arguments["a"] + arguments["b"])
        case "add":
            return text("a and b must be integers", is_error=True)
        case "fail":
            return text("no luck", is_error=True)
        case "pid":
            return text(os.getpid())
        case "spawn":
            sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
            return text(subprocess.Popen([sys.executable, "-c", sleeper]).pid)
        case "environment":
            return text(",".join(sorted(os.environ)))
        case "long":
            return text("x" * 100_000)
        case "nonsense":
            return {"content": 7}
        case "echo":
            return text(json.dumps(arguments))
        case "many":
            return text("a") | {"structuredContent": {"x": [[]] * 60_000}}
        case "table":
            return text('",[{\\' * 60_000)
        case "tired" if Path(os.environ["MARK"]).exists():
            time.sleep(1.5)
            return text("awake")
        case "tired":
            Path(os.environ["MARK"]).touch()
            time.sleep(600)
            return {}
        case "twins":
            return text("different") | {"structuredContent": {"x": [{"n": n} for n in range(500)]}}
        case "untold":
            return text("plain") | ({"structuredContent": {"x": "y"}} if arguments else {})
        case "progress":
            for done in range(200):
                sys.stderr.write("#" * 50_000 + f" {done}" + arguments["end"])
            sys.stderr.write("shown\n")
            sys.stderr.flush()
            return text("done")
        case "nap":
            time.sleep(3)
            return text("awake")
        case "arm":
            armed.append(True)
            return text("armed")
        case "fire" if not armed:
            return text("click")
        case "die_once" if Path(os.environ["MARK"]).exists():
            return text("not again")
        case "die_once":
            Path(os.environ["MARK"]).touch()
            os._exit(3)
        case "die" | "fire":
            print("out of memory", file=sys.stderr, flush=True)
            os._exit(3)
        case _:
            time.sleep(600)
            return {}


def text(value: object, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(value)}], "isError": is_error}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "test", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return listed(params.get("cursor"))
    if method == "tools/call":
        return called(params["name"], params.get("arguments") or {})
    raise KeyError(method)


def serve() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        try:
            reply["result"] = answer(request["method"], request.get("params") or {})
        except KeyError:
            reply["error"] = {"code": -32601, "message": "no such method"}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "silent":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("thinking", file=sys.stderr, flush=True)
        time.sleep(600)
    elif sys.argv[1] == "junk":
        print("this is no JSON-RPC", flush=True)
    else:
        serve()
