"""Where an error may be swallowed: handlers of everything, `__exit__` that returns a truth, dropped results.

Each allow-list names a file with what it holds and why. The counts are exact: an entry that is no longer used is a
violation, as is one handler more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from itertools import chain

from tests.unit.house.source import Source

Allowed = Mapping[str, tuple[int, str]]  # path: how many, and why

HANDLERS: Allowed = {
    "agentrl/errors.py": (2, "`catch` and `acatch`: an error becomes data"),
    "agentrl/rollout/boundary.py": (1, "the boundary between an episode and code that is not ours"),
    "sandbox/agentrl_sandbox/inside/programs.py": (1, "the outermost frame of an untrusted program"),
    "envs/code/agentrl_code/inside/candidate.py": (1, "the outermost frame of an untrusted program"),
    "envs/code/agentrl_code/inside/judge.py": (1, "the outermost frame of test code"),
    "envs/code/agentrl_code/checkers.py": (1, "runs code of the task on an answer of the program"),
    "envs/code/agentrl_code/workers.py": (1, "a thread's error, raised again in the task that waits for it"),
    "adapters/reasoning_gym/agentrl_reasoning_gym/scoring.py": (1, "a scorer that fails on an answer gives 0"),
    "adapters/reasoning_gym/agentrl_reasoning_gym/session.py": (1, "a scorer that fails on an answer gives 0"),
    "envs/math/agentrl_math/worker.py": (1, "the outermost frame of the verifier's process"),
}
EXITS: Allowed = {}  # classes whose `__exit__` or `__aexit__` can return a truth, which swallows the error
CATCHES = {  # files that call `catch`, `acatch`, `catch_exit` or `within`, and what becomes of the error
    "adapters/verifiers/agentrl_verifiers/library.py": "ConfigError if a module fails; no types without hints",
    "adapters/verifiers/agentrl_verifiers/rewards.py": "an invalid signal; raised again for the rubric",
    "agentrl/algorithms/driver.py": "AlgorithmError if credit sets no array of numbers",
    "agentrl/algorithms/own_loss.py": "ConfigError if a loss cannot be imported, or takes other arguments",
    "agentrl/algorithms/rehearsal.py": "ConfigError for a mistake; what may depend on the episodes is dropped",
    "agentrl/checking/calls.py": "FailedError with the call that ended an episode",
    "agentrl/checking/canaries.py": "a task without an oracle adds no text to the flood of answers; a thought is empty",
    "agentrl/checking/check.py": "a class that cannot be made is a ConfigError with its fault",
    "agentrl/checking/contract.py": "of an episode that fails, only its task is compared here",
    "agentrl/checking/crowd.py": "FailedError with the episode among many that failed",
    "agentrl/checking/leftovers.py": "a working folder that no longer exists is named so",
    "agentrl/checking/truth.py": "another value of an option is not tried if it is refused, or no episode runs with it",
    "agentrl/checking/workshop.py": "a build that failed is not tried again: every later call raises its error",
    "agentrl/checking/running.py": "a check that raises has failed, and its text is in the report",
    "agentrl/cluster/engines.py": "the restart counts as failed: the engine is replaced again, as often as allowed",
    "agentrl/cluster/leftovers.py": "a line of the output names what failed, and the exit status is 1",
    "agentrl/cluster/reward_models.py": "invalid signals with the error of the client",
    "agentrl/cluster/ray/actors.py": "an error that cannot be copied is kept for a second answer as its text",
    "agentrl/cluster/ray/start.py": "RunError if Ray does not start, ConfigError if nothing listens at an address",
    "agentrl/config/doctor.py": "a failed check names the check that is broken",
    "agentrl/config/packing.py": "a model that does not compute without weights shows nothing: the learner loads it",
    "agentrl/env/driver/tools.py": "a tool's result has no text form: the model reads the error",
    "agentrl/env/driver/user_code.py": "the result of an author's method, which the driver judges",
    "agentrl/env/policies.py": "EnvError with the oracle or canary that raised",
    "agentrl/env/testing/rehearsal.py": "what a script raises is raised once its episode has ended",
    "agentrl/hosting/peer.py": "the error of a call, which its caller at the other side raises",
    "agentrl/hosting/serving.py": "the process ends, and nobody is left who would read it",
    "agentrl/openenv/server.py": "an error message for the client of the Task API",
    "agentrl/openenv/session.py": "an error message for the client; a failed teardown is in the answer, or in the log",
    "agentrl/planning/meta.py": "ConfigError if a model cannot be built from its config.json, or counted",
    "agentrl/plugins/blocking.py": "the failure of a check, raised again in the thread that asked for it",
    "agentrl/plugins/files.py": "ConfigError if an author's module cannot be imported",
    "agentrl/plugins/pickles.py": "ConfigError if a class cannot be pickled; annotations that name nothing stay text",
    "agentrl/plugins/tracebacks.py": "ConfigError if a plugin cannot be made, AlgorithmError if credit fails",
    "agentrl/plugins/registry.py": "ConfigError if an announced class cannot be imported",
    "agentrl/types/plain.py": "what cannot be read is stored or sent as its text",
    "agentrl/reward_models/batcher.py": "the error of the requests whose batch failed",
    "agentrl/reward_models/classifier.py": "ConfigError if the model cannot be loaded, TextError if its template fails",
    "agentrl/env/files/importing.py": "the stand-in replaces what cannot be imported; its refusals quote the error",
    "agentrl/env/files/reward_function.py": "an invalid signal with the line of the file",
    "agentrl/env/dry_run/verdict.py": "the verdict of the check before a run; data without a copy is not compared",
    "agentrl/env/comparison.py": "values that `==` or pickle cannot take are different",
    "agentrl/rollout/engine_player.py": "RoleError if the chat template refuses the messages",
    "agentrl/rollout/excuses.py": "an error that cannot say what it is says nothing",
    "agentrl/rollout/model_renderers.py": "an answer that its family's parser cannot take stays text",
    "agentrl/rollout/session.py": "the engine's error ends the episode; the agent gets that of the chat template",
    "agentrl/serving/server.py": "500 for the client, and the traceback in the log",
    "agentrl/training/inputs.py": "a length is estimated without a tokenizer",
    "tools/agentrl_tools/known_good.py": "a known-good request that fails shows that the service is down",
    "tools/agentrl_tools/mcp/connection.py": "BadCallError or ServiceError, depending on who is at fault",
    "tools/agentrl_tools/mcp/server.py": "a call repeated on a new server shows who is at fault",
    "tools/agentrl_tools/workspace/pools.py": "a pool is closed after its event loop has ended",
    "agentrl/weights/collective.py": "a send that failed is raised again once the other ranks have gathered their part",
}
_CANCELLED = "they were cancelled just before; the caller's own error goes on"
DROPPED: Allowed = {  # `gather(…, return_exceptions=True)` whose result is dropped
    "agentrl/cluster/engines.py": (1, _CANCELLED),
    "agentrl/cluster/signals.py": (1, _CANCELLED),
    "agentrl/endpoint/calls.py": (1, _CANCELLED),
    "agentrl/hosting/host.py": (1, "the worker that would read them has closed the connection"),
    "agentrl/reward_models/server.py": (1, _CANCELLED),
    "agentrl/rollout/scheduler.py": (1, _CANCELLED),
    "agentrl/rollout/session.py": (1, _CANCELLED),
    "agentrl/serving/server.py": (1, _CANCELLED),
    "agentrl/weights/publisher.py": (1, _CANCELLED),
    "agentrl/weights/transfer.py": (1, _CANCELLED),
    "sandbox/agentrl_sandbox/connections.py": (1, _CANCELLED),
    "sandbox/agentrl_sandbox/server.py": (
        1,
        "removals of sandboxes at the end of the server; `gc` removes what is left",
    ),
    "tools/agentrl_tools/http.py": (1, _CANCELLED),
    "tools/agentrl_tools/mcp/process.py": (1, _CANCELLED),
}
GUARDS = {  # what turns an error into data
    *(f"agentrl.errors.{name}" for name in ("catch", "acatch", "catch_exit")),
    *(f"{module}.within" for module in ("agentrl.env", "agentrl.env.driver.user_code")),
}


def catching_violations(files: list[Source]) -> Iterator[str]:
    """Places that swallow an error beyond what the allow-lists grant."""
    everything = _names_of_everything(files)
    for file in files:
        yield from _beyond(file, _handlers(file, everything[file.module]), HANDLERS, "catches everything")
        yield from _beyond(file, _exits(file), EXITS, "its exit can return a truth, which swallows the error")
        if file.path not in CATCHES:
            yield from (f"{file.path}:{line}: turns errors into data and is not in CATCHES" for line in _guards(file))
        yield from _beyond(file, _dropped(file), DROPPED, "drops the errors that gather returns")


def unused_grants(files: list[Source]) -> Iterator[str]:
    """Entries of the allow-lists for more than what their file holds."""
    everything = _names_of_everything(files)
    for allowed, places in (
        (HANDLERS, lambda file: _handlers(file, everything[file.module])),
        (EXITS, _exits),
        (dict.fromkeys(CATCHES, (1, "")), _guards),
        (DROPPED, _dropped),
    ):
        held = {file.path: len(places(file)) for file in files if file.path in allowed}
        for path, (count, _) in allowed.items():
            if held.get(path, 0) < count:
                yield f"{path}: {count} granted, {held.get(path, 0)} there"


def _beyond(file: Source, lines: list[int], allowed: Allowed, what: str) -> Iterator[str]:
    count, _ = allowed.get(file.path, (0, ""))
    yield from (f"{file.path}:{line}: {what}" for line in sorted(lines)[count:])


# --- handlers ---------------------------------------------------------------------------------------------------


def _handlers(file: Source, everything: set[str]) -> list[int]:
    quiet = _names_of(file, {"suppress"})
    found = []
    for node in file.nodes:
        match node:
            case ast.ExceptHandler(type=None) if not _raises_again(node):
                found.append(node.lineno)
            case ast.ExceptHandler(type=kinds) if kinds and _mentions(kinds, everything) and not _raises_again(node):
                found.append(node.lineno)
            case ast.Call(func=function, args=arguments) if _name(function) in quiet:
                if any(_mentions(argument, everything) for argument in arguments):
                    found.append(node.lineno)
    return found


def _raises_again(handler: ast.ExceptHandler) -> bool:
    """True for one that cleans up and raises: its last statement is a bare `raise`, which nothing jumps over."""
    jumps = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(handler))
    return isinstance(last := handler.body[-1], ast.Raise) and last.exc is None and not jumps


def _names_of_everything(files: list[Source]) -> dict[str, set[str]]:
    """For each module its names that hold Exception or BaseException, imported ones among them."""
    names = {file.module: _names_of(file, {"Exception", "BaseException"}) for file in files}
    is_growing = True
    while is_growing:
        is_growing = False
        for file in files:
            imported = {i.name for i in file.imports if i.name in names.get(i.module, ())} - names[file.module]
            if imported:
                names[file.module] = _names_of(file, names[file.module] | imported)
                is_growing = True
    return names


def _names_of(file: Source, names: set[str]) -> set[str]:
    """These names and every other that the file gives to what they name: `E = (Exception,)`, `import … as E`."""
    found = set(names)
    before: set[str] | None = None
    while before != found:
        before = set(found)
        found |= {alias for node in file.nodes for alias in _aliases(node, before)}
    return found


def _aliases(node: ast.AST, names: set[str]) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets, value=value) if _mentions(value, names):
            yield from filter(None, map(_name, chain.from_iterable(map(ast.walk, targets))))
        case ast.AnnAssign(target=target, value=value) if value and _mentions(value, names):
            yield _name(target)
        case ast.NamedExpr(target=target, value=value) if _mentions(value, names):
            yield _name(target)
        case ast.ImportFrom(names=imported):
            yield from (alias.asname for alias in imported if alias.name in names and alias.asname)
        case ast.arguments(args=args, defaults=defaults, kwonlyargs=keywords, kw_defaults=values):
            pairs = [*zip(reversed(args), reversed(defaults), strict=False), *zip(keywords, values, strict=True)]
            yield from (argument.arg for argument, value in pairs if value and _mentions(value, names))


def _mentions(expression: ast.AST, names: set[str]) -> bool:
    """True where the expression is one of these names or a tuple, union or copy that holds one."""
    match expression:
        case ast.Name() | ast.Attribute():
            return _name(expression) in names
        case ast.Call(func=function, args=arguments) if _name(function) in ("tuple", "Union", "partial"):
            return any(_mentions(argument, names) for argument in arguments)
        case ast.Call() | ast.Compare() | ast.Subscript():
            return False
    return any(_mentions(child, names) for child in ast.iter_child_nodes(expression))


def _name(node: ast.AST) -> str:
    """The last part of a name: `Exception` of `builtins.Exception`; "" for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


