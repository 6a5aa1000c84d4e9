"""Data files are read as they are, and every fault names its place."""

import json

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from agentrl_math.data import Source, is_held_out

from agentrl.errors import ConfigError, DataError

GSM8K = [
    {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
    {"question": "One and a thousand?", "answer": "easy\n#### 1,001"},
]
MATH = [{"problem": "Halve 1.", "solution": r"It is $\boxed{\frac12}$.", "answer": r"\frac{1}{2}", "level": 1}]


def jsonl(path, rows):
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return Source(str(path))


def test_gsm8k_and_math_columns_are_understood(tmp_path):
    rows = jsonl(tmp_path / "gsm8k.jsonl", GSM8K).rows()
    assert [(row.location, row.question, row.answer) for row in rows] == [
        ("gsm8k.jsonl:1", "Two and two?", GSM8K[0]["answer"]),
        ("gsm8k.jsonl:2", "One and a thousand?", GSM8K[1]["answer"]),
    ]
    assert jsonl(tmp_path / "math.jsonl", MATH).rows()[0].answer == r"\frac{1}{2}"
    without = [{key: MATH[0][key] for key in ("problem", "solution")}]
    assert jsonl(tmp_path / "solved.jsonl", without).rows()[0].answer == MATH[0]["solution"]


def test_json_and_parquet_hold_the_same_rows(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(GSM8K))
    parquet.write_table(arrow.Table.from_pylist(GSM8K), tmp_path / "a.parquet")
    texts = [[(r.question, r.answer) for r in Source(str(tmp_path / name)).rows()] for name in ("a.json", "a.parquet")]
    assert texts[0] == texts[1] == [(row["question"], row["answer"]) for row in GSM8K]


def test_other_columns_go_by_name_and_numbers_are_golds(tmp_path):
    path = jsonl(tmp_path / "a.jsonl", [{"input": "6*7?", "target": 42}, {"input": "1/4?", "target": 0.25}]).name
    rows = Source(path, question_column="input", answer_column="target").rows()
    assert [row.answer for row in rows] == ["42", "0.25"]


def test_a_line_that_does_not_parse_is_named(tmp_path):
    with pytest.raises(DataError, match=r"a\.jsonl, line 3: not JSON.*begins with '\{\"question\": oops"):
        jsonl(tmp_path / "a.jsonl", [GSM8K[0], "", '{"question": oops}']).rows()
    with pytest.raises(DataError, match="line 2: must be an object"):
        jsonl(tmp_path / "b.jsonl", [GSM8K[0], "[1]"]).rows()
    (tmp_path / "c.jsonl").write_bytes(b'{"question": "\xff\xfe"')
    with pytest.raises(DataError, match="line 1"):
        Source(str(tmp_path / "c.jsonl")).rows()


def test_missing_columns_are_named_with_the_nearest(tmp_path):
    source = jsonl(tmp_path / "a.jsonl", [{"quest": "?", "gold": "1"}])
    with pytest.raises(DataError, match="the columns are quest, gold; choose one with env"):
        source.rows()
    with pytest.raises(ConfigError, match="Did you mean 'quest'"):
        Source(source.name, question_column="qest", answer_column="gold").rows()
    late = jsonl(tmp_path / "b.jsonl", [GSM8K[0], {"question": "?"}])
    with pytest.raises(DataError, match=r"b\.jsonl:2: has no 'answer'"):
        late.rows()


def test_missing_empty_and_strange_files_are_errors(tmp_path):
    jsonl(tmp_path / "train.jsonl", GSM8K)
    with pytest.raises(DataError, match=r"no such file\. Did you mean .*train\.jsonl"):
        Source(str(tmp_path / "trian.jsonl")).rows()
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="there are no rows"):
        Source(str(tmp_path / "empty.jsonl")).rows()
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(DataError, match="not a Parquet file"):
        Source(str(tmp_path / "a.parquet")).rows()
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(DataError, match="list of objects"):
        Source(str(tmp_path / "a.json")).rows()
    (tmp_path / "a.csv").write_text("a,b")
    with pytest.raises(DataError, match="must end in one of"):
        Source(str(tmp_path / "a.csv")).rows()


def test_rows_without_a_gradable_gold_are_counted_and_left_out(tmp_path, caplog):
    rows = [*GSM8K, {"question": "?", "answer": ""}, {"question": "?", "answer": None}]
    assert len(jsonl(tmp_path / "a.jsonl", rows).rows()) == 2
    assert "2 of 4 rows cannot be graded, for example a.jsonl:3" in caplog.text
    with pytest.raises(DataError, match="1 of 1 rows"):
        jsonl(tmp_path / "b.jsonl", [{"question": "?", "answer": ""}]).rows()


def test_a_dataset_id_needs_datasets_and_says_so(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(DataError, match="pip install datasets"):
        Source("owner/name").rows()


def test_a_dataset_id_is_read_through_datasets(monkeypatch):
    calls = []

    class Fake:
        class exceptions:  # noqa: N801
            DatasetsError = RuntimeError

        @staticmethod
        def load_dataset(name, subset, split):
            calls.append((name, subset, split))
            if name == "no/such":
                raise ValueError("not found")
            return GSM8K

    monkeypatch.setitem(__import__("sys").modules, "datasets", Fake)
    assert len(Source("openai/gsm8k", subset="main").rows()) == 2
    assert calls == [("openai/gsm8k", "main", "train")]
    with pytest.raises(DataError, match="neither a file nor a loadable dataset"):
        Source("no/such").rows()


def test_the_held_out_share_is_a_share_and_ignores_spacing():
    held = [is_held_out(f"question {i}", 0.2) for i in range(2000)]
    assert 300 < sum(held) < 500
    assert is_held_out("a  b\n", 0.5) == is_held_out("a b", 0.5)
