"""New environment packages, written from templates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from importlib.util import find_spec
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agentrl.env.registry import ENVIRONMENTS, NAME
from agentrl.errors import ConfigError
from agentrl.packaging.core_wheel import CORE, PACKAGES

TEMPLATES = {
    "single": "Tell even numbers from odd ones",
    "multi": "Remember an order that is given in two turns",
    "tools": "Tell what fruit costs, with a tool that knows the price",
    "sandbox": "Write a Python function, which is tested in a sandbox",
    "agent": "Compare two numbers, with an agent that asks twice",
    "dataset": "Answer questions from a file",
}
"""What the environment of each template is about."""
FLAGS = {"tools": " --rollout.max_tokens 32"}
"""What the embedded model needs to train in it: the call of a tool has more tokens than its replies usually get."""


@dataclass(frozen=True, slots=True)
class PackageName:
    """The name of an environment, and the names of its parts: `ada/sums` belongs to the owner `ada`."""

    owner: str
    name: str

    @classmethod
    def parse(cls, text: str) -> PackageName:
        """Parse NAME or OWNER/NAME. Raises ConfigError for a name that no package can have."""
        if not (match := NAME.fullmatch(text)):
            raise ConfigError(f"{text!r} cannot be the name of an environment: write {ENVIRONMENTS.naming}")
        return cls(match["owner"] or "", match["name"])

    @property
    def announced(self) -> str:
        """The name that `--env` takes after an installation."""
        return "/".join(self._parts)

    @property
    def distribution(self) -> str:
        """The name that `pip install` takes."""
        return "-".join(("agentrl-env", *self._parts))

    @property
    def module(self) -> str:
        """The name that `import` takes."""
        return "_".join(("agentrl", *self._parts)).replace("-", "_")

    @property
    def env_class(self) -> str:
        """The name of the environment's class."""
        return "".join(part.capitalize() for part in self.name.split("-")) + "Env"

    @property
    def _parts(self) -> tuple[str, ...]:
        return (self.owner, self.name) if self.owner else (self.name,)


def write_package(name: PackageName, template: str, folder: Path) -> list[Path]:
    """Write the package of a new environment into `folder`, which is created. Returns its files.

    Raises ConfigError if the folder contains anything, or if the module exists already: the import of one would find
    the other. So would an import of what agentrl needs, beside a folder of its name.
    """
    if folder.name in _needed():
        raise ConfigError(f"agentrl imports {folder.name}, and would find this folder instead: choose another name")
    if find_spec(name.module):
        raise ConfigError(f"a module {name.module} is installed: choose another name, or OWNER/{name.name}")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise ConfigError(f"{folder} exists: choose another name, or remove it")
    files = {folder / path: text for path, text in _files(name, template)}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)


def _needed() -> set[str]:
    """Return the names of agentrl's packages, and of the distributions and modules that it needs."""
    try:
        lines = requires(CORE) or []
    except PackageNotFoundError:  # a source tree
        lines = []
    distributions = {canonicalize_name(Requirement(line).name) for line in lines}
    modules = {
        module
        for module, owners in packages_distributions().items()
        if distributions.intersection(map(canonicalize_name, owners))
    }
    return {*PACKAGES, *distributions, *modules}


def _files(name: PackageName, template: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each file."""
    loader = PackageLoader("agentrl.packaging")
    jinja = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True)
    values = {
        "announced": name.announced, "key": f'"{name.announced}"' if name.owner else name.name,
        "distribution": name.distribution, "module": name.module, "env": name.env_class,
        "template": template, "summary": TEMPLATES[template], "flags": FLAGS.get(template, ""),
    }  # fmt: skip
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{name.module}/__init__.py": "__init__.py",
        f"{name.module}/env.py": f"{template}/env.py",
        f"tests/test_{name.name.replace('-', '_')}.py": f"{template}/test.py",
    }
    sources |= {f"{name.module}/questions.jsonl": "dataset/questions.jsonl"} if template == "dataset" else {}
    for path, source in sources.items():
        yield path, jinja.get_template(f"{source}.jinja").render(values)
    yield f"{name.module}/py.typed", ""
