"""The program is taken from where it stands."""

import pytest
from agentrl_code.extract import defines, extract
from hypothesis import given, settings
from hypothesis import strategies as st

A, B = "def f(x):\n    return 1\n", "def f(x):\n    return 2\n"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        (f"Here:\n```python\n{A}```\nDone.", A),
        (f"```python\n{A}```\nBetter:\n```python\n{B}```", B),
        (f"```py\n{A}```", A),
        (f"```Python3\n{A}```", A),
        (f"```\n{A}```", A),
        (f"```python\n{A}```\n```\noutput 5\n```", A),
        (f"```python\n{A}```\n```text\n{B}```", A),
        (f"```python\n{A}```\n```python\n```", A),
        (f"```python\n{A}", A),
        (f"  ```python\n{A}  ```", A),
        (A, A),
        (f"<think>```python\n{A}```</think>```python\n{B}```".replace("</think>", "</think>\n"), B),
        (f"<think>hm</think>{A}", A),
        (f"thinking without a beginning</think>\n{A}", f"\n{A}"),
        (f"<think>```python\n{A}```", None),
        (f"<think>\n</think>\n<think>```python\n{A}```", None),
        (f"<think>\n```python\n{A}```\n</think>", None),
        ("", None),
        ("I am not sure.", None),
        ("sure", None),
        ("5", None),
        ("```text\nx = 1\n```", None),
        ("x = 1", "x = 1"),
        ("1. So:\n   ```python\n   def f(x):\n\n       return 1\n   ```\n", "def f(x):\n\n    return 1\n"),
        (f"- So:\n\t```python\n\tx = 1\n\t```\n\n```text\n{A}```", "x = 1\n"),
        ("```python\nx = '<think>'\n```", "x = '<think>'\n"),
        ("x = '<think>'", "x = '<think>'"),
        (f"```python\n{A}```\nor <think> hm", None),
        (f"so <think>\n```python\n{A}```", None),
        (f"~~~python\n{A}~~~", A),
        (f"~~~~python\n{A}~~~~\n", A),
        ('~~~python\ns = """\n```\n"""\n~~~', 's = """\n```\n"""\n'),
        (f"```python\n{A.rstrip()}```", A),
        (f"```python\n{A.rstrip()}``` \nIt works.", A),
    ],
)
def test_the_last_python_block_or_the_whole_text(text, program):
    assert extract(text) == program


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_it(text):
    assert extract(text) is None or isinstance(extract(text), str)


def test_what_a_program_defines():
    assert defines("f = lambda: 1", "f")
    assert defines("class f: pass", "f")
    assert defines("if True:\n    f = 1", "f")
    assert not defines("def g():\n    def f(): pass", "f")
    assert not defines("def f(", "f")