# --- exits, guards, dropped results -----------------------------------------------------------------------------


def _exits(file: Source) -> list[int]:
    """Lines of `__exit__` that can return something else than None or False, and of subclasses of `suppress`."""
    found = []
    for node in file.nodes:
        match node:
            case ast.ClassDef(bases=bases) if any(_name(base) in _names_of(file, {"suppress"}) for base in bases):
                found.append(node.lineno)
            case ast.ClassDef(body=body):
                found += [item.lineno for item in body if _is_exit(item)]
    return found


def _is_exit(item: ast.stmt) -> bool:
    names = ("__exit__", "__aexit__")
    match item:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name in names:
            returns = [node.value for node in ast.walk(item) if isinstance(node, ast.Return) and node.value]
            return any(not (isinstance(value, ast.Constant) and not value.value) for value in returns)
        case ast.Assign(targets=targets):
            return any(_name(target) in names for target in targets)
    return False


def _guards(file: Source) -> list[int]:
    """Lines that call, or hand on, what turns an error into data."""
    imported = {str(i) for i in file.imports} & GUARDS
    plain = {name.rpartition(".")[2] for name in imported}
    names = set().union(*(_names_of(file, {name}) for name in plain)) if plain else set()
    if file.path == "agentrl/errors.py":
        return []
    found = {node.lineno for node in file.nodes if isinstance(node, ast.Name) and node.id in names}
    attributes = ("catch", "acatch", "catch_exit")
    return sorted(found | {n.lineno for n in file.nodes if isinstance(n, ast.Attribute) and n.attr in attributes})


def _dropped(file: Source) -> list[int]:
    """Lines of a gather that returns exceptions into an expression statement or into `_`."""
    found = []
    for node in file.nodes:
        match node:
            case ast.Expr(value=value) | ast.Assign(targets=[ast.Name(id="_")], value=value):
                call = value.value if isinstance(value, ast.Await) else value
                keywords = call.keywords if isinstance(call, ast.Call) else []
                if any(k.arg == "return_exceptions" and getattr(k.value, "value", True) for k in keywords):
                    found.append(node.lineno)
    return found
