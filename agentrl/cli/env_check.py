"""`agentrl env check NAME|PATH`: check an environment and say what to fix."""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from agentrl.checking.catalogue import checks_of
from agentrl.checking.check import WITHOUT_MODEL, Level, Result, Status, Subject
from agentrl.checking.report import as_json, as_junit, lines, summary
from agentrl.checking.running import run_checks
from agentrl.cli.elsewhere import interpreter, run_there
from agentrl.cli.flags import Parser, own_options, path
from agentrl.config.loading import load, of_flags
from agentrl.errors import ConfigError, RunError
from agentrl.types import TRAIN, Trajectory

MEANING = """\
Check an environment level by level. Exit code 0: every check passed or does not apply; 1: a check failed; 2: the
command cannot be executed as given. Options of the environment are given as --env.KEY VALUE. The level learnability
samples training tasks with a model, in processes of its own, as --eval.*, --rollout.*, --model.* and --engine.* say."""
SECTIONS = ("env", "eval", "rollout", "model", "engine")
SAMPLING = {"eval.tasks": "16", "eval.samples": "8", "eval.temperature": "1", "rollout.episode_timeout_s": "120"}
"""What the level learnability samples, unless flags say otherwise."""
Pairs = list[tuple[str, str]]
SPARE_S = 20.0
"""Time beyond that of a check after which this process ends."""
CHECK_S = 4 * 3600.0
"""Longest check in another interpreter: the tests of a package alone may take half of it."""


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
    if python := interpreter(env):
        if Level.LEARNABILITY in levels:
            raise ConfigError(
                f"the level {Level.LEARNABILITY} needs engines, which {python} does not have: leave the level out, and "
                f"sample the environment with `agentrl eval --env {env.name} --env.python {python}`"
            )
        return run_there(python, "check", words, CHECK_S)
    subject = replace(Subject.named(env.name, env.options), is_clean=given.clean)
    flags = [("env", given.environment), *of_env, *SAMPLING.items(), *of_model]
    results: list[Result] = []
    for result in _results(subject, levels, flags, is_quiet=given.json):
        if not given.json:
            _print(result, results)
        results.append(result)
    print(json.dumps(as_json(given.environment, results), indent=2) if given.json else f"\n{summary(results)}")
    if given.junit:
        _write(given.junit, as_junit(given.environment, results))
    return int(any(result.status is Status.FAILED for result in results))


def _results(subject: Subject, levels: frozenset[Level], flags: Pairs, *, is_quiet: bool) -> Iterator[Result]:
    try:
        yield from run_checks(subject, checks_of(levels & WITHOUT_MODEL), _watch)
    finally:
        faulthandler.cancel_dump_traceback_later()
    if Level.LEARNABILITY in levels:
        with redirect_stdout(sys.stderr) if is_quiet else nullcontext():
            episodes = _sampled(flags)
        yield from run_checks(replace(subject, episodes=episodes), checks_of(frozenset({Level.LEARNABILITY})))


def _watch(most_s: float) -> None:
    """End this process, with the lines in which its threads are, if a check holds the interpreter beyond its deadline.

    A pattern of `re` that backtracks for ever does: no thread runs meanwhile, and no signal is handled.
    """
    faulthandler.dump_traceback_later(most_s + SPARE_S, exit=True, file=sys.__stderr__ or sys.stderr)


def _sampled(flags: Pairs) -> tuple[Trajectory, ...]:
    """Sample training tasks with a model, as an evaluation does. Raises RunError if the engines or workers fail."""
    from agentrl.records.folder import RunFolder
    from agentrl.records.store import scan
    from agentrl.training.eval_config import evaluation_config
    from agentrl.training.launch import evaluate

    with TemporaryDirectory(prefix="agentrl-learnability-") as scratch:
        folder = RunFolder(Path(scratch) / "run")
        config = evaluation_config(None, of_flags([*flags, ("out", str(folder.path))]))
        try:
            evaluate(config, split=TRAIN)
        except RunError:
            if not folder.evaluated_steps():
                raise  # with episodes, the error is that none of them counts, which a check says
        return tuple(scan(folder.evaluated(0)))


def _print(result: Result, before: list[Result]) -> None:
    """Print one result, below the name of its level if it is the first of it."""
    if not before or before[-1].check.level is not result.check.level:
        print(f"{chr(10) if before else ''}{result.check.level}")
    print(*(f"  {line}" for line in lines(result)), sep="\n", flush=True)


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
