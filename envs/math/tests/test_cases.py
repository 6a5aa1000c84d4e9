"""The verifier says of every case what is true of it."""

import cases
import cases_text as texts
import pytest
from agentrl_math import Status, verify


def boxed(table):
    return [pytest.param(*row, id=f"{kind}-{i}") for kind, rows in table.items() for i, row in enumerate(rows)]


@pytest.mark.parametrize(("answer", "gold"), boxed(cases.EQUAL) + boxed(texts.EQUAL))
def test_equal_answers_are_correct(answer, gold):
    assert verify(rf"So it is $\boxed{{{answer}}}$.", gold).status == "correct"


@pytest.mark.parametrize(("answer", "gold"), boxed(cases.UNEQUAL) + boxed(texts.UNEQUAL))
def test_other_answers_are_incorrect(answer, gold):
    assert verify(rf"So it is $\boxed{{{answer}}}$.", gold).status == "incorrect"


@pytest.mark.parametrize(("response", "gold", "status"), cases.RESPONSES, ids=range(len(cases.RESPONSES)))
def test_the_answer_is_looked_for_where_it_stands(response, gold, status):
    assert verify(response, gold).status == status


@pytest.mark.parametrize(("response", "gold", "statuses"), texts.RESPONSES, ids=range(len(texts.RESPONSES)))
def test_a_number_that_its_sentence_changes_is_not_taken(response, gold, statuses):
    assert verify(response, gold).status in statuses


@pytest.mark.parametrize(("response", "gold", "policy", "status"), cases.POLICIES, ids=range(len(cases.POLICIES)))
def test_every_policy_is_read(response, gold, policy, status):
    assert verify(response, gold, **policy).status == status


@pytest.mark.parametrize(("answer", "gold"), boxed(cases.EQUAL) + boxed(texts.EQUAL))
def test_an_answer_is_equal_to_itself(answer, gold):
    assert verify(rf"\boxed{{{gold}}}", gold).status == "correct"


def test_there_are_hundreds_of_cases():
    rows = [*cases.EQUAL.values(), *cases.UNEQUAL.values(), cases.RESPONSES, cases.POLICIES, texts.RESPONSES]
    rows += [*texts.EQUAL.values(), *texts.UNEQUAL.values()]
    assert sum(map(len, rows)) > 1100


def test_nothing_a_model_or_a_gold_says_is_evaluated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "PWNED"
    for code in (
        f"__import__('os').system('touch {target}')",
        f"open('{target}', 'w')",
        f"Integer(1).__class__.__base__.__subclasses__() or open('{target}','w')",
        rf"\operatorname{{__import__('os').system('touch {target}')}}",
        rf"\sum_{{k=1}}^{{__import__('os').system('touch {target}')}} k",
        rf"\text{{__import__('os').system('touch {target}')}}",
        rf"\int_0^1 __import__('os').system('touch {target}') dx",
    ):
        for response, gold in (
            (rf"\boxed{{{code}}}", r"\sum_{k=1}^{3} k"),
            (f"The answer is {code}", "5"),
            (code, "x+1"),
            (f"#### {code}", "5"),
            (r"\boxed{\sum_{k=1}^{3} k}", code),
            (rf"\boxed{{{code}}}", r"\{1, \pi\}"),
        ):
            assert verify(response, gold).status is not Status.CORRECT
    assert not list(tmp_path.iterdir())


def test_unknown_policies_are_refused_with_the_nearest_name():
    with pytest.raises(TypeError, match="Did you mean 'percent'"):
        verify("5", "5", percnt="value")
    with pytest.raises(ValueError, match="Did you mean 'value'"):
        verify("5", "5", percent="valu")
    for value in (-1, 1.5, True, 99, "exakt", None):
        with pytest.raises(ValueError, match="rounding"):
            verify("5", "5", rounding=value)


def test_a_verdict_reads_well():
    right, wrong, bad = verify(r"\boxed{5}", "5"), verify(r"\boxed{6}", "5"), verify("5", "")
    assert (right.status, right.valid, right.reward, right.extracted) == ("correct", True, 1.0, "5")
    assert (wrong.reward, wrong.valid) == (0.0, True)
    assert (bad.status, bad.valid, bad.reward) == ("gold_invalid", False, None)
    assert f"{right.status}" == "correct"
    assert verify("5", 5).status == "gold_invalid"  # type: ignore[arg-type]


@pytest.mark.parametrize("response", [None, 5, b"5", ["5"]])
def test_a_response_that_is_no_text_is_refused_by_name(response):
    with pytest.raises(TypeError, match=rf"type str, not {type(response).__name__}"):
        verify(response, "5")
