"""Our code as it is sent into a sandbox: compiled if the sandbox has the same Python, else as source."""

import binascii
import marshal
import sys
from functools import cache
from pathlib import Path

_BOTH = ("values", "inside.channel", "inside.trace")
MODULES = {
    "candidate": (*_BOTH, "inside.candidate"),
    "judge": (
        *_BOTH,
        *(f"inside.{name}" for name in ("errors", "arguments", "references", "trust", "standins", "judge")),
    ),
}
"""Each module imports only earlier ones."""

_CELL = """
import binascii, marshal, sys
for name, text, code in marshal.loads(binascii.a2b_base64({modules})):
    module = sys.modules[name] = type(sys)(name)
    is_ours = sys.implementation.cache_tag == {tag!r}
    exec(marshal.loads(code) if is_ours else compile(text, name, "exec"), module.__dict__)
"""


@cache
def cell(side: str) -> str:
    """Return the source that loads the `candidate` or the `judge` into an interpreter, under that name."""
    modules = [_module(name) for name in MODULES[side]]
    packages = [
        (name, "", marshal.dumps(compile("", name, "exec"))) for name in ("agentrl_code", "agentrl_code.inside")
    ]
    source = _CELL.format(
        modules=binascii.b2a_base64(marshal.dumps([*packages, *modules]), newline=False),
        tag=sys.implementation.cache_tag,
    )
    return f"{source}import agentrl_code.inside.{side}\n{side} = sys.modules['agentrl_code.inside.{side}']\n"


def _module(name: str) -> tuple[str, str, bytes]:
    text = Path(__file__).parent.joinpath(*name.split(".")).with_suffix(".py").read_text()
    return f"agentrl_code.{name}", text, marshal.dumps(compile(text, f"<agentrl_code.{name}>", "exec"))
