"""What a run is made of is written down when it begins, and told when it goes on with something else."""

from __future__ import annotations

from pathlib import Path

from agentrl.config.schema import Config
from agentrl.env import resolve
from agentrl.records.folder import RunFolder
from agentrl.training.inputs import RunInputs

SOURCE = """
from agentrl.env import Env, Task
class Mine(Env):
    def tasks(self, split): return [Task("a")]
    def setup(self, task, ctx): return []
"""


def test_a_run_that_goes_on_with_another_source_says_which(tmp_path: Path) -> None:
    source, data, model = tmp_path / "mine.py", tmp_path / "rows.jsonl", tmp_path / "model"
    source.write_text(SOURCE)
    data.write_text("{}")
    model.mkdir()
    (model / "config.json").write_text("{}")
    config = Config.model_validate({"env": {"name": str(source), "files": [str(data)]}})
    inputs, run = RunInputs(resolve(str(source)), model, ""), RunFolder(tmp_path)
    assert inputs.write_manifest(config, run) == ""
    assert inputs.write_manifest(config, run) == ""
    source.write_text(SOURCE + "# another\n")
    data.write_text("[]")
    note = inputs.write_manifest(config, run)
    assert note == "Changed since the run started: source: mine.py; data: rows.jsonl."
    assert (tmp_path / "manifest-1.json").is_file()
