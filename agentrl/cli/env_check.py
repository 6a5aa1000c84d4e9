"""`agentrl env check NAME|PATH`: check an environment and say what to fix."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.checking.apart import results as run_apart
from agentrl.checking.catalogue import checks_of
from agentrl.checking.check import WITHOUT_MODEL, Level, Result
from agentrl.checking.process import Request
from agentrl.checking.report import as_json, as_junit, folded, lines, summary
from agentrl.cli.elsewhere import interpreter
from agentrl.cli.flags import Parser, own_options, path
from agentrl.config.loading import load, of_flags
from agentrl.errors import ConfigError, RunError
from agentrl.hosting.interpreter import Process
from agentrl.types import TRAIN

MEANING = """\
Check an environment level by level. Exit code 0: every check passed or does not apply; 1: a check failed or is
unknown; 2: the command cannot be executed as given. Options of the environment are given as --env.KEY VALUE. The level
learnability samples training tasks with a model, in processes of its own, as --eval.*, --rollout.*, --model.* and
--engine.* say."""
SECTIONS = ("env", "eval", "rollout", "model", "engine")
SAMPLING = {"eval.tasks": "16", "eval.samples": "8", "eval.temperature": "1", "rollout.episode_timeout_s": "120"}
"""What the level learnability samples, unless flags say otherwise."""
Pairs = list[tuple[str, str]]
MODULE = "agentrl.checking.process"


def run(words: list[str]) -> int:
    """Run the checks, print their results, and write the reports."""
    own, pairs = own_options(words, SECTIONS)
    given = _parser().parse_args(own)
    model = [] if given.model is None else [("model", given.model)]
    levels = frozenset(map(Level, given.level or (Level if model else WITHOUT_MODEL)))
    of_env = [pair for pair in pairs if pair[0].startswith("env.")]
    of_model = [*model, *(pair for pair in pairs if pair not in of_env)]
    if given.clean and Level.PACKAGE not in levels:
        raise ConfigError(f"--clean has no effect without --level {Level.PACKAGE}")
    if of_model and Level.LEARNABILITY not in levels:
        raise ConfigError(f"--{of_model[0][0]} has no effect without --level {Level.LEARNABILITY}")
    env, *others = load(None, of_flags([("env", given.environment), *of_env])).env
    if others:
        raise ConfigError(f"{given.environment} names several environments: check one environment at a time")
    python = interpreter(env)
    if python and Level.LEARNABILITY in levels:
        raise ConfigError(
            f"the level {Level.LEARNABILITY} needs engines, which {python} does not have: leave the level out, and "
            f"sample the environment with `agentrl eval --env {env.name} --env.python {python}`"
        )
    process = Process.of(python, MODULE)
    flags = [("env", given.environment), *of_env, *SAMPLING.items(), *of_model]
    results: list[Result] = []
    request = Request(env.name, env.options, (), given.clean)
    for same in folded(_results(request, process, levels, flags, is_quiet=given.json)):
        if not given.json:
            _print(same, results)
        results += same
    print(json.dumps(as_json(given.environment, results), indent=2) if given.json else f"\n{summary(results)}")
    if given.junit:
        _write(given.junit, as_junit(given.environment, results))
    return int(not all(result.status.is_fine for result in results))


def _results(
    request: Request, process: Process, levels: frozenset[Level], flags: Pairs, *, is_quiet: bool
) -> Iterator[Result]:
    without = replace(request, checks=_names(levels & WITHOUT_MODEL))
    yield from run_apart(without, process.command, process.variables, _tell)
    if Level.LEARNABILITY in levels:
        with TemporaryDirectory(prefix="agentrl-learnability-") as scratch:
            with redirect_stdout(sys.stderr) if is_quiet else nullcontext():
                samples = _sample(flags, Path(scratch) / "run")
            of_model = replace(request, checks=_names(frozenset({Level.LEARNABILITY})), episodes=str(samples))
            yield from run_apart(of_model, process.command, process.variables)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _names(levels: frozenset[Level]) -> list[str]:
    return [check.name for check in checks_of(levels)]


def _sample(flags: Pairs, out: Path) -> Path:
    """Sample training tasks with a model, as an evaluation does. Returns the folder of the episodes.

    Raises RunError if the engines or workers fail.
    """
    from agentrl.records.folder import RunFolder
    from agentrl.training.eval_config import evaluation_config
    from agentrl.training.launch import evaluate

    folder = RunFolder(out)
    config = evaluation_config(None, of_flags([*flags, ("out", str(out))]))
    try:
        evaluate(config, split=TRAIN)
    except RunError:
        if not folder.evaluated_steps():
            raise  # with episodes, the error is that none of them counts, which a check says
    return folder.evaluated(0)


def _print(same: list[Result], before: list[Result]) -> None:
    """Print one result, or those with the same reason, below the name of their level if they are the first of it."""
    level = same[0].check.level
    if not before or before[-1].check.level is not level:
        print(f"{chr(10) if before else ''}{level}")
    print(*(f"  {line}" for line in lines(same)), sep="\n", flush=True)


def _write(file: Path, report: bytes) -> None:
    try:
        file.write_bytes(report)
    except OSError as error:
        raise ConfigError(f"--junit {file}: cannot be written: {error}") from error


def _parser() -> Parser:
    parser = Parser(prog="agentrl env check", description=MEANING)
    parser.add_argument("environment", metavar="NAME|PATH", help="a name, a file, file.py:Class, or a folder")
    parser.add_argument(
        "--level",
        action="append",
        choices=[str(level) for level in Level],
        help="run this level only; may be given repeatedly",
    )
    parser.add_argument(
        "--model", metavar="MODEL", help="also run the level learnability, with this model (default: that of training)"
    )
    parser.add_argument(
        "--clean", action="store_true", help="install the package also from an index, with all that it depends on"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--junit", type=path, metavar="FILE", help="also write the report as JUnit XML")
    return parser
