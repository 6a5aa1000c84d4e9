"""The report is one file without network and script, and all text in it stays text."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from agentrl.config.schema import Config, TrackSection
from agentrl.metrics.step import PhaseSeconds, StepRecord
from agentrl.metrics.trackers import Metrics
from agentrl.records.conservation import ConservationResult
from agentrl.records.folder import RunFolder
from agentrl.records.jsonl import write_atomic
from agentrl.records.ledger import Ledger, State
from agentrl.records.manifest import FileHash, PluginSource, read_manifest
from agentrl.records.store import TrajectoryStore
from agentrl.report import summary
from agentrl.report.charts import Bars, Series, histogram, lines, number, running_mean, stacked, ticks
from agentrl.report.html import POLICY, picks, templates, write_report
from agentrl.report.transcript import Decode, decoder, transcript
from agentrl.report.words import visible
from agentrl.types import Message, Signal, ToolCall, Trajectory
from tests.tiny import tiny_tokenizer
from tests.unit.records.synthetic import learner_report, request, synthetic_run, trajectory, with_tool

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Every element, attribute and text of a page; elements must close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def transcribed(trajectory: Trajectory, decode: Decode | None = None) -> str:
    """The inside of a trajectory as the report shows it."""
    parts = templates().get_template("parts.html.jinja").module
    return str(parts.transcript(transcript(trajectory, decode)))  # type: ignore[attr-defined]


def decode(ids: Sequence[int]) -> list[str]:
    return [chr(token) for token in ids]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = synthetic_run(tmp_path_factory.mktemp("run"))
    write_report(folder, decode)
    return folder


@pytest.fixture(scope="module")
def text(run: RunFolder) -> str:
    return run.report.read_text()


@pytest.fixture(scope="module")
def whole(text: str) -> Page:
    return Page(text)


def test_every_element_is_closed_and_every_part_is_there(whole: Page) -> None:
    assert whole.open == []
    anchors = {value for name, value in whole.attributes if name == "id"}
    assert {"learning", "speed", "staleness", "samples", "trajectories", "provenance"} <= anchors
    links = {value.removeprefix("#") for name, value in whole.attributes if name == "href"}
    assert links <= anchors


def test_it_loads_nothing_from_outside(whole: Page, text: str) -> None:
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form", "video", "audio"} & set(
        whole.tags
    )
    names = {name for name, _ in whole.attributes}
    assert not {"src", "srcset", "action", "data", "xlink:href"} & names
    assert not [name for name in names if name.startswith("on")]
    assert all(value.startswith("#") for name, value in whole.attributes if name == "href")
    assert not [value for _, value in whole.attributes if re.search("https?:|//|javascript:|url\\(", value)]
    style = text[text.index("<style>") : text.index("</style>")]
    assert not re.search(r"url\(|@import|https?:", style)


def test_the_browser_refuses_script_and_network(whole: Page) -> None:
    assert ("content", POLICY) in whole.attributes
    assert POLICY.startswith("default-src 'none'")


def test_what_a_model_wrote_is_text(whole: Page, text: str) -> None:
    assert "<script>alert('model output')</script> & done" in whole.texts
    assert "<script" not in text


def test_what_a_token_says_is_text() -> None:
    episode = trajectory(0, 0, text="ab")
    inside = Page(transcribed(episode, lambda ids: ["<script>alert(1)</script>"] * len(ids)))
    assert "script" not in inside.tags
    assert inside.texts.count("<script>alert(1)</script>") == 2


HOSTILE = "</pre></style><script>alert(1)</script>' onload='x' \" onclick=\"y <img src=x> & {{ 7 * 7 }}{% raw %}\u202e"


def test_hostile_text_stays_text_wherever_it_comes_from(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "<script>x<", 2)
    store, ledger = TrajectoryStore(folder.trajectories), Ledger(folder.ledger)
    call: ToolCall = {"function": {"name": HOSTILE, "arguments": {HOSTILE: HOSTILE}}}
    messages: tuple[Message, ...] = (
        {"role": HOSTILE, "content": HOSTILE},  # type: ignore[typeddict-item]
        {"role": "user", "content": [{"type": "text", "text": HOSTILE}, {"type": "image", "image": HOSTILE}]},
        {"role": "assistant", "content": "", "reasoning_content": HOSTILE, "tool_calls": [call]},
    )
    signals = (Signal(HOSTILE, 9.0, evidence={HOSTILE: HOSTILE}), Signal.invalid(HOSTILE, HOSTILE, weight=0.0))
    episode = trajectory(99, 0, text=HOSTILE)
    episode = dataclasses.replace(episode, messages=messages, signals=signals, error=HOSTILE, traceback=HOSTILE)
    episode = dataclasses.replace(episode, task_id=HOSTILE, success=Signal(HOSTILE, 1.0, weight=0.0, reason=HOSTILE))
    ledger.dispatched([request(episode.sample)])
    store.append([episode])
    ledger.finished([episode])
    ledger.settle([(episode.sample, 0)], State.FILTERED, HOSTILE)
    ledger.close()
    store.close()
    folder.config.write_text(HOSTILE)
    steps = folder.metrics.read_text()
    folder.metrics.write_text(steps.replace('"signals":{}', '"signals":' + json.dumps({HOSTILE: 1.0, "b": 2.0})))
    law = ConservationResult((HOSTILE,))
    done = summary.read(folder)
    assert done is not None
    summary.write(folder, dataclasses.replace(done, ended=HOSTILE, conservation=law, start_parts={HOSTILE: 1.0}))
    made = read_manifest(folder)
    assert made is not None
    env = PluginSource(HOSTILE, "", HOSTILE, HOSTILE)
    made = dataclasses.replace(
        made, env=env, python=HOSTILE, packages={HOSTILE: HOSTILE}, data=(FileHash(HOSTILE, 1, ""),)
    )
    write_atomic(folder.manifest, msgspec.json.encode(made))
    text = write_report(folder, lambda ids: [HOSTILE] * len(ids)).read_text()
    page = Page(text)
    assert page.open == []
    assert not {"script", "img"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert sum(visible(HOSTILE) in shown for shown in page.texts) > 30
    assert "\u202e" not in text


def test_charts_are_well_formed_and_have_words(text: str) -> None:
    pictures = re.findall("<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(pictures) >= 12
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.get("role") == "img"
        assert ": " in (root.get("aria-label") or "")
    assert "Held-out score: pass@8 from" in text


def test_it_is_light_and_dark(text: str) -> None:
    light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
    for name in ("--page", "--card", "--ink", "--blue", "--green", "--amber", "--violet", "--red"):
        assert f"{name}:" in light
        assert f"{name}:" in dark[:700]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two #rrggbb colours."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    bright, dim = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_text_and_curves_stand_out_from_their_background(text: str) -> None:
    light, _, dark = text.partition("@media (prefers-color-scheme: dark)")
    for theme in (light, dark[:900]):
        colours = dict(re.findall(r"(--\w+): (#[0-9a-f]{6})", theme))
        for name in ("--ink", "--soft", "--faint", "--good", "--bad"):
            assert contrast(colours[name], colours["--card"]) >= 4.5, name
        for name in ("--blue", "--green", "--amber", "--violet", "--red", "--gray"):
            assert contrast(colours[name], colours["--card"]) >= 3, name


def test_the_figures_of_the_ledger_are_there(run: RunFolder, whole: Page) -> None:
    ledger = Ledger(run.ledger, is_read_only=True)
    counts = ledger.counts()
    ledger.close()
    for count in (counts.dispatched, counts.trained, counts.stale, counts.invalid):
        assert str(count) in whole.texts
    assert "older than 2 updates" in whole.texts
    assert "holds" in whole.texts


def test_tokens_show_the_version_that_sampled_them(whole: Page) -> None:
    titles = [value for name, value in whole.attributes if name == "title" and "logprob" in value]
    assert len({title.partition(",")[0] for title in titles}) >= 3
    assert re.fullmatch(r"0\.\d+, logprob -\d\.\d{3}, id \d+", titles[0])


def test_a_run_that_just_began_has_a_report(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    Ledger(folder.ledger).begin_incarnation()
    page = Page(write_report(folder).read_text())
    assert "This run has not ended." in " ".join(page.texts)
    assert page.open == []


def test_a_long_run_stays_small(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    Ledger(folder.ledger).begin_incarnation()
    metrics = Metrics(folder, Config(track=TrackSection(tensorboard=False)))
    for step in range(1, 5001):
        report = learner_report(step, random.Random(step))
        metrics.step(StepRecord(step, f"0.{step}", 1e9, 0.5, 0.5, 64, report, PhaseSeconds(2.0, 3.0, 1.0)))
    metrics.close()
    assert write_report(folder).stat().st_size < 1_500_000


def test_a_character_of_several_tokens_is_shown_with_the_last_of_them(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    decode = decoder(tmp_path)
    ids = tokenizer.encode("≈ 1€")
    assert len(decode(ids)) == len(ids) > 6
    assert [text for text in decode(ids) if text] == ["≈", " 1", "€"]
    assert decode(ids)[0] == ""
    assert decode(ids[:2]) == ["", "\ufffd"]


def test_tool_calls_are_shown_with_their_results() -> None:
    page = Page(transcribed(with_tool(trajectory(0, 0))))
    assert 'calculator({"it": "6 * 7"})' in page.texts
    assert "<42> & no more" in page.texts
    assert ("class", "message tool") in page.attributes


def test_an_episode_is_shown_once_though_it_is_best_and_last(run: RunFolder) -> None:
    ledger = Ledger(run.ledger, is_read_only=True)
    chosen = picks(list(ledger.rows()))
    ledger.close()
    assert len({(row.sample, row.attempt) for _, row in chosen}) == len(chosen)
    assert {name for names, _ in chosen for name in names.lower().split(", ")} == {
        "best", "worst", "first", "last", "stale", "invalid",
    }  # fmt: skip


def test_ticks_are_round_and_cover_the_data() -> None:
    for low, high in ((0.0, 1.0), (0.07, 0.83), (-3.0, 12.0), (2e-5, 2e-5), (0.0, 0.0), (1e6, 3.3e6)):
        marks = ticks(low, high)
        assert marks[0] <= low + 1e-12
        assert marks[-1] >= high - 1e-12
        assert 2 <= len(marks) <= 8
    assert ticks(0.0, 1.0) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_a_chart_of_nothing_or_of_one_point_is_drawn() -> None:
    nan = float("nan")
    for series in (
        Series("a", [], []),
        Series("a", [1], [2.0]),
        Series("a", [1, 2], [nan, nan]),
        Series("a", [1], [0]),
    ):
        ElementTree.fromstring(lines([series], "nothing"))
    ElementTree.fromstring(stacked([], [], "nothing"))
    ElementTree.fromstring(stacked([Bars("a", [1.0])], [3], "one"))
    ElementTree.fromstring(histogram(["0"], Bars("a", [0]), "zero"))


def test_smoothing_keeps_straight_lines_straight() -> None:
    assert running_mean([1.0, 2.0, 3.0, 4.0, 5.0], 3) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_numbers_are_as_short_as_they_can_be_read() -> None:
    assert [number(v) for v in (0, 1234, 12.345, 0.1234, 2e-5, 3.0, 12_345_678)] == [
        "0", "1,234", "12.3", "0.123", "2e-05", "3", "12.35 M",
    ]  # fmt: skip


def test_the_seconds_of_a_resumed_run_are_those_since_the_resume(tmp_path: Path) -> None:
    folder = synthetic_run(tmp_path / "run", steps=2)
    assert " in total, " in write_report(folder).read_text()
    result = summary.read(folder)
    assert result is not None
    summary.write(folder, dataclasses.replace(result, incarnations=2))
    text = write_report(folder).read_text()
    assert " since the last resume, " in text
    assert " in total, " not in text
