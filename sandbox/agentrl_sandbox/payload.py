"""The warden's code as it is sent into a sandbox, and the bootstrap that receives it."""

from __future__ import annotations

import marshal
from functools import cache
from pathlib import Path

# Each module imports only earlier ones.
MODULES = ("wire", "kernel", "child", "files", "proc", "tree", "programs", "job", "warden")
PACKAGE = "agentrl_sandbox.inside"

# Garbage collection skips the loaded code, here and in forks (gc.freeze).
# Reads blocks (length, bytes) from stdin, the channel: pairs of a module's name and code, then an empty name.
BOOTSTRAP = """
import gc, marshal, os, sys
gc.disable()
def take(count):
    found = b""
    while len(found) < count:
        part = os.read(0, count - len(found))
        if not part:
            os._exit(0)
        found += part
    return found
def block():
    return take(int.from_bytes(take(4), "big"))
for name in ("agentrl_sandbox", "agentrl_sandbox.inside"):
    sys.modules[name] = type(sys)(name)
while name := block().decode():
    module = type(sys)("agentrl_sandbox.inside." + name)
    sys.modules[module.__name__] = module
    setattr(sys.modules["agentrl_sandbox.inside"], name, module)
    code = block()
    exec(marshal.loads(code) if code[0] in (0x63, 0xE3) else compile(code, name, "exec"), module.__dict__)
gc.freeze()
gc.enable()
sys.modules["agentrl_sandbox.inside.warden"].main(0, 1)
"""


@cache
def warden_code(is_compiled: bool) -> bytes:
    """Return all modules of the warden: compiled if the sandbox has the same Python, else as source."""
    blocks = []
    for name in MODULES:
        source = (Path(__file__).parent / "inside" / f"{name}.py").read_bytes()
        code = marshal.dumps(compile(source, f"<{PACKAGE}.{name}>", "exec")) if is_compiled else source
        blocks += [name.encode(), code]
    return b"".join(len(block).to_bytes(4, "big") + block for block in [*blocks, b""])
